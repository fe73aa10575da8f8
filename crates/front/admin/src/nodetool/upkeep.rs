//! How tables are compacted, as nodetool prints it.

use super::format::Table;
use crate::model::{CompactionSettings, SstableReport};

/// Lines of `nodetool statusautocompaction`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AutoCompactionStyle {
    /// `--all`: a line for each table.
    pub by_table: bool,
}

/// `statusautocompaction`, with `-a` by table.
pub fn auto_compaction(tables: &[CompactionSettings], style: AutoCompactionStyle) -> String {
    let by_table = style.by_table;
    let word = |automatic: bool| if automatic { "running" } else { "not running" };
    if by_table {
        let mut layout = Table::new(" ");
        layout.add(&["Keyspace", "Table", "Status"]);
        for table in tables {
            layout.add(&[&table.keyspace, &table.table, word(table.automatic)]);
        }
        let mut out = String::new();
        layout.print(&mut out);
        return out;
    }
    let running = tables.iter().filter(|t| t.automatic).count();
    let text = match running {
        n if n == tables.len() => "running",
        0 => "not running",
        _ => "partially running",
    };
    format!("{text}\n")
}

/// Lines of `nodetool getsstables`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SstablesStyle {
    /// `-l`: files by level.
    pub with_levels: bool,
}

/// `getsstables`, with `-l` the levels of a leveled table before the names, as Cassandra's.
pub fn sstables(files: &[SstableReport], style: SstablesStyle) -> String {
    let with_levels = style.with_levels;
    let mut files: Vec<(Option<u32>, &str)> =
        files.iter().map(|f| (f.level.filter(|_| with_levels), f.path.as_str())).collect();
    files.sort_unstable();
    let line = |(level, path): (Option<u32>, &str)| match level {
        Some(level) => format!("{level}: {path}\n"),
        None => format!("{path}\n"),
    };
    files.into_iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_shown_by_level_where_there_are_levels() {
        let file = |path: &str, level| SstableReport { path: path.to_owned(), level };
        let files = [file("/a", Some(2)), file("/b", Some(0))];
        assert_eq!(sstables(&files, SstablesStyle { with_levels: true }), "0: /b\n2: /a\n");
        assert_eq!(sstables(&files, SstablesStyle::default()), "/a\n/b\n");
        assert_eq!(sstables(&[file("/c", None)], SstablesStyle { with_levels: true }), "/c\n");
    }

    #[test]
    fn all_none_or_some_tables_are_compacted_by_themselves() {
        let table = |name: &str, automatic| CompactionSettings {
            keyspace: "ks".to_owned(),
            table: name.to_owned(),
            automatic,
            ..CompactionSettings::default()
        };
        let (on, off) = (table("on", true), table("switched_off", false));
        let text = |tables: &[&CompactionSettings], by_table| {
            let tables: Vec<CompactionSettings> = tables.iter().map(|t| (*t).clone()).collect();
            auto_compaction(&tables, AutoCompactionStyle { by_table })
        };
        assert_eq!(text(&[&on, &on], false), "running\n");
        assert_eq!(text(&[&off, &off], false), "not running\n");
        assert_eq!(text(&[&on, &off], false), "partially running\n");
        assert_eq!(text(&[], false), "running\n");
        assert_eq!(
            text(&[&on, &off], true),
            "Keyspace Table        Status     \n\
             ks       on           running    \n\
             ks       switched_off not running\n"
        );
    }
}
