//! From text to tokens, in one pass.
//!
//! The longest token wins, as in Cassandra's `Lexer.g`. Never fails as a whole: a character that
//! starts no token ends the list with [`Tok::LexFailure`], so that a syntax error before it is
//! reported first.
//!
//! Two liberties against Cassandra: a line comment may end with the text instead of a line end,
//! and `a -name` is not a failed attempt at `-nan`.

use crate::token::{Tok, Token};

/// Error at `offset`, where no token can be read.
#[derive(Clone, Debug)]
pub(crate) struct LexError {
    pub(crate) offset: usize,
    pub(crate) what: String,
}

/// The tokens without white space and comments. The last one is [`Tok::Eof`], or
/// [`Tok::LexFailure`] when there is an error.
pub(crate) fn lex(text: &str) -> (Vec<Token>, Option<LexError>) {
    // Lists of short names have one token per 3 bytes; with more tokens the list grows.
    let mut tokens = Vec::with_capacity(text.len() / 3 + 4);
    let mut lexer = Lexer { text, bytes: text.as_bytes(), at: 0 };
    loop {
        lexer.skip_blanks();
        if let Some(token) = lexer.simple() {
            tokens.push(token);
            continue;
        }
        match lexer.next() {
            Ok(token) if token.kind == Tok::Hidden => {}
            Ok(token) => {
                tokens.push(token);
                if token.kind == Tok::Eof {
                    return (tokens, None);
                }
            }
            Err(error) => {
                let at = offset32(lexer.at);
                tokens.push(Token { kind: Tok::LexFailure, start: at, end: at });
                return (tokens, Some(error));
            }
        }
    }
}

/// The tokens with white space and comments, up to the end or the first lexical error.
pub(crate) fn lex_all(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut lexer = Lexer { text, bytes: text.as_bytes(), at: 0 };
    while let Ok(token) = lexer.next() {
        tokens.push(token);
        if token.kind == Tok::Eof {
            break;
        }
    }
    tokens
}

/// A cursor over a text. The text is at most `u32::MAX` bytes long (the parser checks it).
pub(crate) struct Lexer<'t> {
    text: &'t str,
    bytes: &'t [u8],
    at: usize,
}

impl<'t> Lexer<'t> {
    /// A cursor at the start of the text.
    pub(crate) fn new(text: &'t str) -> Lexer<'t> {
        Lexer { text, bytes: text.as_bytes(), at: 0 }
    }

    /// Returns the position of the next token.
    pub(crate) fn position(&self) -> usize {
        self.at
    }

    /// Goes on at another place, which must be a character boundary.
    pub(crate) fn set_position(&mut self, at: usize) {
        self.at = at;
    }

    /// A word or a symbol of one character that begins nothing longer: nearly every token.
    fn simple(&mut self) -> Option<Token> {
        let rest = self.bytes.get(self.at..)?;
        let (kind, len) = match *rest.first()? {
            b'a'..=b'z' | b'A'..=b'Z' => scan_word(rest),
            b',' => (Tok::Comma, 1),
            b'(' => (Tok::ParenOpen, 1),
            b')' => (Tok::ParenClose, 1),
            b'=' => (Tok::Equal, 1),
            b'?' => (Tok::Qmark, 1),
            b'*' => (Tok::Star, 1),
            _ => return None,
        };
        let start = offset32(self.at);
        self.at += len;
        Some(Token { kind, start, end: offset32(self.at) })
    }

    fn skip_blanks(&mut self) {
        while self.bytes.get(self.at).is_some_and(|b| is_blank(*b)) {
            self.at += 1;
        }
    }

    /// The next token, white space and comments included (as [`Tok::Hidden`]).
    pub(crate) fn next(&mut self) -> Result<Token, LexError> {
        let start = self.at;
        let (kind, len) = self.scan()?;
        self.at = start + len;
        Ok(Token { kind, start: offset32(start), end: offset32(self.at) })
    }

    fn scan(&self) -> Result<(Tok, usize), LexError> {
        let rest = self.bytes.get(self.at..).unwrap_or(&[]);
        let Some(&first) = rest.first() else { return Ok((Tok::Eof, 0)) };
        let second = rest.get(1).copied();
        let token = match first {
            b' ' | b'\t' | b'\n' | b'\r' => {
                (Tok::Hidden, rest.iter().take_while(|b| is_blank(**b)).count())
            }
            b'a'..=b'z' | b'A'..=b'Z' => scan_word(rest),
            b'0'..=b'9' => {
                let (kind, len) = scan_number(rest);
                self.check_exponent(rest, kind, len)?;
                (kind, len)
            }
            b'\'' => return self.scan_quoted(rest, b'\'', Tok::StringLiteral),
            b'"' => return self.scan_name(rest),
            b'$' => return self.scan_dollars(rest),
            b'-' => {
                let (kind, len) = scan_minus(rest, second);
                self.check_exponent(rest, kind, len)?;
                (kind, len)
            }
            b'/' if second == Some(b'/') => (Tok::Hidden, line_comment_len(rest)),
            b'/' if second == Some(b'*') => return self.scan_comment(rest),
            b'/' => (Tok::Slash, 1),
            b'.' if second == Some(b'.') => (Tok::Range, 2),
            b'.' => (Tok::Dot, 1),
            b'+' if second == Some(b'=') => (Tok::PlusEqual, 2),
            b'+' => (Tok::Plus, 1),
            b'<' if second == Some(b'=') => (Tok::LessEqual, 2),
            b'<' => (Tok::Less, 1),
            b'>' if second == Some(b'=') => (Tok::GreaterEqual, 2),
            b'>' => (Tok::Greater, 1),
            b'!' if second == Some(b'=') => (Tok::NotEqual, 2),
            b'!' => return Err(self.wrong_character(1, "'='")),
            b'?' => (Tok::Qmark, 1),
            b',' => (Tok::Comma, 1),
            b';' => (Tok::Semicolon, 1),
            b':' => (Tok::Colon, 1),
            b'(' => (Tok::ParenOpen, 1),
            b')' => (Tok::ParenClose, 1),
            b'[' => (Tok::BracketOpen, 1),
            b']' => (Tok::BracketClose, 1),
            b'{' => (Tok::BraceOpen, 1),
            b'}' => (Tok::BraceClose, 1),
            b'=' => (Tok::Equal, 1),
            b'*' => (Tok::Star, 1),
            b'%' => (Tok::Percent, 1),
            _ => {
                let what = format!("no viable alternative at character {}", self.character(0));
                return Err(LexError { offset: self.at, what });
            }
        };
        Ok(token)
    }

    /// A string or name in quotes, where a doubled quote stands for one.
    fn scan_quoted(&self, rest: &[u8], quote: u8, kind: Tok) -> Result<(Tok, usize), LexError> {
        let mut at = 1;
        loop {
            let tail = rest.get(at..).unwrap_or(&[]);
            let Some(len) = tail.iter().position(|b| *b == quote) else {
                return Err(self.unterminated(&format!("'{}'", char::from(quote))));
            };
            at += len + 1;
            if rest.get(at) != Some(&quote) {
                return Ok((kind, at));
            }
            at += 1;
        }
    }

    fn scan_name(&self, rest: &[u8]) -> Result<(Tok, usize), LexError> {
        if rest.get(1) == Some(&b'"') && rest.get(2) != Some(&b'"') {
            return Ok((Tok::EmptyQuotedName, 2));
        }
        self.scan_quoted(rest, b'"', Tok::QuotedName)
    }

    fn scan_dollars(&self, rest: &[u8]) -> Result<(Tok, usize), LexError> {
        if rest.get(1) != Some(&b'$') {
            return Err(self.wrong_character(1, "'$'"));
        }
        let body = rest.get(2..).unwrap_or(&[]);
        match body.windows(2).position(|pair| pair == b"$$") {
            Some(len) => Ok((Tok::StringLiteral, len + 4)),
            None => Err(self.unterminated("'$'")),
        }
    }

    fn scan_comment(&self, rest: &[u8]) -> Result<(Tok, usize), LexError> {
        let body = rest.get(2..).unwrap_or(&[]);
        match body.windows(2).position(|pair| pair == b"*/") {
            Some(len) => Ok((Tok::Hidden, len + 4)),
            None => Err(self.unterminated("'*'")),
        }
    }

    fn unterminated(&self, expected: &str) -> LexError {
        let what = format!("mismatched character '<EOF>' expecting {expected}");
        LexError { offset: self.text.len(), what }
    }

    /// Rejects an `e` after a number: it starts an exponent, which must have digits.
    fn check_exponent(&self, rest: &[u8], kind: Tok, len: usize) -> Result<(), LexError> {
        if !matches!(kind, Tok::Integer | Tok::FloatLiteral)
            || !matches!(rest.get(len), Some(b'e' | b'E'))
        {
            return Ok(());
        }
        let sign = usize::from(matches!(rest.get(len + 1), Some(b'+' | b'-')));
        let ahead = len + 1 + sign;
        let what = format!("mismatched character {} expecting set null", self.character(ahead));
        Err(LexError { offset: self.at + ahead, what })
    }

    fn wrong_character(&self, ahead: usize, expected: &str) -> LexError {
        let what = format!("mismatched character {} expecting {expected}", self.character(ahead));
        LexError { offset: self.at + ahead, what }
    }

    fn character(&self, ahead: usize) -> String {
        match self.text.get(self.at + ahead..).and_then(|t| t.chars().next()) {
            None => "'<EOF>'".to_owned(),
            Some('\n') => "'\\n'".to_owned(),
            Some('\r') => "'\\r'".to_owned(),
            Some('\t') => "'\\t'".to_owned(),
            Some(c) => format!("'{c}'"),
        }
    }
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// By byte: letters, digits and `_`.
static IN_WORDS: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0_u8;
    while byte < 128 {
        table[byte as usize] = byte.is_ascii_alphanumeric() || byte == b'_';
        byte += 1;
    }
    table
};

fn is_in_word(byte: u8) -> bool {
    IN_WORDS.get(usize::from(byte)).copied().unwrap_or(false)
}

fn offset32(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

fn line_comment_len(rest: &[u8]) -> usize {
    rest.iter().position(|b| matches!(b, b'\n' | b'\r')).map_or(rest.len(), |at| at + 1)
}

/// A word: keyword, name, UUID that starts with a letter, ISO duration, or `expr(`.
fn scan_word(rest: &[u8]) -> (Tok, usize) {
    if is_uuid(rest) {
        return (Tok::UuidLiteral, UUID_BYTES);
    }
    let len = rest.iter().take_while(|b| is_in_word(**b)).count();
    if rest.first() == Some(&b'P')
        && let Some(iso) = iso_duration_len(rest)
        && iso >= len
    {
        return (Tok::DurationLiteral, iso);
    }
    if len == 4 && rest.starts_with(b"expr(") {
        return (Tok::ExprOpen, len + 1);
    }
    (Tok::of_first(rest, len), len)
}

/// Text after `-`: comment, number, `-nan`, `-infinity`, `-P1Y`, or the sign alone.
fn scan_minus(rest: &[u8], second: Option<u8>) -> (Tok, usize) {
    match second {
        Some(b'-') => return (Tok::Hidden, line_comment_len(rest)),
        Some(b'=') => return (Tok::MinusEqual, 2),
        Some(b'0'..=b'9') => {
            let (kind, len) = scan_digits(rest, 1);
            return (kind, len);
        }
        _ => {}
    }
    let after = rest.get(1..).unwrap_or(&[]);
    if second == Some(b'P')
        && let Some(len) = iso_duration_len(after)
    {
        return (Tok::DurationLiteral, len + 1);
    }
    // No need to look further than the longer of the two words.
    let len = after.iter().take(b"infinity".len() + 1).take_while(|b| is_in_word(**b)).count();
    match Tok::of_word(after.get(..len).unwrap_or(&[])) {
        Tok::Nan => (Tok::NegativeNan, len + 1),
        Tok::Infinity => (Tok::NegativeInfinity, len + 1),
        _ => (Tok::Minus, 1),
    }
}

/// Text that starts with a digit.
fn scan_number(rest: &[u8]) -> (Tok, usize) {
    if is_uuid(rest) {
        return (Tok::UuidLiteral, UUID_BYTES);
    }
    if matches!(rest, [b'0', b'x' | b'X', ..]) {
        let digits = hex_digits_len(rest.get(2..).unwrap_or_default());
        return (Tok::HexNumber, digits + 2);
    }
    scan_digits(rest, 0)
}

/// How many hex digits a text begins with: block by block, as a literal may have megabytes.
fn hex_digits_len(rest: &[u8]) -> usize {
    const BLOCK: usize = 32;
    let (blocks, _) = rest.as_chunks::<BLOCK>();
    let is_full =
        |block: &&[u8; BLOCK]| block.iter().fold(true, |all, b| all & b.is_ascii_hexdigit());
    let full = blocks.iter().take_while(is_full).count() * BLOCK;
    full + rest.iter().skip(full).take_while(|b| b.is_ascii_hexdigit()).count()
}

/// Integer, float or duration whose digits start at `from`.
fn scan_digits(rest: &[u8], from: usize) -> (Tok, usize) {
    let integer = from + digits_len(rest, from);
    if let Some(end) = unit_duration_end(rest, from) {
        return (Tok::DurationLiteral, end);
    }
    let dots = rest.iter().skip(integer).take(3).take_while(|b| **b == b'.').count();
    match dots {
        0 => match exponent_len(rest, integer) {
            Some(len) => (Tok::FloatLiteral, integer + len),
            None => (Tok::Integer, integer),
        },
        // `1..2` is a range, `1...2` one of `1.`.
        2 => (Tok::Integer, integer),
        3 => (Tok::FloatLiteral, integer + 1),
        _ => {
            let fraction = integer + 1 + digits_len(rest, integer + 1);
            (Tok::FloatLiteral, fraction + exponent_len(rest, fraction).unwrap_or(0))
        }
    }
}

fn digits_len(rest: &[u8], from: usize) -> usize {
    rest.iter().skip(from).take_while(|b| b.is_ascii_digit()).count()
}

fn exponent_len(rest: &[u8], from: usize) -> Option<usize> {
    if !matches!(rest.get(from), Some(b'e' | b'E')) {
        return None;
    }
    let sign = usize::from(matches!(rest.get(from + 1), Some(b'+' | b'-')));
    match digits_len(rest, from + 1 + sign) {
        0 => None,
        digits => Some(1 + sign + digits),
    }
}

/// End of `1h30m` that starts at `from`; `None` when no unit follows the first digits.
fn unit_duration_end(rest: &[u8], from: usize) -> Option<usize> {
    let mut end = None;
    let mut at = from;
    loop {
        let digits = digits_len(rest, at);
        if digits == 0 {
            return end;
        }
        let Some(unit) = unit_len(rest, at + digits) else { return end };
        at += digits + unit;
        end = Some(at);
    }
}

fn unit_len(rest: &[u8], from: usize) -> Option<usize> {
    let next = |ahead: usize| rest.get(from + ahead).map(u8::to_ascii_lowercase);
    match (next(0)?, next(1)) {
        (b'm', Some(b'o' | b's')) | (b'u' | b'n', Some(b's')) => Some(2),
        // The micro sign, two bytes in UTF-8.
        (0xC2, Some(0xB5)) if next(2) == Some(b's') => Some(3),
        (b'y' | b'w' | b'd' | b'h' | b'm' | b's', _) => Some(1),
        _ => None,
    }
}

/// Length of an ISO 8601 duration that starts with `P`: designators, weeks, or the alternative
/// format. The longest form wins.
fn iso_duration_len(rest: &[u8]) -> Option<usize> {
    const ALTERNATIVE: &[u8] = b"Pdddd-dd-ddTdd:dd:dd";
    let fits = |(have, want): (&u8, &u8)| match want {
        b'd' => have.is_ascii_digit(),
        _ => have == want,
    };
    if rest.len() >= ALTERNATIVE.len() && rest.iter().zip(ALTERNATIVE).all(fits) {
        return Some(ALTERNATIVE.len());
    }
    let week = digits_len(rest, 1);
    if week > 0 && rest.get(1 + week) == Some(&b'W') {
        return Some(week + 2);
    }
    let date = designators_end(rest, 1, b"YMD");
    let time_from = date.unwrap_or(1);
    let time = match rest.get(time_from) {
        Some(b'T') => designators_end(rest, time_from + 1, b"HMS"),
        _ => None,
    };
    time.or(date)
}

/// End of `1Y2M3D` with the designators in this order, each at most once, at least one.
fn designators_end(rest: &[u8], from: usize, designators: &[u8; 3]) -> Option<usize> {
    let mut at = from;
    let mut end = None;
    let mut left: &[u8] = designators;
    loop {
        let digits = digits_len(rest, at);
        let Some(designator) = rest.get(at + digits) else { return end };
        match left.iter().position(|d| d == designator) {
            Some(index) if digits > 0 => {
                at += digits + 1;
                end = Some(at);
                left = left.get(index + 1..).unwrap_or(&[]);
            }
            _ => return end,
        }
    }
}

/// Length of `8-4-4-4-12`.
const UUID_BYTES: usize = 36;

fn is_uuid(rest: &[u8]) -> bool {
    // Fast path: mostly the first dash decides.
    if rest.get(8) != Some(&b'-') {
        return false;
    }
    let Some(candidate) = rest.get(..UUID_BYTES) else { return false };
    candidate.iter().enumerate().all(|(at, b)| match at {
        8 | 13 | 18 | 23 => *b == b'-',
        _ => b.is_ascii_hexdigit(),
    })
}
