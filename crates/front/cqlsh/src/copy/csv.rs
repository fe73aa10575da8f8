//! CSV as Python's `csv` module reads and writes it, with the dialect of COPY.
//!
//! Owns: quotes, escapes, record boundaries. Never: values.
//!
//! The `csv` crate does not do this dialect: an escape sign outside of quotes, and `\"` without
//! quotes around the field.

/// Signs of a dialect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dialect {
    pub(crate) delimiter: u8,
    pub(crate) quote: u8,
    /// `None`: a quote inside of quotes is doubled.
    pub(crate) escape: Option<u8>,
}

impl Default for Dialect {
    fn default() -> Self {
        Dialect { delimiter: b',', quote: b'"', escape: Some(b'\\') }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    FieldStart,
    Plain,
    Quoted,
    /// After a quote inside of quotes, when quotes are doubled.
    QuoteInQuoted,
}

impl Dialect {
    /// Appends a record with its line end.
    pub(crate) fn write<'f>(
        &self,
        fields: impl ExactSizeIterator<Item = &'f str>,
        out: &mut Vec<u8>,
    ) {
        let only = fields.len() == 1;
        for (index, field) in fields.enumerate() {
            if index > 0 {
                out.push(self.delimiter);
            }
            if only && field.is_empty() {
                out.extend_from_slice(&[self.quote, self.quote]);
            }
            self.write_field(field.as_bytes(), out);
        }
        out.extend_from_slice(b"\r\n");
    }

    fn write_field(&self, field: &[u8], out: &mut Vec<u8>) {
        let special = |byte: u8| {
            byte == self.delimiter
                || byte == self.quote
                || Some(byte) == self.escape
                || byte == b'\r'
                || byte == b'\n'
        };
        if !field.iter().any(|byte| special(*byte)) {
            return out.extend_from_slice(field);
        }
        let quoted = field.iter().any(|byte| {
            special(*byte)
                && Some(*byte) != self.escape
                && (*byte != self.quote || self.escape.is_none())
        });
        if quoted {
            out.push(self.quote);
        }
        for byte in field {
            if *byte == self.quote {
                out.push(self.escape.unwrap_or(self.quote));
            } else if Some(*byte) == self.escape {
                out.push(*byte);
            }
            out.push(*byte);
        }
        if quoted {
            out.push(self.quote);
        }
    }

    /// Where the record that begins at the front ends: bytes with its line end, or `None` when the
    /// bytes end inside of it.
    pub(crate) fn record_end(&self, bytes: &[u8]) -> Option<usize> {
        let mut state = State::FieldStart;
        let mut at = 0;
        loop {
            if state == State::Plain {
                at += self.plain_length(bytes.get(at..).unwrap_or_default());
            }
            let byte = *bytes.get(at)?;
            at += 1;
            if Some(byte) == self.escape {
                at += 1;
                if state == State::FieldStart {
                    state = State::Plain;
                }
                continue;
            }
            state = match state {
                State::FieldStart if byte == self.quote => State::Quoted,
                State::Quoted if byte == self.quote && self.escape.is_none() => {
                    State::QuoteInQuoted
                }
                State::Quoted if byte == self.quote => State::Plain,
                State::Quoted => State::Quoted,
                State::QuoteInQuoted if byte == self.quote => State::Quoted,
                _ if byte == b'\n' => return Some(at),
                _ if byte == b'\r' => match bytes.get(at) {
                    Some(b'\n') => return Some(at + 1),
                    Some(_) => return Some(at),
                    None => return None,
                },
                _ if byte == self.delimiter => State::FieldStart,
                _ => State::Plain,
            };
        }
    }

    /// How many bytes at the front are just text when they stand within a field without quotes.
    #[inline]
    fn plain_length(&self, bytes: &[u8]) -> usize {
        const AT_ONCE: usize = 16;
        let (delimiter, escape) = (self.delimiter, self.escape.unwrap_or(self.delimiter));
        let special = |byte: &u8| {
            (*byte == delimiter) | (*byte == escape) | (*byte == b'\n') | (*byte == b'\r')
        };
        let mut length = 0;
        // Whole blocks without a branch for each byte.
        for block in bytes.chunks_exact(AT_ONCE) {
            if block.iter().fold(false, |any, byte| any | special(byte)) {
                break;
            }
            length += AT_ONCE;
        }
        let rest = bytes.get(length..).unwrap_or_default();
        length + rest.iter().position(special).unwrap_or(rest.len())
    }

    /// The fields of one record, with or without its line end. A blank line has none.
    pub(crate) fn fields(&self, record: &[u8], fields: &mut Vec<Vec<u8>>) {
        let mut count = 0;
        let mut begin = |fields: &mut Vec<Vec<u8>>| -> usize {
            match fields.get_mut(count) {
                Some(field) => field.clear(),
                None => fields.push(Vec::new()),
            }
            count += 1;
            count - 1
        };
        let mut state = State::FieldStart;
        let mut current: Option<usize> = None;
        let mut at = 0;
        loop {
            if let (State::Plain, Some(index)) = (state, current) {
                let rest = record.get(at..).unwrap_or_default();
                let text = rest.get(..self.plain_length(rest)).unwrap_or_default();
                if let Some(field) = fields.get_mut(index) {
                    field.extend_from_slice(text);
                }
                at += text.len();
            }
            let Some(byte) = record.get(at).copied() else { break };
            at += 1;
            let ends = matches!(byte, b'\r' | b'\n') && state != State::Quoted;
            if ends && Some(byte) != self.escape {
                break;
            }
            let index = match current {
                Some(index) => index,
                None => *current.insert(begin(fields)),
            };
            let mut literal = None;
            if Some(byte) == self.escape {
                literal = record.get(at).copied();
                at += 1;
                if state == State::FieldStart {
                    state = State::Plain;
                }
            } else {
                state = match state {
                    State::FieldStart if byte == self.quote => State::Quoted,
                    State::Quoted if byte == self.quote && self.escape.is_none() => {
                        State::QuoteInQuoted
                    }
                    State::Quoted if byte == self.quote => State::Plain,
                    State::Quoted => {
                        literal = Some(byte);
                        State::Quoted
                    }
                    State::QuoteInQuoted if byte == self.quote => {
                        literal = Some(byte);
                        State::Quoted
                    }
                    _ if byte == self.delimiter => {
                        current = Some(begin(fields));
                        State::FieldStart
                    }
                    _ => {
                        literal = Some(byte);
                        State::Plain
                    }
                };
            }
            if let (Some(byte), Some(field)) = (literal, fields.get_mut(index)) {
                field.push(byte);
            }
        }
        fields.truncate(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOUBLED: Dialect = Dialect { delimiter: b'|', quote: b'"', escape: None };

    fn write(dialect: Dialect, fields: &[&str]) -> String {
        let mut out = Vec::new();
        dialect.write(fields.iter().copied(), &mut out);
        String::from_utf8(out).unwrap()
    }

    fn read(dialect: Dialect, record: &str) -> Vec<String> {
        let mut fields = vec![b"stale".to_vec(); 5];
        dialect.fields(record.as_bytes(), &mut fields);
        fields.into_iter().map(|field| String::from_utf8(field).unwrap()).collect()
    }

    /// Expected lines from Python's `csv.writer` with the same dialect.
    #[test]
    fn fields_are_quoted_as_python_quotes_them() {
        let dialect = Dialect::default();
        assert_eq!(write(dialect, &["a", "", "b c"]), "a,,b c\r\n");
        assert_eq!(
            write(dialect, &["a,b", "c\"d", "e\\f", "g\nh"]),
            "\"a,b\",c\\\"d,e\\\\f,\"g\nh\"\r\n"
        );
        assert_eq!(write(dialect, &["a,\"b"]), "\"a,\\\"b\"\r\n");
        assert_eq!(write(dialect, &[""]), "\"\"\r\n");
        assert_eq!(write(DOUBLED, &["a|b", "c\"d", "e\\f"]), "\"a|b\"|\"c\"\"d\"|e\\f\r\n");
    }

    #[test]
    fn what_is_written_is_read_back() {
        for dialect in [Dialect::default(), DOUBLED] {
            for fields in [
                &["a", "", "b c"][..],
                &["a,b|c", "c\"d\"", "e\\f\\", "g\r\nh", "'it''s'"],
                &[""],
                &["\"", "\\"],
            ] {
                let line = write(dialect, fields);
                assert_eq!(dialect.record_end(line.as_bytes()), Some(line.len()), "{line:?}");
                assert_eq!(read(dialect, &line), fields, "{line:?}");
            }
        }
    }

    #[test]
    fn records_end_at_lines_outside_of_quotes() {
        let dialect = Dialect::default();
        assert_eq!(dialect.record_end(b"a,b\nc"), Some(4));
        assert_eq!(dialect.record_end(b"a\r\nb"), Some(3));
        assert_eq!(dialect.record_end(b"a,\"b\nc\"\nd"), Some(8));
        assert_eq!(dialect.record_end(b"a,\\\nb\nd"), Some(6));
        assert_eq!(dialect.record_end(b"a,b"), None);
        assert_eq!(read(dialect, "\n"), Vec::<String>::new());
        assert_eq!(read(dialect, "a,b\"c,\"d\"e"), ["a", "b\"c", "de"]);
        assert_eq!(read(dialect, "a,"), ["a", ""]);
    }
}
