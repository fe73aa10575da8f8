//! Values, types, selectors.

use std::fmt::{self, Display, Formatter};

use super::{commas, join, string};
use crate::ast::{
    ArithmeticOp, BindMarker, Ident, Literal, LiteralKind, NativeType, QualifiedName, RawType,
    Selector, Term, quote_ident,
};
use crate::token::{RESERVED_TYPE_NAMES, Tok};

/// Writes a name where only some keywords may stand bare.
fn strict_ident(f: &mut Formatter<'_>, name: &str, bare: bool) -> fmt::Result {
    let plain = quote_ident(name);
    if bare || plain.starts_with('"') {
        return f.write_str(&plain);
    }
    write!(f, "\"{plain}\"")
}

/// Writes a function's name. `expr(` would read as the custom index expression.
pub(super) fn function_ident(f: &mut Formatter<'_>, name: &Ident) -> fmt::Result {
    let kind = Tok::of_word(name.text.as_bytes());
    if kind == Tok::TokenWord && name.text == "token" {
        return f.write_str("token");
    }
    strict_ident(f, &name.text, kind.is_function_name() && name.text != "expr")
}

/// Writes a user type's name.
pub(super) fn type_name(f: &mut Formatter<'_>, name: &QualifiedName) -> fmt::Result {
    if let Some(keyspace) = &name.keyspace {
        write!(f, "{keyspace}.")?;
    }
    let text = name.name.text.as_str();
    let bare = Tok::of_word(text.as_bytes()).is_type_name() && !RESERVED_TYPE_NAMES.contains(&text);
    strict_ident(f, text, bare)
}

impl Display for NativeType {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Display for RawType {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            RawType::Native(ty) => ty.fmt(f),
            RawType::List(ty) => write!(f, "list<{ty}>"),
            RawType::Set(ty) => write!(f, "set<{ty}>"),
            RawType::Map(key, value) => write!(f, "map<{key}, {value}>"),
            RawType::Tuple(types) => {
                f.write_str("tuple<")?;
                commas(f, types)?;
                f.write_str(">")
            }
            RawType::Vector(ty, dimension) => write!(f, "vector<{ty}, {dimension}>"),
            RawType::Frozen(ty) => write!(f, "frozen<{ty}>"),
            RawType::UserDefined(name) => type_name(f, name),
            RawType::Custom(class) => string(f, class),
        }
    }
}

impl Display for Literal {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(written) = &self.written {
            return f.write_str(written);
        }
        match &self.kind {
            LiteralKind::String(text) => string(f, text),
            LiteralKind::Integer(text) | LiteralKind::Float(text) | LiteralKind::Duration(text) => {
                f.write_str(text)
            }
            LiteralKind::Boolean(value) => write!(f, "{value}"),
            LiteralKind::Uuid(uuid) => write!(f, "{uuid}"),
            LiteralKind::Hex(digits) => write!(f, "0x{digits}"),
        }
    }
}

impl Display for BindMarker {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, ":{}", quote_ident(name)),
            None => f.write_str("?"),
        }
    }
}

/// Writes an operator between spaces.
fn operator(f: &mut Formatter<'_>, op: ArithmeticOp) -> fmt::Result {
    write!(f, " {} ", op.symbol())
}

impl Display for Term {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Term::Literal(literal) => literal.fmt(f),
            Term::Null(_) => f.write_str("null"),
            Term::Bind(marker) => marker.fmt(f),
            Term::List(items, _) => {
                f.write_str("[")?;
                commas(f, items)?;
                f.write_str("]")
            }
            Term::Set(items, _) => {
                f.write_str("{")?;
                commas(f, items)?;
                f.write_str("}")
            }
            Term::Map(entries, _) => {
                f.write_str("{")?;
                join(f, entries, ", ", |f, (key, value)| write!(f, "{key}: {value}"))?;
                f.write_str("}")
            }
            Term::Udt(fields, _) => {
                f.write_str("{")?;
                join(f, fields, ", ", |f, (field, value)| write!(f, "{field}: {value}"))?;
                f.write_str("}")
            }
            Term::Tuple(items, _) => {
                f.write_str("(")?;
                commas(f, items)?;
                f.write_str(")")
            }
            Term::FunctionCall { name, args, .. } => {
                write!(f, "{name}(")?;
                commas(f, args)?;
                f.write_str(")")
            }
            Term::TypeHint { ty, term, .. } => write!(f, "({ty}) {term}"),
            Term::Cast { term, ty, .. } => write!(f, "CAST({term} AS {ty})"),
            // The space separates the sign from a number after it, and from another sign before it.
            Term::Negate(term, _) => write!(f, "- {term}"),
            // Terms have no parentheses (those make tuples), so the tree is always such that
            // writing it in order gives it back.
            Term::Binary { op, left, right, .. } => {
                left.fmt(f)?;
                operator(f, *op)?;
                right.fmt(f)
            }
        }
    }
}

fn ends_in_number(selector: &Selector) -> bool {
    match selector {
        Selector::Literal(Literal { kind, .. }) => {
            matches!(kind, LiteralKind::Integer(_) | LiteralKind::Float(_))
        }
        Selector::TypeHint { selector, .. } => ends_in_number(selector),
        _ => false,
    }
}

impl Display for Selector {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Selector::Column(column) => {
                // Bare, these would be read as keywords in some places of a selection.
                let bare = !["as", "distinct", "json", "per"].contains(&column.text.as_str());
                strict_ident(f, &column.text, bare)
            }
            Selector::Literal(literal) => literal.fmt(f),
            Selector::Null(_) => f.write_str("NULL"),
            Selector::Bind(marker) => marker.fmt(f),
            Selector::CountRows(_) => f.write_str("COUNT(*)"),
            Selector::Metadata { kind, target, .. } => write!(f, "{}({target})", kind.name()),
            Selector::Cast { selector, ty, .. } => write!(f, "CAST({selector} AS {ty})"),
            Selector::FunctionCall { name, args, .. } => {
                write!(f, "{name}(")?;
                commas(f, args)?;
                f.write_str(")")
            }
            Selector::Field { receiver, field } => {
                // The dot would become the number's.
                let space = if ends_in_number(receiver) { " " } else { "" };
                write!(f, "{receiver}{space}.{field}")
            }
            Selector::Element { receiver, key } => write!(f, "{receiver}[{key}]"),
            Selector::Slice { receiver, from, to } => {
                write!(f, "{receiver}[")?;
                if let Some(from) = from {
                    write!(f, "{from} ")?;
                }
                f.write_str("..")?;
                if let Some(to) = to {
                    write!(f, " {to}")?;
                }
                f.write_str("]")
            }
            Selector::TypeHint { ty, selector, .. } => write!(f, "({ty}) {selector}"),
            Selector::Tuple(items, _) => {
                f.write_str("(")?;
                commas(f, items)?;
                f.write_str(")")
            }
            Selector::List(items, _) => {
                f.write_str("[")?;
                commas(f, items)?;
                f.write_str("]")
            }
            Selector::Set(items, _) => {
                f.write_str("{")?;
                commas(f, items)?;
                f.write_str("}")
            }
            Selector::MapOrUdt(entries, _) => {
                f.write_str("{")?;
                join(f, entries, ", ", |f, (key, value)| write!(f, "{key}: {value}"))?;
                f.write_str("}")
            }
            Selector::Negate(selector, _) => write!(f, "- {selector}"),
            Selector::Binary { op, left, right } => {
                left.fmt(f)?;
                operator(f, *op)?;
                right.fmt(f)
            }
        }
    }
}
