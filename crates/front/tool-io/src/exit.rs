//! Exit codes. `docs/user/exit-codes.md` says the same to users.

/// Done, or stopped because it was asked to.
pub const OK: u8 = 0;
/// Failed at run time.
pub const FAILED: u8 = 1;
/// Wrong command line, setting or environment; nothing was done.
pub const USAGE: u8 = 2;
/// Files are damaged, or of a kind that is refused.
pub const DAMAGED: u8 = 3;
/// Another process has the data directory open.
pub const IN_USE: u8 = 4;
/// An address cannot be listened on.
pub const LISTEN: u8 = 5;
