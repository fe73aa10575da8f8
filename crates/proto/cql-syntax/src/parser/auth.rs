//! Roles, users, permissions, identities.

use super::{Parser, Result};
use crate::ast::{
    AddIdentity, AlterRole, AlterUser, CreateRole, CreateUser, DropIdentity, DropRole, DropUser,
    GrantPermissions, GrantRole, ListPermissions, ListRoles, Permission, Permissions, Resource,
    RevokePermissions, RevokeRole, RoleOption, StatementKind, UserPassword,
};
use crate::token::Tok;

impl Parser<'_> {
    pub(super) fn grant(&mut self) -> Result<StatementKind> {
        self.expect(Tok::Grant)?;
        if self.is_permissions(Tok::To) {
            let permissions = self.permissions()?;
            self.expect(Tok::On)?;
            let resource = self.resource()?;
            self.expect(Tok::To)?;
            let role = self.role_name()?;
            let grant = GrantPermissions { permissions, resource, role };
            return Ok(StatementKind::GrantPermissions(grant));
        }
        let role = self.role_name()?;
        self.expect(Tok::To)?;
        Ok(StatementKind::GrantRole(GrantRole { role, grantee: self.role_name()? }))
    }

    pub(super) fn revoke(&mut self) -> Result<StatementKind> {
        self.expect(Tok::Revoke)?;
        if self.is_permissions(Tok::From) {
            let permissions = self.permissions()?;
            self.expect(Tok::On)?;
            let resource = self.resource()?;
            self.expect(Tok::From)?;
            let role = self.role_name()?;
            let revoke = RevokePermissions { permissions, resource, role };
            return Ok(StatementKind::RevokePermissions(revoke));
        }
        let role = self.role_name()?;
        self.expect(Tok::From)?;
        Ok(StatementKind::RevokeRole(RevokeRole { role, revokee: self.role_name()? }))
    }

    pub(super) fn list(&mut self) -> Result<StatementKind> {
        let decision = self.at;
        self.expect(Tok::List)?;
        if self.eat(Tok::Users) {
            return Ok(StatementKind::ListUsers);
        }
        if self.eat(Tok::Roles) {
            let of = if self.eat(Tok::Of) { Some(self.role_name()?) } else { None };
            let recursive = !self.eat(Tok::Norecursive);
            return Ok(StatementKind::ListRoles(ListRoles { of, recursive }));
        }
        if self.kind() != Tok::All && permission_of(self.kind()).is_none() {
            return Err(self.no_viable_from(decision, 0));
        }
        let permissions = self.permissions()?;
        let resource = if self.eat(Tok::On) { Some(self.resource()?) } else { None };
        let of = if self.eat(Tok::Of) { Some(self.role_name()?) } else { None };
        let recursive = !self.eat(Tok::Norecursive);
        let list = ListPermissions { permissions, resource, of, recursive };
        Ok(StatementKind::ListPermissions(list))
    }

    /// Returns true if permissions follow, not a role with the name of a permission; `after_role`
    /// is the token that follows a role.
    fn is_permissions(&mut self, after_role: Tok) -> bool {
        let kind = self.kind();
        let permission = kind == Tok::All || permission_of(kind).is_some();
        permission && !(kind.is_name() && self.kind_at(1) == after_role)
    }

    fn permissions(&mut self) -> Result<Permissions> {
        if self.eat(Tok::All) {
            self.eat(Tok::Permissions);
            return Ok(Permissions::All);
        }
        let list = self.comma_list(|p| {
            let Some(permission) = permission_of(p.kind()) else {
                return Err(p.mismatched("set null"));
            };
            p.bump();
            p.eat(Tok::Permission);
            Ok(permission)
        })?;
        Ok(Permissions::List(list))
    }

    fn resource(&mut self) -> Result<Resource> {
        match (self.kind(), self.kind_at(1)) {
            (Tok::All, Tok::Keyspaces) => {
                self.bump();
                self.bump();
                Ok(Resource::AllKeyspaces)
            }
            (Tok::All, Tok::Roles) => {
                self.bump();
                self.bump();
                Ok(Resource::AllRoles)
            }
            (Tok::All, Tok::Mbeans) => {
                self.bump();
                self.bump();
                Ok(Resource::AllMbeans)
            }
            (Tok::All, Tok::Tables) => {
                self.expect_all(&[Tok::All, Tok::Tables, Tok::In, Tok::Keyspace])?;
                Ok(Resource::AllTables(self.keyspace_name()?))
            }
            (Tok::All, Tok::Functions) => {
                self.bump();
                self.bump();
                if !self.eat(Tok::In) {
                    return Ok(Resource::AllFunctions);
                }
                self.expect(Tok::Keyspace)?;
                Ok(Resource::KeyspaceFunctions(self.keyspace_name()?))
            }
            (Tok::Keyspace, _) => {
                self.bump();
                Ok(Resource::Keyspace(self.keyspace_name()?))
            }
            (Tok::Role, next)
                if next.is_name() || matches!(next, Tok::StringLiteral | Tok::Qmark) =>
            {
                self.bump();
                Ok(Resource::Role(self.role_name()?))
            }
            (Tok::Function, next) if next.is_name() || next == Tok::TokenWord => {
                self.bump();
                let name = self.function_name()?;
                Ok(Resource::Function(name, self.types()?))
            }
            (Tok::Mbean, Tok::StringLiteral) => {
                self.bump();
                Ok(Resource::Mbean(self.mbean_name(false)?))
            }
            (Tok::Mbeans, Tok::StringLiteral) => {
                self.bump();
                Ok(Resource::Mbeans(self.mbean_name(true)?))
            }
            _ => {
                self.eat(Tok::Columnfamily);
                Ok(Resource::Table(self.table_name()?))
            }
        }
    }

    pub(super) fn create_role(&mut self) -> Result<StatementKind> {
        self.expect(Tok::Role)?;
        let if_not_exists = self.if_not_exists()?;
        let name = self.role_name()?;
        let options = self.role_options()?;
        Ok(StatementKind::CreateRole(CreateRole { if_not_exists, name, options }))
    }

    pub(super) fn alter_role(&mut self) -> Result<StatementKind> {
        self.expect(Tok::Role)?;
        let if_exists = self.if_exists()?;
        let name = self.role_name()?;
        let options = self.role_options()?;
        Ok(StatementKind::AlterRole(AlterRole { if_exists, name, options }))
    }

    /// Rest of DROP USER, DROP ROLE or DROP IDENTITY, from the name on.
    pub(super) fn drop_principal(&mut self, object: Tok, if_exists: bool) -> Result<StatementKind> {
        Ok(match object {
            Tok::User => StatementKind::DropUser(DropUser { if_exists, name: self.user_name()? }),
            Tok::Role => StatementKind::DropRole(DropRole { if_exists, name: self.role_name()? }),
            _ => {
                let identity = self.identity()?;
                StatementKind::DropIdentity(DropIdentity { if_exists, identity })
            }
        })
    }

    fn role_options(&mut self) -> Result<Vec<RoleOption>> {
        let mut options: Vec<RoleOption> = Vec::new();
        if !self.eat(Tok::With) {
            return Ok(options);
        }
        loop {
            let option = self.role_option()?;
            // Access clauses add up; each of the others may occur once.
            let name = option_name(&option);
            if name.is_some() && options.iter().any(|o| option_name(o) == name) {
                let name = name.unwrap_or("");
                return Err(self.refuse(format!("Multiple definition for property '{name}'")));
            }
            options.push(option);
            if !self.eat(Tok::And) {
                break;
            }
        }
        let has = |name| options.iter().any(|o| option_name(o) == Some(name));
        if has("PASSWORD") && has("HASHED_PASSWORD") {
            let message = "Options 'password' and 'hashed password' are mutually exclusive";
            return Err(self.refuse(message));
        }
        Ok(options)
    }

    fn role_option(&mut self) -> Result<RoleOption> {
        let option = self.kind();
        match option {
            Tok::Password => {
                self.expect_all(&[Tok::Password, Tok::Equal])?;
                Ok(RoleOption::Password(self.string()?))
            }
            Tok::Hashed => {
                self.expect_all(&[Tok::Hashed, Tok::Password, Tok::Equal])?;
                Ok(RoleOption::HashedPassword(self.string()?))
            }
            Tok::Options => {
                self.expect_all(&[Tok::Options, Tok::Equal])?;
                Ok(RoleOption::Options(self.property_map()?))
            }
            Tok::Superuser | Tok::Login => {
                self.expect_all(&[option, Tok::Equal])?;
                let token = self.expect(Tok::BooleanLiteral)?;
                let value = token.text(self.text).eq_ignore_ascii_case("true");
                Ok(match option {
                    Tok::Superuser => RoleOption::Superuser(value),
                    _ => RoleOption::Login(value),
                })
            }
            Tok::Access => self.access_option(),
            _ => Err(self.no_viable()),
        }
    }

    fn access_option(&mut self) -> Result<RoleOption> {
        let decision = self.at;
        self.expect(Tok::Access)?;
        let datacenters = match self.kind() {
            Tok::To => true,
            Tok::From => false,
            _ => return Err(self.no_viable_from(decision, 0)),
        };
        self.bump();
        let object = if datacenters { Tok::Datacenters } else { Tok::Cidrs };
        if self.eat(Tok::All) {
            self.expect(object)?;
            return Ok(match datacenters {
                true => RoleOption::AccessToAllDatacenters,
                false => RoleOption::AccessFromAllCidrs,
            });
        }
        self.expect_all(&[object, Tok::BraceOpen])?;
        let names = self.comma_list(Self::string)?;
        self.expect(Tok::BraceClose)?;
        Ok(match datacenters {
            true => RoleOption::AccessToDatacenters(names),
            false => RoleOption::AccessFromCidrs(names),
        })
    }

    pub(super) fn create_user(&mut self) -> Result<StatementKind> {
        self.expect(Tok::User)?;
        let if_not_exists = self.if_not_exists()?;
        let name = self.user_name()?;
        let password = self.user_password()?;
        let superuser = self.superuser();
        Ok(StatementKind::CreateUser(CreateUser { if_not_exists, name, password, superuser }))
    }

    pub(super) fn alter_user(&mut self) -> Result<StatementKind> {
        self.expect(Tok::User)?;
        let if_exists = self.if_exists()?;
        let name = self.user_name()?;
        let password = self.user_password()?;
        let superuser = self.superuser();
        Ok(StatementKind::AlterUser(AlterUser { if_exists, name, password, superuser }))
    }

    fn superuser(&mut self) -> Option<bool> {
        if self.eat(Tok::Superuser) {
            return Some(true);
        }
        self.eat(Tok::Nosuperuser).then_some(false)
    }

    /// `[WITH [HASHED] PASSWORD '…']`; no equals sign, unlike that of roles.
    fn user_password(&mut self) -> Result<Option<UserPassword>> {
        if !self.eat(Tok::With) {
            return Ok(None);
        }
        if self.eat(Tok::Hashed) {
            self.expect(Tok::Password)?;
            return Ok(Some(UserPassword::Hashed(self.string()?)));
        }
        if !self.eat(Tok::Password) {
            return Err(self.no_viable());
        }
        Ok(Some(UserPassword::Plain(self.string()?)))
    }

    fn user_name(&mut self) -> Result<String> {
        self.word_or_string(
            "Quoted strings are are not supported for user names and USER is deprecated, please \
             use ROLE",
        )
    }

    fn identity(&mut self) -> Result<String> {
        self.word_or_string("Quoted strings are are not supported for identity")
    }

    /// A plain word or a string, case as written. Keywords do not count as words here.
    fn word_or_string(&mut self, no_quotes: &str) -> Result<String> {
        match self.kind() {
            Tok::Ident | Tok::StringLiteral => {
                let token = self.bump();
                Ok(token.value(self.text).into_owned())
            }
            Tok::QuotedName => Err(self.refuse(no_quotes)),
            _ => Err(self.no_viable()),
        }
    }

    pub(super) fn add_identity(&mut self) -> Result<StatementKind> {
        self.expect_all(&[Tok::Add, Tok::Identity])?;
        let if_not_exists = self.if_not_exists()?;
        let identity = self.identity()?;
        self.expect_all(&[Tok::To, Tok::Role])?;
        let role = self.identity()?;
        Ok(StatementKind::AddIdentity(AddIdentity { if_not_exists, identity, role }))
    }
}

fn permission_of(kind: Tok) -> Option<Permission> {
    match kind {
        Tok::Create => Some(Permission::Create),
        Tok::Alter => Some(Permission::Alter),
        Tok::Drop => Some(Permission::Drop),
        Tok::Select => Some(Permission::Select),
        Tok::Modify => Some(Permission::Modify),
        Tok::Authorize => Some(Permission::Authorize),
        Tok::Describe => Some(Permission::Describe),
        Tok::Execute => Some(Permission::Execute),
        Tok::Unmask => Some(Permission::Unmask),
        Tok::SelectMasked => Some(Permission::SelectMasked),
        _ => None,
    }
}

/// The name of an option in Cassandra's refusals; `None` for access clauses.
fn option_name(option: &RoleOption) -> Option<&'static str> {
    match option {
        RoleOption::Password(_) => Some("PASSWORD"),
        RoleOption::HashedPassword(_) => Some("HASHED_PASSWORD"),
        RoleOption::Options(_) => Some("OPTIONS"),
        RoleOption::Superuser(_) => Some("SUPERUSER"),
        RoleOption::Login(_) => Some("LOGIN"),
        RoleOption::AccessToAllDatacenters
        | RoleOption::AccessToDatacenters(_)
        | RoleOption::AccessFromAllCidrs
        | RoleOption::AccessFromCidrs(_) => None,
    }
}
