//! `int_as_blob`, `blob_as_int` and so on. Source: `BytesConversionFcts`.

use types::CqlType;
use types::name::native_type;

use crate::env::EvalEnv;
use crate::error::PlanError;
use crate::native::{Args, NativeFunction};

/// Adds the functions of that name.
pub(crate) fn candidates(name: &str, out: &mut Vec<NativeFunction>) {
    let parse = |ty: &str| native_type(ty).filter(|t| *t != CqlType::Blob);
    if let Some(ty) = name.strip_suffix("_as_blob").or_else(|| name.strip_suffix("asblob")) {
        if let Some(ty) = parse(ty) {
            let eval = |_: &NativeFunction, args: &Args<'_>, _: &EvalEnv<'_>| {
                Ok(args.first().copied().flatten().map(<[u8]>::to_vec))
            };
            out.push(NativeFunction::new(name, &[ty], CqlType::Blob, eval));
        }
        return;
    }
    let target = name.strip_prefix("blob_as_").or_else(|| name.strip_prefix("blobas"));
    if let Some(ty) = target.and_then(parse) {
        out.push(NativeFunction::new(name, &[CqlType::Blob], ty, from_blob));
    }
}

fn from_blob(
    f: &NativeFunction,
    args: &Args<'_>,
    _: &EvalEnv<'_>,
) -> Result<Option<Vec<u8>>, PlanError> {
    let Some(bytes) = args.first().copied().flatten() else { return Ok(None) };
    if f.returns.validate(bytes).is_err() {
        return Err(PlanError::invalid(format!(
            "In call to function {}, value 0x{} is not a valid binary representation for type {}",
            f.full_name(),
            crate::convert::hex(bytes),
            f.returns
        )));
    }
    Ok(Some(bytes.to_vec()))
}
