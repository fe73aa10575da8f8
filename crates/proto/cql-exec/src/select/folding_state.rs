//! State of a fold at the end of a page, as bytes: `docs/formats/internode.md`, `Scan`.
//!
//! The plan determines the shape of a state; the bytes only fill it in.

use codec::{DecodeError, Reader, Writer};
use cql_plan::select::{ResultPlan, Shaping};
use data::FoldState;
use data::clustering;
use smallvec::SmallVec;
use stdx::Token;

use super::accumulate::Accumulator;
use super::folding::Kept;
use super::{Group, Places};

const INSIDE: u8 = 1;
const MAY_SHOW_STATIC: u8 = 2;
const OPEN: u8 = 4;

const LAST: u8 = 1;
const OUTPUT: u8 = 2;

/// Appends a state of a fold. Returns false for another kind of state, or one of a user's
/// aggregate.
pub(super) fn encode_state(state: &FoldState, out: &mut Vec<u8>) -> bool {
    let Some(kept) = state.downcast_ref::<Kept>() else { return false };
    let Kept { group, is_inside, key, in_partition, may_show_static, limit_left } = kept;
    let flag = |set: bool, flag: u8| if set { flag } else { 0 };
    out.put_u8(
        flag(*is_inside, INSIDE) | flag(*may_show_static, MAY_SHOW_STATIC) | flag(group.open, OPEN),
    );
    out.put_bytes_vint(key);
    out.put_u32(*in_partition);
    out.put_u32(*limit_left);
    if !group.open {
        return true;
    }
    let Group { states, first_row, last, output, places, .. } = group;
    out.put_u8(flag(last.is_some(), LAST) | flag(output.is_some(), OUTPUT));
    out.put_vint_unsigned(states.len() as u64);
    if !states.iter().all(|state| state.encode_state(out)) {
        return false;
    }
    out.put_vint_unsigned(first_row.len() as u64);
    first_row.iter().for_each(|value| put_value(out, value.as_deref()));
    last.iter().chain(output).for_each(|bytes| out.put_bytes_vint(bytes));
    if let Some(places) = places {
        out.put_i64(places.first.0);
        places.values.iter().for_each(|token| out.put_i64(token.0));
    }
    true
}

/// The state that [`encode_state`] has appended for a fold of the same plan.
pub(super) fn decode_state(plan: &ResultPlan, bytes: &[u8]) -> Result<FoldState, DecodeError> {
    let mut reader = Reader::new(bytes, "state of a fold");
    let flags = reader.u8()?;
    let is_one = matches!(plan.shaping, Shaping::Groups { prefix: None });
    if flags & !(INSIDE | MAY_SHOW_STATIC | OPEN) != 0 {
        return Err(reader.invalid(i64::from(flags)));
    }
    let key = SmallVec::from_slice(reader.bytes_vint()?);
    let (in_partition, limit_left) = (reader.u32()?, reader.u32()?);
    let mut group = match flags & OPEN {
        0 => Group::default(),
        _ => open_group(plan, is_one, &mut reader)?,
    };
    if is_one && group.places.is_none() {
        group.places = Some(Box::default());
    }
    reader.finish()?;
    let (is_inside, may_show_static) = (flags & INSIDE != 0, flags & MAY_SHOW_STATIC != 0);
    Ok(Box::new(Kept { group, is_inside, key, in_partition, may_show_static, limit_left }))
}

fn open_group(
    plan: &ResultPlan,
    is_one: bool,
    reader: &mut Reader<'_>,
) -> Result<Group, DecodeError> {
    let flags = reader.u8()?;
    if flags & !(LAST | OUTPUT) != 0 {
        return Err(reader.invalid(i64::from(flags)));
    }
    let expects = |reader: &mut Reader<'_>, count: usize| match reader.vint_len()? == count {
        true => Ok(()),
        false => Err(reader.invalid(i64::try_from(count).unwrap_or(i64::MAX))),
    };
    let aggregates = &plan.selection.aggregates;
    expects(reader, aggregates.len())?;
    let states =
        aggregates.iter().map(|aggregate| Accumulator::decode_state(&aggregate.function, reader));
    let states = states.collect::<Result<Vec<_>, _>>()?;
    let first_rows = plan.selection.first_row.len();
    expects(reader, first_rows)?;
    let first_row = (0..first_rows).map(|_| take_value(reader)).collect::<Result<Vec<_>, _>>()?;
    let last = match flags & LAST {
        0 => None,
        _ => {
            let last = reader.bytes_vint()?;
            if clustering::check(last, plan.comparator.len()) != Some(plan.comparator.len()) {
                return Err(reader.invalid(i64::from(flags)));
            }
            Some(last.to_vec())
        }
    };
    let output = if flags & OUTPUT != 0 { Some(reader.bytes_vint()?.to_vec()) } else { None };
    let places = match is_one {
        false => None,
        true => {
            let first = Token(reader.i64()?);
            let values = states.iter().map(|_| reader.i64().map(Token));
            Some(Box::new(Places { first, values: values.collect::<Result<_, _>>()? }))
        }
    };
    Ok(Group { open: true, states, first_row, last, first: None, output, places })
}

/// Returns true if these are the cells of one result.
pub(super) fn is_result(plan: &ResultPlan, bytes: &[u8]) -> bool {
    let cells = if plan.json.is_some() { 1 } else { plan.selection.outputs.len() };
    let mut reader = Reader::new(bytes, "result of a fold");
    let all_are_there = (0..cells).all(|_| match reader.i32() {
        Ok(-1) => true,
        Ok(length) => usize::try_from(length).is_ok_and(|length| reader.skip(length).is_ok()),
        Err(_) => false,
    });
    all_are_there && reader.is_empty()
}

/// Appends 0 for null, else 1 and the bytes.
pub(crate) fn put_value(out: &mut Vec<u8>, value: Option<&[u8]>) {
    out.put_bool(value.is_some());
    if let Some(value) = value {
        out.put_bytes_vint(value);
    }
}

/// Reads a value that [`put_value`] has appended.
pub(crate) fn take_value(reader: &mut Reader<'_>) -> Result<Option<Vec<u8>>, DecodeError> {
    match reader.u8()? {
        0 => Ok(None),
        1 => Ok(Some(reader.bytes_vint()?.to_vec())),
        other => Err(reader.invalid(i64::from(other))),
    }
}
