//! The shape of a row in the table of verbs.

use super::line::{Line, Outcome};
use crate::operation::Call;

/// One option of a verb.
#[derive(Debug)]
pub struct Flag {
    /// Spellings on the command line, the long form last.
    pub names: &'static [&'static str],
    /// Name of its value; `None` for a switch.
    pub value: Option<&'static str>,
    /// Help text.
    pub help: &'static str,
}

pub(super) const fn switch(names: &'static [&'static str], help: &'static str) -> Flag {
    Flag { names, value: None, help }
}

pub(super) const fn valued(
    names: &'static [&'static str],
    value: &'static str,
    help: &'static str,
) -> Flag {
    Flag { names, value: Some(value), help }
}

/// Kind of a positional argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Argument {
    /// A keyspace.
    Keyspace,
    /// A table of the keyspace before it.
    Table,
    /// `keyspace.table`, or a keyspace.
    TableName,
    /// A partition key as text.
    Key,
    /// A token.
    Token,
    /// A host id.
    HostId,
    /// An IP address.
    Address,
    /// A range of IP addresses.
    Cidr,
    /// A datacenter.
    Datacenter,
    /// A role.
    Role,
    /// A directory on the node's machine.
    Directory,
    /// A whole number.
    Number,
    /// A number from 0 to 1.
    Fraction,
    /// One of the words that the help lists.
    Word,
    /// A name without a list.
    Name,
}

/// One verb of nodetool: everything that differs from verb to verb.
pub struct Verb {
    /// Name in Cassandra's nodetool.
    pub name: &'static str,
    /// Older names.
    pub aliases: &'static [&'static str],
    /// Help text.
    pub help: &'static str,
    /// Its options.
    pub flags: &'static [Flag],
    /// Positional arguments, as the help shows them; empty: none.
    pub arguments: &'static str,
    /// Help text of the arguments.
    pub arguments_help: &'static str,
    /// Maximal number of arguments.
    pub arguments_max: usize,
    /// The kinds of its arguments in their order; the last one repeats.
    pub kinds: &'static [Argument],
    /// Name of an argument that must be there; empty: none must.
    pub required: &'static str,
    /// The requests of the API that carry it out.
    pub calls: &'static [Call],
    /// Method and path in ScyllaDB's API of what does the same.
    pub scylla: &'static [&'static str],
    /// Carries it out.
    pub run: fn(&Line) -> Outcome,
}

impl Verb {
    /// A verb without options and arguments; `run` sends the requests `calls`.
    pub(super) const fn new(
        name: &'static str,
        help: &'static str,
        calls: &'static [Call],
        run: fn(&Line) -> Outcome,
    ) -> Verb {
        Verb {
            name,
            aliases: &[],
            help,
            flags: &[],
            arguments: "",
            arguments_help: "",
            arguments_max: 0,
            kinds: &[],
            required: "",
            calls,
            scylla: &[],
            run,
        }
    }

    pub(super) const fn also(mut self, aliases: &'static [&'static str]) -> Verb {
        self.aliases = aliases;
        self
    }

    pub(super) const fn flags(mut self, flags: &'static [Flag]) -> Verb {
        self.flags = flags;
        self
    }

    /// Accepts up to `max` arguments.
    pub(super) const fn takes(
        mut self,
        arguments: &'static str,
        help: &'static str,
        max: usize,
    ) -> Verb {
        self.arguments = arguments;
        self.arguments_help = help;
        self.arguments_max = max;
        self
    }

    /// Accepts one required argument.
    pub(super) const fn needs(
        self,
        title: &'static str,
        arguments: &'static str,
        help: &'static str,
    ) -> Verb {
        self.takes(arguments, help, 1).requires(title)
    }

    /// Is refused without arguments.
    pub(super) const fn requires(mut self, title: &'static str) -> Verb {
        self.required = title;
        self
    }

    /// Sets the kinds of its arguments.
    pub(super) const fn kinds(mut self, kinds: &'static [Argument]) -> Verb {
        self.kinds = kinds;
        self
    }

    pub(super) const fn scylla(mut self, paths: &'static [&'static str]) -> Verb {
        self.scylla = paths;
        self
    }
}
