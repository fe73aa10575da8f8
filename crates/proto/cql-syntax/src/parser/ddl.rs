//! CREATE, ALTER, DROP of everything but routines and roles.

use super::{Parser, Result};
use crate::ast::{
    AlterKeyspace, AlterTable, AlterTableChange, AlterType, AlterTypeChange, AlterView,
    ColumnDefinition, CopyTable, CreateIndex, CreateKeyspace, CreateTable, CreateTrigger,
    CreateType, CreateView, DropIndex, DropKeyspace, DropTable, DropTrigger, DropType, DropView,
    FunctionName, Ident, IndexTarget, IndexTargetKind, Mask, PrimaryKey, RawType, StatementKind,
};
use crate::token::Tok;

impl Parser<'_> {
    pub(super) fn create(&mut self) -> Result<StatementKind> {
        let decision = self.at;
        self.expect(Tok::Create)?;
        if self.kind() == Tok::Or {
            self.expect_all(&[Tok::Or, Tok::Replace])?;
            return match self.kind() {
                Tok::Function => self.create_function(true),
                Tok::Aggregate => self.create_aggregate(true),
                _ => Err(self.no_viable_from(decision, 0)),
            };
        }
        match self.kind() {
            Tok::Keyspace => self.create_keyspace(),
            Tok::Columnfamily => self.create_table(),
            Tok::Custom | Tok::Index => self.create_index(),
            Tok::Type => self.create_type(),
            Tok::Materialized => self.create_view(),
            Tok::Trigger => self.create_trigger(),
            Tok::Function => self.create_function(false),
            Tok::Aggregate => self.create_aggregate(false),
            Tok::User => self.create_user(),
            Tok::Role => self.create_role(),
            _ => Err(self.no_viable_from(decision, 0)),
        }
    }

    pub(super) fn alter(&mut self) -> Result<StatementKind> {
        let decision = self.at;
        self.expect(Tok::Alter)?;
        match self.kind() {
            Tok::Keyspace => self.alter_keyspace(),
            Tok::Columnfamily => self.alter_table(),
            Tok::Type => self.alter_type(),
            Tok::Materialized => self.alter_view(),
            Tok::User => self.alter_user(),
            Tok::Role => self.alter_role(),
            _ => Err(self.no_viable_from(decision, 0)),
        }
    }

    pub(super) fn drop(&mut self) -> Result<StatementKind> {
        let decision = self.at;
        self.expect(Tok::Drop)?;
        let object = self.kind();
        if object == Tok::Materialized {
            self.expect_all(&[Tok::Materialized, Tok::View])?;
            let if_exists = self.if_exists()?;
            return Ok(StatementKind::DropView(DropView { if_exists, view: self.table_name()? }));
        }
        let known = [
            Tok::Keyspace,
            Tok::Columnfamily,
            Tok::Type,
            Tok::Index,
            Tok::Trigger,
            Tok::Function,
            Tok::Aggregate,
            Tok::User,
            Tok::Role,
            Tok::Identity,
        ];
        if !known.contains(&object) {
            return Err(self.no_viable_from(decision, 0));
        }
        self.bump();
        let if_exists = self.if_exists()?;
        match object {
            Tok::Keyspace => {
                let keyspace = self.keyspace_name()?;
                Ok(StatementKind::DropKeyspace(DropKeyspace { if_exists, keyspace }))
            }
            Tok::Columnfamily => {
                let table = self.table_name()?;
                Ok(StatementKind::DropTable(DropTable { if_exists, table }))
            }
            Tok::Type => {
                let name = self.user_type_name()?;
                Ok(StatementKind::DropType(DropType { if_exists, name }))
            }
            Tok::Index => {
                let decision = self.at;
                let name = self.qualified_name("index")?;
                let ends = matches!(self.kind(), Tok::Eof | Tok::Semicolon);
                if name.keyspace.is_none() && !ends {
                    return Err(self.no_viable_from(decision, 0));
                }
                Ok(StatementKind::DropIndex(DropIndex { if_exists, name }))
            }
            Tok::Trigger => {
                let name = self.ident()?;
                self.expect(Tok::On)?;
                let table = self.table_name()?;
                Ok(StatementKind::DropTrigger(DropTrigger { if_exists, name, table }))
            }
            Tok::Function | Tok::Aggregate => self.drop_routine(object, if_exists),
            _ => self.drop_principal(object, if_exists),
        }
    }

    fn create_keyspace(&mut self) -> Result<StatementKind> {
        self.expect(Tok::Keyspace)?;
        let if_not_exists = self.if_not_exists()?;
        let keyspace = self.keyspace_name()?;
        self.expect(Tok::With)?;
        let properties = self.properties()?;
        let create = CreateKeyspace { if_not_exists, keyspace, properties };
        Ok(StatementKind::CreateKeyspace(create))
    }

    fn alter_keyspace(&mut self) -> Result<StatementKind> {
        self.expect(Tok::Keyspace)?;
        let if_exists = self.if_exists()?;
        let keyspace = self.keyspace_name()?;
        self.expect(Tok::With)?;
        let properties = self.properties()?;
        Ok(StatementKind::AlterKeyspace(AlterKeyspace { if_exists, keyspace, properties }))
    }

    fn create_table(&mut self) -> Result<StatementKind> {
        self.expect(Tok::Columnfamily)?;
        let if_not_exists = self.if_not_exists()?;
        let table = self.table_name()?;
        if self.eat(Tok::Like) {
            let source = self.table_name()?;
            let properties = if self.eat(Tok::With) { self.properties()? } else { Vec::new() };
            let copy = CopyTable { if_not_exists, table, source, properties };
            return Ok(StatementKind::CopyTable(copy));
        }
        let mut columns = Vec::new();
        let mut primary_keys = Vec::new();
        self.expect(Tok::ParenOpen)?;
        self.table_column(&mut columns, &mut primary_keys)?;
        // An empty item between two commas is allowed, but only after the first column.
        while self.eat(Tok::Comma) {
            if !matches!(self.kind(), Tok::Comma | Tok::ParenClose) {
                self.table_column(&mut columns, &mut primary_keys)?;
            }
        }
        self.expect(Tok::ParenClose)?;
        let options = self.table_options(false)?;
        let create = CreateTable { if_not_exists, table, columns, primary_keys, options };
        Ok(StatementKind::CreateTable(create))
    }

    fn table_column(
        &mut self,
        columns: &mut Vec<ColumnDefinition>,
        primary_keys: &mut Vec<PrimaryKey>,
    ) -> Result<()> {
        if self.kind() == Tok::Primary {
            primary_keys.push(self.primary_key()?);
            return Ok(());
        }
        let mut column = self.column_definition()?;
        if self.eat(Tok::Primary) {
            self.expect(Tok::Key)?;
            column.primary_key = true;
        }
        columns.push(column);
        Ok(())
    }

    /// `name type [STATIC] [MASKED WITH …]`.
    fn column_definition(&mut self) -> Result<ColumnDefinition> {
        let name = self.ident()?;
        let ty = self.raw_type()?;
        let is_static = self.eat(Tok::Static);
        let mask = if self.kind() == Tok::Masked { Some(self.mask()?) } else { None };
        Ok(ColumnDefinition { name, ty, is_static, mask, primary_key: false })
    }

    fn mask(&mut self) -> Result<Mask> {
        self.expect_all(&[Tok::Masked, Tok::With])?;
        // A function called `default` needs its parenthesis or keyspace.
        if self.kind() == Tok::Default && !self.is_function_at(0) {
            self.bump();
            return Ok(Mask::Default);
        }
        let name: FunctionName = self.function_name()?;
        let args = self.paren_list_or_empty(Self::term)?;
        Ok(Mask::Function { name, args })
    }

    /// `PRIMARY KEY (partition (',' clustering)*)`.
    fn primary_key(&mut self) -> Result<PrimaryKey> {
        self.expect_all(&[Tok::Primary, Tok::Key, Tok::ParenOpen])?;
        let partition = match self.kind() {
            Tok::ParenOpen => self.paren_list(Self::ident)?,
            _ => vec![self.ident()?],
        };
        let mut clustering = Vec::new();
        while self.eat(Tok::Comma) {
            clustering.push(self.ident()?);
        }
        self.expect(Tok::ParenClose)?;
        Ok(PrimaryKey { partition, clustering })
    }

    fn alter_table(&mut self) -> Result<StatementKind> {
        self.expect(Tok::Columnfamily)?;
        let if_exists = self.if_exists()?;
        let table = self.table_name()?;
        let change = match self.kind() {
            Tok::Alter => self.alter_column()?,
            Tok::Add => self.add_columns()?,
            Tok::Drop if self.kind_at(1) == Tok::Compact && self.kind_at(2) == Tok::Storage => {
                self.expect_all(&[Tok::Drop, Tok::Compact, Tok::Storage])?;
                AlterTableChange::DropCompactStorage
            }
            Tok::Drop => self.drop_columns()?,
            Tok::Rename => {
                self.bump();
                let if_exists = self.if_exists()?;
                AlterTableChange::Rename { if_exists, columns: self.renames()? }
            }
            Tok::With => {
                self.bump();
                AlterTableChange::With(self.properties()?)
            }
            _ => return Err(self.no_viable()),
        };
        Ok(StatementKind::AlterTable(AlterTable { if_exists, table, change }))
    }

    fn alter_column(&mut self) -> Result<AlterTableChange> {
        self.expect(Tok::Alter)?;
        let if_exists = self.if_exists()?;
        let column = self.column()?;
        match self.kind() {
            Tok::Type if !if_exists => {
                self.bump();
                Ok(AlterTableChange::ColumnType { column, ty: self.raw_type()? })
            }
            Tok::Masked => {
                let mask = Some(self.mask()?);
                Ok(AlterTableChange::ColumnMask { if_exists, column, mask })
            }
            Tok::Drop => {
                self.expect_all(&[Tok::Drop, Tok::Masked])?;
                Ok(AlterTableChange::ColumnMask { if_exists, column, mask: None })
            }
            _ => Err(self.no_viable()),
        }
    }

    fn add_columns(&mut self) -> Result<AlterTableChange> {
        self.expect(Tok::Add)?;
        let if_not_exists = self.if_not_exists()?;
        let columns = match self.kind() {
            Tok::ParenOpen => self.paren_list(Self::column_definition)?,
            _ => vec![self.column_definition()?],
        };
        Ok(AlterTableChange::Add { if_not_exists, columns })
    }

    fn drop_columns(&mut self) -> Result<AlterTableChange> {
        self.expect(Tok::Drop)?;
        let if_exists = self.if_exists()?;
        let columns = match self.kind() {
            Tok::ParenOpen => self.paren_list(Self::ident)?,
            _ => vec![self.ident()?],
        };
        let mut timestamp = None;
        if self.eat(Tok::Using) {
            self.expect(Tok::Timestamp)?;
            let token = self.expect(Tok::Integer)?;
            let digits = token.text(self.text);
            timestamp = Some(digits.parse().map_err(|_| self.number_error(digits))?);
        }
        Ok(AlterTableChange::Drop { if_exists, columns, timestamp })
    }

    /// `from TO to (AND from TO to)*`.
    fn renames(&mut self) -> Result<Vec<(Ident, Ident)>> {
        let mut renames = Vec::new();
        loop {
            let from = self.ident()?;
            self.expect(Tok::To)?;
            renames.push((from, self.ident()?));
            if !self.eat(Tok::And) {
                return Ok(renames);
            }
        }
    }

    fn create_type(&mut self) -> Result<StatementKind> {
        self.expect(Tok::Type)?;
        let if_not_exists = self.if_not_exists()?;
        let name = self.user_type_name()?;
        self.expect(Tok::ParenOpen)?;
        let mut fields = vec![self.field_definition()?];
        while self.eat(Tok::Comma) {
            if !matches!(self.kind(), Tok::Comma | Tok::ParenClose) {
                fields.push(self.field_definition()?);
            }
        }
        self.expect(Tok::ParenClose)?;
        Ok(StatementKind::CreateType(CreateType { if_not_exists, name, fields }))
    }

    fn field_definition(&mut self) -> Result<(Ident, RawType)> {
        Ok((self.ident()?, self.raw_type()?))
    }

    fn alter_type(&mut self) -> Result<StatementKind> {
        self.expect(Tok::Type)?;
        let if_exists = self.if_exists()?;
        let name = self.user_type_name()?;
        let change = match self.kind() {
            Tok::Alter => {
                self.bump();
                let field = self.ident()?;
                self.expect(Tok::Type)?;
                AlterTypeChange::FieldType { field, ty: self.raw_type()? }
            }
            Tok::Add => {
                self.bump();
                let if_not_exists = self.if_not_exists()?;
                let (field, ty) = self.field_definition()?;
                AlterTypeChange::Add { if_not_exists, field, ty }
            }
            Tok::Rename => {
                self.bump();
                let if_exists = self.if_exists()?;
                AlterTypeChange::Rename { if_exists, fields: self.renames()? }
            }
            _ => return Err(self.no_viable()),
        };
        Ok(StatementKind::AlterType(AlterType { if_exists, name, change }))
    }

    fn create_index(&mut self) -> Result<StatementKind> {
        let custom = self.eat(Tok::Custom);
        self.expect(Tok::Index)?;
        let if_not_exists = self.if_not_exists()?;
        let is_named = self.kind() == Tok::Qmark || self.kind().is_name();
        let name = if is_named { Some(self.index_name()?) } else { None };
        self.expect(Tok::On)?;
        let table = self.table_name()?;
        let (partition_key, targets) = self.index_targets()?;
        let class = if self.eat(Tok::Using) { Some(self.string()?) } else { None };
        let properties = if self.eat(Tok::With) { self.properties()? } else { Vec::new() };
        Ok(StatementKind::CreateIndex(CreateIndex {
            custom,
            if_not_exists,
            name,
            table,
            partition_key,
            targets,
            class,
            properties,
        }))
    }

    /// `(…)`, which may be empty: Cassandra's parser expects its end where no target begins. The first of both is set for
    /// ScyllaDB's local index.
    fn index_targets(&mut self) -> Result<(Option<Vec<Ident>>, Vec<IndexTarget>)> {
        self.expect(Tok::ParenOpen)?;
        let (key, targets) = match self.kind() {
            Tok::ParenOpen => {
                let key = self.paren_list(Self::column)?;
                self.expect(Tok::Comma)?;
                (Some(key), self.comma_list(Self::index_target)?)
            }
            Tok::BraceOpen => {
                let (key, targets) = self.local_index_json()?;
                (Some(key), targets)
            }
            Tok::Entries | Tok::Full => (None, self.comma_list(Self::index_target)?),
            _ if self.is_column_at(0) => (None, self.comma_list(Self::index_target)?),
            _ => (None, Vec::new()),
        };
        self.expect(Tok::ParenClose)?;
        Ok((key, targets))
    }

    /// `{"pk":["p"],"ck":["v"]}`: the target of a local index in `system_schema.indexes`. Drivers that build a statement
    /// from these rows put it between the brackets. A name with a quotation mark or a backslash is not read.
    fn local_index_json(&mut self) -> Result<(Vec<Ident>, Vec<IndexTarget>)> {
        self.expect(Tok::BraceOpen)?;
        let key = self.json_names("pk")?;
        self.expect(Tok::Comma)?;
        let targets = self.json_names("ck")?.into_iter().map(json_target).collect();
        self.expect(Tok::BraceClose)?;
        Ok((key, targets))
    }

    /// `"key":["name", …]`.
    fn json_names(&mut self, key: &str) -> Result<Vec<Ident>> {
        let token = self.token_at(self.at);
        if token.kind != Tok::QuotedName || token.value(self.text) != key {
            return Err(self.mismatched(&format!("\"{key}\"")));
        }
        self.bump();
        self.expect_all(&[Tok::Colon, Tok::BracketOpen])?;
        let names = self.comma_list(|parser| {
            let token = parser.expect(Tok::QuotedName)?;
            Ok(parser.ident_of(token))
        })?;
        self.expect(Tok::BracketClose)?;
        Ok(names)
    }

    fn index_target(&mut self) -> Result<IndexTarget> {
        let kind = match (self.kind(), self.kind_at(1)) {
            // Names of columns as well as words before a column.
            (Tok::Values | Tok::Keys, next)
                if !matches!(next, Tok::ParenOpen | Tok::ParenClose | Tok::Comma) =>
            {
                return Err(self.no_viable_from(self.at, 1));
            }
            (Tok::Values, Tok::ParenOpen) => IndexTargetKind::Values,
            (Tok::Keys, Tok::ParenOpen) => IndexTargetKind::Keys,
            (Tok::Entries, _) => IndexTargetKind::Entries,
            (Tok::Full, _) => IndexTargetKind::Full,
            _ => {
                let column = self.column()?;
                return Ok(IndexTarget { kind: IndexTargetKind::Simple, column });
            }
        };
        self.bump();
        self.expect(Tok::ParenOpen)?;
        let column = self.column()?;
        self.expect(Tok::ParenClose)?;
        Ok(IndexTarget { kind, column })
    }

    fn create_view(&mut self) -> Result<StatementKind> {
        self.expect_all(&[Tok::Materialized, Tok::View])?;
        let if_not_exists = self.if_not_exists()?;
        let view = self.table_name()?;
        self.expect_all(&[Tok::As, Tok::Select])?;
        let selection = self.selection()?;
        self.expect(Tok::From)?;
        let base = self.table_name()?;
        let relations = self.where_clause()?;
        let primary_key = self.primary_key()?;
        let options = self.table_options(true)?;
        Ok(StatementKind::CreateView(Box::new(CreateView {
            if_not_exists,
            view,
            selection,
            base,
            relations,
            primary_key,
            options,
        })))
    }

    fn alter_view(&mut self) -> Result<StatementKind> {
        self.expect_all(&[Tok::Materialized, Tok::View])?;
        let if_exists = self.if_exists()?;
        let view = self.table_name()?;
        self.expect(Tok::With)?;
        let properties = self.properties()?;
        Ok(StatementKind::AlterView(AlterView { if_exists, view, properties }))
    }

    fn create_trigger(&mut self) -> Result<StatementKind> {
        self.expect(Tok::Trigger)?;
        let if_not_exists = self.if_not_exists()?;
        let name = self.ident()?;
        self.expect(Tok::On)?;
        let table = self.table_name()?;
        self.expect(Tok::Using)?;
        let class = self.string()?;
        Ok(StatementKind::CreateTrigger(CreateTrigger { if_not_exists, name, table, class }))
    }
}

/// The target that a name in JSON stands for: `v`, `keys(v)`.
fn json_target(name: Ident) -> IndexTarget {
    let functions = [
        ("values(", IndexTargetKind::Values),
        ("keys(", IndexTargetKind::Keys),
        ("entries(", IndexTargetKind::Entries),
        ("full(", IndexTargetKind::Full),
    ];
    let found = functions.into_iter().find_map(|(function, kind)| {
        let column = name.text.strip_prefix(function)?.strip_suffix(')')?;
        Some((kind, column.to_owned()))
    });
    match found {
        Some((kind, text)) => IndexTarget { kind, column: Ident { text, ..name } },
        None => IndexTarget { kind: IndexTargetKind::Simple, column: name },
    }
}
