//! The command line of `perf compare`.

use anyhow::{Context, Result, bail};
use serde::Serialize;

/// A part of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Section {
    /// The null server's rows of the load.
    Null,
    /// 128 in flight.
    Load,
    /// Equal offered load.
    Equal,
    /// Start, memory, DDL, restart, replay.
    Start,
    /// Whole tables filtered, counted, grouped.
    Scans,
    /// Flushes, a major compaction, latencies meanwhile.
    Compaction,
    /// Requests over TLS.
    Tls,
    /// A client beside very many handshakes.
    Handshakes,
    /// The audit log.
    Audit,
    /// Encrypted SSTables.
    AtRest,
}

/// Rows to flush and compact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Rows {
    /// Rows of standard1, each a partition: a key and five values of 32 bytes.
    Standard1,
    /// A time series: 1,000 rows of 40 bytes in a partition, some of them in each file.
    Series,
}

/// Settings of one comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Settings {
    /// Rows of the tables.
    pub rows: u64,
    /// Seconds of a counted run.
    pub seconds: u64,
    /// Seconds of the first warm-up of each workload on each server; later ones take a quarter.
    pub warm: u64,
    /// Interleaved runs of the load.
    pub repeat: u32,
    /// Interleaved runs at equal offered load.
    pub equal_repeat: u32,
    /// Starts on an empty directory.
    pub start_repeat: u32,
    /// `--memory` of Helenus and heap of Cassandra.
    pub memory: String,
    /// Data to restart with.
    pub restart_mb: u64,
    /// Commit log to replay.
    pub replay_mb: u64,
    /// True if Cassandra takes part.
    pub cassandra: bool,
    /// Rows of the section "compaction".
    pub compacted: Rows,
    /// Sections to run.
    pub sections: Vec<Section>,
}

impl Settings {
    /// Reads the words of the command line.
    pub fn parse(words: &[&str]) -> Result<Settings> {
        let mut s = Settings {
            rows: 500_000,
            seconds: 15,
            warm: 20,
            repeat: 3,
            equal_repeat: 5,
            start_repeat: 5,
            memory: "1G".to_owned(),
            restart_mb: 1024,
            replay_mb: 256,
            cassandra: true,
            compacted: Rows::Standard1,
            sections: vec![
                Section::Null,
                Section::Load,
                Section::Equal,
                Section::Start,
                Section::Scans,
                Section::Compaction,
                Section::Tls,
                Section::Handshakes,
                Section::Audit,
                Section::AtRest,
            ],
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if *word == "--without-cassandra" {
                s.cassandra = false;
                continue;
            }
            let value = words.next().with_context(|| format!("{word} needs a value"))?;
            let number = || value.parse::<u64>().with_context(|| format!("{word} {value}"));
            let count = || match number()? {
                0 => bail!("{word} must be at least 1"),
                n => Ok(n),
            };
            match *word {
                "--rows" => s.rows = count()?,
                "--seconds" => s.seconds = count()?,
                "--warm" => s.warm = number()?,
                "--repeat" => s.repeat = u32::try_from(count()?)?,
                "--equal-repeat" => s.equal_repeat = u32::try_from(count()?)?,
                "--start-repeat" => s.start_repeat = u32::try_from(count()?)?,
                "--restart-mb" => s.restart_mb = number()?,
                "--replay-mb" => s.replay_mb = number()?,
                "--memory" => s.memory = (*value).to_owned(),
                "--compacted" => s.compacted = compacted(value)?,
                "--only" => s.sections = value.split(',').map(section).collect::<Result<_>>()?,
                _ => bail!("unknown option {word}; see cargo xtask help"),
            }
        }
        Ok(s)
    }

    /// Returns true if a section is to run that `latte` puts the load on.
    pub fn needs_latte(&self) -> bool {
        let of_bench = [Section::Tls, Section::Handshakes, Section::Audit, Section::AtRest];
        self.sections.iter().any(|section| !of_bench.contains(section))
    }

    /// Returns true if a section is to run.
    pub fn has(&self, section: Section) -> bool {
        self.sections.contains(&section)
    }
}

fn compacted(name: &str) -> Result<Rows> {
    Ok(match name {
        "standard1" => Rows::Standard1,
        "series" => Rows::Series,
        _ => bail!("--compacted takes standard1 or series, not \"{name}\""),
    })
}

fn section(name: &str) -> Result<Section> {
    Ok(match name {
        "null" => Section::Null,
        "load" => Section::Load,
        "equal" => Section::Equal,
        "start" => Section::Start,
        "scans" => Section::Scans,
        "compaction" => Section::Compaction,
        "tls" => Section::Tls,
        "handshakes" => Section::Handshakes,
        "audit" => Section::Audit,
        "at-rest" => Section::AtRest,
        _ => bail!(
            "--only takes null, load, equal, start, scans, compaction, tls, handshakes, audit, at-rest (with \
             commas), not \"{name}\""
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_are_chosen_by_name() {
        let all = Settings::parse(&[]).unwrap();
        assert!(all.has(Section::Null) && all.has(Section::Equal) && all.cassandra);
        let some = Settings::parse(&["--only", "null,start", "--without-cassandra"]).unwrap();
        assert_eq!(some.sections, [Section::Null, Section::Start]);
        assert!(!some.cassandra);
        assert!(some.needs_latte());
        let security = Settings::parse(&["--only", "tls,handshakes,audit,at-rest"]).unwrap();
        assert!(security.has(Section::AtRest) && !security.needs_latte());
        assert!(Settings::parse(&["--only", "nil"]).is_err());
        assert!(Settings::parse(&["--only"]).is_err());
    }

    #[test]
    fn counts_are_at_least_one_and_a_warm_up_may_be_left_out() {
        assert!(Settings::parse(&["--repeat", "0"]).is_err());
        assert_eq!(Settings::parse(&["--repeat", "1"]).unwrap().repeat, 1);
        assert_eq!(Settings::parse(&["--warm", "0"]).unwrap().warm, 0);
        assert!(Settings::parse(&["--rows", "many"]).is_err());
        assert!(Settings::parse(&["--row", "1"]).is_err());
    }
}
