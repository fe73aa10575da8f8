//! Roles and permissions: access of users, and the statements that change it.
//!
//! Owns: names and texts of resources ([`Resource`]), the access of a user ([`Access`]), the
//! permissions that a statement needs ([`Requirement`]), the statements about roles as changes of
//! the metadata ([`AuthPlan`]), the rows of `system_auth` ([`rows()`]). Never: hashes passwords,
//! stores anything.
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
