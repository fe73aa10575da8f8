//! Tests of `write`.

pub(super) mod replay;
pub(super) mod replay_budget;
pub(super) mod unflushable;
