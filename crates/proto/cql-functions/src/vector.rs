//! `similarity_cosine|euclidean|dot_product`. Source: `VectorFcts`, jvector's
//! `VectorSimilarityFunction`.

use types::CqlType;
use types::wire::VectorElements;

use crate::call::{Call, cannot_infer, wrong_argument, wrong_count};
use crate::env::EvalEnv;
use crate::error::PlanError;
use crate::native::{Args, Argument, NativeFunction};

const PARAMETERS: &str = "vector<float, n>, vector<float, n>";

/// The function of the call's name for its arguments.
pub(crate) fn make(call: &Call<'_>) -> Result<Option<NativeFunction>, PlanError> {
    if !matches!(call.name, "similarity_cosine" | "similarity_euclidean" | "similarity_dot_product")
    {
        return Ok(None);
    }
    let [left, right] = call.args else { return Err(wrong_count(call, PARAMETERS)) };
    let known = |arg: &dyn Argument| match arg.vector_dimension() {
        Some(dimension) => Some(CqlType::vector(CqlType::Float, dimension)),
        None => arg.compatible_type().or_else(|| call.receiver.cloned()),
    };
    let (a, b) = (known(*left), known(*right));
    let a_type = a.clone().or_else(|| b.clone());
    let b_type = b.or(a);
    let mut dimensions = Vec::new();
    for (arg, ty) in [(left, &a_type), (right, &b_type)] {
        let Some(ty) = ty else { return Err(cannot_infer(call, PARAMETERS, *arg)) };
        match ty {
            CqlType::Vector { element, dimension } if **element == CqlType::Float => {
                dimensions.push(*dimension);
            }
            other => return Err(wrong_argument(call, "a float vector argument", *arg, other)),
        }
    }
    match dimensions.as_slice() {
        [a, b] if a == b => {
            let ty = CqlType::vector(CqlType::Float, *a);
            let args = [ty.clone(), ty];
            Ok(Some(NativeFunction::made(call.name, &args, CqlType::Float, similarity)))
        }
        _ => Err(PlanError::invalid("All arguments must have the same vector dimensions")),
    }
}

fn floats(f: &NativeFunction, bytes: &[u8]) -> Vec<f32> {
    let Some(CqlType::Vector { element, dimension }) = f.args.first() else { return Vec::new() };
    VectorElements::new(bytes, element, *dimension)
        .map_while(Result::ok)
        .filter_map(|e| e.try_into().ok().map(f32::from_be_bytes))
        .collect()
}

fn similarity(
    f: &NativeFunction,
    args: &Args<'_>,
    _: &EvalEnv<'_>,
) -> Result<Option<Vec<u8>>, PlanError> {
    let (Some(a), Some(b)) = (f.arg(args, 0), f.arg(args, 1)) else { return Ok(None) };
    let (a, b) = (floats(f, a), floats(f, b));
    let sum = |of: fn(f32, f32) -> f32| -> f32 { a.iter().zip(&b).map(|(x, y)| of(*x, *y)).sum() };
    let dot = || sum(|x, y| x * y);
    let value = match &*f.name {
        "similarity_cosine" => {
            if [&a, &b].iter().any(|v| v.iter().all(|x| *x == 0.0)) {
                return Err(PlanError::invalid(format!(
                    "Function {} doesn't support all-zero vectors.",
                    f.full_name()
                )));
            }
            let norm = |v: &[f32]| -> f32 { v.iter().map(|x| x * x).sum() };
            let cosine = f64::from(dot()) / (f64::from(norm(&a)) * f64::from(norm(&b))).sqrt();
            #[expect(clippy::cast_possible_truncation, reason = "the result is a float")]
            let cosine = cosine as f32;
            (1.0 + cosine) / 2.0
        }
        "similarity_euclidean" => 1.0 / (1.0 + sum(|x, y| (x - y) * (x - y))),
        _ => (1.0 + dot()) / 2.0,
    };
    Ok(Some(value.to_be_bytes().to_vec()))
}
