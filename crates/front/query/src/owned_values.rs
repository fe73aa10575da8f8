//! Values of a request that outlive its frame.

use cql_plan::plan::BoundValue;

/// A value of a request that outlives its frame.
enum OwnedValue {
    Null,
    Unset,
    Bytes(Vec<u8>),
}

/// Values of one statement.
pub(crate) struct OwnedValues(Vec<OwnedValue>);

impl OwnedValues {
    pub(crate) fn of(values: &[BoundValue<'_>]) -> OwnedValues {
        let own = |value: &BoundValue<'_>| match value {
            BoundValue::Null => OwnedValue::Null,
            BoundValue::Unset => OwnedValue::Unset,
            BoundValue::Bytes(bytes) => OwnedValue::Bytes(bytes.to_vec()),
        };
        OwnedValues(values.iter().map(own).collect())
    }

    pub(crate) fn borrow(&self) -> Vec<BoundValue<'_>> {
        let borrow = |value| match value {
            &OwnedValue::Null => BoundValue::Null,
            &OwnedValue::Unset => BoundValue::Unset,
            OwnedValue::Bytes(bytes) => BoundValue::Bytes(bytes),
        };
        self.0.iter().map(borrow).collect()
    }
}
