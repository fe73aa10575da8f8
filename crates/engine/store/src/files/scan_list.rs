//! Which files of a table wait to be scanned for large partitions, and which were scanned: kept in
//! `helenus-looked.<shard>`.

use stdx::Generation;

use crate::files::Files;
use crate::files::marks;
use crate::tables::large_files::Looked;
use crate::tables::table::TableState;
use crate::tables::table_file::TableFile;

/// Most bytes of the list of a table.
const LIST_BYTES_MAX: usize = 16 << 20;

pub(crate) fn encode(looked: &Looked) -> Vec<u8> {
    let mut text = String::new();
    let lines = looked.done.iter().map(|g| ("looked", g));
    for (word, generation) in lines.chain(looked.waiting.iter().map(|g| ("waits", g))) {
        text.push_str(&format!("{word} {}\n", generation.0));
    }
    marks::LOOKED.encode(text.as_bytes())
}

/// `None`: these are not the lines of a list.
pub(crate) fn of_lines(body: &str) -> Option<Looked> {
    let mut looked = Looked::default();
    for line in body.lines() {
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
    /// Returns true if the file names this node as its writer.
    pub(crate) fn is_own(&self, file: &TableFile) -> bool {
        let meta = file.reader.meta();
        let host = meta.statistics().stats.originating_host;
        meta.group().is_some() && host == Some(self.env.options.host.0)
    }

    /// Determines which files of a table being opened wait for a scan. `list`: the persisted list.
    /// Returns the error of the list.
    pub(crate) async fn open_looked(
        &self,
        table: &TableState,
        list: Option<&str>,
    ) -> Option<String> {
        let mut bad = None;
        let mut kept = Looked::default();
        if let Some(path) = list {
            let fs = self.env.rt.fs();
            let read = marks::read_lines(&fs, marks::LOOKED, path, LIST_BYTES_MAX).await;
            let read = read.and_then(|body| match body {
                None => Ok(Looked::default()),
                Some(body) => of_lines(&body).ok_or_else(marks::unknown_lines),
            });
            kept = read.unwrap_or_else(|why| {
                let then = "files of other nodes are scanned again";
                bad = Some(format!("{path} is ignored and will be rewritten, {then}: {why}"));
                Looked::default()
            });
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
        bad
    }

    pub(crate) async fn write_looked(&self, table: &TableState, looked: &Looked) {
        if table.dropped.get() || self.env.stopping.get() {
            return;
        }
        // Without it files are scanned again after a restart, no more.
        let Ok(path) = self.mark_path(table, &list_name(self.env.shard().0)).await else { return };
        drop(self.env.rt.fs().write_atomic(&path, encode(looked)).await);
    }
}
