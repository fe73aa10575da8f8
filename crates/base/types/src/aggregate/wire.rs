//! States of aggregates as bytes, for another node that continues or merges them.
//!
//! ```text
//! tag u8 · content      1 count: i64                       2 least or greatest: 0 | 1 · value (v, bytes)
//! 3 sum of integers: i64 · 4 of varints: number · 5 of decimals: decimal · 6 of floats: sum
//! 7 average of integers, 8 of varints: number · count i32 · 9 of decimals: decimal · count i32
//! 10 of floats: sum · count i32 · 0 | 1 · decimal
//! number, decimal: v, bytes as a value of the type     sum: three doubles, bit by bit
//! ```
//!
//! Decoding needs the aggregate: the statement names its kind, the bytes do not.

use codec::{DecodeError, Reader, Writer};

use super::{Aggregate, Compensated, State};
use crate::number::{Decimal, varint_from_bytes, varint_to_bytes};

const COUNT: u8 = 1;
const EXTREME: u8 = 2;
const SUM_INTEGER: u8 = 3;
const SUM_VARINT: u8 = 4;
const SUM_DECIMAL: u8 = 5;
const SUM_FLOAT: u8 = 6;
const AVG_INTEGER: u8 = 7;
const AVG_VARINT: u8 = 8;
const AVG_DECIMAL: u8 = 9;
const AVG_FLOAT: u8 = 10;

impl State {
    fn tag(&self) -> u8 {
        match self {
            State::Count(_) => COUNT,
            State::Extreme { .. } => EXTREME,
            State::SumInteger(_) => SUM_INTEGER,
            State::SumVarint(_) => SUM_VARINT,
            State::SumDecimal(_) => SUM_DECIMAL,
            State::SumFloat(_) => SUM_FLOAT,
            State::AvgInteger { .. } => AVG_INTEGER,
            State::AvgVarint { .. } => AVG_VARINT,
            State::AvgDecimal { .. } => AVG_DECIMAL,
            State::AvgFloat { .. } => AVG_FLOAT,
        }
    }
}

impl Aggregate {
    /// Appends its state.
    pub fn encode_state(&self, out: &mut Vec<u8>) {
        out.put_u8(self.state.tag());
        match &self.state {
            State::Count(count) | State::SumInteger(count) => out.put_i64(*count),
            State::Extreme { best, .. } => {
                out.put_bool(best.is_some());
                if let Some(best) = best {
                    out.put_bytes_vint(best);
                }
            }
            State::SumVarint(sum) => out.put_bytes_vint(&varint_to_bytes(sum)),
            State::SumDecimal(sum) => out.put_bytes_vint(&sum.to_bytes()),
            State::SumFloat(sum) => put_sum(out, sum),
            State::AvgInteger { sum, count } | State::AvgVarint { sum, count } => {
                out.put_bytes_vint(&varint_to_bytes(sum));
                out.put_i32(*count);
            }
            State::AvgDecimal { avg, count } => {
                out.put_bytes_vint(&avg.to_bytes());
                out.put_i32(*count);
            }
            State::AvgFloat { sum, count, big } => {
                put_sum(out, sum);
                out.put_i32(*count);
                out.put_bool(big.is_some());
                if let Some(big) = big {
                    out.put_bytes_vint(&big.to_bytes());
                }
            }
        }
    }

    /// The same aggregate as this one, with the state that another has encoded.
    ///
    /// # Errors
    /// The bytes are of another aggregate, cut short, or of no value of its type.
    pub fn decode_state(&self, reader: &mut Reader<'_>) -> Result<Aggregate, DecodeError> {
        let tag = reader.u8()?;
        if tag != self.state.tag() {
            return Err(reader.invalid(i64::from(tag)));
        }
        let state = match &self.state {
            State::Count(_) => State::Count(reader.i64()?),
            State::SumInteger(_) => State::SumInteger(reader.i64()?),
            State::Extreme { max, .. } => {
                let best = match flag(reader)? {
                    true => Some(reader.bytes_vint()?.to_vec()),
                    false => None,
                };
                if best.as_ref().is_some_and(|best| self.ty.validate(best).is_err()) {
                    return Err(reader.invalid(i64::from(tag)));
                }
                State::Extreme { best, max: *max }
            }
            State::SumVarint(_) => State::SumVarint(varint_from_bytes(reader.bytes_vint()?)),
            State::SumDecimal(_) => State::SumDecimal(decimal(reader)?),
            State::SumFloat(_) => State::SumFloat(take_sum(reader)?),
            State::AvgInteger { .. } => {
                let sum = varint_from_bytes(reader.bytes_vint()?);
                State::AvgInteger { sum, count: reader.i32()? }
            }
            State::AvgVarint { .. } => {
                let sum = varint_from_bytes(reader.bytes_vint()?);
                State::AvgVarint { sum, count: reader.i32()? }
            }
            State::AvgDecimal { .. } => {
                let avg = decimal(reader)?;
                State::AvgDecimal { avg, count: reader.i32()? }
            }
            State::AvgFloat { .. } => {
                let (sum, count) = (take_sum(reader)?, reader.i32()?);
                let big = if flag(reader)? { Some(decimal(reader)?) } else { None };
                State::AvgFloat { sum, count, big }
            }
        };
        Ok(Aggregate { ty: self.ty.clone(), state })
    }
}

fn flag(reader: &mut Reader<'_>) -> Result<bool, DecodeError> {
    match reader.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(reader.invalid(i64::from(other))),
    }
}

fn decimal(reader: &mut Reader<'_>) -> Result<Decimal, DecodeError> {
    let bytes = reader.bytes_vint()?;
    Decimal::from_bytes(bytes)
        .ok_or_else(|| reader.invalid(i64::try_from(bytes.len()).unwrap_or(i64::MAX)))
}

fn put_sum(out: &mut Vec<u8>, sum: &Compensated) {
    let Compensated { sum, compensation, simple } = *sum;
    for value in [sum, compensation, simple] {
        out.put_u64(value.to_bits());
    }
}

fn take_sum(reader: &mut Reader<'_>) -> Result<Compensated, DecodeError> {
    let mut next = || reader.u64().map(f64::from_bits);
    Ok(Compensated { sum: next()?, compensation: next()?, simple: next()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CqlType;
    use crate::aggregate::AggregateKind::{self, Avg, Count, Max, Min, Sum};

    const ALL: &[(AggregateKind, CqlType, &[&str])] = &[
        (Count, CqlType::Text, &["a", "b"]),
        (Min, CqlType::Int, &["3", "-3"]),
        (Max, CqlType::Text, &["a", "b"]),
        (Sum, CqlType::Int, &["2147483647", "5"]),
        (Sum, CqlType::Varint, &["9223372036854775807", "9223372036854775807"]),
        (Sum, CqlType::Decimal, &["1.5", "2.25"]),
        (Sum, CqlType::Double, &["0.1", "0.2", "0.3"]),
        (Avg, CqlType::Bigint, &["9223372036854775807", "9223372036854775807"]),
        (Avg, CqlType::Varint, &["1", "2"]),
        (Avg, CqlType::Decimal, &["1.00", "2.00"]),
        (Avg, CqlType::Double, &["1.5e308", "1.7e308"]),
        (Avg, CqlType::Float, &["1", "2"]),
    ];

    fn encoded(aggregate: &Aggregate) -> Vec<u8> {
        let mut bytes = Vec::new();
        aggregate.encode_state(&mut bytes);
        bytes
    }

    fn decoded(start: &Aggregate, bytes: &[u8]) -> Option<Aggregate> {
        let mut reader = Reader::new(bytes, "state");
        let aggregate = start.decode_state(&mut reader).ok()?;
        reader.finish().ok()?;
        Some(aggregate)
    }

    #[test]
    fn a_state_goes_on_where_it_was_encoded() {
        for (kind, ty, values) in ALL {
            let start = Aggregate::new(*kind, ty).expect("defined");
            let (mut whole, mut moved) = (start.clone(), start.clone());
            for value in *values {
                let bytes = ty.from_string(value).expect("a value");
                whole.add(Some(&bytes)).expect("a number");
                moved.add(Some(&bytes)).expect("a number");
                moved = decoded(&start, &encoded(&moved)).expect("it comes back");
            }
            assert_eq!(whole.result(), moved.result(), "{kind:?} of {ty}");
            assert_eq!(encoded(&whole), encoded(&moved), "{kind:?} of {ty}");
        }
    }

    #[test]
    fn damaged_states_are_refused_or_are_states() {
        for (kind, ty, values) in ALL {
            let start = Aggregate::new(*kind, ty).expect("defined");
            let mut aggregate = start.clone();
            let value = ty.from_string(values[0]).expect("a value");
            aggregate.add(Some(&value)).expect("a number");
            let bytes = encoded(&aggregate);
            for cut in 0..bytes.len() {
                assert!(decoded(&start, &bytes[..cut]).is_none(), "{kind:?} of {ty}: {cut}");
            }
            for at in 0..bytes.len() * 8 {
                let mut damaged = bytes.clone();
                damaged[at / 8] ^= 1 << (at % 8);
                if let Some(mut damaged) = decoded(&start, &damaged) {
                    // Whatever they are, there is an answer or an error.
                    let _ = damaged.add(Some(&value));
                    let _ = damaged.result();
                }
            }
            let other = Aggregate::new(Count, ty).expect("defined");
            assert_eq!(decoded(&other, &bytes).is_some(), *kind == Count, "of another aggregate");
        }
    }
}
