//! Types as written to types of the schema.

use std::collections::BTreeMap;
use std::sync::Arc;

use cql_syntax::ast::{NativeType, QualifiedName, RawType};
use types::custom::CustomKind;
use types::{CqlType, UdtType};

use crate::error::PlanError;

/// The type of a native name.
pub fn native(ty: NativeType) -> CqlType {
    match ty {
        NativeType::Ascii => CqlType::Ascii,
        NativeType::Bigint => CqlType::Bigint,
        NativeType::Blob => CqlType::Blob,
        NativeType::Boolean => CqlType::Boolean,
        NativeType::Counter => CqlType::Counter,
        NativeType::Date => CqlType::Date,
        NativeType::Decimal => CqlType::Decimal,
        NativeType::Double => CqlType::Double,
        NativeType::Duration => CqlType::Duration,
        NativeType::Float => CqlType::Float,
        NativeType::Inet => CqlType::Inet,
        NativeType::Int => CqlType::Int,
        NativeType::Smallint => CqlType::Smallint,
        NativeType::Text | NativeType::Varchar => CqlType::Text,
        NativeType::Time => CqlType::Time,
        NativeType::Timestamp => CqlType::Timestamp,
        NativeType::Timeuuid => CqlType::Timeuuid,
        NativeType::Tinyint => CqlType::Tinyint,
        NativeType::Uuid => CqlType::Uuid,
        NativeType::Varint => CqlType::Varint,
    }
}

/// Resolves a type within a keyspace.
///
/// # Errors
/// Unknown user types, collections that are neither frozen nor at the top, counters and durations
/// where they are not allowed; all with Cassandra's words.
pub fn resolve(
    raw: &RawType,
    keyspace: &str,
    user_types: &BTreeMap<Arc<str>, Arc<UdtType>>,
) -> Result<CqlType, PlanError> {
    resolve_in(raw, keyspace, user_types, false)
}

fn is_collection(raw: &RawType) -> bool {
    matches!(raw, RawType::List(_) | RawType::Set(_) | RawType::Map(..))
}

/// A collection as messages name it: with what freezes it.
fn shown(raw: &RawType, frozen: bool) -> String {
    if frozen { format!("frozen<{raw}>") } else { raw.to_string() }
}

/// Elements of a collection: nested collections must be frozen when the outer one is not.
fn element(
    outer: &RawType,
    raw: &RawType,
    keyspace: &str,
    user_types: &BTreeMap<Arc<str>, Arc<UdtType>>,
    frozen: bool,
) -> Result<CqlType, PlanError> {
    if !frozen && is_collection(raw) {
        return Err(PlanError::invalid(format!(
            "Non-frozen collections are not allowed inside collections: {outer}"
        )));
    }
    if matches!(raw, RawType::Native(NativeType::Counter)) {
        return Err(PlanError::invalid(format!(
            "Counters are not allowed inside collections: {}",
            shown(outer, frozen)
        )));
    }
    let ty = resolve_in(raw, keyspace, user_types, frozen)?;
    if !frozen && ty.is_udt() && ty.is_multi_cell() {
        return Err(PlanError::invalid(format!(
            "Non-frozen UDTs are not allowed inside collections: {outer}"
        )));
    }
    Ok(ty)
}

fn resolve_in(
    raw: &RawType,
    keyspace: &str,
    user_types: &BTreeMap<Arc<str>, Arc<UdtType>>,
    frozen: bool,
) -> Result<CqlType, PlanError> {
    Ok(match raw {
        RawType::Native(ty) => native(*ty),
        RawType::List(e) => CqlType::list(element(raw, e, keyspace, user_types, frozen)?, frozen),
        RawType::Set(e) => {
            let e = element(raw, e, keyspace, user_types, frozen)?;
            if e == CqlType::Duration {
                return Err(PlanError::invalid(format!(
                    "Durations are not allowed inside sets: {}",
                    shown(raw, frozen)
                )));
            }
            CqlType::set(e, frozen)
        }
        RawType::Map(k, v) => {
            let k = element(raw, k, keyspace, user_types, frozen)?;
            let v = element(raw, v, keyspace, user_types, frozen)?;
            if k == CqlType::Duration {
                return Err(PlanError::invalid(format!(
                    "Durations are not allowed as map keys: {}",
                    shown(raw, frozen)
                )));
            }
            CqlType::map(k, v, frozen)
        }
        RawType::Tuple(fields) => {
            let mut out = Vec::with_capacity(fields.len());
            for field in fields {
                if matches!(field, RawType::Native(NativeType::Counter)) {
                    return Err(PlanError::invalid("Counters are not allowed inside tuples"));
                }
                out.push(resolve_in(field, keyspace, user_types, true)?);
            }
            CqlType::tuple(out)
        }
        RawType::Vector(e, dimension) => {
            let Some(count) = u32::try_from(*dimension).ok().filter(|n| *n > 0) else {
                return Err(PlanError::invalid(format!(
                    "vectors may only have positive dimensions; given {dimension}"
                )));
            };
            // An element is as it is declared, whatever is frozen around the vector.
            CqlType::vector(resolve_in(e, keyspace, user_types, false)?, count)
        }
        RawType::Frozen(inner) => {
            let ty = resolve_in(inner, keyspace, user_types, true)?;
            if !ty.is_freezable() && !ty.is_tuple() && !ty.is_vector() {
                return Err(PlanError::invalid(
                    "frozen<> is only allowed on collections, tuples, and user-defined types \
                     (got "
                        .to_owned()
                        + &inner.to_string()
                        + ")",
                ));
            }
            ty.freeze()
        }
        RawType::UserDefined(name) => user_type(name, keyspace, user_types, frozen)?,
        RawType::Custom(class) => by_class(class)?,
    })
}

fn user_type(
    name: &QualifiedName,
    keyspace: &str,
    user_types: &BTreeMap<Arc<str>, Arc<UdtType>>,
    frozen: bool,
) -> Result<CqlType, PlanError> {
    if let Some(k) = &name.keyspace
        && k.text != keyspace
    {
        return Err(PlanError::invalid(format!(
            "Statement on keyspace {keyspace} cannot refer to a user type in keyspace \
                 {}; user types can only be used in the keyspace they are defined in",
            k.text
        )));
    }
    let udt = user_types
        .get(name.name.text.as_str())
        .ok_or_else(|| PlanError::invalid(format!("Unknown type {keyspace}.{}", name.name.text)))?;
    let mut udt = UdtType::clone(udt);
    udt.frozen = frozen;
    let ty = CqlType::Udt(Arc::new(udt));
    Ok(if frozen { ty.freeze() } else { ty })
}

/// The name of a class with packages, as Cassandra shows it.
pub(crate) fn full_class(class: &str) -> String {
    types::parse_marshal(class).map_or_else(|_| class.to_owned(), |(ty, _)| ty.to_marshal_name())
}

/// The type of a class. That it is in descending order counts for clustering columns only.
fn by_class(class: &str) -> Result<CqlType, PlanError> {
    let (ty, _) = types::parse_marshal(class).map_err(|_| not_a_class(class))?;
    // Classes of old that CQL reads as others.
    let ty = match &ty {
        CqlType::Custom(custom) => match custom.name().strip_prefix(MARSHAL) {
            Some("DateType") => CqlType::Timestamp,
            Some("LegacyTimeUUIDType") => CqlType::Timeuuid,
            _ => ty,
        },
        _ => ty,
    };
    if let CqlType::Custom(custom) = &ty
        && custom.components().any(|component| unknown_class(&component.ty).is_some())
    {
        return Err(not_a_class(class));
    }
    if let Some(unknown) = unknown_class(&ty) {
        return Err(PlanError::syntax(format!(
            "Error setting type {class}: Unable to find abstract-type class '{unknown}'"
        )));
    }
    if has_counter(&ty) {
        return Err(PlanError::syntax(format!(
            "Error setting type {class}: counters are not supported inside other types"
        )));
    }
    Ok(ty)
}

/// Returns true if a composite has counters, whose values are not ordered in all file formats.
fn has_counter(ty: &CqlType) -> bool {
    match ty {
        CqlType::Custom(custom) => {
            custom.components().any(|c| c.ty.is_counter() || has_counter(&c.ty))
        }
        ty => ty.sub_types().into_iter().any(has_counter),
    }
}

/// Classes that are nothing without their parameters.
const PARAMETRISED: &[&str] = &[
    "CompositeType",
    "DynamicCompositeType",
    "FrozenType",
    "ListType",
    "MapType",
    "ReversedType",
    "SetType",
    "VectorType",
];
const MARSHAL: &str = "org.apache.cassandra.db.marshal.";

/// Error for the text of a class that cannot be parsed.
fn not_a_class(text: &str) -> PlanError {
    let end = text.find(|c: char| !c.is_alphanumeric() && !"._-+&".contains(c));
    let name = end.and_then(|end| text.get(..end)).unwrap_or(text);
    let short = name.strip_prefix(MARSHAL).unwrap_or(name);
    let setting = |what: String| PlanError::syntax(format!("Error setting type {text}: {what}"));
    if PARAMETRISED.contains(&short) {
        return setting(format!("Invalid definition for comparator {MARSHAL}{short}."));
    }
    match types::parse_marshal(name) {
        Ok((ty, _)) if unknown_class(&ty).is_some() => {
            let package = if name.contains('.') { "" } else { MARSHAL };
            setting(format!("Unable to find abstract-type class '{package}{name}'"))
        }
        _ => PlanError::syntax(format!("Cannot parse type {text}")),
    }
}

/// The first class in a type that is unknown here. Cassandra has some more, which no CQL type
/// stands for.
fn unknown_class(ty: &CqlType) -> Option<String> {
    match ty {
        CqlType::Custom(custom) if !matches!(custom.kind(), CustomKind::Unknown) => {
            custom.components().find_map(|component| unknown_class(&component.ty))
        }
        CqlType::Custom(custom) => {
            let name = custom.name().split('(').next().unwrap_or_default();
            let package = if name.contains('.') { "" } else { "org.apache.cassandra.db.marshal." };
            Some(format!("{package}{name}"))
        }
        ty => ty.sub_types().into_iter().find_map(unknown_class),
    }
}
