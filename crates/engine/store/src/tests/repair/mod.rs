//! Tests of `repair`.

pub(super) mod repair_state;
