//! Masking functions: `mask_null`, `mask_default`, `mask_replace`, `mask_inner`, `mask_outer`,
//! `mask_hash`; and the evaluation of a column's mask ([`Masker`]). Source:
//! `cql3.functions.masking`.

use md5::Md5;
use schema::{Column, ColumnMask, Table};
use sha1::Sha1;
use sha2::{Digest, Sha224, Sha256, Sha384, Sha512, Sha512_224, Sha512_256};
use stdx::WallMicros;
use types::compat::Assignment;
use types::custom::CustomKind;
use types::wire::{encode_collection, encode_tuple, encode_vector};
use types::{CqlType, Decimal, Duration, temporal, timeuuid};

use crate::call::{Call, cannot_infer, one_type, wrong_argument, wrong_count};
use crate::digests;
use crate::env::{EvalEnv, UuidSource};
use crate::error::PlanError;
use crate::native::{Args, Argument, NativeFunction};
use crate::user::FunctionScope;

/// A value that is known by its type only.
pub struct OfType<'t>(pub &'t CqlType);

impl Argument for OfType<'_> {
    fn test(&self, ty: &CqlType) -> Assignment {
        self.0.test_assignment(ty)
    }

    fn exact_type(&self) -> Option<CqlType> {
        Some(self.0.clone())
    }

    fn text(&self) -> String {
        self.0.to_marshal_name()
    }
}

/// Returns true if a function may be a column's mask.
pub fn is_masking(name: &str) -> bool {
    matches!(
        name,
        "mask_null" | "mask_default" | "mask_replace" | "mask_inner" | "mask_outer" | "mask_hash"
    )
}

/// Returns true if a function checks its other arguments before it reads the value. Source:
/// `HashMaskingFunction.newArguments`, `PartialMaskingFunction.newArguments`.
pub fn checks_arguments(function: &NativeFunction) -> bool {
    let with_checked = match &*function.name {
        "mask_hash" => 2,
        "mask_inner" | "mask_outer" => 4,
        _ => return false,
    };
    function.args.len() == with_checked
}

/// A column's mask, ready to be laid over its values.
#[derive(Clone, Debug)]
pub struct Masker {
    /// Or why a user's function cannot be called.
    function: Result<NativeFunction, PlanError>,
    fixed: Vec<Option<Vec<u8>>>,
    /// Error of its fixed arguments, whatever the value is.
    wrong: Option<PlanError>,
}

impl Masker {
    /// # Errors
    /// The mask is not one of this version's, or does not take such arguments.
    pub fn new(
        table: &Table,
        column: &Column,
        mask: &ColumnMask,
        scope: FunctionScope<'_>,
    ) -> Result<Masker, PlanError> {
        let Some(args) = mask.users_arguments() else { return Masker::native(column, mask) };
        // A role that may see the values never calls it, so errors are reported at the call.
        let function = crate::user::mask(&table.keyspace, &mask.function, &args, scope);
        let fixed = mask.args.iter().map(|(_, value)| value.clone()).collect();
        Ok(Masker { function, fixed, wrong: None })
    }

    /// # Errors
    /// The mask is not one of this version's, or does not take such arguments.
    pub fn native(column: &Column, mask: &ColumnMask) -> Result<Masker, PlanError> {
        let types = std::iter::once(&column.ty).chain(mask.args.iter().map(|(ty, _)| ty));
        let types: Vec<OfType<'_>> = types.map(OfType).collect();
        let args: Vec<&dyn Argument> = types.iter().map(|ty| ty as &dyn Argument).collect();
        let receiver = Some(&column.ty);
        let call = Call { name: &mask.function, args: &args, receiver, table: None };
        let function = make(&call)?.ok_or_else(|| {
            PlanError::invalid(format!(
                "the mask of column {}, {}, is not known to this version of Helenus",
                column.name, mask.function
            ))
        })?;
        let fixed = mask.args.iter().map(|(_, value)| value.clone()).collect();
        let mut masker = Masker { function: Ok(function), fixed, wrong: None };
        let uuids = UuidSource::new(0);
        let env = EvalEnv::of_constants(WallMicros(0), &uuids);
        masker.wrong = masker.mask(Some(&[]), &env).err();
        Ok(masker)
    }

    /// As in Cassandra, a bad fixed argument is reported at every execution, whatever the user and
    /// the values, but only after the check that the user has the permissions.
    ///
    /// # Errors
    /// The mask cannot be computed with its fixed arguments.
    pub fn check(&self) -> Result<(), PlanError> {
        self.wrong.clone().map_or(Ok(()), Err)
    }

    /// Not a user's function.
    pub fn is_native(&self) -> bool {
        self.function.as_ref().is_ok_and(|function| function.callee.is_none())
    }

    /// Returns the value to show instead of a value; `None` is null, in and out.
    ///
    /// # Errors
    /// The function cannot be computed with its fixed arguments.
    pub fn mask(
        &self,
        value: Option<&[u8]>,
        env: &EvalEnv<'_>,
    ) -> Result<Option<Vec<u8>>, PlanError> {
        let mut args = vec![value];
        args.extend(self.fixed.iter().map(Option::as_deref));
        self.function.as_ref().map_err(PlanError::clone)?.eval(&args, env)
    }
}

/// Returns true if a column's mask of that function can be computed.
pub fn can_mask(function: &str) -> bool {
    is_masking(function)
}

/// Checks a mask that no statement built.
///
/// # Errors
/// The function does not exist, or it does not accept the column and the arguments.
pub fn check_mask(column: &Column, mask: &ColumnMask) -> Result<(), PlanError> {
    Masker::native(column, mask)?.check()
}

/// The function of the call's name for its arguments.
pub(crate) fn make(call: &Call<'_>) -> Result<Option<NativeFunction>, PlanError> {
    match call.name {
        "mask_null" => {
            let ty = one_type(call, "any")?;
            let args = [ty.clone()];
            Ok(Some(NativeFunction::made(call.name, &args, ty, |_, _, _| Ok(None))))
        }
        "mask_default" => {
            let ty = one_type(call, "any")?;
            let args = [ty.clone()];
            Ok(Some(NativeFunction::made(call.name, &args, ty, |f, _, _| {
                Ok(masked_value(&f.returns))
            })))
        }
        "mask_replace" => replace(call),
        "mask_inner" | "mask_outer" => partial(call),
        "mask_hash" => hash(call),
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
    let eval = |_: &NativeFunction, args: &Args<'_>, _: &EvalEnv<'_>| {
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
    check_fixed(call, &args)?;
    Ok(Some(NativeFunction::made(call.name, &args, ty, mask)))
}

fn hash(call: &Call<'_>) -> Result<Option<NativeFunction>, PlanError> {
    const PARAMETERS: &str = "any, [text]";
    let ([value] | [value, _]) = call.args else { return Err(wrong_count(call, PARAMETERS)) };
    let ty = value.compatible_type().ok_or_else(|| cannot_infer(call, PARAMETERS, *value))?;
    let mut args = vec![ty];
    if call.args.len() == 2 {
        args.push(CqlType::Text);
    }
    check_fixed(call, &args)?;
    let eval = |_: &NativeFunction, args: &Args<'_>, _: &EvalEnv<'_>| {
        let algorithm = args.get(1).copied().flatten().map(String::from_utf8_lossy);
        // An unknown name is an error for nulls, too.
        let digest = digest_of(algorithm.as_deref().unwrap_or("SHA-256"))?;
        Ok(args.first().copied().flatten().map(digest))
    };
    Ok(Some(NativeFunction::made(call.name, &args, CqlType::Blob, eval)))
}

/// Gives the digest of a value.
type DigestOf = fn(&[u8]) -> Vec<u8>;

/// A digest by the name that Java has for it, in any case.
fn digest_of(algorithm: &str) -> Result<DigestOf, PlanError> {
    Ok(match algorithm.to_ascii_uppercase().as_str() {
        "MD2" => digests::md2,
        "SHA3-224" => |value| digests::sha3(value, 28),
        "SHA3-256" => |value| digests::sha3(value, 32),
        "SHA3-384" => |value| digests::sha3(value, 48),
        "SHA3-512" => |value| digests::sha3(value, 64),
        "MD5" => |value| Md5::digest(value).to_vec(),
        "SHA" | "SHA1" | "SHA-1" => |value| Sha1::digest(value).to_vec(),
        "SHA-224" | "SHA224" => |value| Sha224::digest(value).to_vec(),
        "SHA-256" | "SHA256" => |value| Sha256::digest(value).to_vec(),
        "SHA-384" | "SHA384" => |value| Sha384::digest(value).to_vec(),
        "SHA-512" | "SHA512" => |value| Sha512::digest(value).to_vec(),
        "SHA-512/224" | "SHA512/224" => |value| Sha512_224::digest(value).to_vec(),
        "SHA-512/256" | "SHA512/256" => |value| Sha512_256::digest(value).to_vec(),
        _ => {
            let text = format!("Hash algorithm not found: {algorithm}");
            return Err(PlanError::invalid(text));
        }
    })
}

/// Arguments of fixed types are checked when the function is made. Source:
/// `FunctionParameter.fixed`.
fn check_fixed(call: &Call<'_>, types: &[CqlType]) -> Result<(), PlanError> {
    for (arg, ty) in call.args.iter().zip(types).skip(1) {
        if let Some(found) = arg.compatible_type()
            && !found.test_assignment(ty).is_assignable()
        {
            return Err(wrong_argument(call, &format!("an argument of type {ty}"), *arg, &found));
        }
    }
    Ok(())
}

/// Positions count UTF-16 units in Cassandra; here characters, so that none is cut in two.
fn mask(
    f: &NativeFunction,
    args: &Args<'_>,
    _: &EvalEnv<'_>,
) -> Result<Option<Vec<u8>>, PlanError> {
    // Looked at before the value, which may be null.
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
    let Some(value) = args.first().copied().flatten() else { return Ok(None) };
    let value = String::from_utf8_lossy(value);
    let number = |i: usize| {
        f.arg(args, i)
            .and_then(|b| b.try_into().ok())
            .map_or(0, |b| i64::from(i32::from_be_bytes(b)))
    };
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

/// Returns the value that replaces every value of a type. `None`: null.
fn masked_value(ty: &CqlType) -> Option<Vec<u8>> {
    Some(match ty {
        CqlType::Ascii | CqlType::Text => b"****".to_vec(),
        CqlType::Custom(custom) if matches!(custom.kind(), CustomKind::LexicalUuid) => vec![0; 16],
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
