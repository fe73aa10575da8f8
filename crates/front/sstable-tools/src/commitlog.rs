//! `helenus commitlog`: content of commit log segments, without a node.
//!
//! Owns: the command line, the output. Never: the bytes of segments (crate `commitlog`). It changes
//! nothing: a segment that a node is writing can be printed.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Read, Seek, SeekFrom, Write};

use clap::Subcommand;
use serde_json::{Value, json};
use sstable::offline::{key_text, micros_text};
use stdx::TableId;
use store::commitlog::archive::is_foreign;
use store::commitlog::format::{Descriptor, decode_descriptor};
use store::commitlog::scan::{Found, PIECE_BYTES, Scan, Scanner};
use store::commitlog::{Keys, LogPosition, Record, SegmentHeader, SegmentId, TruncationRef};
use types::CqlType;

use tool_io::exit;

/// Tools for segments.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub enum Command {
    /// Print the header and the records of segments: place, table, token, key, bytes, timestamp
    Dump {
        /// Print a line of JSON for each record
        #[arg(long)]
        json: bool,
        /// Print counts by table instead of records
        #[arg(long)]
        summary: bool,
        /// File with the keys of encrypted segments, as commitlog_encryption_key_file names it
        #[arg(long, value_name = "FILE")]
        key_file: Option<String>,
        /// Segment, such as helenus-commitlog-0000000000001002.log
        #[arg(required = true, value_name = "FILE")]
        files: Vec<String>,
    },
}

/// Runs the tool; the exit code: of several files the worst.
pub fn main(command: Command) -> u8 {
    let Command::Dump { json, summary, key_file, files } = command;
    let keys = match key_file.as_deref().map(read_keys).transpose() {
        Ok(keys) => keys,
        Err(what) => {
            complain_line!("helenus commitlog: {what}");
            return exit::USAGE;
        }
    };
    let mut out = BufWriter::new(std::io::stdout().lock());
    let mut worst = exit::OK;
    for path in &files {
        let mut dump = Dump { json, summary, keys: keys.clone(), ..Dump::default() };
        let code = match dump.file(path, &mut out) {
            Ok(code) => code,
            Err(Failure::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => {
                return worst;
            }
            Err(Failure::Output(error)) => {
                complain_line!("helenus commitlog: cannot write: {error}");
                return exit::FAILED;
            }
            Err(Failure::File(code, what)) => {
                complain_line!("helenus commitlog: {path}: {what}");
                code
            }
        };
        worst = worst.max(code);
    }
    if let Err(error) = out.flush()
        && error.kind() != std::io::ErrorKind::BrokenPipe
    {
        complain_line!("helenus commitlog: cannot write: {error}");
        return exit::FAILED;
    }
    worst
}

fn read_keys(path: &str) -> Result<Keys, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    Keys::parse(&text).map_err(|what| format!("{path}: {what}"))
}

enum Failure {
    /// Exit code and why the file was not printed.
    File(u8, String),
    Output(std::io::Error),
}

/// A table as the segment describes it.
struct Described {
    name: String,
    /// Types of the partition key; `None`: one of them is not native, keys are printed as hex.
    key_types: Option<Vec<CqlType>>,
    clustering_count: usize,
}

#[derive(Default)]
struct Counts {
    mutations: u64,
    bytes: u64,
}

/// State while a segment is printed.
#[derive(Default)]
struct Dump {
    json: bool,
    summary: bool,
    keys: Option<Keys>,
    tables: BTreeMap<TableId, Described>,
    counts: BTreeMap<String, Counts>,
    /// Highest position in this segment that a marker in it attests.
    synced: u64,
    markers_behind: u64,
}

impl Dump {
    fn file(&mut self, path: &str, out: &mut impl Write) -> Result<u8, Failure> {
        let name = path.rsplit('/').next().unwrap_or(path);
        let Some(id) = SegmentId::from_file_name(name) else {
            let what = if is_foreign(name) {
                "a commit-log segment of Cassandra's, which is not read here; \"nodetool drain\" on \
                 that node puts its writes into SSTables"
            } else {
                "not a commit-log segment; expects a name such as \
                 helenus-commitlog-0000000000001002.log"
            };
            return Err(Failure::File(exit::USAGE, what.to_owned()));
        };
        let io = |error: std::io::Error| Failure::File(exit::FAILED, error.to_string());
        let mut file = File::open(path).map_err(io)?;
        let length = file.metadata().map_err(io)?.len();
        let mut piece = read(&mut file, 0, PIECE_BYTES).map_err(io)?;
        let mut scanner = Scanner::begin(id, length, &piece, self.keys.as_ref());
        if let Some(header) = scanner.header() {
            let line =
                if self.json { header_json(path, header) } else { header_text(path, header) };
            out.write_all(line.as_bytes()).map_err(Failure::Output)?;
        }
        while let Some((at, want)) = scanner.wants() {
            piece.clear();
            piece = read(&mut file, at, want.max(PIECE_BYTES)).map_err(io)?;
            scanner.feed(&piece, &mut |found| self.record(id, &found, out))?;
        }
        self.end(path, &scanner.finish(), out)
    }

    fn record(
        &mut self,
        id: SegmentId,
        found: &Found<'_>,
        out: &mut impl Write,
    ) -> Result<(), Failure> {
        if let Record::Marker(LogPosition { segment, offset }) = found.record {
            if segment == id {
                self.synced = self.synced.max(offset);
            }
            self.markers_behind += u64::from(found.header.is_none());
        }
        if let Record::Descriptor(bytes) = found.record
            && let Ok(descriptor) = decode_descriptor(bytes)
        {
            self.tables.insert(descriptor.table, Described::of(&descriptor));
        }
        let mut fields = self.fields(&found.record);
        if self.summary {
            return Ok(());
        }
        let line = if self.json {
            fields.push(("position", json!(found.offset)));
            fields.push(("place", json!(found.place)));
            fields.push(("bytes", json!(found.bytes)));
            let fields = fields.into_iter().map(|(name, value)| (name.to_owned(), value));
            format!("{}\n", Value::Object(fields.collect()))
        } else {
            let mut line = format!("{:>10} {:>8}", found.offset, found.bytes);
            for (name, value) in &fields {
                let value = word(value);
                match *name {
                    "type" | "table" => line.push_str(&format!(" {value}")),
                    _ => line.push_str(&format!(" {name}={value}")),
                }
            }
            line.push('\n');
            line
        };
        out.write_all(line.as_bytes()).map_err(Failure::Output)
    }

    /// Returns the fields of a record, `type` first, then `table`.
    fn fields(&mut self, record: &Record<'_>) -> Vec<(&'static str, Value)> {
        let mut fields = Vec::new();
        let mut put = |name: &'static str, value: Value| fields.push((name, value));
        match record {
            Record::Mutation(bytes) => {
                put("type", json!("mutation"));
                self.mutation(bytes, &mut put);
            }
            Record::Descriptor(bytes) => {
                put("type", json!("descriptor"));
                match decode_descriptor(bytes) {
                    Ok(table) => {
                        put("table", json!(format!("{}.{}", table.names.0, table.names.1)));
                        put("id", json!(table.table.0.to_string()));
                        put("version", json!(table.version));
                        let columns =
                            table.columns.iter().map(|(_, _, name, ty)| json!([name, ty]));
                        put("columns", Value::Array(columns.collect()));
                    }
                    Err(error) => put("error", json!(error.to_string())),
                }
            }
            Record::Marker(synced) => {
                put("type", json!("marker"));
                put("segment", json!(synced.segment.file_name()));
                put("synced", json!(synced.offset));
            }
            Record::Truncation(truncation) => {
                put("type", json!("truncation"));
                self.truncation(truncation, &mut put);
            }
        }
        fields
    }

    fn mutation(&mut self, bytes: &[u8], put: &mut impl FnMut(&'static str, Value)) {
        let Some(opened) = data::MutationRef::open(bytes) else {
            put("error", json!("not a mutation of a version that is read here"));
            return;
        };
        let described = self.tables.get(&opened.table);
        let name = described.map_or_else(|| opened.table.0.to_string(), |d| d.name.clone());
        put("table", json!(name));
        put("token", json!(codec::token_of(opened.key).0));
        let key = described.and_then(|d| Some(key_text(d.key_types.as_ref()?, opened.key)));
        put("key", json!(key.unwrap_or_else(|| hex(opened.key))));
        let clustering_count = described.map(|d| d.clustering_count);
        match clustering_count.and_then(|count| data::MutationRef::parse(bytes, count)) {
            Some(mutation) => {
                put("timestamp", json!(store::max_timestamp(&mutation)));
                put("rows", json!(mutation.rows().count()));
            }
            None => put("error", json!("its rows cannot be read")),
        }
        let counts = self.counts.entry(name).or_default();
        counts.mutations += 1;
        counts.bytes += bytes.len() as u64;
    }

    fn truncation(
        &self,
        truncation: &TruncationRef<'_>,
        put: &mut impl FnMut(&'static str, Value),
    ) {
        let id = truncation.table;
        let name = self.tables.get(&id).map_or_else(|| id.0.to_string(), |d| d.name.clone());
        put("table", json!(name));
        put("truncated_at", json!(truncation.truncated_at.0));
        put("shard", json!(format!("{} of {}", truncation.shard, truncation.shards)));
        put("sstables", json!(truncation.generations().collect::<Vec<u64>>()));
    }

    /// Counts and where the valid part ends.
    fn end(&self, path: &str, scan: &Scan, out: &mut impl Write) -> Result<u8, Failure> {
        if let Some(what) = scan.sealed {
            return Err(Failure::File(exit::FAILED, format!("{what}, here by --key-file")));
        }
        let mut text = String::new();
        for (table, counts) in &self.counts {
            let (mutations, bytes) = (counts.mutations, counts.bytes);
            text.push_str(&if self.json {
                let line = json!({
                    "type": "count", "table": table, "mutations": mutations, "bytes": bytes
                });
                format!("{line}\n")
            } else {
                format!("{table}: {mutations} mutations, {bytes} bytes\n")
            });
        }
        // A marker of this segment after damage may show that more had been synced.
        let is_damaged = scan.header.is_none() || scan.valid < self.synced;
        let dropped = scan.length.saturating_sub(scan.valid_place);
        if dropped > 0 || is_damaged {
            let state = if is_damaged { "damaged" } else { "unsynced tail" };
            text.push_str(&if self.json {
                let line = json!({
                    "type": "end", "state": state, "file": path, "place": scan.valid_place,
                    "length": scan.length, "what": scan.what, "synced": self.synced,
                    "markers_behind": self.markers_behind
                });
                format!("{line}\n")
            } else {
                format!(
                    "{path}: {state} from byte {} of {}: {}\n",
                    scan.valid_place, scan.length, scan.what
                )
            });
        }
        out.write_all(text.as_bytes()).map_err(Failure::Output)?;
        Ok(if is_damaged { exit::DAMAGED } else { exit::OK })
    }
}

impl Described {
    fn of(descriptor: &Descriptor) -> Described {
        let of_key = descriptor.columns.iter().filter(|(_, kind, ..)| *kind == 0);
        let key_types = of_key.map(|(_, _, _, ty)| types::name::native_type(ty)).collect();
        Described {
            name: format!("{}.{}", descriptor.names.0, descriptor.names.1),
            key_types,
            clustering_count: descriptor
                .columns
                .iter()
                .filter(|(_, kind, ..)| matches!(kind, 1 | 2))
                .count(),
        }
    }
}

fn read(file: &mut File, at: u64, count: usize) -> std::io::Result<Vec<u8>> {
    file.seek(SeekFrom::Start(at))?;
    let mut bytes = Vec::new();
    file.take(count as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold("0x".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}

/// A value of a line: what would end the word or the line stands in quotes, as in JSON.
fn word(value: &Value) -> String {
    let is_word =
        |text: &str| !text.chars().any(|c| c.is_whitespace() || c.is_control() || c == '"');
    match value.as_str() {
        Some(text) if is_word(text) => text.to_owned(),
        _ => value.to_string(),
    }
}

/// Version and compressor.
fn version(header: &SegmentHeader) -> String {
    match (header.sealed, header.compression) {
        (true, None) => "3, encrypted".to_owned(),
        (true, Some(algorithm)) => format!("3, encrypted, {}", algorithm.name()),
        (false, None) => "1".to_owned(),
        (false, Some(algorithm)) => format!("2, {}", algorithm.name()),
    }
}

fn header_text(path: &str, header: &SegmentHeader) -> String {
    format!(
        "{path}\nversion: {}\nshard: {} of {}\nsequence: {}\nhost: {}\ncreated: {}\nrun: {}\n\
         previous: {}\n",
        version(header),
        header.shard,
        header.shards,
        header.id.sequence(),
        header.host.0,
        micros_text(header.created),
        header.run,
        match header.previous {
            LogPosition { segment: SegmentId(0), .. } => "none".to_owned(),
            LogPosition { segment, offset } => format!("{}, {offset} bytes", segment.file_name()),
        }
    )
}

fn header_json(path: &str, header: &SegmentHeader) -> String {
    let line = json!({
        "type": "segment", "file": path, "version": version(header), "shard": header.shard,
        "shards": header.shards, "sequence": header.id.sequence(),
        "host": header.host.0.to_string(), "created": header.created, "run": header.run,
        "previous": header.previous.segment.file_name(), "previous_bytes": header.previous.offset
    });
    format!("{line}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::commitlog::format;

    /// A segment with a table, two writes of it and a marker that attests them.
    fn segment() -> (SegmentId, Vec<u8>) {
        let id = SegmentId::new(1, 0);
        let header = SegmentHeader {
            id,
            host: stdx::HostId(stdx::Uuid::from_u128(1)),
            shard: 0,
            shards: 1,
            created: 0,
            run: 1,
            previous: LogPosition::default(),
            compression: None,
            sealed: false,
        };
        let mut file = Vec::new();
        header.encode(&mut file);
        let table = TableId(stdx::Uuid::from_u128(5));
        let mut descriptor = Vec::new();
        descriptor.extend_from_slice(table.0.as_bytes());
        // Version, keyspace, table, one column: id, kind, name, type.
        descriptor.extend_from_slice(b"\x03\x02ks\x01t\x01\x00\x00\x02pk\x03int");
        let at = |file: &Vec<u8>| LogPosition { segment: id, offset: file.len() as u64 };
        let place = at(&file);
        format::encode_descriptor_record(&mut file, place, &descriptor);
        for pk in [7_i32, -1] {
            let mut mutation = Vec::new();
            let key = pk.to_be_bytes();
            let mut builder = data::MutationBuilder::new(&mut mutation, table, 3, &key);
            builder.deletion(data::DeletionTime {
                timestamp: stdx::TimestampMicros(77),
                local: stdx::DeletionSeconds(1),
            });
            builder.finish();
            let place = at(&file);
            format::encode_mutation(&mut file, place, &mutation);
        }
        let place = at(&file);
        format::encode_marker(&mut file, place, place);
        (id, file)
    }

    fn dump(file: &[u8], id: SegmentId, dump: &mut Dump) -> (String, Result<u8, String>) {
        let directory = std::env::temp_dir().join(format!("helenus-dump-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join(id.file_name());
        std::fs::write(&path, file).unwrap();
        let mut out = Vec::new();
        let result = dump.file(path.to_str().unwrap(), &mut out).map_err(|failure| match failure {
            Failure::File(_, what) => what,
            Failure::Output(error) => error.to_string(),
        });
        std::fs::remove_dir_all(&directory).unwrap();
        (String::from_utf8(out).unwrap(), result)
    }

    #[test]
    fn records_are_printed_and_damage_is_placed() {
        let (id, file) = segment();
        let (text, code) = dump(&file, id, &mut Dump::default());
        assert_eq!(code, Ok(exit::OK));
        assert!(text.contains("\nversion: 1\nshard: 0 of 1\nsequence: 1\n"), "{text}");
        let token = codec::token_of(&7_i32.to_be_bytes()).0;
        let write = format!(" mutation ks.t token={token} key=7 timestamp=77 rows=0\n");
        assert!(text.contains(&write) && text.contains(" key=-1 "), "{text}");
        assert!(text.ends_with("ks.t: 2 mutations, 84 bytes\n"), "{text}");

        let of_json = |file: &[u8]| {
            let (text, code) = dump(file, id, &mut Dump { json: true, ..Dump::default() });
            let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
            (lines.collect::<Vec<Value>>(), code)
        };
        let (lines, _) = of_json(&file);
        let types: Vec<&str> = lines.iter().map(|line| line["type"].as_str().unwrap()).collect();
        let expect = ["segment", "descriptor", "mutation", "mutation", "marker", "count"];
        assert_eq!(types, expect);
        assert_eq!((&lines[2]["key"], &lines[2]["timestamp"]), (&json!("7"), &json!(77)));

        let mut damaged = file.clone();
        let at = lines[3]["place"].as_u64().unwrap();
        damaged[at as usize + 20] ^= 1;
        let (lines, code) = of_json(&damaged);
        assert_eq!(code, Ok(exit::DAMAGED));
        let end = lines.last().unwrap();
        assert_eq!((&end["state"], &end["place"]), (&json!("damaged"), &json!(at)));

        let (lines, code) = of_json(&file[..at as usize + 20]);
        assert_eq!(code, Ok(exit::OK));
        let end = lines.last().unwrap();
        assert_eq!((&end["state"], &end["place"]), (&json!("unsynced tail"), &json!(at)));
    }

    #[test]
    fn a_key_neither_ends_its_word_nor_its_line() {
        for (value, text) in [
            (json!("k:0"), "k:0"),
            (json!(""), ""),
            (json!(7), "7"),
            (json!("a b"), "\"a b\""),
            (json!("\n\t\"é"), "\"\\n\\t\\\"é\""),
        ] {
            assert_eq!(word(&value), text);
        }
    }

    #[test]
    fn other_files_are_told_apart() {
        let of = |path: &str| {
            let result = Dump::default().file(path, &mut Vec::new());
            match result {
                Err(Failure::File(code, what)) => (code, what),
                Err(Failure::Output(error)) => panic!("{error}"),
                Ok(code) => panic!("{code}"),
            }
        };
        assert!(of("/x/CommitLog-7-1.log").1.contains("nodetool drain"));
        assert_eq!(of("nb-1-big-Data.db").0, exit::USAGE);
        assert_eq!(of("/no-such/helenus-commitlog-0000000000001002.log").0, exit::FAILED);
    }
}
