//! Roles and permissions: who may do what, and the statements that change it.
//!
//! Owns: names and texts of resources ([`Resource`]), what a user may do ([`Access`]), what a
//! statement needs ([`Requirement`]), the statements about roles as changes of the metadata
//! ([`AuthPlan`]), the rows of `system_auth` ([`rows()`]). Never: hashes passwords, keeps anything.
//!
//! Reading order: `resource`, `access`, `statement`, `list`, `rows`.

mod access;
mod list;
mod resource;
mod rows;
mod statement;

pub use access::{Access, AccessRules, CidrFinding, CidrRules, Requirement};
pub use resource::Resource;
pub use rows::{is_computed, rows, rows_at};
pub use statement::{AuthContext, AuthOutcome, AuthPlan, ListedRows};

#[cfg(test)]
mod tests;
