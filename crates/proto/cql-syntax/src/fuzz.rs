//! Entry points for fuzzing: they must return for any bytes.

use crate::{parse, parse_term, parse_type, split_statements};

/// Parses the bytes as a statement, a type, a term and a script. What parses must read back from
/// its printed form as the same tree.
///
/// # Panics
/// When the printed form does not parse to an equal tree.
pub fn fuzz_parse(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Ok(statement) = parse(&text) {
        let printed = statement.to_string();
        let again = parse(&printed);
        assert_eq!(again.as_ref(), Ok(&statement), "INV-printer-1: {printed}");
    }
    if let Ok(ty) = parse_type(&text) {
        assert_eq!(parse_type(&ty.to_string()), Ok(ty));
    }
    if let Ok(term) = parse_term(&text) {
        assert_eq!(parse_term(&term.to_string()), Ok(term));
    }
    for piece in split_statements(&text) {
        assert!(!piece.is_empty());
    }
}
