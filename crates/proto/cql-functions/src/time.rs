//! Current times, conversions between them, `floor`. Source: `TimeFcts`, `UuidFcts`.

use types::{CqlType, Duration, temporal, timeuuid};

use crate::env::EvalEnv;
use crate::error::PlanError;
use crate::native::{Args, Eval, NativeFunction};

/// Adds the functions of that name.
pub(crate) fn candidates(name: &str, out: &mut Vec<NativeFunction>) {
    use CqlType as T;
    let mut impure = |returns: CqlType, eval: Eval| {
        let function = NativeFunction::new(name, &[], returns, eval);
        out.push(NativeFunction { pure: false, ..function });
    };
    match name {
        "now" | "current_timeuuid" | "currenttimeuuid" => {
            impure(T::Timeuuid, |_, _, env| Ok(Some(env.uuids.time_uuid(env.clock).to_vec())));
        }
        "current_timestamp" | "currenttimestamp" => {
            impure(T::Timestamp, |_, _, env| Ok(Some(env.clock.millis().to_be_bytes().to_vec())));
        }
        "current_date" | "currentdate" => impure(T::Date, |_, _, env| {
            Ok(Some(temporal::date_of_millis(env.clock.millis()).to_be_bytes().to_vec()))
        }),
        "current_time" | "currenttime" => impure(T::Time, |_, _, env| {
            let nanos = env.clock.0.rem_euclid(86_400_000_000).saturating_mul(1_000);
            Ok(Some(nanos.to_be_bytes().to_vec()))
        }),
        "uuid" => impure(T::Uuid, |_, _, env| Ok(Some(env.uuids.random_uuid().to_vec()))),
        "min_timeuuid" | "mintimeuuid" => one(name, T::Timestamp, T::Timeuuid, out),
        "max_timeuuid" | "maxtimeuuid" => one(name, T::Timestamp, T::Timeuuid, out),
        "to_date" | "todate" => {
            one(name, T::Timeuuid, T::Date, out);
            one(name, T::Timestamp, T::Date, out);
        }
        "to_timestamp" | "totimestamp" => {
            one(name, T::Timeuuid, T::Timestamp, out);
            one(name, T::Date, T::Timestamp, out);
        }
        "to_unix_timestamp" | "tounixtimestamp" => {
            one(name, T::Timeuuid, T::Bigint, out);
            one(name, T::Timestamp, T::Bigint, out);
            one(name, T::Date, T::Bigint, out);
        }
        "floor" => {
            for (ty, returns) in
                [(T::Timestamp, T::Timestamp), (T::Timeuuid, T::Timestamp), (T::Date, T::Date)]
            {
                let start = if ty == T::Date { T::Date } else { T::Timestamp };
                let args = [ty, T::Duration, start];
                out.push(NativeFunction::new(name, &args[..2], returns.clone(), floor));
                out.push(NativeFunction::new(name, &args, returns, floor));
            }
            out.push(NativeFunction::new(name, &[T::Time, T::Duration], T::Time, floor_time));
        }
        _ => {}
    }
}

fn one(name: &str, from: CqlType, returns: CqlType, out: &mut Vec<NativeFunction>) {
    out.push(NativeFunction::new(name, &[from], returns, convert));
}

/// Milliseconds since 1970 of a date, timestamp or timeuuid.
fn millis_of(ty: &CqlType, bytes: &[u8]) -> Option<i64> {
    match ty {
        CqlType::Timeuuid => timeuuid::unix_millis(bytes),
        CqlType::Date => {
            bytes.try_into().ok().map(|b| temporal::millis_of_date(u32::from_be_bytes(b)))
        }
        _ => bytes.try_into().ok().map(i64::from_be_bytes),
    }
}

/// Like [`millis_of`]. `min_timeuuid` of times that a timeuuid has no room for gives UUIDs of other
/// versions, which are refused here.
fn checked_millis(ty: &CqlType, bytes: &[u8]) -> Result<Option<i64>, PlanError> {
    let millis = millis_of(ty, bytes);
    if millis.is_none() && *ty == CqlType::Timeuuid {
        ty.validate(bytes).map_err(PlanError::from)?;
    }
    Ok(millis)
}

fn convert(
    f: &NativeFunction,
    args: &Args<'_>,
    _: &EvalEnv<'_>,
) -> Result<Option<Vec<u8>>, PlanError> {
    let millis = match (f.args.first(), f.arg(args, 0)) {
        (Some(ty), Some(bytes)) => checked_millis(ty, bytes)?,
        _ => None,
    };
    Ok(millis.map(|millis| match (&f.returns, f.name.starts_with("min")) {
        (CqlType::Timeuuid, true) => timeuuid::min_at_millis(millis).to_vec(),
        (CqlType::Timeuuid, false) => timeuuid::max_at_millis(millis).to_vec(),
        (CqlType::Date, _) => temporal::date_of_millis(millis).to_be_bytes().to_vec(),
        _ => millis.to_be_bytes().to_vec(),
    }))
}

fn duration_of(bytes: &[u8]) -> Result<Duration, PlanError> {
    Duration::from_bytes(bytes).map_err(PlanError::from)
}

fn duration_text(bytes: &[u8]) -> String {
    CqlType::Duration.format_unquoted(bytes)
}

/// Source: `Duration.floorTimestamp`.
fn floor(
    f: &NativeFunction,
    args: &Args<'_>,
    _: &EvalEnv<'_>,
) -> Result<Option<Vec<u8>>, PlanError> {
    let (Some(time), Some(bytes)) = (f.arg(args, 0), f.arg(args, 1)) else { return Ok(None) };
    let time_type = f.args.first().unwrap_or(&CqlType::Timestamp);
    let start = match f.args.get(2) {
        None => 0,
        Some(ty) => match f.arg(args, 2).and_then(|b| millis_of(ty, b)) {
            Some(start) => start,
            None => return Ok(None),
        },
    };
    let Some(time) = checked_millis(time_type, time)? else { return Ok(None) };
    let duration = duration_of(bytes)?;
    if *time_type == CqlType::Date {
        if !duration.has_day_precision() {
            return Err(PlanError::invalid(format!(
                "The floor on date values cannot be computed for the {} duration as precision is \
                 below 1 day",
                duration_text(bytes)
            )));
        }
    } else if duration.nanos() % 1_000_000 != 0 {
        return Err(PlanError::invalid(format!(
            "The floor cannot be computed for the {} duration as precision is below 1 millisecond",
            duration_text(bytes)
        )));
    }
    if start > time {
        return Err(PlanError::invalid(
            "The floor function starting time is greater than the provided time",
        ));
    }
    if duration.is_negative() {
        return Err(PlanError::invalid(
            "Negative durations are not supported by the floor function",
        ));
    }
    let millis = floor_millis(time, duration, start);
    Ok(Some(match f.returns {
        CqlType::Date => temporal::date_of_millis(millis).to_be_bytes().to_vec(),
        _ => millis.to_be_bytes().to_vec(),
    }))
}

fn multiplied(duration: Duration, factor: i64) -> Option<Duration> {
    let months = i32::try_from(i64::from(duration.months()).checked_mul(factor)?).ok()?;
    let days = i32::try_from(i64::from(duration.days()).checked_mul(factor)?).ok()?;
    Duration::new(months, days, duration.nanos().checked_mul(factor)?).ok()
}

/// The last point `start + n * duration` that is not after `time`.
fn floor_millis(time: i64, duration: Duration, start: i64) -> i64 {
    if duration.months() == 0 {
        let millis = i64::from(duration.days())
            .saturating_mul(86_400_000)
            .saturating_add(duration.nanos() / 1_000_000);
        if millis == 0 {
            return time;
        }
        let delta = time.wrapping_sub(start).rem_euclid(millis);
        return time.wrapping_sub(delta);
    }
    // With months the steps differ in length: look for the last one by halving.
    let at = |n: i64| multiplied(duration, n).map(|d| d.add_to_millis(start));
    let shortest = i64::from(duration.months())
        .saturating_mul(28)
        .saturating_add(i64::from(duration.days()))
        .saturating_mul(86_400_000)
        .max(1);
    let (mut low, mut high) = (0, (time.saturating_sub(start) / shortest).saturating_add(1));
    while low < high {
        let middle = low.saturating_add(high.saturating_sub(low).saturating_add(1) / 2);
        if at(middle).is_some_and(|found| found <= time) {
            low = middle;
        } else {
            high = middle.saturating_sub(1);
        }
    }
    at(low).unwrap_or(start)
}

fn floor_time(
    f: &NativeFunction,
    args: &Args<'_>,
    _: &EvalEnv<'_>,
) -> Result<Option<Vec<u8>>, PlanError> {
    let (Some(time), Some(bytes)) = (f.arg(args, 0), f.arg(args, 1)) else { return Ok(None) };
    let Ok(time) = time.try_into().map(i64::from_be_bytes) else { return Ok(None) };
    let duration = duration_of(bytes)?;
    if duration.is_negative() {
        return Err(PlanError::invalid(
            "Negative durations are not supported by the floor function",
        ));
    }
    if duration.months() != 0 || duration.days() != 0 || duration.nanos() > 86_400_000_000_000 {
        return Err(PlanError::invalid(
            "For time values, the floor can only be computed for durations smaller that a day",
        ));
    }
    if duration.nanos() == 0 {
        return Ok(Some(time.to_be_bytes().to_vec()));
    }
    let floor = time.wrapping_sub(time.rem_euclid(duration.nanos()));
    Ok(Some(floor.to_be_bytes().to_vec()))
}
