//! Bearer tokens: a file of hashes with name and scope.
//!
//! A token is 32 random bytes, so one round of SHA-256 protects it; the file never holds the token itself. A line is
//! `NAME SCOPE sha256:HEX`; empty lines and those that begin with `#` are ignored.

use sha2::{Digest, Sha256};

use crate::scope::AccessScope;

/// Prefix of every token, by which scanners for leaked secrets find it.
pub const TOKEN_PREFIX: &str = "helenus_";
/// Random bytes of a token.
pub const TOKEN_BYTES: usize = 32;
/// Longest file.
pub const FILE_BYTES_MAX: usize = 256 << 10;
/// Longest name.
const NAME_BYTES_MAX: usize = 64;
const HASH_PREFIX: &str = "sha256:";

/// A token as its file knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Name of its holder, for logs.
    pub name: String,
    /// Its scope.
    pub scope: AccessScope,
    hash: [u8; 32],
}

/// Error of a token file: line and problem.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct TokenFileError {
    /// Line, from 1.
    pub line: usize,
    /// The problem.
    pub problem: String,
}

/// Returns the text of a token.
pub fn token_text(random: &[u8; TOKEN_BYTES]) -> String {
    format!("{TOKEN_PREFIX}{}", hex(random))
}

impl Token {
    /// Hashes a token.
    ///
    /// # Errors
    /// The name is not of letters, digits, `.`, `_`, `-`, or is too long.
    pub fn new(name: &str, scope: AccessScope, text: &str) -> Result<Token, String> {
        check_name(name)?;
        Ok(Token { name: name.to_owned(), scope, hash: hash(text) })
    }

    /// Returns its line in the file, without the line end.
    pub fn line(&self) -> String {
        format!("{} {} {HASH_PREFIX}{}", self.name, self.scope, hex(&self.hash))
    }

    fn parse(line: &str) -> Result<Token, String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [name, scope, hash] = words.as_slice() else {
            return Err("expects NAME SCOPE sha256:HEX".to_owned());
        };
        check_name(name)?;
        let scope = AccessScope::from_word(scope)
            .ok_or_else(|| format!("the scope is \"{scope}\", not read-only or operator"))?;
        let hash = hash.strip_prefix(HASH_PREFIX).and_then(hash_of_hex);
        let hash = hash.ok_or_else(|| {
            "expects sha256: and 64 hexadecimal digits, as \"helenus token create\" writes"
                .to_owned()
        })?;
        Ok(Token { name: (*name).to_owned(), scope, hash })
    }
}

/// The tokens of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tokens(Vec<Token>);

impl Tokens {
    /// Parses a file.
    ///
    /// # Errors
    /// The first line that is malformed, or repeats a name.
    pub fn parse(text: &str) -> Result<Tokens, TokenFileError> {
        let mut tokens: Vec<Token> = Vec::new();
        for (line, text) in (1..).zip(text.lines()) {
            let text = text.trim();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let token = Token::parse(text).map_err(|problem| TokenFileError { line, problem })?;
            if tokens.iter().any(|known| known.name == token.name) {
                let problem = format!("the name \"{}\" occurs twice", token.name);
                return Err(TokenFileError { line, problem });
            }
            tokens.push(token);
        }
        Ok(Tokens(tokens))
    }

    /// Finds the token that a client sent. The time does not depend on which one it is.
    pub fn find(&self, text: &str) -> Option<&Token> {
        let sent = hash(text);
        let mut found = None;
        for token in &self.0 {
            if are_equal(&token.hash, &sent) {
                found = Some(token);
            }
        }
        found
    }

    /// In the order of the file.
    pub fn iter(&self) -> impl Iterator<Item = &Token> {
        self.0.iter()
    }

    /// Number of tokens.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if the file has none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn check_name(name: &str) -> Result<(), String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(is_plain) {
        return Err(format!(
            "a name has 1 to {NAME_BYTES_MAX} letters, digits, '.', '_' or '-', not \"{}\"",
            name.escape_debug()
        ));
    }
    Ok(())
}

fn hash(text: &str) -> [u8; 32] {
    Sha256::digest(text.as_bytes()).into()
}

/// Compares all bytes, equal or not (INV-scope-2).
fn are_equal(a: &[u8; 32], b: &[u8; 32]) -> bool {
    std::hint::black_box(a.iter().zip(b).fold(0, |differing, (a, b)| differing | (a ^ b))) == 0
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn hash_of_hex(text: &str) -> Option<[u8; 32]> {
    let digits: Option<Vec<u8>> =
        text.chars().map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok())).collect();
    let digits = digits.filter(|digits| digits.len() == 64)?;
    let mut hash = [0; 32];
    for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = pair.iter().fold(0, |value, digit| value << 4 | digit);
    }
    Some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_found_by_its_text_only() {
        let text = token_text(&[7; 32]);
        assert_eq!(text, format!("helenus_{}", "07".repeat(32)));
        let token = Token::new("prometheus", AccessScope::ReadOnly, &text).unwrap();
        let other = Token::new("deploy", AccessScope::Operator, &token_text(&[8; 32])).unwrap();
        let file = format!("# tokens\n\n{}\n  {}\r\n", token.line(), other.line());
        assert!(!file.contains(&text));
        let tokens = Tokens::parse(&file).unwrap();
        assert_eq!(tokens.len(), 2);
        assert_eq!(tokens.find(&text), Some(&token));
        assert_eq!(tokens.find(&token_text(&[8; 32])), Some(&other));
        // INV-scope-2 has no early exit: the last byte counts as much as the first one.
        for wrong in ["", "helenus_", &text[..text.len() - 1], &token_text(&[9; 32])] {
            assert_eq!(tokens.find(wrong), None, "{wrong}");
        }
        assert!(!are_equal(&[1; 32], &{
            let mut b = [1; 32];
            b[31] = 0;
            b
        }));
    }

    #[test]
    fn the_hash_is_sha_256_as_other_tools_compute_it() {
        let token = Token::new("a", AccessScope::Operator, "abc").unwrap();
        let hash = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(token.line(), format!("a operator sha256:{hash}"));
        let upper = format!("a operator sha256:{}", hash.to_uppercase());
        assert!(Tokens::parse(&upper).unwrap().find("abc").is_some());
    }

    #[test]
    fn wrong_lines_are_named() {
        let hash = format!("sha256:{}", "0".repeat(64));
        for (line, problem) in [
            (format!("a read-only {hash} more"), "expects NAME SCOPE"),
            (format!("a {hash}"), "expects NAME SCOPE"),
            (format!("a writer {hash}"), "the scope is \"writer\""),
            (format!("a/b operator {hash}"), "a name has"),
            (format!("{} operator {hash}", "a".repeat(65)), "a name has"),
            (format!("a operator {}", &hash[..70]), "64 hexadecimal digits"),
            (format!("a operator {hash}0"), "64 hexadecimal digits"),
            ("a operator secret".to_owned(), "64 hexadecimal digits"),
        ] {
            let error = Tokens::parse(&format!("\n{line}\n")).unwrap_err().to_string();
            assert!(error.starts_with("line 2: ") && error.contains(problem), "{line}: {error}");
        }
        assert!(Tokens::parse(&format!("{} operator {hash}", "a".repeat(64))).is_ok());
        let twice = format!("a operator {hash}\na read-only {hash}\n");
        assert!(Tokens::parse(&twice).unwrap_err().to_string().contains("occurs twice"));
    }
}
