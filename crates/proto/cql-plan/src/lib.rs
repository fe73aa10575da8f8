//! From syntax and schema to typed plans: names resolved, types checked, bind markers typed.
//!
//! Owns: validation with Cassandra's words, DDL as schema changes ([`ddl`]), selects and modifications as plans that
//! bind values into read commands and mutations ([`select`], [`modify`], [`batch`]), the conditions of IF ([`cas`]),
//! paging state, the built-in keyspaces with their rows and DESCRIBE ([`system`]), roles and permissions ([`auth`],
//! [`requirements`](fn@requirements)). Never: IO, clocks; execution over rows (`cql-exec`), functions
//! (`cql-functions`); nothing here waits.
//!
//! Reading order: [`context`], [`values`], [`term`], [`column_source`], [`modify`], [`batch`], [`conditions`], [`cas`],
//! [`select`], [`plan`](mod@plan), [`raw_type`], [`ddl`], [`auth`], [`guardrails`], [`system`].

pub mod auth;
pub mod batch;
mod batch_size;
pub mod cas;
pub mod column_source;
pub mod conditions;
pub mod context;
pub mod ddl;
mod expansion;
pub mod fuzz;
pub mod guardrails;
pub mod modify;
pub mod options;
pub mod paging;
pub mod plan;
mod properties;
pub mod raw_type;
mod replication;
pub mod requirements;
pub mod select;
mod slices;
pub mod system;
mod system_keyspaces;
mod tables;
pub mod term;
#[cfg(test)]
mod tests;
pub mod values;
pub mod virtual_row;

pub use batch::{BatchPlan, BoundBatch, bind_batch, bind_batch_found, check_conditional_batch};
pub use cas::BoundCas;
pub use cql_functions::{self as functions, error};
pub use ddl::{DdlOutcome, DdlPlan, SchemaEvent, SchemaEventKind, SchemaEventTarget};
pub use error::{PlanError, PlanErrorCode};
pub use modify::{BoundMutation, FoundLists, ListRead, ModifyPlan};
pub use plan::{
    BindSpec, BoundValue, CommandPlan, ExecuteOptions, Plan, PlanContext, PlanInputs, PlanKind,
    PlanLimits, UuidSource, plan,
};
pub use requirements::{created, requirements};
pub use select::{BoundSelect, ResultColumn, SelectPlan};
pub use system::{describe, rows as system_rows, virtual_schema};

use cql_functions::java_hash;
