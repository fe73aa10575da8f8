//! INSERT, UPDATE, DELETE, BATCH, TRUNCATE, USE.

use super::{Parser, Result};
use crate::ast::{
    Assignment, Batch, BatchEntry, BatchKind, Delete, DeleteTarget, Ident, Insert, InsertValues,
    JsonValue, Operation, Term, Truncate, Update, Use, Using,
};
use crate::token::Tok;

impl Parser<'_> {
    pub(super) fn use_keyspace(&mut self) -> Result<Use> {
        self.expect(Tok::Use)?;
        Ok(Use { keyspace: self.keyspace_name()? })
    }

    pub(super) fn truncate(&mut self) -> Result<Truncate> {
        self.expect(Tok::Truncate)?;
        self.eat(Tok::Columnfamily);
        let table = self.table_name()?;
        let timeout = self.using_timeout()?;
        Ok(Truncate { table, timeout })
    }

    pub(super) fn insert(&mut self) -> Result<Insert> {
        self.expect_all(&[Tok::Insert, Tok::Into])?;
        let table = self.table_name()?;
        let values = match self.kind() {
            Tok::ParenOpen => {
                let columns = self.column_tuple()?;
                self.expect(Tok::Values)?;
                InsertValues::Columns { columns, values: self.paren_list(Self::term)? }
            }
            Tok::Json => self.insert_json()?,
            _ => return Err(self.no_viable_from(self.at.saturating_sub(1), 0)),
        };
        let if_not_exists = self.if_not_exists()?;
        let using = self.using(true)?;
        Ok(Insert { table, values, if_not_exists, using })
    }

    fn insert_json(&mut self) -> Result<InsertValues> {
        self.expect(Tok::Json)?;
        let value = match self.kind() {
            Tok::StringLiteral => JsonValue::Literal(self.constant()?),
            Tok::Qmark | Tok::Colon => JsonValue::Bind(self.bind_marker()?),
            _ => return Err(self.no_viable()),
        };
        let mut default_unset = false;
        if self.eat(Tok::Default) {
            default_unset = self.eat(Tok::Unset);
            if !default_unset && !self.eat(Tok::Null) {
                return Err(self.no_viable());
            }
        }
        Ok(InsertValues::Json { value, default_unset })
    }

    /// `[USING attribute (AND attribute)*]`.
    fn using(&mut self, with_ttl: bool) -> Result<Using> {
        let mut using = Using::default();
        if !self.eat(Tok::Using) {
            return Ok(using);
        }
        loop {
            match self.kind() {
                Tok::Timestamp => {
                    self.bump();
                    using.timestamp = Some(self.int_value()?);
                }
                Tok::Ttl if with_ttl => {
                    self.bump();
                    using.ttl = Some(self.int_value()?);
                }
                Tok::Ident if self.is_word("timeout") => {
                    self.bump();
                    using.timeout = Some(self.duration_value()?);
                }
                _ if with_ttl => return Err(self.no_viable()),
                _ => return Err(self.mismatched(Tok::Timestamp.name())),
            }
            // In a DELETE Cassandra accepts only one attribute.
            if !with_ttl && self.kind() == Tok::And && !self.is_attribute_at(1) {
                return Ok(using);
            }
            if !self.eat(Tok::And) {
                return Ok(using);
            }
        }
    }

    /// An attribute of a DELETE begins there.
    fn is_attribute_at(&self, ahead: usize) -> bool {
        self.is_word_at(ahead, "timeout") || self.token_at(self.at + ahead).kind == Tok::Timestamp
    }

    pub(super) fn update(&mut self) -> Result<Update> {
        self.expect(Tok::Update)?;
        let table = self.table_name()?;
        let using = self.using(true)?;
        self.expect(Tok::Set)?;
        let assignments = self.comma_list(Self::assignment)?;
        self.check_compatible(&assignments)?;
        let relations = self.mandatory_where()?;
        let conditions = self.conditions()?;
        Ok(Update { table, using, assignments, relations, conditions })
    }

    /// Refuses assignments that cannot stand side by side. Source: `isCompatibleWith` of
    /// Cassandra's raw operations.
    fn check_compatible(&self, assignments: &[Assignment]) -> Result<()> {
        // Sorted by column, so that only assignments of one column meet.
        let mut sorted: Vec<&Assignment> = assignments.iter().collect();
        sorted.sort_by(|a, b| a.column.text.cmp(&b.column.text));
        for group in sorted.chunk_by(|a, b| a.column == b.column) {
            if group.len() > 1 && !compatible(group) {
                let column = group.first().map_or("", |a| a.column.text.as_str());
                return Err(
                    self.refuse(format!("Multiple incompatible setting of column {column}"))
                );
            }
        }
        Ok(())
    }

    fn assignment(&mut self) -> Result<Assignment> {
        let start = self.start();
        let column = self.column()?;
        let operation = match self.kind() {
            Tok::Equal => {
                self.bump();
                self.plain_assignment(&column)?
            }
            Tok::PlusEqual => {
                self.bump();
                Operation::Add(self.term()?)
            }
            Tok::MinusEqual => {
                self.bump();
                Operation::Subtract(self.term()?)
            }
            Tok::BracketOpen => {
                self.bump();
                let key = self.term()?;
                self.expect_all(&[Tok::BracketClose, Tok::Equal])?;
                Operation::SetElement { key, value: self.term()? }
            }
            Tok::Dot => {
                self.bump();
                let field = self.ident()?;
                self.expect(Tok::Equal)?;
                Operation::SetField { field, value: self.term()? }
            }
            _ => return Err(self.no_viable()),
        };
        Ok(Assignment { column, operation, span: self.span_from(start) })
    }

    /// Parses the right side of `column =`.
    fn plain_assignment(&mut self, column: &Ident) -> Result<Operation> {
        if self.is_column_at(0) {
            match self.kind_at(1) {
                sign @ (Tok::Plus | Tok::Minus) => {
                    let other = self.column()?;
                    self.bump();
                    let value = self.term()?;
                    let (symbol, operation) = match sign {
                        Tok::Plus => ('+', Operation::Add(value)),
                        _ => ('-', Operation::Subtract(value)),
                    };
                    if other != *column {
                        return Err(self.refuse(format!(
                            "Only expressions of the form X = X {symbol}<value> are supported."
                        )));
                    }
                    return Ok(operation);
                }
                Tok::Integer => return self.assign_signed_integer(column),
                _ => {}
            }
        }
        let value = self.term()?;
        if !self.eat(Tok::Plus) {
            return Ok(Operation::Set(value));
        }
        let other = self.column()?;
        if !matches!(self.kind(), Tok::Comma | Tok::Where) {
            // Cassandra looks ahead this far to distinguish a column from a term.
            return Err(self.no_viable());
        }
        if other != *column {
            let message = "Only expressions of the form X = <value> + X are supported.";
            return Err(self.refuse(message));
        }
        Ok(Operation::Prepend(value))
    }

    /// `c = c -3`, where the sign belongs to the number.
    fn assign_signed_integer(&mut self, column: &Ident) -> Result<Operation> {
        let other = self.column()?;
        let literal = self.constant()?;
        if other != *column {
            let sign = if literal.raw_text().starts_with('-') { '-' } else { '+' };
            return Err(self.refuse(format!(
                "Only expressions of the form X = X {sign} <value> are supported."
            )));
        }
        Ok(Operation::Add(Term::Literal(literal)))
    }

    pub(super) fn delete(&mut self) -> Result<Delete> {
        self.expect(Tok::Delete)?;
        let targets = match self.kind() {
            Tok::From => Vec::new(),
            _ => self.comma_list(Self::delete_target)?,
        };
        self.expect(Tok::From)?;
        let table = self.table_name()?;
        let using = self.using(false)?;
        let relations = self.mandatory_where()?;
        let conditions = self.conditions()?;
        Ok(Delete { targets, table, using, relations, conditions })
    }

    fn delete_target(&mut self) -> Result<DeleteTarget> {
        let column = self.column()?;
        match self.kind() {
            Tok::BracketOpen => {
                self.bump();
                let key = self.term()?;
                self.expect(Tok::BracketClose)?;
                Ok(DeleteTarget::Element(column, key))
            }
            Tok::Dot => {
                self.bump();
                Ok(DeleteTarget::Field(column, self.ident()?))
            }
            _ => Ok(DeleteTarget::Column(column)),
        }
    }

    pub(super) fn batch(&mut self) -> Result<Batch> {
        self.expect(Tok::Begin)?;
        let kind = match self.kind() {
            Tok::Unlogged => BatchKind::Unlogged,
            Tok::Counter => BatchKind::Counter,
            _ => BatchKind::Logged,
        };
        if kind != BatchKind::Logged {
            self.bump();
        }
        self.expect(Tok::Batch)?;
        let using = self.using(true)?;
        let mut statements = Vec::new();
        loop {
            statements.push(match self.kind() {
                Tok::Insert => BatchEntry::Insert(self.insert()?),
                Tok::Update => BatchEntry::Update(self.update()?),
                Tok::Delete => BatchEntry::Delete(self.delete()?),
                _ => break,
            });
            self.eat(Tok::Semicolon);
        }
        self.expect_all(&[Tok::Apply, Tok::Batch])?;
        Ok(Batch { kind, using, statements })
    }
}

/// Returns true if assignments of one column may be combined: elements, additions and different
/// fields may; the whole value combines with nothing.
fn compatible(group: &[&Assignment]) -> bool {
    let mut fields = Vec::new();
    for assignment in group {
        match &assignment.operation {
            Operation::Set(_) => return false,
            Operation::SetField { field, .. } => fields.push(field.text.as_str()),
            _ => {}
        }
    }
    fields.sort_unstable();
    fields.windows(2).all(|pair| !matches!(pair, [a, b] if a == b))
}
