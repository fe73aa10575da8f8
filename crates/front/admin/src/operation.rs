//! Vocabulary of the tables of administration: the class (permission) and scope (location) of each
//! operation.
//!
//! Owns: the classes and scopes of operations, names of requests, and [`commands!`], which declares the commands
//! of one path of the API, each with its row. Never: handlers (`server::routes` and [`crate::verbs`] have them).

use std::fmt;

/// Method of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Method {
    /// Asks.
    Get,
    /// Gives a command.
    Post,
    /// Replaces a value.
    Put,
    /// Removes something.
    Delete,
}

impl Method {
    /// Returns the name in HTTP.
    pub const fn name(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Post => "POST",
            Method::Put => "PUT",
            Method::Delete => "DELETE",
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// How dangerous an operation is: what a role needs to be allowed to carry it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Tells nothing but that the node answers; needs no login.
    Open,
    /// Changes nothing.
    Reads,
    /// Changes settings, files or the schedule; another operation sets them back, and no data is lost.
    Changes,
    /// Removes data, snapshots, hints or a member, or ends the service of the node.
    Destroys,
}

impl Class {
    /// For documents.
    pub const fn name(self) -> &'static str {
        match self {
            Class::Open => "nothing",
            Class::Reads => "reads",
            Class::Changes => "changes",
            Class::Destroys => "destroys",
        }
    }
}

/// Which part of the cluster carries an operation out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Every shard of the node does its part.
    Shard,
    /// Shard 0, or the HTTP server itself, does it for the node.
    Node,
    /// Shard 0 does it; other nodes take part or agree to it.
    Cluster,
}

impl Scope {
    /// For documents.
    pub const fn name(self) -> &'static str {
        match self {
            Scope::Shard => "shard",
            Scope::Node => "node",
            Scope::Cluster => "cluster",
        }
    }
}

/// One command of a path that takes several: `{"command": "<name>", …}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandRow {
    /// Its name in JSON.
    pub name: &'static str,
    /// Scope of execution.
    pub scope: Scope,
    /// Permission class that it needs.
    pub class: Class,
    /// It waits until the node is a full member: a node that still joins has no data to give or take but what its
    /// own joining brings.
    pub members_only: bool,
}

impl CommandRow {
    pub(crate) const fn new(name: &'static str, scope: Scope, class: Class) -> CommandRow {
        CommandRow { name, scope, class, members_only: false }
    }

    pub(crate) const fn members_only(mut self) -> CommandRow {
        self.members_only = true;
        self
    }
}

/// A request of the API, as a verb sends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Call {
    /// Method.
    pub method: Method,
    /// Path without a query; `{id}` stands for any word.
    pub path: &'static str,
    /// Name of the command, on a path that takes several; else empty.
    pub command: &'static str,
}

/// Path of the commands of [`crate::model::ClusterCommand`].
pub const CLUSTER: &str = "/api/v1/cluster";
/// Path of the commands of [`crate::model::CompactionCommand`].
pub const COMPACTIONS: &str = "/api/v1/compactions";

pub(crate) const fn get(path: &'static str) -> Call {
    Call { method: Method::Get, path, command: "" }
}

pub(crate) const fn post(path: &'static str) -> Call {
    Call { method: Method::Post, path, command: "" }
}

pub(crate) const fn put(path: &'static str) -> Call {
    Call { method: Method::Put, path, command: "" }
}

pub(crate) const fn delete(path: &'static str) -> Call {
    Call { method: Method::Delete, path, command: "" }
}

pub(crate) const fn cluster(command: &'static str) -> Call {
    Call { method: Method::Post, path: CLUSTER, command }
}

pub(crate) const fn compaction(command: &'static str) -> Call {
    Call { method: Method::Post, path: COMPACTIONS, command }
}

/// Declares the commands of a path, each with its [`CommandRow`], and their actions: the same variants with the fields
/// after `as`.
macro_rules! commands {
    (
        $(#[$of_enum:meta])*
        pub enum $name:ident;

        $(#[$of_action:meta])*
        pub enum $action:ident;

        $(
            $(#[$of_variant:meta])*
            $variant:ident {
                $( $(#[$of_field:meta])* $field:ident : $type:ty ),* $(,)?
            } as {
                $( $(#[$of_found:meta])* $found:ident : $found_type:ty ),* $(,)?
            } = $row:expr;
        )*
    ) => {
        $(#[$of_enum])*
        pub enum $name {
            $( $(#[$of_variant])* $variant { $( $(#[$of_field])* $field : $type ),* } ),*
        }

        impl $name {
            /// The rows of all commands.
            pub const ROWS: &'static [$crate::operation::CommandRow] = &[$($row),*];
        }

        $(#[$of_action])*
        pub enum $action {
            $( $(#[$of_variant])* $variant { $( $(#[$of_found])* $found : $found_type ),* } ),*
        }
    };
}
pub(crate) use commands;
