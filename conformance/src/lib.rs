//! Runs `.cqltest` files against a server of the CQL native protocol.
//!
//! Owns: the file format (`file`), a small client over any byte stream (`client`), streams over TCP
//! (`wire`; the simulator has its own, to a node in the same process), the rendering of values as
//! CQL literals (`value`), the comparison (`run`), the verdict over many files (`suite`), the list
//! of differences (`differences`) and the tables built from it (`compat`), random statements that
//! two servers must answer alike (`fuzz`), operations with known answers (`invert`), the page of
//! the coverage of cases (`coverage`, `texts`).
//!
//! Never: shares the codec of messages and values with the server. It has its own on purpose: a
//! mistake that server and client share would go unnoticed. Frames, segments and the login are
//! those of all our clients; the drivers' suites, and `cqlsh` against a Cassandra, check these.
//!
//! Invariant: the expected text of a file comes from a real Cassandra (`--record`), so both servers
//! are held to the same bytes.
//!
//! Reading order: `file`, `run`, `client`, `value`. The format is described in `README.md`.

pub mod bytes;
pub mod client;
pub mod compat;
pub mod coverage;
pub mod differences;
pub mod file;
pub mod fuzz;
pub mod invert;
pub mod run;
pub mod suite;
pub mod texts;
pub mod value;
pub mod wire;
