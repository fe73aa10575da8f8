//! Exit codes. `docs/user/exit-codes.md` documents them for users.

use membership::SubmitError;
use membership::log::OpenError;
use node::{StartError, TakeoverError, TopologyError};
use stdx::{IoError, IoErrorKind};
use store::StoreError;
use store::commitlog::LogError;

pub use tool_io::exit::{DAMAGED, FAILED, IN_USE, LISTEN, OK, USAGE};

/// For `--help`.
pub const HELP: &str = "\
Exit codes: 0 done; 1 failed; 2 wrong usage or configuration; 3 damaged or refused files;
4 data directory in use; 5 address in use. `nodetool`: 1 wrong usage or no connection,
2 the node reported an error.";

/// Returns the exit code of a node that did not start, or stopped without a request.
pub fn of_start(error: &StartError) -> u8 {
    match error {
        StartError::InUse(_) => IN_USE,
        StartError::ClusterName { .. }
        | StartError::Setting(_)
        | StartError::Snitch { .. }
        | StartError::Archiving { .. }
        | StartError::Encryption(_)
        | StartError::ApiAccess(_)
        | StartError::Place { .. } => USAGE,
        StartError::Metadata(OpenError::Log { .. } | OpenError::Cut { .. })
        | StartError::Submit(SubmitError::Rejected(_))
        | StartError::Store {
            error: StoreError::Corrupt { .. } | StoreError::Unsupported(_),
            ..
        }
        | StartError::DataDirectory(_)
        | StartError::OtherDataDirectory(_)
        | StartError::LeftOut { .. } => DAMAGED,
        StartError::CommitLog(LogError::OtherNode { .. }) => USAGE,
        StartError::CommitLog(_) => DAMAGED,
        StartError::Topology(error) => of_topology(error),
        StartError::Listen { .. } => LISTEN,
        StartError::Io(error) | StartError::Import(TakeoverError::Io(error)) => of_io(error),
        // Files of Cassandra that cannot be taken over as they are.
        StartError::Import(_) => DAMAGED,
        // Every other end of a node is a transient failure: disk full, IO error, panic.
        _ => FAILED,
    }
}

fn of_topology(error: &TopologyError) -> u8 {
    match error {
        // A removed node needs an operator: another directory, or no start at all.
        TopologyError::Address(_) | TopologyError::Setting(_) | TopologyError::Removed { .. } => {
            USAGE
        }
        TopologyError::Metadata(OpenError::Log { .. } | OpenError::Cut { .. })
        | TopologyError::Submit(SubmitError::Rejected(_))
        | TopologyError::Identity { .. } => DAMAGED,
        TopologyError::Io(error) => of_io(error),
        _ => FAILED,
    }
}

fn of_io(error: &IoError) -> u8 {
    match error.kind {
        IoErrorKind::AddrInUse => LISTEN,
        IoErrorKind::Damaged => DAMAGED,
        _ => FAILED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_refusal_has_its_code() {
        assert_eq!(of_start(&StartError::InUse("d".into())), IN_USE);
        assert_eq!(of_start(&TopologyError::Address("x".into()).into()), USAGE);
        let error = StoreError::Corrupt { file: "f".into(), what: "w".into() };
        assert_eq!(of_start(&StartError::Store { shard: 0, error }), DAMAGED);
        // A missing key of encrypted files, which no restart brings; a provider that is down may come back.
        let error = StoreError::Unsupported("no key".into());
        assert_eq!(of_start(&StartError::Store { shard: 0, error }), DAMAGED);
        let error = StoreError::Invalid("the provider is down".into());
        assert_eq!(of_start(&StartError::Store { shard: 0, error }), FAILED);
        let error = StoreError::Stopping;
        assert_eq!(of_start(&StartError::Store { shard: 0, error }), FAILED);
        assert_eq!(of_start(&StartError::Abandoned), FAILED);
        let (path, what) = ("p".to_owned(), "w".to_owned());
        let snitch = StartError::Snitch { path: path.clone(), what: what.clone() };
        assert_eq!(of_start(&snitch), USAGE);
        assert_eq!(of_start(&TopologyError::Identity { path, what }.into()), DAMAGED);
        let damaged = rt::damaged("metadata/run", "checksum mismatch");
        assert_eq!(of_start(&StartError::Io(damaged)), DAMAGED);
        let (directory, what) = ("d".to_owned(), "is empty".to_owned());
        let lost = LogError::Directory { directory, what, last: None, accept: 1 };
        assert_eq!(of_start(&StartError::CommitLog(lost)), DAMAGED);
        let (directory, host, own) = ("d".to_owned(), "h".to_owned(), "o".to_owned());
        let other = LogError::OtherNode { directory, host, own };
        assert_eq!(of_start(&StartError::CommitLog(other)), USAGE);
    }
}
