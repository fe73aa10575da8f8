//! Masking functions: `mask_null`, `mask_default`, `mask_replace`, `mask_inner`, `mask_outer`.
//! Source: `cql3.functions.masking`. `mask_hash` is refused: it needs the SHA family.

use types::wire::{encode_collection, encode_tuple, encode_vector};
use types::{CqlType, Decimal, Duration, temporal, timeuuid};

use super::{Args, Call, NativeFunction, cannot_infer, wrong_argument, wrong_count};
use crate::error::PlanError;
use crate::plan::BindEnv;

/// The function of the call's name for its arguments.
pub(super) fn make(call: &Call<'_>) -> Result<Option<NativeFunction>, PlanError> {
    match call.name {
        "mask_null" => {
            let ty = super::one_type(call, "any")?;
            let args = [ty.clone()];
            Ok(Some(NativeFunction::made(call.name, &args, ty, |_, _, _| Ok(None))))
        }
        "mask_default" => {
            let ty = super::one_type(call, "any")?;
            let args = [ty.clone()];
            Ok(Some(NativeFunction::made(call.name, &args, ty, |f, _, _| {
                Ok(masked_value(&f.returns))
            })))
        }
        "mask_replace" => replace(call),
        "mask_inner" | "mask_outer" => partial(call),
        "mask_hash" => Err(PlanError::unsupported("function mask_hash")),
        _ => Ok(None),
    }
}

fn replace(call: &Call<'_>) -> Result<Option<NativeFunction>, PlanError> {
    let [value, replacement] = call.args else { return Err(wrong_count(call, "any, any")) };
    let ty = value
        .compatible_type()
        .or_else(|| call.receiver.cloned())
        .or_else(|| replacement.compatible_type())
        .ok_or_else(|| cannot_infer(call, "any, any", *value))?;
    let eval = |_: &NativeFunction, args: &Args<'_>, _: &BindEnv<'_>| {
        Ok(args.get(1).copied().flatten().map(<[u8]>::to_vec))
    };
    Ok(Some(NativeFunction::made(call.name, &[ty.clone(), ty.clone()], ty, eval)))
}

fn partial(call: &Call<'_>) -> Result<Option<NativeFunction>, PlanError> {
    const PARAMETERS: &str = "[text|varchar|ascii], int, int, [text]";
    if !(3..=4).contains(&call.args.len()) {
        return Err(wrong_count(call, PARAMETERS));
    }
    let Some(value) = call.args.first() else { return Err(wrong_count(call, PARAMETERS)) };
    let ty = value.compatible_type().unwrap_or(CqlType::Text);
    if !matches!(ty, CqlType::Text | CqlType::Ascii) {
        let what = "an argument of type [text|varchar|ascii]";
        return Err(wrong_argument(call, what, *value, &ty));
    }
    let mut args = vec![ty.clone(), CqlType::Int, CqlType::Int];
    if call.args.len() == 4 {
        args.push(CqlType::Text);
    }
    Ok(Some(NativeFunction::made(call.name, &args, ty, mask)))
}

/// Positions count UTF-16 units in Cassandra; here characters, so that none is cut in two.
fn mask(
    f: &NativeFunction,
    args: &Args<'_>,
    _: &BindEnv<'_>,
) -> Result<Option<Vec<u8>>, PlanError> {
    let Some(value) = args.first().copied().flatten() else { return Ok(None) };
    let value = String::from_utf8_lossy(value);
    let number = |i: usize| {
        f.arg(args, i)
            .and_then(|b| b.try_into().ok())
            .map_or(0, |b| i64::from(i32::from_be_bytes(b)))
    };
    let mut padding = '*';
    if let Some(bytes) = args.get(3).copied().flatten() {
        let text = String::from_utf8_lossy(bytes);
        let mut chars = text.chars();
        match (chars.next(), chars.next()) {
            (Some(one), None) => padding = one,
            _ => {
                return Err(PlanError::invalid(format!(
                    "The padding argument for function {} should be single-character, but '{text}' \
                     has {} characters.",
                    f.full_name(),
                    text.encode_utf16().count()
                )));
            }
        }
    }
    let inner = &*f.name == "mask_inner";
    let size = i64::try_from(value.chars().count()).unwrap_or(i64::MAX);
    let (begin, end) = (number(1), size.saturating_sub(1).saturating_sub(number(2)));
    let masked: String = (0i64..)
        .zip(value.chars())
        .map(|(at, c)| {
            let inside = at >= begin && at <= end;
            if inside == inner { padding } else { c }
        })
        .collect();
    Ok(Some(masked.into_bytes()))
}

/// What stands for every value of a type. `None`: null.
fn masked_value(ty: &CqlType) -> Option<Vec<u8>> {
    Some(match ty {
        CqlType::Ascii | CqlType::Text => b"****".to_vec(),
        CqlType::Blob | CqlType::Custom(_) | CqlType::Empty => Vec::new(),
        CqlType::Boolean | CqlType::Tinyint => vec![0],
        CqlType::Smallint => vec![0; 2],
        CqlType::Int | CqlType::Float => vec![0; 4],
        CqlType::Bigint
        | CqlType::Counter
        | CqlType::Double
        | CqlType::Time
        | CqlType::Timestamp => vec![0; 8],
        CqlType::Date => temporal::date_of_millis(0).to_be_bytes().to_vec(),
        CqlType::Decimal => Decimal::zero().to_bytes(),
        CqlType::Varint => vec![0],
        CqlType::Duration => Duration::new(0, 0, 0).ok()?.to_bytes(),
        CqlType::Inet => vec![0; 4],
        CqlType::Uuid => vec![0; 16],
        CqlType::Timeuuid => timeuuid::min_at_millis(0).to_vec(),
        CqlType::List { .. } | CqlType::Set { .. } | CqlType::Map { .. } => {
            encode_collection::<&[u8]>([]).ok()?
        }
        CqlType::Tuple(fields) => encode_tuple(fields.iter().map(masked_value)).ok()?,
        CqlType::Udt(udt) => {
            encode_tuple(udt.fields.iter().map(|(_, ty)| masked_value(ty))).ok()?
        }
        CqlType::Vector { element, dimension } => {
            let one = masked_value(element)?;
            let count = usize::try_from(*dimension).ok()?;
            encode_vector(element, *dimension, std::iter::repeat_n(one, count)).ok()?
        }
    })
}
