//! Lua's patterns, matched with fuel.
//!
//! The functions of Lua's own library can take time that grows with any power of the text's length,
//! inside one instruction. This is the language of "Patterns" in the manual of Lua 5.4, each step of
//! which costs a unit.

use mlua::Error;

use super::meter::Meter;

/// Captures of one pattern, as in Lua.
const CAPTURES_MAX: usize = 32;
/// Nested attempts, as in Lua.
const DEPTH_MAX: u32 = 200;
/// Bytes of a set or a text that are scanned for one unit.
const BYTES_PER_UNIT: usize = 8;

fn refuse<T>(text: &str) -> mlua::Result<T> {
    Err(Error::runtime(text))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Its `)` was not met yet.
    Open,
    /// It is `()`: the position counts.
    Position,
    /// Past its last byte.
    At(usize),
}

/// A capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Captured {
    /// Bytes of the text, from and to.
    Text(usize, usize),
    /// A place, counted from 0.
    Place(usize),
}

/// One pattern on one text.
pub(super) struct Matcher<'a> {
    text: &'a [u8],
    pattern: &'a [u8],
    captures: Vec<(usize, End)>,
    depth: u32,
    meter: &'a Meter,
}

impl<'a> Matcher<'a> {
    pub(super) fn new(text: &'a [u8], pattern: &'a [u8], meter: &'a Meter) -> Matcher<'a> {
        Matcher { text, pattern, captures: Vec::new(), depth: 0, meter }
    }

    /// Returns the end of a match that begins at `at`.
    ///
    /// # Errors
    /// The pattern is invalid, or the fuel is used up.
    pub(super) fn match_at(&mut self, at: usize) -> mlua::Result<Option<usize>> {
        self.captures.clear();
        self.depth = 0;
        self.here(at, 0)
    }

    /// Captures of the last match, or all of it when there are no captures and `whole` is true.
    ///
    /// # Errors
    /// A capture that does not end.
    pub(super) fn captured(&self, start: usize, end: usize) -> mlua::Result<Vec<Captured>> {
        if self.captures.is_empty() {
            return Ok(vec![Captured::Text(start, end)]);
        }
        self.groups()
    }

    /// Captures of the last match; none when the pattern has none.
    ///
    /// # Errors
    /// A capture that does not end.
    pub(super) fn groups(&self) -> mlua::Result<Vec<Captured>> {
        let one = |&(start, end): &(usize, End)| match end {
            End::Open => refuse("unfinished capture"),
            End::Position => Ok(Captured::Place(start)),
            End::At(end) => Ok(Captured::Text(start, end)),
        };
        self.captures.iter().map(one).collect()
    }

    fn pattern_byte(&self, at: usize) -> Option<u8> {
        self.pattern.get(at).copied()
    }

    fn here(&mut self, mut s: usize, mut p: usize) -> mlua::Result<Option<usize>> {
        loop {
            self.meter.spend(1)?;
            let after = self.pattern_byte(p + 1);
            match self.pattern_byte(p) {
                None => return Ok(Some(s)),
                Some(b'(') if after == Some(b')') => return self.open(s, p + 2, End::Position),
                Some(b'(') => return self.open(s, p + 1, End::Open),
                Some(b')') => return self.close(s, p + 1),
                Some(b'$') if after.is_none() => return Ok((s == self.text.len()).then_some(s)),
                Some(b'%') if after == Some(b'b') => match self.balanced(s, p + 2)? {
                    Some(end) => (s, p) = (end, p + 4),
                    None => return Ok(None),
                },
                Some(b'%') if after == Some(b'f') => match self.frontier(s, p + 2)? {
                    Some(end) => p = end,
                    None => return Ok(None),
                },
                Some(b'%') if after.is_some_and(|b| b.is_ascii_digit()) => {
                    match self.again(s, after.unwrap_or(b'0'))? {
                        Some(end) => (s, p) = (end, p + 2),
                        None => return Ok(None),
                    }
                }
                Some(_) => {
                    let end = self.class_end(p)?;
                    match self.pattern_byte(end) {
                        Some(b'*') => return self.longest(s, p, end),
                        Some(b'+') => {
                            return match self.single(s, p, end)? {
                                true => self.longest(s + 1, p, end),
                                false => Ok(None),
                            };
                        }
                        Some(b'-') => return self.shortest(s, p, end),
                        Some(b'?') => {
                            if self.single(s, p, end)?
                                && let Some(found) = self.nested(s + 1, end + 1)?
                            {
                                return Ok(Some(found));
                            }
                            p = end + 1;
                        }
                        _ if self.single(s, p, end)? => (s, p) = (s + 1, end),
                        _ => return Ok(None),
                    }
                }
            }
        }
    }

    fn nested(&mut self, s: usize, p: usize) -> mlua::Result<Option<usize>> {
        if self.depth >= DEPTH_MAX {
            return refuse("pattern too complex");
        }
        self.depth += 1;
        let found = self.here(s, p);
        self.depth -= 1;
        found
    }

    fn open(&mut self, s: usize, p: usize, end: End) -> mlua::Result<Option<usize>> {
        if self.captures.len() >= CAPTURES_MAX {
            return refuse("too many captures");
        }
        self.captures.push((s, end));
        let found = self.nested(s, p)?;
        if found.is_none() {
            self.captures.pop();
        }
        Ok(found)
    }

    fn close(&mut self, s: usize, p: usize) -> mlua::Result<Option<usize>> {
        let Some(open) = self.captures.iter().rposition(|(_, end)| *end == End::Open) else {
            return refuse("invalid pattern capture");
        };
        self.set_end(open, End::At(s));
        let found = self.nested(s, p)?;
        if found.is_none() {
            self.set_end(open, End::Open);
        }
        Ok(found)
    }

    fn set_end(&mut self, capture: usize, end: End) {
        if let Some((_, old)) = self.captures.get_mut(capture) {
            *old = end;
        }
    }

    /// The end of a text between two bytes that are nested.
    fn balanced(&self, s: usize, p: usize) -> mlua::Result<Option<usize>> {
        let (Some(open), Some(close)) = (self.pattern_byte(p), self.pattern_byte(p + 1)) else {
            return refuse("malformed pattern (missing arguments to '%b')");
        };
        if self.text.get(s) != Some(&open) {
            return Ok(None);
        }
        let mut depth = 1_usize;
        for (i, byte) in self.text.iter().enumerate().skip(s + 1) {
            self.meter.spend(1)?;
            if *byte == close {
                depth -= 1;
                if depth == 0 {
                    return Ok(Some(i + 1));
                }
            } else if *byte == open {
                depth += 1;
            }
        }
        Ok(None)
    }

    /// The position in the pattern after `%f[set]`, when a run of the set begins here.
    fn frontier(&self, s: usize, p: usize) -> mlua::Result<Option<usize>> {
        if self.pattern_byte(p) != Some(b'[') {
            return refuse("missing '[' after '%f' in pattern");
        }
        let end = self.class_end(p)?;
        let before = s.checked_sub(1).and_then(|at| self.text.get(at)).copied().unwrap_or(0);
        let now = self.text.get(s).copied().unwrap_or(0);
        let begins = !self.in_set(before, p, end)? && self.in_set(now, p, end)?;
        Ok(begins.then_some(end))
    }

    /// The end of the text of an earlier capture.
    fn again(&self, s: usize, digit: u8) -> mlua::Result<Option<usize>> {
        let index = usize::from(digit).checked_sub(usize::from(b'1'));
        let capture = index.and_then(|index| self.captures.get(index));
        let Some((start, End::At(end))) = capture else {
            return refuse(&format!("invalid capture index %{}", char::from(digit)));
        };
        let Some(wanted) = self.text.get(*start..*end) else { return Ok(None) };
        self.meter.spend_steps(wanted.len() / BYTES_PER_UNIT)?;
        let rest = self.text.get(s..).unwrap_or_default();
        Ok(rest.starts_with(wanted).then_some(s + wanted.len()))
    }

    /// Past the class that begins at `p`.
    fn class_end(&self, p: usize) -> mlua::Result<usize> {
        match self.pattern_byte(p) {
            Some(b'%') if self.pattern_byte(p + 1).is_none() => {
                refuse("malformed pattern (ends with '%')")
            }
            Some(b'%') => Ok(p + 2),
            Some(b'[') => {
                let mut at = p + 1;
                if self.pattern_byte(at) == Some(b'^') {
                    at += 1;
                }
                // The first byte is of the set, even when it is a bracket.
                loop {
                    match self.pattern_byte(at) {
                        None => return refuse("malformed pattern (missing ']')"),
                        Some(b'%') => at += 2,
                        Some(_) => at += 1,
                    }
                    if self.pattern_byte(at) == Some(b']') {
                        return Ok(at + 1);
                    }
                }
            }
            _ => Ok(p + 1),
        }
    }

    /// Returns true if the byte at `s` is of the class from `p` to `end`.
    fn single(&self, s: usize, p: usize, end: usize) -> mlua::Result<bool> {
        let Some(&byte) = self.text.get(s) else { return Ok(false) };
        Ok(match self.pattern_byte(p) {
            Some(b'.') => true,
            Some(b'%') => in_class(byte, self.pattern_byte(p + 1).unwrap_or(0)),
            Some(b'[') => self.in_set(byte, p, end)?,
            other => other == Some(byte),
        })
    }

    /// Returns true if a byte is of the set from `[` at `p` to past its `]`.
    fn in_set(&self, byte: u8, p: usize, end: usize) -> mlua::Result<bool> {
        let inner = self.pattern.get(p + 1..end.saturating_sub(1)).unwrap_or_default();
        let (mut set, wanted) = match inner.strip_prefix(b"^") {
            Some(rest) => (rest, false),
            None => (inner, true),
        };
        self.meter.spend_steps(set.len() / BYTES_PER_UNIT)?;
        loop {
            let (hit, rest) = match set {
                [] => return Ok(!wanted),
                [b'%', class, rest @ ..] => (in_class(byte, *class), rest),
                [from, b'-', to, rest @ ..] => ((*from..=*to).contains(&byte), rest),
                [one, rest @ ..] => (*one == byte, rest),
            };
            if hit {
                return Ok(wanted);
            }
            set = rest;
        }
    }

    fn longest(&mut self, s: usize, p: usize, end: usize) -> mlua::Result<Option<usize>> {
        let mut at = s;
        while self.single(at, p, end)? {
            self.meter.spend(1)?;
            at += 1;
        }
        loop {
            if let Some(found) = self.nested(at, end + 1)? {
                return Ok(Some(found));
            }
            if at == s {
                return Ok(None);
            }
            at -= 1;
        }
    }

    fn shortest(&mut self, s: usize, p: usize, end: usize) -> mlua::Result<Option<usize>> {
        let mut at = s;
        loop {
            if let Some(found) = self.nested(at, end + 1)? {
                return Ok(Some(found));
            }
            if !self.single(at, p, end)? {
                return Ok(None);
            }
            at += 1;
        }
    }
}

/// Returns true if a byte is of a class such as `%a`; a letter that is no class stands for itself.
fn in_class(byte: u8, class: u8) -> bool {
    let within = match class.to_ascii_lowercase() {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'g' => byte.is_ascii_graphic(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        b's' => matches!(byte, b' ' | b'\t'..=b'\r'),
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        _ => return byte == class,
    };
    within != class.is_ascii_uppercase()
}

/// Where `wanted` is in the text from `from` on.
///
/// # Errors
/// The fuel is used up.
pub(super) fn find_plain(
    text: &[u8],
    wanted: &[u8],
    from: usize,
    meter: &Meter,
) -> mlua::Result<Option<usize>> {
    let last = match text.len().checked_sub(wanted.len()) {
        Some(last) => last,
        None => return Ok(None),
    };
    for at in from..=last {
        let here = text.get(at..).unwrap_or_default();
        let same = here.iter().zip(wanted).take_while(|(a, b)| a == b).count();
        meter.spend_steps(1 + same / BYTES_PER_UNIT)?;
        if same == wanted.len() {
            return Ok(Some(at));
        }
    }
    Ok(None)
}

/// Returns true if a pattern is the text that it matches.
pub(super) fn is_plain(pattern: &[u8]) -> bool {
    !pattern.iter().any(|byte| b"^$*+?.([%-".contains(byte))
}
