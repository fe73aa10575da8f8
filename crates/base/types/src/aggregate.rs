//! States of the built-in aggregates. Source: `cql3.functions.AggregateFcts`.
//!
//! Overflow is Cassandra's: sums of integers wrap in the argument's type, averages of integers do
//! not overflow, floats are summed with compensation.

mod wire;

use crate::arithmetic::Number;
use crate::number::{BigInt, Decimal, Rounding, bigint_low_i64, check_length, varint_to_bytes};
use crate::{CqlType, TypeError};

/// Which aggregate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AggregateKind {
    /// Number of rows where the argument is not null.
    Count,
    /// Least value.
    Min,
    /// Greatest value.
    Max,
    /// Sum of numbers.
    Sum,
    /// Average of numbers.
    Avg,
}

/// A running aggregate over the values of one argument.
#[derive(Clone, Debug)]
pub struct Aggregate {
    ty: CqlType,
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    Count(i64),
    Extreme { best: Option<Vec<u8>>, max: bool },
    SumInteger(i64),
    SumVarint(BigInt),
    SumDecimal(Decimal),
    SumFloat(Compensated),
    AvgInteger { sum: BigInt, count: i32 },
    AvgVarint { sum: BigInt, count: i32 },
    AvgDecimal { avg: Decimal, count: i32 },
    AvgFloat { sum: Compensated, count: i32, big: Option<Decimal> },
}

/// Kahan's sum as Cassandra keeps it.
#[derive(Clone, Copy, Debug, Default)]
struct Compensated {
    sum: f64,
    compensation: f64,
    simple: f64,
}

impl Compensated {
    fn add(&mut self, value: f64) {
        self.simple += value;
        let corrected = value - self.compensation;
        let rounded = self.sum + corrected;
        self.compensation = (rounded - self.sum) - corrected;
        self.sum = rounded;
    }

    fn value(&self) -> f64 {
        let sum = self.sum + self.compensation;
        // Infinities of one sign give NaN above; the plain sum knows better.
        if sum.is_nan() && self.simple.is_infinite() { self.simple } else { sum }
    }
}

/// When the values of a merged aggregate came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Came {
    /// Before those that it is merged into.
    Before,
    /// After them.
    After,
}

impl Aggregate {
    /// A new state for values of type `ty`.
    ///
    /// # Errors
    /// Sum or average of a type that is not numeric.
    pub fn new(kind: AggregateKind, ty: &CqlType) -> Result<Aggregate, TypeError> {
        let zero = || BigInt::ZERO;
        let state = match (kind, ty) {
            (AggregateKind::Count, _) => State::Count(0),
            (AggregateKind::Min, _) => State::Extreme { best: None, max: false },
            (AggregateKind::Max, _) => State::Extreme { best: None, max: true },
            (AggregateKind::Sum, CqlType::Varint) => State::SumVarint(zero()),
            (AggregateKind::Sum, CqlType::Decimal) => State::SumDecimal(Decimal::zero()),
            (AggregateKind::Sum, CqlType::Float | CqlType::Double) => {
                State::SumFloat(Compensated::default())
            }
            (AggregateKind::Avg, CqlType::Varint) => State::AvgVarint { sum: zero(), count: 0 },
            (AggregateKind::Avg, CqlType::Decimal) => {
                State::AvgDecimal { avg: Decimal::zero(), count: 0 }
            }
            (AggregateKind::Avg, CqlType::Float | CqlType::Double) => {
                State::AvgFloat { sum: Compensated::default(), count: 0, big: None }
            }
            (AggregateKind::Sum, ty) if ty.is_numeric() => State::SumInteger(0),
            (AggregateKind::Avg, ty) if ty.is_numeric() => {
                State::AvgInteger { sum: zero(), count: 0 }
            }
            _ => {
                return Err(TypeError::Arithmetic(format!(
                    "no sum or average of values of type {ty}"
                )));
            }
        };
        Ok(Aggregate { ty: ty.clone(), state })
    }

    /// Type of the result: bigint for count, else the argument's.
    pub fn result_type(&self) -> CqlType {
        match self.state {
            State::Count(_) => CqlType::Bigint,
            _ => self.ty.clone(),
        }
    }

    /// Adds one value; null is ignored. The empty value counts for count, min and max, and is left
    /// out of sums and averages. Returns true if min or max is this value from now on.
    ///
    /// # Errors
    /// A decimal sum that would need too many digits; bytes that are no number.
    pub fn add(&mut self, value: Option<&[u8]>) -> Result<bool, TypeError> {
        let Some(bytes) = value else { return Ok(false) };
        match &mut self.state {
            State::Count(count) => {
                *count = count.wrapping_add(1);
                return Ok(false);
            }
            State::Extreme { best, max } => {
                let better = best.as_ref().is_none_or(|best| {
                    let order = self.ty.compare(best, bytes);
                    if *max { order.is_lt() } else { order.is_gt() }
                });
                if better {
                    *best = Some(bytes.to_vec());
                }
                return Ok(better);
            }
            _ => {}
        }
        if bytes.is_empty() {
            return Ok(false);
        }
        check_length(&self.ty, bytes)?;
        let number = Number::from_value(&self.ty, bytes)
            .ok_or_else(|| TypeError::Arithmetic(format!("not a value of type {}", self.ty)))?;
        match (&mut self.state, number) {
            (State::SumInteger(sum), number) => *sum = sum.wrapping_add(number.to_i64()),
            (State::SumVarint(sum), Number::Varint(number)) => *sum += number,
            (State::SumDecimal(sum), Number::Decimal(number)) => *sum = sum.add(&number)?,
            (State::SumFloat(sum), number) => sum.add(number.to_f64()),
            (State::AvgInteger { sum, count }, number) => {
                *sum += number.to_i64();
                *count = count.wrapping_add(1);
            }
            (State::AvgVarint { sum, count }, Number::Varint(number)) => {
                *sum += number;
                *count = count.wrapping_add(1);
            }
            (State::AvgDecimal { avg, count }, Number::Decimal(number)) => {
                *count = count.wrapping_add(1);
                let distance = number.subtract(avg)?;
                let divisor = Decimal::from_bigint(BigInt::from(*count));
                let step = distance.divide(&divisor, distance.scale, Rounding::HalfEven)?;
                *avg = avg.add(&step)?;
            }
            (State::AvgFloat { sum, count, big }, number) => {
                *count = count.wrapping_add(1);
                let value = number.to_f64();
                add_to_average(sum, big, value)?;
            }
            // The number's variant follows from the type, as the state does.
            (_, _) => {}
        }
        Ok(false)
    }

    /// Returns true if aggregates of parts can be merged into the aggregate of all values. Sums of
    /// floats and averages of floats and decimals are rounded at each step, so their order counts.
    pub fn can_be_merged(&self) -> bool {
        match self.state {
            State::Count(_)
            | State::Extreme { .. }
            | State::SumInteger(_)
            | State::SumVarint(_)
            | State::SumDecimal(_)
            | State::AvgInteger { .. }
            | State::AvgVarint { .. } => true,
            State::SumFloat(_) | State::AvgDecimal { .. } | State::AvgFloat { .. } => false,
        }
    }

    /// Merges the state of the same aggregate over other values. Among extremes that are equal,
    /// though not in their bytes, the first value counts: `came` says which that is. Returns true
    /// if min or max is the other's from now on.
    ///
    /// # Errors
    /// A decimal sum that would need too many digits; another aggregate, or one that cannot be merged.
    pub fn merge(&mut self, other: Aggregate, came: Came) -> Result<bool, TypeError> {
        match (&mut self.state, other.state) {
            (State::Count(count), State::Count(more)) => *count = count.wrapping_add(more),
            (State::Extreme { best, max }, State::Extreme { best: other, .. }) => {
                let Some(other) = other else { return Ok(false) };
                let better = best.as_ref().is_none_or(|best| {
                    let order = self.ty.compare(best, &other);
                    let other_is_better = if *max { order.is_lt() } else { order.is_gt() };
                    other_is_better || (order.is_eq() && came == Came::Before)
                });
                if better {
                    *best = Some(other);
                }
                return Ok(better);
            }
            (State::SumInteger(sum), State::SumInteger(more)) => *sum = sum.wrapping_add(more),
            (State::SumVarint(sum), State::SumVarint(more)) => *sum += more,
            (State::SumDecimal(sum), State::SumDecimal(more)) => *sum = sum.add(&more)?,
            (State::AvgInteger { sum, count }, State::AvgInteger { sum: more, count: values })
            | (State::AvgVarint { sum, count }, State::AvgVarint { sum: more, count: values }) => {
                *sum += more;
                *count = count.wrapping_add(values);
            }
            _ => return Err(TypeError::Arithmetic("aggregates that do not fit".to_owned())),
        }
        Ok(false)
    }

    /// The result; null for min and max over no values.
    ///
    /// # Errors
    /// An average of floats that needs too many digits.
    pub fn result(&self) -> Result<Option<Vec<u8>>, TypeError> {
        Ok(Some(match &self.state {
            State::Count(count) => count.to_be_bytes().to_vec(),
            State::Extreme { best, .. } => return Ok(best.clone()),
            State::SumInteger(sum) => self.integer(*sum),
            State::SumVarint(sum) => varint_to_bytes(sum),
            State::SumDecimal(sum) => sum.to_bytes(),
            State::SumFloat(sum) => self.float(sum.value()),
            State::AvgInteger { count: 0, .. } => self.integer(0),
            State::AvgInteger { sum, count } => self.integer(bigint_low_i64(&(sum / *count))),
            State::AvgVarint { count: 0, .. } => varint_to_bytes(&BigInt::ZERO),
            State::AvgVarint { sum, count } => varint_to_bytes(&(sum / *count)),
            State::AvgDecimal { avg, .. } => avg.to_bytes(),
            State::AvgFloat { count: 0, .. } => self.float(0.0),
            State::AvgFloat { count, big: Some(big), .. } => {
                let divisor = Decimal::from_bigint(BigInt::from(*count));
                self.float(big.divide(&divisor, big.scale, Rounding::HalfEven)?.to_f64())
            }
            State::AvgFloat { sum, count, big: None } => {
                self.float(sum.value() / f64::from(*count))
            }
        }))
    }

    /// An integer in the argument's width, wrapped.
    fn integer(&self, value: i64) -> Vec<u8> {
        let number = Number::Integer(value);
        match self.ty {
            CqlType::Tinyint => number.to_i8().to_be_bytes().to_vec(),
            CqlType::Smallint => number.to_i16().to_be_bytes().to_vec(),
            CqlType::Int => number.to_i32().to_be_bytes().to_vec(),
            _ => value.to_be_bytes().to_vec(),
        }
    }

    fn float(&self, value: f64) -> Vec<u8> {
        match self.ty {
            CqlType::Float => Number::Double(value).to_f32().to_be_bytes().to_vec(),
            _ => value.to_be_bytes().to_vec(),
        }
    }
}

/// Adds to a float average; once the double overflows by finite values the sum goes on as a decimal.
fn add_to_average(
    sum: &mut Compensated,
    big: &mut Option<Decimal>,
    value: f64,
) -> Result<(), TypeError> {
    let decimal = |value: f64| {
        Decimal::from_f64(value).ok_or_else(|| TypeError::Arithmetic("Infinite or NaN".to_owned()))
    };
    if let Some(total) = big {
        *total = total.add(&decimal(value)?)?;
        return Ok(());
    }
    let previous = sum.sum;
    sum.add(value);
    if sum.sum.is_infinite() && !value.is_infinite() {
        *big = Some(decimal(previous)?.add(&decimal(value)?)?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(kind: AggregateKind, ty: &CqlType, values: &[&str]) -> String {
        let mut aggregate = Aggregate::new(kind, ty).expect("defined");
        aggregate.add(None).expect("null is left out");
        for value in values {
            let bytes = ty.from_string(value).unwrap_or_else(|e| panic!("{value}: {e}"));
            aggregate.add(Some(&bytes)).expect("a number");
        }
        let result = aggregate.result().expect("a result");
        result.map_or("null".to_owned(), |v| aggregate.result_type().format_cql_literal(&v))
    }

    #[test]
    fn sums_wrap_and_averages_do_not() {
        use AggregateKind::{Avg, Sum};
        assert_eq!(run(Sum, &CqlType::Tinyint, &["100", "100"]), "-56");
        assert_eq!(run(Avg, &CqlType::Tinyint, &["100", "101"]), "100");
        assert_eq!(run(Sum, &CqlType::Int, &["2147483647", "1"]), "-2147483648");
        let most = "9223372036854775807";
        assert_eq!(run(Avg, &CqlType::Bigint, &[most, most]), most);
        assert_eq!(run(Avg, &CqlType::Int, &["-3", "-4"]), "-3");
        assert_eq!(run(Sum, &CqlType::Varint, &[most, most]), "18446744073709551614");
        assert_eq!(run(Avg, &CqlType::Varint, &["1", "2"]), "1");
        assert_eq!(run(Sum, &CqlType::Decimal, &["1.5", "2.25"]), "3.75");
        assert_eq!(run(Avg, &CqlType::Decimal, &["1", "2"]), "1");
        assert_eq!(run(Avg, &CqlType::Decimal, &["1.00", "2.00"]), "1.50");
        assert_eq!(run(Sum, &CqlType::Double, &["1.5", "2.5"]), "4.0");
        assert_eq!(run(Avg, &CqlType::Double, &["1.5e308", "1.7e308"]), "1.6E308");
        assert_eq!(run(Sum, &CqlType::Double, &["Infinity", "Infinity"]), "Infinity");
        assert_eq!(run(Avg, &CqlType::Float, &["1", "2"]), "1.5");
    }

    #[test]
    fn parts_that_are_merged_give_what_all_values_give() {
        use AggregateKind::{Avg, Count, Max, Min, Sum};
        let check = |kind, ty: &CqlType, values: &[&str]| {
            let whole = run(kind, ty, values);
            for cut in 0..=values.len() {
                let [mut first, last] = [&values[..cut], &values[cut..]].map(|part| {
                    let mut aggregate = Aggregate::new(kind, ty).expect("defined");
                    for value in part {
                        let bytes = ty.from_string(value).expect("a value");
                        aggregate.add(Some(&bytes)).expect("a number");
                    }
                    aggregate
                });
                assert!(first.can_be_merged());
                let mut turned = last.clone();
                turned.merge(first.clone(), Came::Before).expect("of one kind");
                first.merge(last, Came::After).expect("of one kind");
                for merged in [first, turned] {
                    let result = merged.result().expect("a result");
                    let result = result.map(|v| merged.result_type().format_cql_literal(&v));
                    assert_eq!(result.unwrap_or("null".to_owned()), whole, "{kind:?} {ty} {cut}");
                }
            }
        };
        let most = "9223372036854775807";
        check(Count, &CqlType::Text, &["", "x", "y"]);
        // Equal but for their spelling: the first counts.
        check(Min, &CqlType::Decimal, &["2", "1.0", "1.00", "1"]);
        check(Max, &CqlType::Decimal, &["-1", "3.0", "3", "2"]);
        check(Max, &CqlType::Text, &[]);
        check(Sum, &CqlType::Tinyint, &["100", "100", "-3"]);
        check(Sum, &CqlType::Bigint, &[most, most, "7"]);
        check(Sum, &CqlType::Varint, &[most, most]);
        check(Sum, &CqlType::Decimal, &["1.5", "2.250", "-1"]);
        check(Avg, &CqlType::Bigint, &[most, most, "-9"]);
        check(Avg, &CqlType::Varint, &["1", "2", "4"]);
        let of = |kind, ty| Aggregate::new(kind, ty).expect("defined");
        assert!(of(Min, &CqlType::Double).merge(of(Avg, &CqlType::Double), Came::Before).is_err());
        assert!(!of(Avg, &CqlType::Double).can_be_merged());
        assert!(!of(Sum, &CqlType::Float).can_be_merged());
        assert!(!of(Avg, &CqlType::Decimal).can_be_merged());
        assert!(of(Max, &CqlType::Double).can_be_merged());
    }

    #[test]
    fn nothing_sums_to_zero_and_has_no_extreme() {
        use AggregateKind::{Avg, Count, Max, Min, Sum};
        assert_eq!(run(Sum, &CqlType::Int, &[]), "0");
        assert_eq!(run(Avg, &CqlType::Double, &[]), "0.0");
        assert_eq!(run(Count, &CqlType::Text, &[]), "0");
        assert_eq!(run(Max, &CqlType::Text, &[]), "null");
        assert_eq!(run(Max, &CqlType::Text, &["a", "c", "b"]), "'c'");
        assert_eq!(run(Min, &CqlType::Int, &["1", "-3", "2"]), "-3");
        assert_eq!(run(Count, &CqlType::Text, &["", "x"]), "2");
        assert!(Aggregate::new(Sum, &CqlType::Text).is_err());
    }
}
