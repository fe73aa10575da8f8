//! The command line of `perf indexes`.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use serde::Serialize;

/// A part of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Section {
    /// Queries by indexes, and the bytes of these.
    Reads,
    /// Writes, flushes and compactions with and without an index.
    Writes,
    /// Nearest vectors.
    Vectors,
}

/// Settings of one run.
#[derive(Clone, Debug, Serialize)]
pub struct Settings {
    /// Rows of the table that is queried; a table that is only written has a tenth of them.
    pub rows: u64,
    /// Vectors, the ones that are only asked for included.
    pub vectors: usize,
    /// Vectors that are asked for.
    pub queries: usize,
    /// Seconds that each kind of query warms Cassandra up; Helenus takes a quarter.
    pub warm: u64,
    /// Counted runs of each figure.
    pub repeat: u32,
    /// `--memory` of Helenus and heap of Cassandra.
    pub memory: String,
    /// A file of vectors (`.npy`), instead of the published one.
    pub vector_file: Option<PathBuf>,
    /// True for vectors that are computed from a seed.
    pub synthetic: bool,
    /// True if Cassandra takes part.
    pub cassandra: bool,
    /// Sections to run.
    pub sections: Vec<Section>,
}

impl Settings {
    /// Reads the words of the command line.
    pub fn parse(words: &[&str]) -> Result<Settings> {
        let mut s = Settings {
            rows: 1_000_000,
            vectors: 200_000,
            queries: 100,
            warm: 6,
            repeat: 3,
            memory: "2G".to_owned(),
            vector_file: None,
            synthetic: false,
            cassandra: true,
            sections: vec![Section::Reads, Section::Writes, Section::Vectors],
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match *word {
                "--without-cassandra" => {
                    s.cassandra = false;
                    continue;
                }
                "--synthetic" => {
                    s.synthetic = true;
                    continue;
                }
                _ => {}
            }
            let value = words.next().with_context(|| format!("{word} needs a value"))?;
            let between = |least: u64, most: u64| {
                let number = value.parse::<u64>().with_context(|| format!("{word} {value}"))?;
                if !(least..=most).contains(&number) {
                    bail!("{word} must be from {least} to {most}");
                }
                Ok(number)
            };
            match *word {
                "--rows" => s.rows = between(1_000, 1_000_000_000)?,
                "--vectors" => s.vectors = usize::try_from(between(1_000, 10_000_000)?)?,
                "--queries" => s.queries = usize::try_from(between(10, 500)?)?,
                "--warm" => s.warm = between(0, 600)?,
                "--repeat" => s.repeat = u32::try_from(between(1, 100)?)?,
                "--memory" => s.memory = (*value).to_owned(),
                "--vector-file" => s.vector_file = Some(PathBuf::from(value)),
                "--only" => s.sections = value.split(',').map(section).collect::<Result<_>>()?,
                _ => bail!("unknown option {word}; see cargo xtask help"),
            }
        }
        if s.synthetic && s.vector_file.is_some() {
            bail!("--synthetic and --vector-file exclude each other");
        }
        Ok(s)
    }

    /// Returns true if a section is to run.
    pub fn has(&self, section: Section) -> bool {
        self.sections.contains(&section)
    }
}

fn section(name: &str) -> Result<Section> {
    Ok(match name {
        "reads" => Section::Reads,
        "writes" => Section::Writes,
        "vectors" => Section::Vectors,
        _ => bail!("--only takes reads, writes, vectors (with commas), not \"{name}\""),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_values_out_of_range_are_refused() {
        let all = Settings::parse(&[]).unwrap();
        assert!(all.has(Section::Reads) && all.has(Section::Vectors) && all.cassandra);
        let some = Settings::parse(&["--only", "writes", "--rows", "20000", "--without-cassandra"]);
        let some = some.unwrap();
        assert_eq!(
            (some.sections, some.rows, some.cassandra),
            (vec![Section::Writes], 20_000, false)
        );
        assert!(Settings::parse(&["--rows", "999"]).is_err());
        assert!(Settings::parse(&["--queries", "501"]).is_err());
        assert!(Settings::parse(&["--only", "scans"]).is_err());
        assert!(Settings::parse(&["--repeat"]).is_err());
        assert!(Settings::parse(&["--synthetic", "--vector-file", "x.npy"]).is_err());
    }
}
