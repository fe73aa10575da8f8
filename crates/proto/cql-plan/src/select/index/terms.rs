//! Values of a statement into the ranges of terms that an index is searched for.

use std::ops::Bound as RangeBound;

use index_format::TermRange;
use index_format::search::IndexPredicate;
use index_format::terms::{Encoded, TermEncoder};
use schema::IndexRules;
use types::wire::Fields;

use super::{Comparison, IndexPlan, IndexedPredicate, TupleField};
use crate::error::PlanError;
use crate::term::{PlannedTerm, invalid_value};
use crate::values::{BindEnv, Bound, BoundValue, ExecuteOptions};

/// Most bytes of a value that a legacy index is asked for. Source: `CassandraIndex.validate`.
const WHOLE_VALUE_MAX: usize = 65_535;

/// Inputs of binding.
struct Inputs<'v> {
    values: &'v [BoundValue<'v>],
    env: &'v BindEnv<'v>,
}

impl IndexPlan {
    /// The terms of the predicates, for the values that the statement was bound with.
    ///
    /// A predicate whose value has no term is left out; without any the statement reads as a scan with its filters. A
    /// predicate without ranges matches nothing.
    ///
    /// # Errors
    /// Those of binding the statement; a value that is too long for a legacy index.
    pub fn bind(
        &self,
        values: &[BoundValue<'_>],
        options: &ExecuteOptions<'_>,
    ) -> Result<Vec<IndexPredicate>, PlanError> {
        let env = options.env();
        let inputs = Inputs { values, env: &env };
        // Cassandra prefers storage-attached indexes, which have no such limit.
        let is_legacy = self.predicates.iter().all(|p| p.index.rules == IndexRules::Legacy);
        let mut bound = Vec::with_capacity(self.predicates.len());
        for predicate in &self.predicates {
            let limit = if is_legacy { WHOLE_VALUE_MAX } else { usize::MAX };
            bound.extend(predicate.bind(&inputs, limit)?);
        }
        Ok(bound)
    }
}

/// A term with what encoding says of it.
struct Term {
    bytes: Vec<u8>,
    encoded: Encoded,
}

impl IndexedPredicate {
    /// None: the value has no term in a legacy index, so the index does not know the rows that have it. Several: all hold.
    fn bind(
        &self,
        inputs: &Inputs<'_>,
        value_max: usize,
    ) -> Result<Vec<IndexPredicate>, PlanError> {
        let encoder = &self.encoder;
        let part = |term: &PlannedTerm, part| self.part(term, part, inputs, value_max);
        let value = |term: &PlannedTerm| part(term, "value");
        let ranges = match &self.comparison {
            Comparison::Equal(term) => self.equal(&encode(encoder, &value(term)?)),
            Comparison::EqualField(field) => {
                self.equal(&encode(encoder, &self.field(field, inputs)?))
            }
            Comparison::Entry(key, entry) => {
                let (key, entry) = (part(key, "map key")?, part(entry, "map value")?);
                let mut bytes = Vec::new();
                let encoded = encoder.entry(&key, &entry, &mut bytes);
                self.equal(&Term { bytes, encoded })
            }
            Comparison::Like(term, indexes) => {
                let (found, pattern) = indexes.pattern(&self.column, &value(term)?)?;
                let of =
                    |(ranges, filter)| IndexPredicate { index: found.index.id, ranges, filter };
                return Ok(pattern.searches().into_iter().map(of).collect());
            }
            Comparison::Range { start, end } => {
                type Side = Result<Option<(Term, bool)>, PlanError>;
                let side = |limit: &Option<(PlannedTerm, bool)>| -> Side {
                    let Some((term, inclusive)) = limit else { return Ok(None) };
                    Ok(Some((encode(encoder, &value(term)?), *inclusive)))
                };
                Some(range(side(start)?, side(end)?))
            }
        };
        let of = |ranges| IndexPredicate { index: self.index.id, ranges, filter: None };
        Ok(ranges.map(of).into_iter().collect())
    }

    /// The ranges of one term. `None`: the index has no term for the value, but there may be rows with it.
    fn equal(&self, term: &Term) -> Option<Vec<TermRange>> {
        match (term.encoded, self.index.rules) {
            (Encoded::Term | Encoded::Cut, _) => Some(vec![TermRange::equal(&term.bytes)]),
            // Storage-attached indexes find no empty values where a type gives them no meaning, those of SASI none.
            (_, IndexRules::Sai | IndexRules::Sasi) => Some(Vec::new()),
            (_, IndexRules::Legacy) => None,
        }
    }

    /// A value; `part` is its name in errors.
    fn part(
        &self,
        term: &PlannedTerm,
        part: &str,
        inputs: &Inputs<'_>,
        value_max: usize,
    ) -> Result<Vec<u8>, PlanError> {
        let value = match term.bind(inputs.values, inputs.env)? {
            Bound::Value(bytes) => bytes.into_owned(),
            Bound::Null => return Err(self.unsupported("null", part)),
            Bound::Unset => return Err(self.unsupported("unset", part)),
        };
        match value.len() > value_max {
            true => Err(PlanError::invalid("Index expression values may not be larger than 64K")),
            false => Ok(value),
        }
    }

    fn field(&self, field: &TupleField, inputs: &Inputs<'_>) -> Result<Vec<u8>, PlanError> {
        let tuple = self.part(&field.tuple, "value", inputs, usize::MAX)?;
        let mut fields = Fields::new(&tuple, field.count);
        let value = fields.nth(field.field).transpose().map_err(invalid_value)?;
        value.flatten().map(<[u8]>::to_vec).ok_or_else(|| self.unsupported("null", "value"))
    }

    fn unsupported(&self, what: &str, part: &str) -> PlanError {
        PlanError::invalid(format!("Unsupported {what} {part} for column {}", self.column))
    }
}

fn encode(encoder: &TermEncoder, value: &[u8]) -> Term {
    let mut bytes = Vec::new();
    let encoded = encoder.value(value, &mut bytes);
    Term { bytes, encoded }
}

/// The ranges between two bounds. An empty value is below all others where it has no term.
fn range(start: Option<(Term, bool)>, end: Option<(Term, bool)>) -> Vec<TermRange> {
    let mut range = TermRange::all();
    if let Some((term, inclusive)) = start
        && let Encoded::Term | Encoded::Cut = term.encoded
    {
        range.lower = match inclusive || term.encoded == Encoded::Cut {
            true => RangeBound::Included(term.bytes),
            false => RangeBound::Excluded(term.bytes),
        };
    }
    if let Some((term, inclusive)) = end {
        range.upper = match term.encoded {
            Encoded::Skipped | Encoded::Invalid => return Vec::new(),
            Encoded::Term if !inclusive => RangeBound::Excluded(term.bytes),
            Encoded::Term | Encoded::Cut => RangeBound::Included(term.bytes),
        };
    }
    vec![range]
}
