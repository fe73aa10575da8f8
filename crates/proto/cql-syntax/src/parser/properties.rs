//! `WITH …`.

use std::collections::BTreeSet;

use super::terms::is_constant;
use super::{Parser, Result};
use crate::ast::{Ident, Literal, Order, Property, PropertyValue, TableOptions, Term};
use crate::token::Tok;

impl Parser<'_> {
    /// `property (AND property)*`.
    pub(super) fn properties(&mut self) -> Result<Vec<Property>> {
        let mut properties = vec![self.property()?];
        while self.eat(Tok::And) {
            properties.push(self.property()?);
        }
        self.check_unique(&properties)?;
        Ok(properties)
    }

    fn check_unique(&self, properties: &[Property]) -> Result<()> {
        let mut seen = BTreeSet::new();
        for property in properties {
            if !seen.insert(property.name.text.as_str()) {
                let name = &property.name.text;
                return Err(self.refuse(format!("Multiple definitions for property '{name}'")));
            }
        }
        Ok(())
    }

    fn property(&mut self) -> Result<Property> {
        let decision = self.at;
        let start = self.start();
        let name = self.ident()?;
        if !self.eat(Tok::Equal) {
            return Err(self.no_viable_from(decision, 0));
        }
        let value = match self.kind() {
            Tok::BraceOpen => PropertyValue::Map(self.property_map()?),
            kind if is_constant(kind) => PropertyValue::Literal(self.constant()?),
            kind if kind.is_unreserved() => PropertyValue::Id(self.ident()?),
            _ => return Err(self.no_viable_from(decision, 0)),
        };
        Ok(Property { name, value, span: self.span_from(start) })
    }

    /// `{'key': 'value'}` of constants.
    pub(super) fn property_map(&mut self) -> Result<Vec<(Literal, Literal)>> {
        self.expect(Tok::BraceOpen)?;
        if self.eat(Tok::BraceClose) {
            return Ok(Vec::new());
        }
        let entries = self.comma_list(Self::map_entry)?;
        self.expect(Tok::BraceClose)?;
        let mut seen = BTreeSet::new();
        let mut map = Vec::with_capacity(entries.len());
        for (key, value) in entries {
            let key = match key {
                Term::Literal(literal) => literal,
                other => return Err(self.not_constant(&format!("name: {other}"), &other)),
            };
            let value = match value {
                Term::Literal(literal) => literal,
                other => {
                    let shown = match &other {
                        Term::Null(_) => "NULL".to_owned(),
                        other => other.to_string(),
                    };
                    let what = format!("value: {shown} for property: {key}");
                    return Err(self.not_constant(&what, &other));
                }
            };
            if !seen.insert(key.raw_text()) {
                let name = key.raw_text();
                return Err(self.refuse(format!("Multiple definition for property {name}")));
            }
            map.push((key, value));
        }
        Ok(map)
    }

    fn not_constant(&self, what: &str, term: &Term) -> crate::SyntaxError {
        let hint = match term {
            Term::Bind(_) => " (bind variables are not supported in DDL queries)",
            _ => "",
        };
        self.refuse(format!("Invalid property {what}{hint}"))
    }

    /// `[WITH …]` of a table or view.
    pub(super) fn table_options(&mut self, is_view: bool) -> Result<TableOptions> {
        let mut options = TableOptions::default();
        if !self.eat(Tok::With) {
            return Ok(options);
        }
        loop {
            match (self.kind(), self.kind_at(1)) {
                (Tok::Compact, Tok::Storage) if is_view => {
                    return Err(self.refuse(
                        "COMPACT STORAGE tables are not allowed starting with version 4.0",
                    ));
                }
                (Tok::Compact, Tok::Storage) => {
                    self.bump();
                    self.bump();
                    options.compact_storage = true;
                }
                (Tok::Clustering, Tok::Order) => {
                    self.expect_all(&[Tok::Clustering, Tok::Order, Tok::By])?;
                    let order = self.paren_list(Self::clustering_order)?;
                    options.clustering_order.extend(order);
                }
                _ => {
                    let property = self.property()?;
                    options.properties.push(property);
                }
            }
            if !self.eat(Tok::And) {
                break;
            }
        }
        self.check_unique(&options.properties)?;
        Ok(options)
    }

    fn clustering_order(&mut self) -> Result<(Ident, Order)> {
        let column = self.ident()?;
        let order = match self.kind() {
            Tok::Asc => Order::Asc,
            Tok::Desc => Order::Desc,
            _ => return Err(self.no_viable()),
        };
        self.bump();
        Ok((column, order))
    }
}
