//! Types.

use super::{Parser, Result};
use crate::ast::{QualifiedName, RawType};
use crate::token::{RESERVED_TYPE_NAMES, Tok};

impl Parser<'_> {
    /// Any type.
    pub(super) fn raw_type(&mut self) -> Result<RawType> {
        self.nested(Self::raw_type_inner)
    }

    fn raw_type_inner(&mut self) -> Result<RawType> {
        let kind = self.kind();
        let next = self.kind_at(1);
        if let Some(native) = kind.native()
            && next != Tok::Dot
        {
            self.bump();
            return Ok(RawType::Native(native));
        }
        if kind == Tok::StringLiteral {
            return Ok(RawType::Custom(self.string()?));
        }
        if next == Tok::Less || kind == Tok::Set {
            return self.parametric_type(kind);
        }
        Ok(RawType::UserDefined(self.user_type_name()?))
    }

    fn parametric_type(&mut self, kind: Tok) -> Result<RawType> {
        if !matches!(kind, Tok::List | Tok::Set | Tok::Map | Tok::Tuple | Tok::Vector | Tok::Frozen)
        {
            return Ok(RawType::UserDefined(self.user_type_name()?));
        }
        self.bump();
        self.expect(Tok::Less)?;
        let first = self.raw_type()?;
        let ty = match kind {
            Tok::List => RawType::List(Box::new(first)),
            Tok::Set => RawType::Set(Box::new(first)),
            Tok::Map => {
                self.expect(Tok::Comma)?;
                RawType::Map(Box::new(first), Box::new(self.raw_type()?))
            }
            Tok::Tuple => {
                let mut types = vec![first];
                while self.eat(Tok::Comma) {
                    types.push(self.raw_type()?);
                }
                RawType::Tuple(types)
            }
            Tok::Vector => {
                self.expect(Tok::Comma)?;
                let token = self.expect(Tok::Integer)?;
                let digits = token.text(self.text);
                let dimension = digits.parse().map_err(|_| self.number_error(digits))?;
                RawType::Vector(Box::new(first), dimension)
            }
            _ => RawType::Frozen(Box::new(first)),
        };
        self.expect(Tok::Greater)?;
        if let RawType::Frozen(inner) = &ty
            && matches!(**inner, RawType::Native(_) | RawType::Custom(_))
        {
            return Err(self.refuse(format!(
                "frozen<> is only allowed on collections, tuples, and user-defined types (got {inner})"
            )));
        }
        Ok(ty)
    }

    /// `[keyspace.]type`.
    pub(super) fn user_type_name(&mut self) -> Result<QualifiedName> {
        let start = self.start();
        let mut keyspace = None;
        if self.kind().is_name() && self.kind_at(1) == Tok::Dot {
            keyspace = Some(self.ident()?);
            self.expect(Tok::Dot)?;
        }
        if !self.kind().is_type_name() {
            if keyspace.is_none() && self.kind().is_name() {
                // Only a keyspace may be called like this.
                self.bump();
                return Err(self.mismatched(Tok::Dot.name()));
            }
            return Err(self.no_viable());
        }
        let token = self.bump();
        let written = token.text(self.text);
        if token.kind == Tok::Ident && RESERVED_TYPE_NAMES.contains(&written) {
            return Err(self.refuse(format!("Invalid (reserved) user type name {written}")));
        }
        let name = self.ident_of(token);
        Ok(QualifiedName { keyspace, name, span: self.span_from(start) })
    }

    /// Checks if the parenthesis that is `ahead` tokens on can hold a type hint.
    pub(super) fn type_in_parens_at(&mut self, ahead: usize) -> TypeAhead {
        let first = self.kind_at(ahead + 1);
        let mut last = ahead + 1;
        if first.is_name() && self.kind_at(ahead + 2) == Tok::Dot {
            last = ahead + 3;
            if !self.kind_at(last).is_type_name() {
                return TypeAhead::No;
            }
        } else if self.kind_at(ahead + 2) == Tok::Less {
            return match first {
                Tok::List | Tok::Set | Tok::Map | Tok::Tuple | Tok::Vector | Tok::Frozen => {
                    TypeAhead::Yes
                }
                _ => TypeAhead::No,
            };
        } else if first == Tok::StringLiteral {
            return self.close_after(last).map_or(TypeAhead::No, TypeAhead::String);
        } else if !first.is_type_name() && first.native().is_none() {
            return TypeAhead::No;
        }
        self.close_after(last).map_or(TypeAhead::No, TypeAhead::Name)
    }

    fn close_after(&mut self, last: usize) -> Option<usize> {
        (self.kind_at(last + 1) == Tok::ParenClose).then_some(last + 2)
    }
}

/// Contents of a parenthesis, as far as the next few tokens show.
pub(super) enum TypeAhead {
    /// No type.
    No,
    /// A type with parameters.
    Yes,
    /// A name and `)`; the token after it is so far on.
    Name(usize),
    /// A string and `)`; the token after it is so far on.
    String(usize),
}
