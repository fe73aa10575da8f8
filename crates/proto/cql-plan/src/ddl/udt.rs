//! CREATE, ALTER and DROP TYPE.

use cql_syntax::ast::{AlterType, AlterTypeChange, CreateType, DropType, NativeType, RawType};
use schema::{Keyspace, SchemaChange};
use types::{CqlType, UdtType};

use super::{
    DdlContext, DdlOutcome, On, SchemaEventKind, SchemaEventTarget, check_not_replicated_system,
    duplicate, find_keyspace,
};
use crate::error::PlanError;
use crate::raw_type;

/// A field's type within its keyspace; counters and unfrozen user types are refused.
fn field_type(raw: &RawType, keyspace: &Keyspace) -> Result<CqlType, PlanError> {
    if matches!(raw, RawType::Native(NativeType::Counter)) {
        return Err(PlanError::invalid("A user type cannot contain counters"));
    }
    if matches!(raw, RawType::UserDefined(_)) {
        return Err(PlanError::invalid("A user type cannot contain non-frozen UDTs"));
    }
    raw_type::resolve(raw, &keyspace.name, &keyspace.types)
}

pub(super) fn create(
    statement: &CreateType,
    keyspace: &str,
    cx: &DdlContext<'_>,
) -> Result<DdlOutcome, PlanError> {
    check_not_replicated_system(keyspace, "CREATE", On::AllTables)?;
    let keyspace = find_keyspace(cx.schema, keyspace)?;
    let name = statement.name.name.text.as_str();
    if keyspace.types.contains_key(name) {
        if statement.if_not_exists {
            return Ok(DdlOutcome::nothing());
        }
        return Err(PlanError::invalid(format!("A user type with name '{name}' already exists")));
    }
    if let Some(field) = duplicate(statement.fields.iter().map(|(f, _)| f)) {
        return Err(PlanError::invalid(format!(
            "Duplicate field name '{}' in type '{name}'",
            field.text
        )));
    }
    let mut fields = Vec::with_capacity(statement.fields.len());
    for (field, raw) in &statement.fields {
        fields.push((field.text.clone(), field_type(raw, keyspace)?));
    }
    let udt = UdtType { keyspace: keyspace.name.clone(), name: name.into(), fields, frozen: false };
    Ok(DdlOutcome::one(
        SchemaChange::CreateType(udt),
        SchemaEventKind::Created,
        SchemaEventTarget::Type,
        &keyspace.name,
        name,
    ))
}

pub(super) fn alter(
    statement: &AlterType,
    keyspace_name: &str,
    cx: &DdlContext<'_>,
) -> Result<DdlOutcome, PlanError> {
    check_not_replicated_system(keyspace_name, "ALTER", On::AllTables)?;
    let name = statement.name.name.text.as_str();
    let found = cx.schema.keyspace(keyspace_name).and_then(|k| Some((k, k.types.get(name)?)));
    let Some((keyspace, before)) = found else {
        if statement.if_exists {
            return Ok(DdlOutcome::nothing());
        }
        return Err(PlanError::invalid(format!("Type {keyspace_name}.{name} doesn't exist")));
    };
    let mut udt = UdtType::clone(before);
    let cql_name = format!("{keyspace_name}.{name}");
    match &statement.change {
        AlterTypeChange::FieldType { .. } => {
            return Err(PlanError::invalid("Altering field types is no longer supported"));
        }
        AlterTypeChange::Add { if_not_exists, field, ty } => {
            if *if_not_exists && before.field_position(&field.text).is_some() {
                field_type(ty, keyspace)?;
                return Ok(DdlOutcome::nothing());
            }
            add_field(&mut udt, &field.text, ty, keyspace, &cql_name)?;
            if let Some(watch) = cx.watch {
                watch.fields_per_udt(name, udt.fields.len())?;
            }
        }
        AlterTypeChange::Rename { if_exists, fields } => {
            check_not_in_initial(name, keyspace, &cql_name)?;
            for (from, to) in fields {
                match before.field_position(&from.text) {
                    Some(position) => {
                        if let Some(field) = udt.fields.get_mut(position) {
                            field.0.clone_from(&to.text);
                        }
                    }
                    None if *if_exists => {}
                    None => {
                        return Err(PlanError::invalid(format!(
                            "Unkown field {} in user type {cql_name}",
                            from.text
                        )));
                    }
                }
            }
            check_distinct_fields(&udt)?;
        }
    }
    // IF EXISTS may leave everything as it was.
    if udt == **before {
        return Ok(DdlOutcome::nothing());
    }
    Ok(DdlOutcome::one(
        SchemaChange::AlterType(udt),
        SchemaEventKind::Updated,
        SchemaEventTarget::Type,
        keyspace_name,
        name,
    ))
}

/// Adds a field to a type.
fn add_field(
    udt: &mut UdtType,
    field: &str,
    ty: &RawType,
    keyspace: &Keyspace,
    cql_name: &str,
) -> Result<(), PlanError> {
    let new = field_type(ty, keyspace)?;
    if udt.field_position(field).is_some() {
        return Err(PlanError::invalid(format!(
            "Cannot add field {field} to type {cql_name}: a field with name {field} already exists"
        )));
    }
    let name = &*udt.name;
    if new.references_udt(name) {
        let ty = match &new {
            CqlType::Udt(udt) if udt.frozen => format!("frozen<{}.{}>", udt.keyspace, udt.name),
            _ => ty.to_string(),
        };
        return Err(PlanError::invalid(format!(
            "Cannot add new field {field} of type {ty} to user type {cql_name} as it would create \
             a circular reference"
        )));
    }
    let tables: Vec<String> = keyspace
        .tables
        .values()
        .filter(|t| t.partition_key().iter().any(|c| c.ty.references_udt(name)))
        .map(|t| format!("{}.{}", t.keyspace, t.name))
        .collect();
    if !tables.is_empty() {
        return Err(PlanError::invalid(format!(
            "Cannot add new field {field} of type {ty} to user type {cql_name} as the type is \
             being used in partition key by the following tables: {}",
            tables.join(", ")
        )));
    }
    udt.fields.push((field.to_owned(), new));
    Ok(())
}

/// Values of INITCOND name the fields of their types.
fn check_not_in_initial(name: &str, keyspace: &Keyspace, cql_name: &str) -> Result<(), PlanError> {
    let users: Vec<String> = keyspace
        .aggregates
        .iter()
        .filter(|a| a.initial.is_some() && a.state_type.references_udt(name))
        .map(|a| format!("{}.{}", a.keyspace, a.name))
        .collect();
    if users.is_empty() {
        return Ok(());
    }
    Err(PlanError::invalid(format!(
        "Cannot alter user type {cql_name} as it is still used in INITCOND by aggregates {}",
        users.join(", ")
    )))
}

fn check_distinct_fields(udt: &UdtType) -> Result<(), PlanError> {
    for (i, (field, _)) in udt.fields.iter().enumerate() {
        if udt.fields.iter().skip(i + 1).any(|(other, _)| other == field) {
            return Err(PlanError::invalid(format!(
                "Duplicate field name {field} in type {}",
                udt.keyspace
            )));
        }
    }
    Ok(())
}

pub(super) fn drop(
    statement: &DropType,
    keyspace_name: &str,
    cx: &DdlContext<'_>,
) -> Result<DdlOutcome, PlanError> {
    check_not_replicated_system(keyspace_name, "DROP", On::AllTables)?;
    let name = statement.name.name.text.as_str();
    let found = cx.schema.keyspace(keyspace_name).filter(|k| k.types.contains_key(name));
    let Some(keyspace) = found else {
        if statement.if_exists {
            return Ok(DdlOutcome::nothing());
        }
        return Err(PlanError::invalid(format!("Type '{keyspace_name}.{name}' doesn't exist")));
    };
    let in_use = |what: &str, users: Vec<&str>| {
        if users.is_empty() {
            return Ok(());
        }
        Err(PlanError::invalid(format!(
            "Cannot drop user type '{keyspace_name}.{name}' as it is still used by {what} {}",
            users.join(", ")
        )))
    };
    let functions: Vec<String> = keyspace
        .functions_using_type(name)
        .iter()
        .map(|function| format!("{keyspace_name}.{function}"))
        .collect();
    in_use("functions", functions.iter().map(String::as_str).collect())?;
    let types = keyspace.types.values().filter(|other| {
        &*other.name != name && other.fields.iter().any(|(_, t)| t.references_udt(name))
    });
    in_use("user types", types.map(|t| &*t.name).collect())?;
    let tables =
        keyspace.tables.values().filter(|t| t.columns.iter().any(|c| c.ty.references_udt(name)));
    in_use("tables", tables.map(|t| &*t.name).collect())?;
    let change = SchemaChange::DropType { keyspace: keyspace.name.clone(), name: name.into() };
    Ok(DdlOutcome::one(
        change,
        SchemaEventKind::Dropped,
        SchemaEventTarget::Type,
        keyspace_name,
        name,
    ))
}
