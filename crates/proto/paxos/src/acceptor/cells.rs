//! The registers as a row of `system.paxos`, with Cassandra's columns.
//!
//! Owns which columns each record writes and how a row is read back. The write timestamp of every
//! cell is its ballot's, so the store's merge of the cells, in any order, is the fold of the
//! records. See docs/internals/paxos.md, "system.paxos".

use codec::{DecodeError, Reader, Writer};
use stdx::{TimestampMicros, Uuid};

use super::state::{AcceptorState, Record};
use crate::ballot::{Ballot, BallotError};
use crate::value::{Accepted, Commit};

/// Value of `proposal_version` and `most_recent_commit_version`: sixteen bytes of the origin's
/// ballot, then the encoded mutation; nothing after the ballot for an empty proposal. Cassandra's
/// own versions are message versions from 10 up.
pub const VALUE_VERSION: i32 = 1;

/// A column of `system.paxos` that is not part of the key (`row_key`, `cf_id`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Column {
    /// Newest ballot promised to a write.
    InProgressBallot,
    /// Newest ballot promised to a read.
    InProgressReadBallot,
    /// Value of the newest commit.
    MostRecentCommit,
    /// Ballot of the newest commit.
    MostRecentCommitAt,
    /// Encoding of the commit's value.
    MostRecentCommitVersion,
    /// Value of the accepted proposal.
    Proposal,
    /// Ballot of the accepted proposal.
    ProposalBallot,
    /// Encoding of the proposal's value.
    ProposalVersion,
}

impl Column {
    /// All of them.
    pub const ALL: [Column; 8] = [
        Column::InProgressBallot,
        Column::InProgressReadBallot,
        Column::MostRecentCommit,
        Column::MostRecentCommitAt,
        Column::MostRecentCommitVersion,
        Column::Proposal,
        Column::ProposalBallot,
        Column::ProposalVersion,
    ];

    /// Its name in the table.
    pub fn name(self) -> &'static str {
        match self {
            Column::InProgressBallot => "in_progress_ballot",
            Column::InProgressReadBallot => "in_progress_read_ballot",
            Column::MostRecentCommit => "most_recent_commit",
            Column::MostRecentCommitAt => "most_recent_commit_at",
            Column::MostRecentCommitVersion => "most_recent_commit_version",
            Column::Proposal => "proposal",
            Column::ProposalBallot => "proposal_ballot",
            Column::ProposalVersion => "proposal_version",
        }
    }
}

/// Cells to write with one timestamp; `None` deletes the cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowUpdate {
    /// Write timestamp of all of them.
    pub timestamp: TimestampMicros,
    /// Column and serialised CQL value.
    pub cells: Vec<(Column, Option<Vec<u8>>)>,
}

/// A row that no acceptor wrote.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RowError {
    /// A cell is cut short or too long.
    #[error("column {column} of system.paxos: {error}")]
    Cell {
        /// The column.
        column: &'static str,
        /// The fault.
        error: DecodeError,
    },
    /// A cell holds no ballot.
    #[error("column {column} of system.paxos: {error}")]
    Ballot {
        /// The column.
        column: &'static str,
        /// The fault.
        error: BallotError,
    },
    /// A value in an encoding of another version, or of Cassandra.
    #[error("column {column} of system.paxos has the version {version}, only 1 can be read")]
    Version {
        /// The column.
        column: &'static str,
        /// The version found.
        version: i32,
    },
    /// A value without its ballot or its version.
    #[error("column {column} of system.paxos is set without its ballot and version")]
    Incomplete {
        /// The column.
        column: &'static str,
    },
}

impl<V: AsRef<[u8]>> Record<V> {
    /// The cells that make it durable.
    pub fn to_update(&self) -> RowUpdate {
        let (ballot, cells) = match self {
            Record::Promise { ballot, write: true } => {
                (*ballot, vec![(Column::InProgressBallot, Some(ballot_bytes(*ballot)))])
            }
            Record::Promise { ballot, write: false } => {
                (*ballot, vec![(Column::InProgressReadBallot, Some(ballot_bytes(*ballot)))])
            }
            Record::Accept(a) => (
                a.ballot,
                vec![
                    (Column::Proposal, Some(value_bytes(a.origin, a.value.as_ref()))),
                    (Column::ProposalBallot, Some(ballot_bytes(a.ballot))),
                    (Column::ProposalVersion, Some(VALUE_VERSION.to_be_bytes().into())),
                ],
            ),
            // An older proposal dies by the commit's timestamp, a newer one outlives it.
            Record::Commit(c) => {
                // Pruned: a deletion beats a value of the same timestamp.
                let value = c.value.as_ref().map(|value| value_bytes(c.origin, Some(value)));
                let version = value.as_ref().map(|_| VALUE_VERSION.to_be_bytes().into());
                (
                    c.ballot,
                    vec![
                        (Column::Proposal, None),
                        (Column::ProposalBallot, None),
                        (Column::ProposalVersion, None),
                        (Column::MostRecentCommit, value),
                        (Column::MostRecentCommitAt, Some(ballot_bytes(c.ballot))),
                        (Column::MostRecentCommitVersion, version),
                    ],
                )
            }
            Record::Prune { ballot } => (
                *ballot,
                vec![(Column::MostRecentCommit, None), (Column::MostRecentCommitVersion, None)],
            ),
        };
        RowUpdate { timestamp: ballot.timestamp(), cells }
    }
}

impl<V: Clone + From<Vec<u8>>> AcceptorState<V> {
    /// Reads the registers from a row; `cell` gives the serialised value of a column, or `None`.
    ///
    /// # Errors
    /// See [`RowError`]. The partition then takes part in no round, because a register that is
    /// read wrong could break a promise.
    pub fn from_row<'a>(
        cell: impl Fn(Column) -> Option<&'a [u8]>,
    ) -> Result<AcceptorState<V>, RowError> {
        let ballot = |column| cell(column).map(|bytes| read_ballot(column, bytes)).transpose();
        let write = ballot(Column::InProgressBallot)?.unwrap_or(Ballot::ZERO);
        let read = ballot(Column::InProgressReadBallot)?.unwrap_or(Ballot::ZERO);
        let committed_at = ballot(Column::MostRecentCommitAt)?;
        let accepted_at = ballot(Column::ProposalBallot)?;
        let commit_value = read_value::<V>(
            Stored { column: Column::MostRecentCommit, bytes: cell(Column::MostRecentCommit) },
            Stored {
                column: Column::MostRecentCommitVersion,
                bytes: cell(Column::MostRecentCommitVersion),
            },
        )?;
        let accepted_value = read_value::<V>(
            Stored { column: Column::Proposal, bytes: cell(Column::Proposal) },
            Stored { column: Column::ProposalVersion, bytes: cell(Column::ProposalVersion) },
        )?;
        let mut state = AcceptorState::default();
        state.apply(Record::Promise { ballot: write, write: true });
        state.apply(Record::Promise { ballot: read, write: false });
        match (accepted_at, accepted_value) {
            (Some(ballot), Some((origin, value))) => {
                state.apply(Record::Accept(Accepted { ballot, origin, value }));
            }
            (None, None) => {}
            _ => return Err(RowError::Incomplete { column: Column::Proposal.name() }),
        }
        match (committed_at, commit_value) {
            (Some(ballot), Some((origin, value))) => {
                state.apply(Record::Commit(Commit { ballot, origin, value }));
            }
            (Some(ballot), None) => {
                state.apply(Record::Commit(Commit { ballot, origin: ballot, value: None }));
            }
            (None, None) => {}
            (None, Some(_)) => {
                return Err(RowError::Incomplete { column: Column::MostRecentCommit.name() });
            }
        }
        Ok(state)
    }
}

fn ballot_bytes(ballot: Ballot) -> Vec<u8> {
    ballot.to_uuid().as_bytes().to_vec()
}

fn value_bytes<V: AsRef<[u8]>>(origin: Ballot, value: Option<&V>) -> Vec<u8> {
    let value = value.map_or(&[][..], AsRef::as_ref);
    let mut out = Vec::with_capacity(value.len().saturating_add(16));
    out.put_bytes(origin.to_uuid().as_bytes());
    out.put_bytes(value);
    out
}

fn read_ballot(column: Column, bytes: &[u8]) -> Result<Ballot, RowError> {
    let column = column.name();
    let mut r = Reader::new(bytes, column);
    let cell = |error| RowError::Cell { column, error };
    let uuid = Uuid::from_u128(r.u128().map_err(cell)?);
    r.finish().map_err(cell)?;
    Ballot::from_uuid(uuid).map_err(|error| RowError::Ballot { column, error })
}

type Valued<V> = (Ballot, Option<V>);

/// A cell of the row, if it has one.
struct Stored<'a> {
    column: Column,
    bytes: Option<&'a [u8]>,
}

fn read_value<V: From<Vec<u8>>>(
    value: Stored<'_>,
    version: Stored<'_>,
) -> Result<Option<Valued<V>>, RowError> {
    let Stored { column, bytes: value } = value;
    let Stored { column: version_column, bytes: version } = version;
    let (value, version) = match (value, version) {
        (None, None) => return Ok(None),
        (Some(value), Some(version)) => (value, version),
        _ => return Err(RowError::Incomplete { column: column.name() }),
    };
    let mut r = Reader::new(version, version_column.name());
    let cell = |column: Column| move |error| RowError::Cell { column: column.name(), error };
    let version = r.i32().map_err(cell(version_column))?;
    r.finish().map_err(cell(version_column))?;
    if version != VALUE_VERSION {
        return Err(RowError::Version { column: version_column.name(), version });
    }
    let mut r = Reader::new(value, column.name());
    let origin = read_ballot(column, r.bytes(16).map_err(cell(column))?)?;
    let payload = r.rest();
    let value = if payload.is_empty() { None } else { Some(V::from(payload.to_vec())) };
    Ok(Some((origin, value)))
}
