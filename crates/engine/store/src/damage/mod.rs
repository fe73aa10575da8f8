//! x

pub(crate) mod background_verify;
pub(crate) mod quarantine;
pub(crate) mod verify;
