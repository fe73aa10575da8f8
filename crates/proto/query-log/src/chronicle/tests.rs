//! Files of a real Cassandra (testdata/chronicle) and changed ones.

use super::*;
use crate::record::{BatchQuery, LoggedStatement, LoggedValue, NO_TIMESTAMP, QueryRecord};
use cql_wire::BatchKind;

/// Bytes of a file that is stored as text: lines with an offset and the bytes there.
fn file(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (offset, hex) = line.split_once(' ').unwrap();
        out.resize(usize::from_str_radix(offset, 16).unwrap(), 0);
        let digits = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        out.extend((0..hex.len()).step_by(2).map(digits));
    }
    out
}

fn hourly() -> Vec<u8> {
    file(include_str!("../../testdata/chronicle/full-query-log-hourly.txt"))
}

fn closed() -> Vec<u8> {
    file(include_str!("../../testdata/chronicle/full-query-log-minutely-closed.txt"))
}

fn audit() -> Vec<u8> {
    file(include_str!("../../testdata/chronicle/audit-log-hourly.txt"))
}

fn queries(bytes: &[u8]) -> Vec<QueryRecord> {
    let records = read_file(bytes).unwrap().records;
    let query = |(_, record)| match record {
        LoggedRecord::Query(query) => query,
        other => panic!("{other:?}"),
    };
    records.into_iter().map(query).collect()
}

const INSERT: &str = "INSERT INTO t (a,b,v,m,l,x) VALUES (?,?,?,?,?,?)";

#[test]
fn statements_of_every_kind_are_read() {
    assert_eq!(read_file(&hourly()).unwrap().end, QueueEnd::Open);
    let records = queries(&hourly());
    let texts: Vec<(&str, Option<&str>)> = records
        .iter()
        .map(|record| {
            let text = match &record.statement {
                LoggedStatement::Single { query } => query.as_str(),
                LoggedStatement::Batch { .. } => "batch",
            };
            (text, record.keyspace.as_deref())
        })
        .collect();
    let select = ("SELECT v FROM t WHERE a = ?", Some("k"));
    let batch = ("batch", Some("k"));
    let insert = (INSERT, Some("k"));
    let mut expect = vec![
        ("INSERT INTO k.t (a,b,v) VALUES (1,1,'simple: ä€😀')", None),
        ("INSERT INTO t (a,b,v) VALUES (2,2,'x') USING TIMESTAMP 5", Some("k")),
    ];
    expect.extend([insert; 3]);
    expect.extend([select; 5]);
    expect.extend([batch; 3]);
    assert_eq!(texts, expect);
    let first = records.first().unwrap();
    assert_eq!((first.start_millis, first.protocol_version), (1_795_891_404_954, 5));
    assert_eq!((first.generated_timestamp, first.generated_now), (NO_TIMESTAMP, 1_795_891_404));
    // Consistency LOCAL_ONE, flags, page size 5000, timestamp.
    assert_eq!(&first.options[..10], &[0, 10, 0, 0, 0, 0x24, 0, 0, 0x13, 0x88]);
    assert_eq!(first.options.len(), 18);
    // With a value of 300 bytes.
    assert_eq!(records[4].options.len(), 353);
}

#[test]
fn batches_have_their_statements_and_values() {
    let records = queries(&hourly());
    let bytes = |bytes: &[u8]| LoggedValue::Bytes(bytes.to_vec());
    let one = |query: &str, values| BatchQuery { query: query.to_owned(), values };
    // Unset is stored as empty bytes.
    let values = vec![
        bytes(&[0, 0, 0, 3]),
        bytes(&[0, 0, 0, 1]),
        bytes(b"b"),
        bytes(b""),
        LoggedValue::Null,
        bytes(b""),
    ];
    let plain = "INSERT INTO k.t (a,b,v) VALUES (3,2,'plain')";
    let mixed = vec![one(INSERT, values), one(plain, Vec::new())];
    let counters = vec![
        one("UPDATE k.n SET c = c + 1 WHERE a = 1", Vec::new()),
        one(
            "UPDATE n SET c = c + ? WHERE a = ?",
            vec![bytes(&[0, 0, 0, 0, 0, 0, 0, 5]), bytes(&[0, 0, 0, 2])],
        ),
    ];
    let batches: Vec<_> = records.into_iter().skip(10).map(|record| record.statement).collect();
    let batch = |kind, queries| LoggedStatement::Batch { kind, queries };
    let expect = [
        batch(BatchKind::Logged, mixed.clone()),
        batch(BatchKind::Unlogged, mixed),
        batch(BatchKind::Counter, counters),
    ];
    assert_eq!(batches, expect);
}

#[test]
fn a_closed_file_ends_at_its_mark() {
    let mut bytes = closed();
    let file = read_file(&bytes).unwrap();
    assert_eq!((file.records.len(), file.end), (1, QueueEnd::Closed));
    // Nothing after the mark is read.
    bytes.extend_from_slice(&[1, 0, 0, 0, 0xff, 0, 0, 0]);
    assert_eq!(read_file(&bytes).unwrap(), file);
}

#[test]
fn lines_of_the_audit_log_are_read() {
    let records = read_file(&audit()).unwrap().records;
    let lines: Vec<&str> = records
        .iter()
        .map(|(_, record)| match record {
            LoggedRecord::Audit(line) => line.as_str(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(lines.len(), 7);
    assert_eq!(
        lines[0],
        "user:anonymous|host:/127.0.0.1:21201|source:/127.0.0.1|port:34584|timestamp:1795891528546|type:UPDATE|\
         category:DML|ks:k|scope:t|operation:INSERT INTO k.t (a,b,v) VALUES (7,1,'audited: ä😀')"
    );
    assert!(lines[6].contains("|type:REQUEST_FAILURE|category:ERROR|operation:SELECT nosuch"));
}

/// Small numbers are codes of their own there.
#[test]
fn files_of_version_4_are_read() {
    let bytes = file(include_str!("../../testdata/chronicle/full-query-log-4.0.txt"));
    let records = queries(&bytes);
    let millis: Vec<i64> = records.iter().map(|record| record.start_millis).collect();
    assert_eq!(millis, [0, 1, 2, 3].map(|index| 1_795_891_404_954 + index));
    let timestamps: Vec<i64> = records.iter().map(|record| record.generated_timestamp).collect();
    let at = 1_795_891_404_954_000;
    assert_eq!(timestamps, [NO_TIMESTAMP, at + 1, at + 2, NO_TIMESTAMP]);
    assert!(records.iter().all(|record| record.generated_now == 1_795_891_404));
    let LoggedStatement::Batch { kind: BatchKind::Logged, queries } = &records[3].statement else {
        panic!("{records:?}");
    };
    assert_eq!((queries[0].query.as_str(), queries[1].query.as_str()), ("INSERT a", "yyy"));
    let values =
        vec![LoggedValue::Bytes(vec![0; 3]), LoggedValue::Null, LoggedValue::Bytes(vec![0; 900])];
    assert_eq!((queries[0].values.len(), &queries[1].values), (0, &values));
}

/// The preallocated rest, an excerpt that is being written, and a file that was just created.
#[test]
fn a_file_that_is_being_written_ends_cleanly() {
    let bytes = hourly();
    let whole = read_file(&bytes).unwrap();
    for tail in
        [&[0; 4096][..], &[0; 3], &[0, 0, 0, 0x80, 1, 2, 3, 4], &[9, 0, 0, 0x80], &[9, 0, 0, 0xc0]]
    {
        let padding = bytes.len().next_multiple_of(WORD_BYTES) - bytes.len();
        let longer = [&bytes[..], &vec![0; padding], tail].concat();
        assert_eq!(read_file(&longer).unwrap(), whole, "{tail:?}");
    }
    let none = QueueFile { records: Vec::new(), end: QueueEnd::Open };
    for bytes in [&[][..], &[0; 100], &[0, 0, 0, 0x80]] {
        assert_eq!(read_file(bytes).unwrap(), none);
    }
    // The last record once its header word is written.
    let last = usize::try_from(whole.records.last().unwrap().0).unwrap();
    let mut writing = bytes.clone();
    writing[last + 3] |= 0x80;
    let file = read_file(&writing).unwrap();
    assert_eq!(file.records, whole.records[..12]);
    let mut cursor = QueueCursor::default();
    let mut steps = Vec::new();
    for bytes in [&writing, &bytes] {
        loop {
            let at = usize::try_from(cursor.offset()).unwrap();
            let word = bytes.get(at..at + WORD_BYTES).unwrap_or_default();
            match cursor.step(word, bytes.len() as u64).unwrap() {
                Step::Header(excerpt) => cursor.open(excerpt, payload_of(bytes, excerpt)).unwrap(),
                Step::Record(excerpt) => steps.push(excerpt.offset),
                Step::Skipped => {}
                Step::End(_) => break,
            }
        }
    }
    let offsets: Vec<u64> = whole.records.iter().map(|(offset, _)| *offset).collect();
    assert_eq!(steps, offsets);
}

#[test]
fn a_cut_file_names_the_excerpt() {
    let bytes = closed();
    let (record, _) = read_file(&bytes).unwrap().records[0];
    let at = usize::try_from(record).unwrap();
    for length in 0..bytes.len() {
        match read_file(&bytes[..length]) {
            Ok(file) => {
                // Between two excerpts, or in a header word whose first bytes are zero.
                assert!(file.records.is_empty() || length > bytes.len() - 12, "{length} bytes");
            }
            Err(ChronicleError::Cut { offset, needed, available }) => {
                assert_eq!(offset + available, length as u64);
                assert!(needed > available);
                assert!(length < at || offset >= record, "{length} bytes: {offset}");
            }
            Err(other) => panic!("{length} bytes: {other}"),
        }
    }
    let error = read_file(&bytes[..at + 10]).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("the file ends within the excerpt at offset {at}: 229 bytes needed, 10 left")
    );
}

/// INV-chronicle-1. Without checksums a changed byte may go unnoticed, and never more than that.
#[test]
fn no_changed_byte_panics_and_errors_name_an_offset_of_the_file() {
    let bytes = hourly();
    let whole = read_file(&bytes).unwrap().records;
    let mut noticed = 0;
    for at in (0..bytes.len()).filter(|at| bytes[*at] != 0) {
        for bit in [0x01, 0x10, 0x80, 0xff] {
            let mut changed = bytes.clone();
            changed[at] ^= bit;
            match read_file(&changed) {
                Ok(file) => assert!(file.records.len() <= whole.len()),
                Err(error) => {
                    noticed += 1;
                    let text = error.to_string();
                    let (_, after) = text.split_once(" at offset ").unwrap();
                    let digits =
                        after.split(|letter: char| !letter.is_ascii_digit()).next().unwrap();
                    assert!(digits.parse::<usize>().unwrap() < bytes.len(), "byte {at}: {text}");
                }
            }
        }
    }
    assert!(noticed > 5_000, "{noticed}");
}

/// INV-chronicle-1.
#[test]
fn no_bytes_panic() {
    let record = |bytes: &[u8], index: usize| {
        let offset = usize::try_from(read_file(bytes).unwrap().records[index].0).unwrap();
        bytes[offset + WORD_BYTES..].to_vec()
    };
    // Without the index, which is mostly zeros.
    let header = [&hourly()[..0xd4], &[0xff, 0, 0, 0], &record(&hourly(), 11)].concat();
    let corpus = [header, record(&hourly(), 3), record(&hourly(), 12), record(&audit(), 0)];
    testkit::mutate(corpus, crate::fuzz::fuzz_chronicle);
}

/// A header with these fields after the type, and a record after it.
fn with_header(store: &str, fields: &[u8]) -> Vec<u8> {
    let mut header = b"\xb9\x06header\xb6".to_vec();
    header.push(u8::try_from(store.len()).unwrap());
    header.extend_from_slice(store.as_bytes());
    header.push(0x82);
    header.extend_from_slice(&u32::try_from(fields.len()).unwrap().to_le_bytes());
    header.extend_from_slice(fields);
    let word = u32::try_from(header.len()).unwrap() | 0x4000_0000;
    [&word.to_le_bytes()[..], &header].concat()
}

fn with_record(mut file: Vec<u8>, payload: &[u8]) -> Vec<u8> {
    file.extend_from_slice(&u32::try_from(payload.len()).unwrap().to_le_bytes());
    file.extend_from_slice(payload);
    file
}

const LINE: &[u8] = b"\xc7version\xa1\x00\xc4type\xe5audit\xc7message\xe3one";

#[test]
fn headers_of_other_kinds_are_refused_by_name() {
    // The record begins at once in version 0, at the next multiple of four in version 1.
    let plain = with_header("SCQStore", b"\xc1x\xa1\x07");
    assert_ne!(plain.len() % WORD_BYTES, 0);
    let one = vec![LoggedRecord::Audit("one".to_owned())];
    let records = |file: &[u8]| {
        let records = read_file(file)?.records;
        Ok::<_, ChronicleError>(records.into_iter().map(|(_, record)| record).collect::<Vec<_>>())
    };
    assert_eq!(records(&with_record(plain, LINE)), Ok(one.clone()));
    let mut padded = with_header("SCQStore", b"\xcadataFormat\xa1\x01");
    padded.resize(padded.len().next_multiple_of(4), 0);
    assert_eq!(records(&with_record(padded, LINE)), Ok(one.clone()));
    let light = with_header("SCQStore", b"\xc8wireType\xb6\x08WireType\xecBINARY_LIGHT");
    assert_eq!(records(&with_record(light, LINE)), Ok(one));
    let refused = |file: Vec<u8>| read_file(&file).unwrap_err().to_string();
    assert_eq!(
        refused(with_header("SCQStore", b"\xcadataFormat\xa1\x02")),
        "the header at offset 0 has dataFormat 2, which is not supported"
    );
    assert_eq!(
        refused(with_header("SCQStore", b"\xc8wireType\xb6\x08WireType\xe4TEXT")),
        "the header at offset 0 has wireType TEXT, which is not supported"
    );
    assert_eq!(
        refused(with_header("SCQMeta", b"")),
        "the header at offset 0 names a store of type \"SCQMeta\", only SCQStore is read"
    );
    let none = "not a file of a Chronicle queue: the excerpt at offset 0 is no header";
    assert_eq!(refused(with_record(Vec::new(), LINE)), none);
    assert_eq!(refused(b"HELQUERY\x01\0\0\0".to_vec()), none);
    assert_eq!(refused(b"\x04\0\0\x40\xc3abc".to_vec()), none);
    // Metadata of 65,537 bytes; of one less.
    assert_eq!(refused(b"\x01\0\x01\x40".to_vec()), none);
    let cut = "the file ends within the excerpt at offset 0: 65540 bytes needed, 4 left";
    assert_eq!(refused(b"\0\0\x01\x40".to_vec()), cut);
}

#[test]
fn an_excerpt_beyond_the_limit_is_refused() {
    let mut file = with_header("SCQStore", b"");
    let at = file.len();
    file.extend_from_slice(&((PAYLOAD_BYTES_MAX as u32) + 1).to_le_bytes());
    let length = PAYLOAD_BYTES_MAX as u32 + 1;
    assert_eq!(read_file(&file), Err(ChronicleError::Length { offset: at as u64, length }));
    file[at..].copy_from_slice(&(PAYLOAD_BYTES_MAX as u32).to_le_bytes());
    assert!(matches!(read_file(&file), Err(ChronicleError::Cut { .. })));
}

#[test]
fn other_versions_and_types_are_named() {
    let decode = |payload: &[u8]| match decode_record(payload, 8).unwrap() {
        LoggedRecord::Unsupported(why) => why.to_string(),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        decode(b"\xc7version\xa1\x01\xc4type\xe5audit"),
        "Unsupported record version [1] - highest supported version is [0]"
    );
    assert_eq!(
        decode(b"\xc7version\xa1\x00\xc4type\xe5other\xff"),
        "Unsupported record type field [other] - supported record types are [single-query, batch, audit]"
    );
    let error = |payload: &[u8]| decode_record(payload, 8).unwrap_err().to_string();
    assert_eq!(error(b""), "the excerpt at offset 8 has no field \"version\"");
    assert_eq!(error(b"\xc7version\xa1\x00"), "the excerpt at offset 8 has no field \"type\"");
    assert_eq!(
        error(b"\xc7version\xa1\x00\xc4type\xe5audit"),
        "the excerpt at offset 8 has no field \"message\""
    );
    assert_eq!(
        error(b"\xc7version\xa1\x00\xc4type\xe5audit\xc7message\xa1\x01"),
        "the excerpt at offset 8 is not readable: message has the invalid value 161 at byte 29"
    );
    // A field that is not known is skipped.
    let more = [&LINE[..21], b"\xc3new\x80\x01\x8a", &LINE[21..]].concat();
    assert_eq!(decode_record(LINE, 8), decode_record(&more, 8));
}

#[test]
fn each_field_of_a_query_is_needed() {
    let bytes = hourly();
    let (offset, _) = read_file(&bytes).unwrap().records[12];
    let at = usize::try_from(offset).unwrap();
    let length = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let payload = &bytes[at + 4..at + 4 + length];
    let fields = [
        "query-start-time",
        "protocol-version",
        "query-options",
        "generated-timestamp",
        "generated-now-in-seconds",
        "keyspace",
        "batch-type",
    ];
    for field in fields {
        let from =
            payload.windows(field.len()).position(|window| window == field.as_bytes()).unwrap();
        let mut renamed = payload.to_vec();
        renamed[from] = b'Q';
        let error = decode_record(&renamed, 8).unwrap_err().to_string();
        assert_eq!(error, format!("the excerpt at offset 8 has no field \"{field}\""));
    }
    let changed = |old: &[u8], new: &[u8]| {
        let from = payload.windows(old.len()).position(|window| window == old).unwrap();
        let mut changed = payload.to_vec();
        changed[from..from + old.len()].copy_from_slice(new);
        decode_record(&changed, 8).unwrap_err().to_string()
    };
    assert!(changed(b"COUNTER", b"COUNTED").contains("batch-type has the invalid value"));
    assert!(changed(b"values\xa1\x02", b"values\xa1\x03").contains("values is cut short"));
    assert!(
        changed(b"values\xa1\x02", b"values\xa4\xff").contains("values has the invalid value -1")
    );
}

#[test]
fn a_batch_has_values_for_each_statement_and_not_too_many() {
    let batch = |queries: &[u8], values: &[u8]| {
        let head = b"\xc7version\xa1\x00\xc4type\xe5batch\xd0query-start-time\xa1\x01\xd0protocol-version\xa1\x05\
            \xcdquery-options\x80\x01\x8a\xd3generated-timestamp\xa1\x00\xd8generated-now-in-seconds\xa1\x00\
            \xc8keyspace\xbb\xcabatch-type\xe6LOGGED\xc7queries";
        decode_record(&[&head[..], queries, b"\xc6values", values].concat(), 8)
    };
    assert!(batch(b"\xa1\x01\xe1q", b"\xa1\x01\xa1\x01\xbb").is_ok());
    let error = batch(b"\xa1\x02\xe1q\xe1q", b"\xa1\x01\xa1\x00").unwrap_err();
    assert_eq!(error.to_string(), "the batch at offset 8 has 2 statements and values for 1");
    assert!(batch(b"\xa1\x01\xbb", b"\xa1\x01\xa1\x00").is_err());
    // One more than a frame of the native protocol can have.
    assert!(
        batch(b"\xa6\x00\x00\x01\x00", b"\xa1\x00")
            .unwrap_err()
            .to_string()
            .contains("queries has the invalid value 65536")
    );
    let mut values = b"\xa1\x01\xa6".to_vec();
    values.extend_from_slice(&((1u32 << 22) + 1).to_le_bytes());
    values.extend(std::iter::repeat_n(0xbb, (1 << 22) + 1));
    assert!(
        batch(b"\xa1\x01\xe1q", &values)
            .unwrap_err()
            .to_string()
            .contains("values has the invalid value 4194305")
    );
    values[3..7].copy_from_slice(&(1u32 << 22).to_le_bytes());
    values.pop();
    assert!(batch(b"\xa1\x01\xe1q", &values).is_ok());
}
