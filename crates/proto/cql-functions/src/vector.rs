//! `similarity_cosine|euclidean|dot_product`: the scores of indexes of vectors. Source: `VectorFcts`, jvector's
//! `VectorSimilarityFunction`.

use index_format::vectors::Similarity;
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
    let similarity = match &*f.name {
        "similarity_cosine" => {
            if [&a, &b].iter().any(|v| v.iter().all(|x| *x == 0.0)) {
                return Err(PlanError::invalid(format!(
                    "Function {} doesn't support all-zero vectors.",
                    f.full_name()
                )));
            }
            Similarity::Cosine
        }
        "similarity_euclidean" => Similarity::Euclidean,
        _ => Similarity::DotProduct,
    };
    Ok(Some(similarity.score(&a, &b).to_be_bytes().to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::UuidSource;

    /// Rows in the order of the scores of an index must show values of these functions in that order.
    #[test]
    fn the_functions_return_the_scores_of_indexes_to_the_bit() {
        let mut random = testkit::Random::new(11);
        let uuids = UuidSource::new(1);
        let env = EvalEnv::of_constants(stdx::time::WallMicros(0), &uuids);
        for dimension in [1u32, 7, 9, 64, 384] {
            let mut vector = || -> Vec<f32> {
                (0..dimension).map(|_| f32::from(random.byte()) / 77.0 - 1.5).collect()
            };
            let (a, b) = (vector(), vector());
            let bytes = |v: &[f32]| -> Vec<u8> { v.iter().flat_map(|x| x.to_be_bytes()).collect() };
            let (a_bytes, b_bytes) = (bytes(&a), bytes(&b));
            let ty = CqlType::vector(CqlType::Float, dimension);
            for (name, of) in [
                ("similarity_cosine", Similarity::Cosine),
                ("similarity_euclidean", Similarity::Euclidean),
                ("similarity_dot_product", Similarity::DotProduct),
            ] {
                let types = [ty.clone(), ty.clone()];
                let f = NativeFunction::made(name, &types, CqlType::Float, similarity);
                let value = f.eval(&[Some(&a_bytes), Some(&b_bytes)], &env).unwrap();
                let score = of.score(&a, &b).to_be_bytes().to_vec();
                assert_eq!(value, Some(score), "{name} of {dimension} dimensions");
            }
        }
    }
}
