//! Compatibility of types: ALTER and assignment rules.
//!
//! Source: `AbstractType.isCompatibleWith`, `isValueCompatibleWith`, `testAssignment`.

use crate::CqlType;

impl CqlType {
    /// True if the type reads *and orders* all values of `previous` in the same way.
    pub fn is_compatible_with(&self, previous: &CqlType) -> bool {
        if self == previous {
            return true;
        }
        match (self, previous) {
            (CqlType::Blob, CqlType::Ascii | CqlType::Text) | (CqlType::Text, CqlType::Ascii) => {
                true
            }
            (CqlType::List { .. }, CqlType::List { .. })
            | (CqlType::Set { .. }, CqlType::Set { .. })
            | (CqlType::Map { .. }, CqlType::Map { .. }) => {
                self.collection_compatible(previous, true)
            }
            (CqlType::Tuple(_) | CqlType::Udt(_), CqlType::Tuple(_) | CqlType::Udt(_)) => {
                fields_compatible(self, previous, CqlType::is_compatible_with)
            }
            (CqlType::Custom(new), CqlType::Custom(old)) => new.is_compatible_with(old),
            _ => false,
        }
    }

    /// True if the type reads all values of `previous`, perhaps in another order.
    pub fn is_value_compatible_with(&self, previous: &CqlType) -> bool {
        if self.is_compatible_with(previous) && !self.is_udt() {
            return true;
        }
        match (self, previous) {
            (CqlType::Blob, _)
            | (CqlType::Uuid, CqlType::Timeuuid)
            | (CqlType::Bigint, CqlType::Timestamp)
            | (CqlType::Timestamp, CqlType::Bigint)
            | (CqlType::Date, CqlType::Int)
            | (CqlType::Time, CqlType::Bigint)
            | (CqlType::Varint, CqlType::Int | CqlType::Bigint | CqlType::Timestamp) => true,
            (CqlType::List { .. }, CqlType::List { .. })
            | (CqlType::Set { .. }, CqlType::Set { .. })
            | (CqlType::Map { .. }, CqlType::Map { .. }) => {
                self.collection_compatible(previous, false)
            }
            (CqlType::Udt(a), CqlType::Udt(b)) => {
                a.frozen == b.frozen
                    && a.keyspace == b.keyspace
                    && fields_compatible(self, previous, CqlType::is_compatible_with)
            }
            (CqlType::Tuple(_), CqlType::Tuple(_) | CqlType::Udt(_)) => {
                fields_compatible(self, previous, CqlType::is_value_compatible_with)
            }
            _ => false,
        }
    }

    /// True if files with values of `previous` can be read with the type: value compatible, same
    /// fixed length, both multi-cell or neither; of collections the same for list elements and map
    /// values.
    pub fn is_serialization_compatible_with(&self, previous: &CqlType) -> bool {
        if !self.is_value_compatible_with(previous) {
            return false;
        }
        match (self, previous) {
            (CqlType::Set { .. }, _) => true,
            (CqlType::List { element: a, .. }, CqlType::List { element: b, .. })
            | (CqlType::Map { value: a, .. }, CqlType::Map { value: b, .. }) => {
                a.is_serialization_compatible_with(b)
            }
            _ => {
                self.fixed_len() == previous.fixed_len()
                    && self.is_multi_cell() == previous.is_multi_cell()
            }
        }
    }

    fn collection_compatible(&self, previous: &CqlType, ordered: bool) -> bool {
        if self.is_multi_cell() != previous.is_multi_cell() {
            return false;
        }
        let frozen = self.is_frozen();
        let value = |a: &CqlType, b: &CqlType| {
            if !frozen {
                a.is_serialization_compatible_with(b)
            } else if ordered {
                a.is_compatible_with(b)
            } else {
                a.is_value_compatible_with(b)
            }
        };
        match (self, previous) {
            (CqlType::List { element: a, .. }, CqlType::List { element: b, .. }) => value(a, b),
            // Elements of sets and keys of maps are ordered, so their order must stay.
            (CqlType::Set { element: a, .. }, CqlType::Set { element: b, .. }) => {
                a.is_compatible_with(b)
            }
            (CqlType::Map { key: a, value: x, .. }, CqlType::Map { key: b, value: y, .. }) => {
                a.is_compatible_with(b) && value(x, y)
            }
            _ => false,
        }
    }

    /// How a value of this type fits a receiver of type `receiver`.
    pub fn test_assignment(&self, receiver: &CqlType) -> Assignment {
        let frozen;
        let receiver = if self.is_freezable() && self.is_frozen() {
            frozen = receiver.freeze();
            &frozen
        } else {
            receiver
        };
        if self == receiver {
            Assignment::Exact
        } else if receiver.is_value_compatible_with(self) {
            Assignment::Weak
        } else {
            Assignment::No
        }
    }
}

/// Result of [`CqlType::test_assignment`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assignment {
    /// The same type.
    Exact,
    /// Another type whose values are values of the receiver's.
    Weak,
    /// Not assignable.
    No,
}

impl Assignment {
    /// True unless [`Assignment::No`].
    pub fn is_assignable(self) -> bool {
        self != Assignment::No
    }
}

/// True if `new` has at least the fields of `old` and each fits by `fits`.
fn fields_compatible(new: &CqlType, old: &CqlType, fits: fn(&CqlType, &CqlType) -> bool) -> bool {
    let (new, old) = (new.sub_types(), old.sub_types());
    new.len() >= old.len() && new.iter().zip(&old).all(|(n, o)| fits(n, o))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_fit_wider_types_only() {
        let check = |receiver: CqlType, value: CqlType, expect: Assignment| {
            assert_eq!(value.test_assignment(&receiver), expect, "{value} to {receiver}");
        };
        check(CqlType::Text, CqlType::Text, Assignment::Exact);
        check(CqlType::Text, CqlType::Ascii, Assignment::Weak);
        check(CqlType::Ascii, CqlType::Text, Assignment::No);
        check(CqlType::Blob, CqlType::Int, Assignment::Weak);
        check(CqlType::Uuid, CqlType::Timeuuid, Assignment::Weak);
        check(CqlType::Varint, CqlType::Int, Assignment::Weak);
        check(CqlType::Bigint, CqlType::Int, Assignment::No);
        check(
            CqlType::list(CqlType::Int, false),
            CqlType::list(CqlType::Int, true),
            Assignment::Exact,
        );
        check(
            CqlType::tuple([CqlType::Text, CqlType::Int]),
            CqlType::tuple([CqlType::Ascii]),
            Assignment::Weak,
        );
        check(CqlType::set(CqlType::Blob, true), CqlType::set(CqlType::Int, true), Assignment::No);
    }

    #[test]
    fn files_are_readable_only_with_the_same_value_lengths() {
        let check = |new: CqlType, old: CqlType, value: bool, files: bool| {
            assert_eq!(new.is_value_compatible_with(&old), value, "{new} {old}");
            assert_eq!(new.is_serialization_compatible_with(&old), files, "{new} {old}");
        };
        check(CqlType::Varint, CqlType::Int, true, false);
        check(CqlType::Bigint, CqlType::Timestamp, true, true);
        check(CqlType::Uuid, CqlType::Timeuuid, true, true);
        check(CqlType::Blob, CqlType::Text, true, true);
        check(CqlType::Blob, CqlType::Int, true, false);
        let list = |ty| CqlType::list(ty, true);
        check(list(CqlType::Varint), list(CqlType::Int), true, false);
        check(list(CqlType::Blob), list(CqlType::Inet), true, true);
        check(list(CqlType::Int), CqlType::list(CqlType::Int, false), false, false);
    }
}
