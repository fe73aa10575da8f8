//! `map_keys`, `map_values`, `collection_count|min|max|sum|avg`. Source: `CollectionFcts`.

use types::aggregate::{Aggregate, AggregateKind};
use types::wire::{CollectionKind, Elements, Entries, encode_collection};
use types::{Comparator, CqlType};

use crate::call::{Call, one_type, wrong_argument, wrong_count};
use crate::env::EvalEnv;
use crate::error::PlanError;
use crate::native::{Args, Eval, NativeFunction};

/// Orders the entries of a map by key; of equal keys the last one stays.
pub fn sort_entries<K: AsRef<[u8]>, V>(entries: &mut Vec<(K, V)>, order: &Comparator) {
    entries.sort_by(|a, b| order.compare(a.0.as_ref(), b.0.as_ref()));
    // The last one of equal keys counts: `dedup_by` keeps the first, so swap it in.
    entries.dedup_by(|later, kept| {
        let equal = order.compare(later.0.as_ref(), kept.0.as_ref()).is_eq();
        if equal {
            std::mem::swap(later, kept);
        }
        equal
    });
}

/// The function of the call's name for its argument.
pub(crate) fn make(call: &Call<'_>) -> Result<Option<NativeFunction>, PlanError> {
    let parameter = match call.name {
        "map_keys" | "map_values" => "map",
        "collection_count" => "collection",
        "collection_min" | "collection_max" | "collection_sum" | "collection_avg" => {
            "numeric_set_or_list"
        }
        _ => return Ok(None),
    };
    let ty = one_type(call, parameter)?;
    let refuse = |what: &str| {
        call.args.first().map_or_else(
            || wrong_count(call, parameter),
            |arg| wrong_argument(call, what, *arg, &ty),
        )
    };
    let (returns, eval): (CqlType, Eval) = match (call.name, &ty) {
        ("map_keys", CqlType::Map { key, .. }) => (CqlType::set((**key).clone(), true), halves),
        ("map_values", CqlType::Map { value, .. }) => {
            (CqlType::list((**value).clone(), true), halves)
        }
        ("map_keys" | "map_values", _) => return Err(refuse("a map argument")),
        ("collection_count", ty) if ty.is_collection() => (CqlType::Int, count),
        ("collection_count", _) => return Err(refuse("a collection argument")),
        (name, CqlType::Set { element, .. } | CqlType::List { element, .. }) => {
            let kind = kind_of(name);
            if matches!(kind, AggregateKind::Sum | AggregateKind::Avg) && !element.is_numeric() {
                return Err(refuse("a numeric set/list argument"));
            }
            (Aggregate::new(kind, element).map_err(PlanError::from)?.result_type(), aggregate)
        }
        ("collection_sum" | "collection_avg", _) => {
            return Err(refuse("a numeric set/list argument"));
        }
        _ => return Err(refuse("a set or list argument")),
    };
    Ok(Some(NativeFunction::made(call.name, &[ty], returns, eval)))
}

fn kind_of(name: &str) -> AggregateKind {
    match name {
        "collection_min" => AggregateKind::Min,
        "collection_max" => AggregateKind::Max,
        "collection_sum" => AggregateKind::Sum,
        _ => AggregateKind::Avg,
    }
}

/// Keys or values of a map.
fn halves(
    f: &NativeFunction,
    args: &Args<'_>,
    _: &EvalEnv<'_>,
) -> Result<Option<Vec<u8>>, PlanError> {
    let Some(bytes) = f.arg(args, 0) else { return Ok(None) };
    let keys = &*f.name == "map_keys";
    let mut parts = Vec::new();
    for entry in Entries::new(bytes).map_err(PlanError::from)? {
        let (key, value) = entry.map_err(PlanError::from)?;
        parts.push(if keys { key } else { value });
    }
    encode_collection(parts).map(Some).map_err(PlanError::from)
}

fn count(
    f: &NativeFunction,
    args: &Args<'_>,
    _: &EvalEnv<'_>,
) -> Result<Option<Vec<u8>>, PlanError> {
    let Some(bytes) = f.arg(args, 0) else { return Ok(None) };
    let elements = Elements::new(bytes, CollectionKind::List).map_err(PlanError::from)?;
    let count = i32::try_from(elements.declared_count()).unwrap_or(i32::MAX);
    Ok(Some(count.to_be_bytes().to_vec()))
}

fn aggregate(
    f: &NativeFunction,
    args: &Args<'_>,
    _: &EvalEnv<'_>,
) -> Result<Option<Vec<u8>>, PlanError> {
    let Some(bytes) = f.arg(args, 0) else { return Ok(None) };
    let Some(CqlType::Set { element, .. } | CqlType::List { element, .. }) = f.args.first() else {
        return Ok(None);
    };
    let mut state = Aggregate::new(kind_of(&f.name), element).map_err(PlanError::from)?;
    for item in Elements::new(bytes, CollectionKind::List).map_err(PlanError::from)? {
        state.add(item.map_err(PlanError::from)?).map_err(PlanError::from)?;
    }
    state.result().map_err(PlanError::from)
}
