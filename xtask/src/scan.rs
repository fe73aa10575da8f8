//! Rust source without comments, texts and test modules, so that words in it are code.

/// The kind of a [`Span`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// A line of `//`, or a block.
    Comment,
    /// A string or character literal.
    Text,
}

/// Bytes of a source that are no code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub kind: SpanKind,
    /// The first byte.
    pub start: usize,
    /// The byte after the last.
    pub end: usize,
}

/// Comments and literals of `source`, in order.
pub fn spans(source: &str) -> Vec<Span> {
    let bytes = source.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let rest = &bytes[at..];
        let (kind, length) = if rest.starts_with(b"//") {
            (SpanKind::Comment, rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len()))
        } else if rest.starts_with(b"/*") {
            (SpanKind::Comment, block_comment(rest))
        } else if byte == b'"' {
            (SpanKind::Text, quoted(rest))
        } else if byte == b'r' && !preceded_by_word(bytes, at) && raw_hashes(rest).is_some() {
            (SpanKind::Text, raw(rest))
        } else if byte == b'\'' && character(rest) > 1 {
            (SpanKind::Text, character(rest))
        } else {
            at += 1;
            continue;
        };
        let end = (at + length.max(1)).min(bytes.len());
        found.push(Span { kind, start: at, end });
        at = end;
    }
    found
}

/// Replaces comments, string and character literals by spaces; lines stay where they are.
pub fn code(source: &str) -> String {
    let mut bytes = source.as_bytes().to_vec();
    for span in spans(source) {
        for byte in bytes.iter_mut().take(span.end).skip(span.start) {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Blanks every item that follows `#[cfg(test)]`; the input is the output of [`code`].
pub fn without_tests(code: &str) -> String {
    let mut bytes = code.as_bytes().to_vec();
    let marker = b"#[cfg(test)]";
    let mut at = 0;
    while let Some(found) = find(&bytes, marker, at) {
        let mut depth = 0_usize;
        let mut end = found + marker.len();
        while let Some(&byte) = bytes.get(end) {
            end += 1;
            match byte {
                b'{' => depth += 1,
                b'}' => {
                    depth = depth.saturating_sub(1);
                    if depth == 0 {
                        break;
                    }
                }
                b';' if depth == 0 => break,
                _ => {}
            }
        }
        for byte in bytes.iter_mut().take(end).skip(found) {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = end;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns true if `word` occurs in `line` with no letter, digit or underscore at its word ends.
pub fn has_word(line: &str, word: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line.get(..at).and_then(|t| t.chars().next_back());
        let after = line.get(at + word.len()..).and_then(|t| t.chars().next());
        let first = word.chars().next().is_some_and(is_word);
        let last = word.chars().next_back().is_some_and(is_word);
        let joined = first && before.is_some_and(is_word) || last && after.is_some_and(is_word);
        !joined
    })
}

fn find(bytes: &[u8], needle: &[u8], from: usize) -> Option<usize> {
    bytes.get(from..)?.windows(needle.len()).position(|w| w == needle).map(|p| p + from)
}

fn preceded_by_word(bytes: &[u8], at: usize) -> bool {
    at.checked_sub(1)
        .and_then(|before| bytes.get(before))
        // `br"…"` is a raw string too.
        .is_some_and(|b| (b.is_ascii_alphanumeric() || *b == b'_') && *b != b'b')
}

fn block_comment(rest: &[u8]) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

fn quoted(rest: &[u8]) -> usize {
    let mut at = 1;
    while let Some(&byte) = rest.get(at) {
        match byte {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// Number of `#` of a raw string that starts with `r`.
fn raw_hashes(rest: &[u8]) -> Option<usize> {
    let hashes = rest.iter().skip(1).take_while(|b| **b == b'#').count();
    (rest.get(1 + hashes) == Some(&b'"')).then_some(hashes)
}

fn raw(rest: &[u8]) -> usize {
    let hashes = raw_hashes(rest).unwrap_or(0);
    let mut close = vec![b'"'];
    close.resize(1 + hashes, b'#');
    find(rest, &close, 2 + hashes).map_or(rest.len(), |at| at + close.len())
}

/// Length of a character literal; 1 for the quote of a lifetime or label.
fn character(rest: &[u8]) -> usize {
    if rest.get(1) == Some(&b'\\') {
        // The escaped character may be a quote itself.
        let close = rest.iter().skip(3).position(|b| *b == b'\'');
        return close.map_or(1, |at| at + 4);
    }
    let text = String::from_utf8_lossy(&rest[..rest.len().min(8)]);
    let mut chars = text.chars().skip(1);
    match (chars.next(), chars.next()) {
        (Some(c), Some('\'')) => 2 + c.len_utf8(),
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_is_left() {
        let source = "let a = \"std::fs\"; // std::net\n/* a /* b */ unsafe */ let b = '\"'; \
                      let c: &'static str = r#\"x \"unsafe\" y\"#; let d = '\\''; end";
        let left = code(source);
        assert_eq!(left.lines().count(), source.lines().count());
        for word in ["std::fs", "std::net", "unsafe"] {
            assert!(!left.contains(word), "{word}: {left}");
        }
        assert!(left.contains("let c: &'static str =") && left.ends_with("end"), "{left}");
    }

    #[test]
    fn test_modules_are_left_out_and_what_follows_is_not() {
        let source = "a();\n#[cfg(test)]\nmod tests { fn x() { unsafe {} } }\nb();\n\
                      #[cfg(test)]\nmod more;\nc();\n";
        let left = without_tests(&code(source));
        assert!(!left.contains("unsafe") && !left.contains("more"));
        assert!(left.contains("b();") && left.contains("c();"));
    }

    #[test]
    fn words_are_whole() {
        assert!(has_word("unsafe {", "unsafe"));
        assert!(!has_word("unsafe_code", "unsafe"));
        assert!(has_word("tokio::spawn", "tokio::"));
        assert!(!has_word("my_tokio::x", "tokio::"));
    }
}
