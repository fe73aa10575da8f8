//! Functions of CQL: the resolution of calls, and the evaluation.
//!
//! Owns: names and signatures of Cassandra 5.0's native functions (with their names from before 5.0), operators,
//! casts, JSON of values, masks; overload resolution among them and users' functions ([`resolve()`]); evaluation
//! ([`NativeFunction::eval`]); compiled functions of users ([`user`]); the error that a CQL user sees
//! ([`PlanError`]). Never: terms and statements (`cql-plan`), native aggregates over rows (`cql-exec`), a clock or
//! randomness of its own ([`EvalEnv`]). Invariant: a function gives the same for the same arguments and
//! environment.
//!
//! Reading order: [`error`], [`env`], [`native`], [`resolve()`], [`user`], then a family of functions such as
//! `time`.
//!
//! Source: `cql3.functions.*`, `FunctionResolver`.

mod blob;
mod call;
mod collections;
mod convert;
mod digests;
pub mod env;
pub mod error;
pub mod fuzz;
pub mod java_hash;
pub mod json;
pub mod masking;
mod math;
pub mod native;
pub mod resolve;
mod time;
pub mod user;
mod vector;

pub use collections::sort_entries;
pub use convert::{KeyForm, push_key_component};
pub use env::{EvalEnv, UuidSource};
pub use error::{PlanError, PlanErrorCode, PlanErrorKind};
pub use masking::{can_mask, check_mask};
pub use native::{
    Args, Argument, NativeFunction, cast_name, is_aggregate, is_token, name_text, operator_name,
    plain_name,
};
pub use resolve::{CallSite, resolve, resolve_cast, resolve_negate, resolve_operator};
pub use user::FunctionScope;
