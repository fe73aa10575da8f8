//! From syntax and schema to typed plans: names resolved, types checked, bind markers typed.
//!
//! Owns: validation with Cassandra's words, DDL as schema changes ([`ddl`]), selects and
//! modifications as plans that bind values into read commands and mutations ([`select`],
//! [`modify`], [`batch`]), conditions ([`cas`]), native functions, result selection, paging state, the built-in
//! keyspaces ([`system`]), roles and permissions ([`auth`]). Never: IO,
//! clocks, execution; nothing here waits.
//!
//! Reading order: [`error`], [`plan`], [`term`], [`functions`], [`modify`], [`batch`], [`cas`], [`select`],
//! [`raw_type`], [`ddl`], [`auth`], [`guardrails`].

pub mod auth;
pub mod batch;
mod batch_size;
pub mod cas;
pub mod column_source;
pub mod conditions;
pub mod context;
pub mod ddl;
pub mod describe;
mod expansion;
pub mod fuzz;
pub mod guardrails;
pub mod modify;
pub mod options;
pub mod paging;
pub mod plan;
pub mod raw_type;
mod replication;
mod requirements;
pub mod select;
mod slices;
pub mod system;
pub mod system_rows;
mod tables;
pub mod term;
#[cfg(test)]
mod tests;
pub mod values;
pub mod virtual_row;
pub mod virtual_schema;

pub use batch::{BatchPlan, BoundBatch, bind_batch, bind_batch_found, check_conditional_batch};
pub use cas::BoundCas;
pub use cql_functions::{self as functions, error};
pub use ddl::{DdlOutcome, DdlPlan, SchemaEvent, SchemaEventKind, SchemaEventTarget};
pub use error::{PlanError, PlanErrorCode};

use cql_functions::java_hash;
pub use modify::{BoundMutation, FoundLists, ListRead, ModifyPlan};
pub use plan::{
    BindSpec, BoundValue, ExecuteOptions, Plan, PlanContext, PlanKind, PlanLimits, UuidSource, plan,
};
pub use requirements::{created, requirements};
pub use select::{BoundSelect, ResultColumn, SelectPlan};
