//! Tests of `replay`.

pub(super) mod budget;
pub(super) mod replaying;
