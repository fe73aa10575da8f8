//! Digest of merged rows: replicas compare it instead of rows.

use stdx::Token;

use crate::cursor::{Item, Marker};
use crate::deletion::DeletionTime;
use crate::row::{CellRef, ColumnRef, RowRef};

/// Running digest over cursor items. Two replicas with the same merged content have the same
/// digest, whatever the packing (base timestamps, order of writes).
#[derive(Clone, Debug, Default)]
pub struct Digest {
    state: u64,
    scratch: Vec<u8>,
}

impl Digest {
    /// Nothing seen yet.
    pub fn new() -> Digest {
        Digest::default()
    }

    /// The digest so far.
    pub fn value(&self) -> u64 {
        self.state
    }

    fn number(&mut self, n: i64) {
        self.scratch.extend_from_slice(&n.to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.scratch.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        self.scratch.extend_from_slice(bytes);
    }

    fn deletion(&mut self, d: &DeletionTime) {
        self.number(d.timestamp.0);
        self.number(d.local.0);
    }

    fn cell(&mut self, cell: &CellRef<'_>) {
        self.number(cell.timestamp.0);
        self.number(i64::from(cell.ttl.0));
        self.number(cell.local.0);
        self.bytes(cell.value);
    }

    fn row(&mut self, row: RowRef<'_>) {
        let (liveness, deletion, columns) = row.parts();
        self.number(liveness.timestamp.0);
        self.number(i64::from(liveness.ttl.0));
        self.number(liveness.expires_at.0);
        self.deletion(&deletion);
        for (id, column) in columns {
            self.number(i64::from(id.0));
            match column {
                ColumnRef::Simple(cell) => self.cell(&cell),
                ColumnRef::Complex(complex) => {
                    self.deletion(&complex.deletion);
                    for (path, cell) in complex.cells() {
                        self.bytes(path);
                        self.cell(&cell);
                    }
                }
            }
        }
    }

    fn marker(&mut self, marker: &Marker<'_>) {
        self.bytes(marker.position.prefix);
        self.number(i64::from(marker.position.after));
        for d in [marker.close, marker.open] {
            self.deletion(&d.unwrap_or(DeletionTime::LIVE));
        }
    }

    /// Adds one item of a cursor.
    pub fn item(&mut self, item: &Item<'_>) {
        self.scratch.clear();
        self.scratch.extend_from_slice(&self.state.to_le_bytes());
        match item {
            Item::Partition { token: Token(token), key, deletion } => {
                self.scratch.push(1);
                self.number(*token);
                self.bytes(key);
                self.deletion(deletion);
            }
            Item::Static(row) => {
                self.scratch.push(2);
                self.row(*row);
            }
            Item::Row { clustering, row } => {
                self.scratch.push(3);
                self.bytes(clustering);
                self.row(*row);
            }
            Item::Marker(marker) => {
                self.scratch.push(4);
                self.marker(marker);
            }
            Item::PartitionEnd => self.scratch.push(5),
        }
        self.state = codec::xxh3_64(&self.scratch);
    }
}
