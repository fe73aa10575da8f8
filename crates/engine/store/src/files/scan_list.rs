//! Which files of a table wait to be scanned for large partitions, and which were scanned: kept in
//! `helenus-looked.<shard>`.

use stdx::Generation;

use crate::files::Files;
use crate::files::table_files::checked_body;
use crate::tables::large_files::Looked;
use crate::tables::table::TableState;
use crate::tables::table_file::TableFile;

/// Most bytes of the list of a table.
const LIST_BYTES_MAX: usize = 16 << 20;

const HEAD: &str = "helenus-looked 1\n";

pub(crate) fn encode(looked: &Looked) -> Vec<u8> {
    let mut text = HEAD.to_owned();
    let lines = looked.done.iter().map(|g| ("looked", g));
    for (word, generation) in lines.chain(looked.waiting.iter().map(|g| ("waits", g))) {
        text.push_str(&format!("{word} {}\n", generation.0));
    }
    let crc = codec::crc32(text.as_bytes());
    text.push_str(&format!("crc32 {crc:08x}\n"));
    text.into_bytes()
}

pub(crate) fn decode(bytes: &[u8]) -> Option<Looked> {
    let mut looked = Looked::default();
    for line in checked_body(bytes)?.strip_prefix(HEAD)?.lines() {
        let (word, generation) = line.split_once(' ')?;
        let generation = Generation(generation.parse().ok()?);
        match word {
            "looked" => looked.done.insert(generation),
            "waits" => looked.waiting.insert(generation),
            _ => return None,
        };
    }
    Some(looked)
}

/// The name of a shard's list.
pub(crate) fn list_name(shard: u16) -> String {
    format!("helenus-looked.{shard}")
}

impl Files {
    /// Whether it says of a file that this node has written it.
    pub(crate) fn is_own(&self, file: &TableFile) -> bool {
        let meta = file.reader.meta();
        let host = meta.statistics().stats.originating_host;
        meta.group().is_some() && host == Some(self.env.options.host.0)
    }

    /// Files of a table that is opened: which of them wait. `list`: what was kept of that.
    pub(crate) async fn open_looked(&self, table: &TableState, list: Option<&str>) {
        let mut kept = Looked::default();
        if let Some(path) = list {
            let bytes = self.env.rt.fs().read(path, LIST_BYTES_MAX).await.unwrap_or_default();
            kept = decode(&bytes).unwrap_or_default();
        }
        let view = table.view();
        let mine = view.files.iter().filter(|file| self.env.is_mine(file.generation));
        let mut known = table.large.0.borrow_mut();
        for file in mine {
            let generation = file.generation;
            if !self.is_own(file) && kept.done.contains(&generation) {
                known.looked.done.insert(generation);
            } else if !self.is_own(file) || kept.waiting.contains(&generation) {
                known.looked.waiting.insert(generation);
            }
        }
    }

    pub(crate) async fn write_looked(&self, table: &TableState, looked: &Looked) {
        if table.dropped.get() || self.env.stopping.get() {
            return;
        }
        let directory = self.directories.directory_of(&table.version().table);
        let path = format!("{directory}/{}", list_name(self.env.shard().0));
        // Without it files are looked through again after a restart, no more.
        drop(self.env.rt.fs().write_atomic(&path, encode(looked)).await);
    }
}
