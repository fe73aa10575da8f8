//! Functions, aggregates, and DESCRIBE.

use super::{Parser, Result};
use crate::ast::{
    CreateAggregate, CreateFunction, Describe, DescribeTarget, DropAggregate, DropFunction,
    QualifiedName, RawType, StatementKind,
};
use crate::token::Tok;

impl Parser<'_> {
    pub(super) fn create_function(&mut self, or_replace: bool) -> Result<StatementKind> {
        self.expect(Tok::Function)?;
        let if_not_exists = self.if_not_exists()?;
        let name = self.function_name()?;
        let args = self.paren_list_or_empty(|p| Ok((p.ident()?, p.raw_type()?)))?;
        let called_on_null_input = match self.kind() {
            Tok::Called => {
                self.bump();
                true
            }
            Tok::Returns => {
                self.expect_all(&[Tok::Returns, Tok::Null])?;
                false
            }
            _ => return Err(self.no_viable()),
        };
        self.expect_all(&[Tok::On, Tok::Null, Tok::Input, Tok::Returns])?;
        let return_type = self.raw_type()?;
        self.expect(Tok::Language)?;
        let language = self.expect(Tok::Ident)?.text(self.text).to_ascii_lowercase();
        self.expect(Tok::As)?;
        let body = self.string()?;
        Ok(StatementKind::CreateFunction(CreateFunction {
            or_replace,
            if_not_exists,
            name,
            args,
            called_on_null_input,
            return_type,
            language,
            body,
        }))
    }

    pub(super) fn create_aggregate(&mut self, or_replace: bool) -> Result<StatementKind> {
        self.expect(Tok::Aggregate)?;
        let if_not_exists = self.if_not_exists()?;
        let name = self.function_name()?;
        let args = self.types()?;
        self.expect(Tok::Sfunc)?;
        let state_function = self.bare_function_name()?;
        self.expect(Tok::Stype)?;
        let state_type = self.raw_type()?;
        let mut final_function = None;
        if self.eat(Tok::Finalfunc) {
            final_function = Some(self.bare_function_name()?);
        }
        let initial = if self.eat(Tok::Initcond) { Some(self.term()?) } else { None };
        Ok(StatementKind::CreateAggregate(CreateAggregate {
            or_replace,
            if_not_exists,
            name,
            args,
            state_function,
            state_type,
            final_function,
            initial,
        }))
    }

    /// `'(' [type (',' type)*] ')'`.
    pub(super) fn types(&mut self) -> Result<Vec<RawType>> {
        self.paren_list_or_empty(Self::raw_type)
    }

    /// Rest of DROP FUNCTION or DROP AGGREGATE, from the name on.
    pub(super) fn drop_routine(&mut self, object: Tok, if_exists: bool) -> Result<StatementKind> {
        let name = self.function_name()?;
        let args = if self.kind() == Tok::ParenOpen { Some(self.types()?) } else { None };
        Ok(match object {
            Tok::Function => StatementKind::DropFunction(DropFunction { if_exists, name, args }),
            _ => StatementKind::DropAggregate(DropAggregate { if_exists, name, args }),
        })
    }

    pub(super) fn describe(&mut self) -> Result<Describe> {
        self.bump();
        let target = self.describe_target()?;
        let with_internals = self.eat(Tok::With);
        if with_internals {
            self.expect(Tok::Internals)?;
        }
        Ok(Describe { target, with_internals })
    }

    fn describe_target(&mut self) -> Result<DescribeTarget> {
        let single = match self.kind() {
            Tok::Cluster => Some(DescribeTarget::Cluster),
            Tok::Schema => Some(DescribeTarget::Schema { full: false }),
            Tok::Keyspaces => Some(DescribeTarget::Keyspaces),
            Tok::Tables => Some(DescribeTarget::Tables),
            Tok::Types => Some(DescribeTarget::Types),
            Tok::Functions => Some(DescribeTarget::Functions),
            Tok::Aggregates => Some(DescribeTarget::Aggregates),
            _ => None,
        };
        if let Some(target) = single {
            self.bump();
            return Ok(target);
        }
        match (self.kind(), self.kind_at(1)) {
            (Tok::Full, _) => {
                self.expect_all(&[Tok::Full, Tok::Schema])?;
                Ok(DescribeTarget::Schema { full: true })
            }
            (Tok::Only, Tok::Keyspace) => {
                self.bump();
                self.describe_keyspace(true)
            }
            (Tok::Keyspace, _) => self.describe_keyspace(false),
            (Tok::Columnfamily, _) => {
                self.bump();
                Ok(DescribeTarget::Table(self.table_name()?))
            }
            (Tok::Index, _) => {
                self.bump();
                // The grammar calls it a table, so the error for `?` does, too.
                Ok(DescribeTarget::Index(self.table_name()?))
            }
            (Tok::Materialized, _) => {
                self.expect_all(&[Tok::Materialized, Tok::View])?;
                Ok(DescribeTarget::View(self.table_name()?))
            }
            // These three are names too, of a table for instance, when none follows.
            (Tok::Type, next) if next.is_name() => {
                self.bump();
                Ok(DescribeTarget::Type(self.user_type_name()?))
            }
            (Tok::Function, next) if next.is_name() || next == Tok::TokenWord => {
                self.bump();
                Ok(DescribeTarget::Function(self.function_name()?))
            }
            (Tok::Aggregate, next) if next.is_name() || next == Tok::TokenWord => {
                self.bump();
                Ok(DescribeTarget::Aggregate(self.function_name()?))
            }
            _ => self.describe_generic(),
        }
    }

    fn describe_keyspace(&mut self, only: bool) -> Result<DescribeTarget> {
        self.expect(Tok::Keyspace)?;
        let named = self.kind().is_name() || self.kind() == Tok::Qmark;
        let name = if named { Some(self.keyspace_name()?) } else { None };
        Ok(DescribeTarget::Keyspace { only, name })
    }

    fn describe_generic(&mut self) -> Result<DescribeTarget> {
        let start = self.start();
        let mut keyspace = None;
        let mut name = self.ident()?;
        if self.eat(Tok::Dot) {
            keyspace = Some(name);
            name = self.ident()?;
        }
        let span = self.span_from(start);
        Ok(DescribeTarget::Generic(QualifiedName { keyspace, name, span }))
    }
}
