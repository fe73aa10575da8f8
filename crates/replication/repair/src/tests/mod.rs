//! Three nodes under the simulator that repair each other.
#![allow(clippy::disallowed_types, reason = "facts are shared with the nodes' main functions")]

mod damaged;
mod incremental;
mod nodes;
mod participating;
mod repairing;
mod scopes;
mod trouble;
