//! Tests of `damage`.

pub(super) mod quarantine;
pub(super) mod verify;
