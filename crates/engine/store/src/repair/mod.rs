//! x

pub(crate) mod repair_state;
pub(crate) mod repaired_set;
