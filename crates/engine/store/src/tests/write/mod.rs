//! Tests of `write`.

pub(super) mod unflushable;
