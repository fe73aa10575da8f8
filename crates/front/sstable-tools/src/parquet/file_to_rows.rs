//! Columns of a Parquet file to rows.
//!
//! Levels say where a value belongs: the repetition level, which list continues; the definition
//! level, how much of the path to the value is present. All leaves of a group have the same levels
//! above it, so the first one decides. The levels of the others are checked against it.

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::{ConvertedType, LogicalType, Repetition};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::DataType;
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, FileReader as _, Length, SerializedFileReader};
use parquet::schema::types::Type;

use super::guard::guarded;
use super::value::{Meaning, Value, meaning, of_bytes, of_int32, of_int64};

/// Rows that are taken of a column at a time.
const BATCH_ROWS: usize = 256;
/// Deepest nesting of a column.
const DEPTH_MAX: u32 = 64;

/// A file that is being read, row by row.
pub(crate) struct FileReader {
    path: Arc<str>,
    file: SerializedFileReader<Input>,
    /// Bytes of the file.
    length: u64,
    columns: Vec<(String, Node)>,
    meanings: Vec<Meaning>,
    /// Row groups that were begun.
    groups: usize,
    streams: Vec<Stream>,
    /// Rows of the group that are still to come.
    left: i64,
}

impl FileReader {
    /// Reads the end of the file, where its schema is.
    ///
    /// # Errors
    /// It is not a Parquet file, damaged, or has columns of types that are not read.
    pub(crate) fn open(path: &str) -> Result<FileReader, String> {
        let path: Arc<str> = path.into();
        guarded(&path.clone(), || FileReader::opened(path))
    }

    fn opened(path: Arc<str>) -> Result<FileReader, String> {
        let file = File::open(&*path).map_err(|e| e.to_string())?;
        let length = file.metadata().map_err(|e| e.to_string())?.len();
        let input = Input { file: Arc::new(file), length };
        let file = SerializedFileReader::new(input).map_err(|e| e.to_string())?;
        let mut columns = Vec::new();
        let mut leaves = Leaves::default();
        for field in file.metadata().file_metadata().schema().get_fields() {
            let node = leaves.node(field, 0, 0, 0)?;
            columns.push((field.name().to_owned(), node));
        }
        let (streams, meanings) = (Vec::new(), leaves.meanings);
        Ok(FileReader { path, file, length, columns, meanings, groups: 0, streams, left: 0 })
    }

    /// Returns the number of rows according to the file.
    pub(crate) fn rows(&self) -> u64 {
        u64::try_from(self.file.metadata().file_metadata().num_rows()).unwrap_or(0)
    }

    /// Names of the columns.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.columns.iter().map(|(name, _)| name.as_str())
    }

    /// The next row, in the order of the columns; `None`: there is none.
    ///
    /// # Errors
    /// The file is damaged.
    pub(crate) fn row(&mut self) -> Result<Option<Vec<Value>>, String> {
        guarded(&self.path.clone(), || self.next_row())
    }

    fn next_row(&mut self) -> Result<Option<Vec<Value>>, String> {
        while self.left <= 0 {
            if self.groups >= self.file.num_row_groups() {
                return Ok(None);
            }
            self.group()?;
        }
        self.left -= 1;
        let mut row = Vec::with_capacity(self.columns.len());
        for (name, node) in &self.columns {
            let value = read(node, &mut self.streams, 0);
            row.push(value.map_err(|text| format!("column {name}: {text}"))?);
        }
        for stream in &mut self.streams {
            if stream.peek()?.is_some_and(|(_, rep)| rep != 0)
                || (self.left == 0 && !stream.ended()?)
            {
                return Err("columns of different lengths".to_owned());
            }
        }
        Ok(Some(row))
    }

    fn group(&mut self) -> Result<(), String> {
        let text = |error: ParquetError| error.to_string();
        let group = self.file.get_row_group(self.groups).map_err(text)?;
        self.groups += 1;
        self.left = group.metadata().num_rows();
        self.streams.clear();
        // The crate trusts offsets and lengths.
        for (number, chunk) in group.metadata().columns().iter().enumerate() {
            let start = chunk.dictionary_page_offset().unwrap_or(chunk.data_page_offset());
            let bytes = chunk.compressed_size();
            let places = [start, chunk.data_page_offset(), bytes, chunk.uncompressed_size()];
            let end = u64::try_from(start).ok().zip(u64::try_from(bytes).ok());
            let end = end.and_then(|(start, bytes)| start.checked_add(bytes));
            if places.iter().any(|n| *n < 0)
                || chunk.num_values() < 0
                || end.is_none_or(|end| end > self.length)
            {
                return Err(format!(
                    "column {number} of row group {} lies outside of the file",
                    self.groups
                ));
            }
        }
        for (at, meaning) in self.meanings.iter().enumerate() {
            let descriptor = group.metadata().schema_descr().column(at);
            let reader = group.get_column_reader(at).map_err(text)?;
            self.streams.push(Stream {
                reader,
                meaning: *meaning,
                def_max: descriptor.max_def_level(),
                has_reps: descriptor.max_rep_level() > 0,
                triplets: VecDeque::new(),
            });
        }
        Ok(())
    }
}

/// A part of the schema.
struct Node {
    kind: Kind,
    /// Definition level when there is a value.
    def: i16,
    /// First of its leaves, and the end of them.
    leaves: std::ops::Range<usize>,
}

enum Kind {
    Leaf,
    Fields(Vec<(String, Node)>),
    /// With the repetition level of a further element.
    Elements(Box<Node>, i16),
    Entries(Box<Node>, Box<Node>, i16),
}

#[derive(Default)]
struct Leaves {
    meanings: Vec<Meaning>,
}

impl Leaves {
    /// Builds the node of a field whose parent, when present, has the levels `def`, `rep`.
    fn node(&mut self, field: &Type, def: i16, rep: i16, depth: u32) -> Result<Node, String> {
        if depth > DEPTH_MAX {
            return Err(format!("column {}: nested too deep", field.name()));
        }
        let info = field.get_basic_info();
        let repetition =
            if info.has_repetition() { info.repetition() } else { Repetition::REQUIRED };
        let first = self.meanings.len();
        if repetition == Repetition::REPEATED {
            // A list without a group around it: it is never null.
            let element = self.present(field, def + 1, rep + 1, depth)?;
            let kind = Kind::Elements(Box::new(element), rep + 1);
            return Ok(Node { kind, def, leaves: first..self.meanings.len() });
        }
        let def = def + i16::from(repetition == Repetition::OPTIONAL);
        self.present(field, def, rep, depth)
    }

    /// A field with its own levels.
    fn present(&mut self, field: &Type, def: i16, rep: i16, depth: u32) -> Result<Node, String> {
        let first = self.meanings.len();
        let depth = depth.saturating_add(1);
        let fields = if field.is_primitive() { &[] } else { field.get_fields() };
        let info = field.get_basic_info();
        let is_list = info.logical_type_ref() == Some(&LogicalType::List)
            || info.converted_type() == ConvertedType::LIST;
        let is_map = info.logical_type_ref() == Some(&LogicalType::Map)
            || matches!(info.converted_type(), ConvertedType::MAP | ConvertedType::MAP_KEY_VALUE);
        let only = match fields {
            [only] if is_repeated(only) => Some(only),
            _ => None,
        };
        let kind = match only {
            _ if field.is_primitive() => {
                self.meanings.push(meaning(field)?);
                Kind::Leaf
            }
            Some(entries) if is_map => match entries_of(entries) {
                Some((key, value)) => {
                    let key = self.node(key, def + 1, rep + 1, depth)?;
                    let value = self.node(value, def + 1, rep + 1, depth)?;
                    Kind::Entries(Box::new(key), Box::new(value), rep + 1)
                }
                None => return Err(format!("column {}: not a map", field.name())),
            },
            Some(list) if is_list => {
                let element = match element_of(list, field.name()) {
                    Some(element) => self.node(element, def + 1, rep + 1, depth)?,
                    None => self.present(list, def + 1, rep + 1, depth)?,
                };
                Kind::Elements(Box::new(element), rep + 1)
            }
            _ if is_list || is_map => {
                return Err(format!("column {}: a list or map of a wrong form", field.name()));
            }
            _ => {
                let fields = fields
                    .iter()
                    .map(|field| Ok((field.name().to_owned(), self.node(field, def, rep, depth)?)));
                let fields = fields.collect::<Result<Vec<_>, String>>()?;
                if fields.is_empty() {
                    return Err(format!("column {}: a group without fields", field.name()));
                }
                Kind::Fields(fields)
            }
        };
        Ok(Node { kind, def, leaves: first..self.meanings.len() })
    }
}

fn is_repeated(field: &Type) -> bool {
    let info = field.get_basic_info();
    info.has_repetition() && info.repetition() == Repetition::REPEATED
}

/// Key and value of the repeated group of a map.
fn entries_of(entries: &Type) -> Option<(&Type, &Type)> {
    match (entries.is_group(), entries.is_group().then(|| entries.get_fields())) {
        (true, Some([key, value])) => Some((key, value)),
        _ => None,
    }
}

/// The element inside of the repeated group of a list; `None`: the repeated field is the element, as
/// older writers have it ("Backward-compatibility rules" of Parquet's `LogicalTypes.md`).
fn element_of<'t>(list: &'t Type, name: &str) -> Option<&'t Type> {
    if !list.is_group() || list.name() == "array" || list.name() == format!("{name}_tuple") {
        return None;
    }
    match list.get_fields() {
        [only] if !is_repeated(only) => Some(only),
        _ => None,
    }
}

/// Reads the next value of a node. `def`: level of its parent, which is present.
fn read(node: &Node, streams: &mut [Stream], depth: u32) -> Result<Value, String> {
    if depth > DEPTH_MAX {
        return Err("nested too deep".to_owned());
    }
    let depth = depth.saturating_add(1);
    let at = head(node, streams)?;
    if at < node.def {
        return skip(node, streams).map(|()| Value::Null);
    }
    match &node.kind {
        Kind::Leaf => {
            let stream = streams.get_mut(node.leaves.start).ok_or("no such column")?;
            stream.take()
        }
        Kind::Fields(fields) => {
            let fields =
                fields.iter().map(|(name, field)| Ok((name.clone(), read(field, streams, depth)?)));
            fields.collect::<Result<Vec<_>, String>>().map(Value::Group)
        }
        Kind::Elements(element, again) => {
            let mut elements = Vec::new();
            if at == node.def {
                skip(node, streams)?;
                return Ok(Value::List(elements));
            }
            loop {
                elements.push(read(element, streams, depth)?);
                if !goes_on(node, streams, *again)? {
                    return Ok(Value::List(elements));
                }
            }
        }
        Kind::Entries(key, value, again) => {
            let mut entries = Vec::new();
            if at == node.def {
                skip(node, streams)?;
                return Ok(Value::Map(entries));
            }
            loop {
                entries.push((read(key, streams, depth)?, read(value, streams, depth)?));
                if !goes_on(node, streams, *again)? {
                    return Ok(Value::Map(entries));
                }
            }
        }
    }
}

/// Definition level of the value that is next.
fn head(node: &Node, streams: &mut [Stream]) -> Result<i16, String> {
    let stream = streams.get_mut(node.leaves.start).ok_or("no such column")?;
    let (def, _) = stream.peek()?.ok_or("fewer values than rows")?;
    Ok(def)
}

/// Consumes the placeholder of a missing value from every leaf.
fn skip(node: &Node, streams: &mut [Stream]) -> Result<(), String> {
    for stream in streams.get_mut(node.leaves.clone()).into_iter().flatten() {
        if stream.take()? != Value::Null {
            return Err("levels of columns that contradict each other".to_owned());
        }
    }
    Ok(())
}

/// Returns true if the list of that level has a further element.
fn goes_on(node: &Node, streams: &mut [Stream], again: i16) -> Result<bool, String> {
    let stream = streams.get_mut(node.leaves.start).ok_or("no such column")?;
    Ok(stream.peek()?.is_some_and(|(_, rep)| rep >= again))
}

/// The values of a leaf in a row group.
struct Stream {
    reader: ColumnReader,
    meaning: Meaning,
    def_max: i16,
    has_reps: bool,
    /// Definition level, repetition level, value.
    triplets: VecDeque<(i16, i16, Value)>,
}

impl Stream {
    /// Levels of the next value; `None`: there is none.
    fn peek(&mut self) -> Result<Option<(i16, i16)>, String> {
        if self.triplets.is_empty() {
            self.load()?;
        }
        Ok(self.triplets.front().map(|(def, rep, _)| (*def, *rep)))
    }

    fn ended(&mut self) -> Result<bool, String> {
        Ok(self.peek()?.is_none())
    }

    fn take(&mut self) -> Result<Value, String> {
        self.peek()?;
        let (_, _, value) = self.triplets.pop_front().ok_or("fewer values than rows")?;
        Ok(value)
    }

    fn load(&mut self) -> Result<(), String> {
        let how = self.meaning;
        let to =
            Levels { def_max: self.def_max, has_reps: self.has_reps, triplets: &mut self.triplets };
        let bytes = |bytes: &[u8]| of_bytes(how, bytes);
        match &mut self.reader {
            ColumnReader::BoolColumnReader(reader) => batch(reader, to, |v| Ok(Value::Bool(*v))),
            ColumnReader::Int32ColumnReader(reader) => batch(reader, to, |v| Ok(of_int32(how, *v))),
            ColumnReader::Int64ColumnReader(reader) => batch(reader, to, |v| Ok(of_int64(how, *v))),
            // Nanoseconds of a day and the day, as Impala and old Sparks have times.
            ColumnReader::Int96ColumnReader(reader) => {
                batch(reader, to, |v| Ok(Value::Timestamp(v.to_millis())))
            }
            ColumnReader::FloatColumnReader(reader) => batch(reader, to, |v| Ok(Value::Float(*v))),
            ColumnReader::DoubleColumnReader(reader) => {
                batch(reader, to, |v| Ok(Value::Double(*v)))
            }
            ColumnReader::ByteArrayColumnReader(reader) => batch(reader, to, |v| bytes(v.data())),
            ColumnReader::FixedLenByteArrayColumnReader(reader) => {
                batch(reader, to, |v| bytes(v.data()))
            }
        }
    }
}

/// Values of a column with their levels.
struct Levels<'a> {
    def_max: i16,
    has_reps: bool,
    triplets: &'a mut VecDeque<(i16, i16, Value)>,
}

/// Reads some rows of a leaf.
fn batch<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    to: Levels<'_>,
    value: impl Fn(&T::T) -> Result<Value, String>,
) -> Result<(), String> {
    let Levels { def_max, has_reps, triplets } = to;
    let (mut defs, mut reps, mut values) = (Vec::new(), Vec::new(), Vec::new());
    let read = reader.read_records(BATCH_ROWS, Some(&mut defs), Some(&mut reps), &mut values);
    let (_, _, levels) = read.map_err(|e| e.to_string())?;
    let mut values = values.iter();
    for at in 0..levels {
        let def = if def_max == 0 { 0 } else { *defs.get(at).ok_or("levels are missing")? };
        let rep = if has_reps { *reps.get(at).ok_or("levels are missing")? } else { 0 };
        let value = match def == def_max {
            true => value(values.next().ok_or("values are missing")?)?,
            false => Value::Null,
        };
        triplets.push_back((def, rep, value));
    }
    Ok(())
}

/// A file that never trusts a length: reads beyond its end are refused before memory is allocated.
struct Input {
    file: Arc<File>,
    length: u64,
}

impl Length for Input {
    fn len(&self) -> u64 {
        self.length
    }
}

impl ChunkReader for Input {
    type T = std::io::BufReader<At>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        Ok(std::io::BufReader::new(At { file: self.file.clone(), at: start }))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let end = u64::try_from(length).ok().and_then(|length| start.checked_add(length));
        if end.is_none_or(|end| end > self.length) {
            return Err(ParquetError::EOF(format!("{length} bytes at {start} are beyond its end")));
        }
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, start).map_err(|e| ParquetError::External(e.into()))?;
        Ok(bytes.into())
    }
}

/// A place in a file.
struct At {
    file: Arc<File>,
    at: u64,
}

impl std::io::Read for At {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        let read = self.file.read_at(to, self.at)?;
        self.at = self.at.saturating_add(u64::try_from(read).unwrap_or(0));
        Ok(read)
    }
}
