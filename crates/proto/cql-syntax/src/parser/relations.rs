//! WHERE and IF.

use super::{Parser, Result};
use crate::ast::{
    Comparison, Condition, ConditionTarget, Conditions, InValues, Operator, Relation, RelationKind,
    Term,
};
use crate::token::Tok;

impl Parser<'_> {
    /// `[WHERE relation (AND relation)*]`.
    pub(super) fn where_clause(&mut self) -> Result<Vec<Relation>> {
        if self.kind() == Tok::Where { self.mandatory_where() } else { Ok(Vec::new()) }
    }

    /// `WHERE relation (AND relation)*`.
    pub(super) fn mandatory_where(&mut self) -> Result<Vec<Relation>> {
        self.expect(Tok::Where)?;
        let mut relations = vec![self.relation_or_expression()?];
        while self.eat(Tok::And) {
            relations.push(self.relation_or_expression()?);
        }
        Ok(relations)
    }

    fn relation_or_expression(&mut self) -> Result<Relation> {
        if self.kind() != Tok::ExprOpen {
            return self.relation();
        }
        let start = self.start();
        self.bump();
        let index = self.index_name()?;
        self.expect(Tok::Comma)?;
        let value = self.term()?;
        self.expect(Tok::ParenClose)?;
        Ok(Relation { kind: RelationKind::Index { index, value }, span: self.span_from(start) })
    }

    fn relation(&mut self) -> Result<Relation> {
        let start = self.start();
        let kind = match self.kind() {
            Tok::TokenWord => self.token_relation()?,
            Tok::ParenOpen => {
                let is_tuple =
                    self.is_column_at(1) && matches!(self.kind_at(2), Tok::Comma | Tok::ParenClose);
                if !is_tuple {
                    self.bump();
                    let inner = self.nested(Self::relation)?;
                    self.expect(Tok::ParenClose)?;
                    return Ok(inner);
                }
                self.tuple_relation()?
            }
            _ => self.column_relation()?,
        };
        Ok(Relation { kind, span: self.span_from(start) })
    }

    fn column_relation(&mut self) -> Result<RelationKind> {
        let decision = self.at;
        let column = self.column()?;
        if let Some(op) = self.comparison_operator() {
            return Ok(RelationKind::Column { column, op, value: self.term()? });
        }
        match self.kind() {
            Tok::Like => {
                self.bump();
                let op = Operator::Like;
                Ok(RelationKind::Column { column, op, value: self.term()? })
            }
            Tok::Contains => {
                let op = self.contains_operator();
                Ok(RelationKind::Column { column, op, value: self.term()? })
            }
            Tok::Is => {
                self.expect_all(&[Tok::Is, Tok::Not, Tok::Null])?;
                Ok(RelationKind::IsNotNull { column })
            }
            Tok::In => {
                let values = self.in_values(decision)?;
                Ok(RelationKind::ColumnIn { column, values })
            }
            Tok::BracketOpen => {
                self.bump();
                let key = self.term()?;
                self.expect(Tok::BracketClose)?;
                let op = self.mandatory_comparison()?;
                Ok(RelationKind::Element { column, key, op, value: self.term()? })
            }
            Tok::Ident if self.is_word("between") => {
                let (low, high) = self.between()?;
                Ok(RelationKind::Between { column, low, high })
            }
            _ => Err(self.no_viable_from(decision, 0)),
        }
    }

    fn token_relation(&mut self) -> Result<RelationKind> {
        self.expect(Tok::TokenWord)?;
        let columns = self.column_tuple()?;
        if self.is_word("between") {
            let (low, high) = self.between()?;
            return Ok(RelationKind::TokenBetween { columns, low, high });
        }
        let op = self.mandatory_comparison()?;
        Ok(RelationKind::Token { columns, op, value: self.term()? })
    }

    fn tuple_relation(&mut self) -> Result<RelationKind> {
        let columns = self.column_tuple()?;
        let decision = self.at;
        if self.eat(Tok::In) {
            let values = match self.kind() {
                Tok::Qmark | Tok::Colon => InValues::Bind(self.bind_marker()?),
                Tok::ParenOpen => InValues::List(self.tuple_in_list()?),
                _ => return Err(self.no_viable_from(decision, 0)),
            };
            return Ok(RelationKind::TupleIn { columns, values });
        }
        let Some(op) = self.comparison_operator() else { return Err(self.no_viable()) };
        let value = match self.kind() {
            Tok::Qmark | Tok::Colon => Term::Bind(self.bind_marker()?),
            Tok::ParenOpen => self.nested(Self::tuple_literal)?,
            _ => return Err(self.no_viable_from(decision, 0)),
        };
        Ok(RelationKind::Tuple { columns, op, value })
    }

    /// `()`, `((…), (…))` or `(?, ?)`: all tuples, or all markers.
    fn tuple_in_list(&mut self) -> Result<Vec<Term>> {
        match self.kind_at(1) {
            Tok::Qmark | Tok::Colon => self.paren_list(|p| Ok(Term::Bind(p.bind_marker()?))),
            _ => self.paren_list_or_empty(|p| p.nested(Self::tuple_literal)),
        }
    }

    /// `IN marker` or `IN (terms)`.
    fn in_values(&mut self, decision: usize) -> Result<InValues> {
        self.expect(Tok::In)?;
        match self.kind() {
            Tok::Qmark | Tok::Colon => Ok(InValues::Bind(self.bind_marker()?)),
            Tok::ParenOpen => Ok(InValues::List(self.paren_list_or_empty(Self::term)?)),
            _ => Err(self.no_viable_from(decision, 0)),
        }
    }

    fn between(&mut self) -> Result<(Term, Term)> {
        self.bump();
        let low = self.term()?;
        self.expect(Tok::And)?;
        Ok((low, self.term()?))
    }

    fn contains_operator(&mut self) -> Operator {
        self.bump();
        if self.eat(Tok::Key) { Operator::ContainsKey } else { Operator::Contains }
    }

    fn mandatory_comparison(&mut self) -> Result<Operator> {
        match self.comparison_operator() {
            Some(op) => Ok(op),
            None => Err(self.no_viable()),
        }
    }

    fn comparison_operator(&mut self) -> Option<Operator> {
        let op = match self.kind() {
            Tok::Equal => Operator::Eq,
            Tok::NotEqual => Operator::NotEq,
            Tok::Less => Operator::Lt,
            Tok::LessEqual => Operator::LtEq,
            Tok::Greater => Operator::Gt,
            Tok::GreaterEqual => Operator::GtEq,
            _ => return None,
        };
        self.bump();
        Some(op)
    }

    /// `[IF EXISTS | IF condition (AND condition)*]`.
    pub(super) fn conditions(&mut self) -> Result<Conditions> {
        if !self.eat(Tok::If) {
            return Ok(Conditions::None);
        }
        // `exists` is a column too, when a relation follows it.
        let column = matches!(
            self.kind_at(1),
            Tok::Equal
                | Tok::NotEqual
                | Tok::Less
                | Tok::LessEqual
                | Tok::Greater
                | Tok::GreaterEqual
                | Tok::Contains
                | Tok::In
                | Tok::BracketOpen
                | Tok::Dot
        );
        if self.kind() == Tok::Exists && !column {
            self.bump();
            return Ok(Conditions::IfExists);
        }
        let mut conditions = vec![self.condition()?];
        while self.eat(Tok::And) {
            conditions.push(self.condition()?);
        }
        Ok(Conditions::If(conditions))
    }

    fn condition(&mut self) -> Result<Condition> {
        let start = self.start();
        let column = self.column()?;
        let decision = self.at;
        let target = match self.kind() {
            Tok::BracketOpen => {
                self.bump();
                let key = self.term()?;
                self.expect(Tok::BracketClose)?;
                ConditionTarget::Element(key)
            }
            Tok::Dot => {
                self.bump();
                ConditionTarget::Field(self.ident()?)
            }
            _ => ConditionTarget::Column,
        };
        let comparison = if self.kind() == Tok::In {
            Comparison::In(self.in_values(self.at)?)
        } else if self.kind() == Tok::Contains && target == ConditionTarget::Column {
            let op = self.contains_operator();
            Comparison::Operator(op, self.term()?)
        } else if let Some(op) = self.comparison_operator() {
            Comparison::Operator(op, self.term()?)
        } else {
            return Err(self.no_viable_from(decision.max(self.at), 0));
        };
        Ok(Condition { column, target, comparison, span: self.span_from(start) })
    }
}
