//! What every room of a store stands on

pub(crate) mod failure;
pub(crate) mod full_disk;
pub(crate) mod link_rate;
pub(crate) mod live_options;
pub(crate) mod stages;
