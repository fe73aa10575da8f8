//! `token()`, casts by name. Source: `TokenFct`, `CastFcts`.

use codec::murmur::token_of;
use types::{CqlType, cast};

use crate::call::Call;
use crate::env::EvalEnv;
use crate::error::PlanError;
use crate::native::{Args, CAST, NUMBERS, NativeFunction};

/// Adds the casts of that name.
pub(crate) fn candidates(name: &str, out: &mut Vec<NativeFunction>) {
    let Some(to) = name.strip_prefix(CAST).and_then(types::name::native_type) else { return };
    let others = [
        CqlType::Ascii,
        CqlType::Inet,
        CqlType::Boolean,
        CqlType::Timeuuid,
        CqlType::Timestamp,
        CqlType::Date,
        CqlType::Time,
        CqlType::Uuid,
    ];
    for from in NUMBERS.iter().chain(&others) {
        if *from != to && cast::can_cast(from, &to) {
            out.push(NativeFunction::new(
                name,
                std::slice::from_ref(from),
                to.clone(),
                |f, args, _| match f.args.first() {
                    Some(from) => {
                        cast::cast(from, &f.returns, f.arg(args, 0)).map_err(PlanError::from)
                    }
                    None => Ok(None),
                },
            ));
        }
    }
}

/// `token(…)` of the call's table.
pub(crate) fn make(call: &Call<'_>) -> Result<Option<NativeFunction>, PlanError> {
    if call.name != "token" {
        return Ok(None);
    }
    let Some(table) = call.table else {
        return Err(PlanError::invalid(
            "No receiver table has been specified for function system.token",
        ));
    };
    let types: Vec<CqlType> = table.partition_key().iter().map(|c| c.ty.clone()).collect();
    Ok(Some(NativeFunction::made("token", &types, CqlType::Bigint, token)))
}

fn token(
    f: &NativeFunction,
    args: &Args<'_>,
    _: &EvalEnv<'_>,
) -> Result<Option<Vec<u8>>, PlanError> {
    let mut key = Vec::new();
    for arg in args {
        let Some(bytes) = arg else { return Ok(None) };
        push_key_component(&mut key, bytes, KeyForm::of(f.args.len()))?;
    }
    Ok(Some(token_of(&key).0.to_be_bytes().to_vec()))
}

/// Form of a serialised partition key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyForm {
    /// The value of its only column.
    OneColumn,
    /// Each component with its length and an end byte.
    Composite,
}

impl KeyForm {
    /// Returns the form of a key of this many columns.
    pub fn of(columns: usize) -> KeyForm {
        if columns > 1 { KeyForm::Composite } else { KeyForm::OneColumn }
    }
}

/// Appends one component of a serialised partition key: as it is for a key of one column, else with
/// its length and an end byte.
///
/// # Errors
/// More than 65,535 bytes.
pub fn push_key_component(key: &mut Vec<u8>, bytes: &[u8], form: KeyForm) -> Result<(), PlanError> {
    if form == KeyForm::OneColumn {
        key.extend_from_slice(bytes);
        return Ok(());
    }
    let len = u16::try_from(bytes.len()).map_err(|_| {
        PlanError::invalid(format!("Key length of {} is longer than maximum of 65535", bytes.len()))
    })?;
    key.extend_from_slice(&len.to_be_bytes());
    key.extend_from_slice(bytes);
    key.push(0);
    Ok(())
}

/// Lower-case hex digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |n: u8| DIGITS.get(usize::from(n)).map_or('0', |d| char::from(*d));
    bytes.iter().flat_map(|b| [digit(b >> 4), digit(b & 15)]).collect()
}
