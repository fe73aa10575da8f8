//! CQL lexer, parser, AST with spans, printer.
//!
//! Owns the text form of CQL 3.4.7 (Cassandra 5.0) in both directions. Total on any input: never
//! panics, bounded recursion, linear time; the caller bounds the size. Never knows a schema and
//! never refuses a statement that the grammar allows, so that later layers refuse it by name.
//!
//! Reading order: [`ast`], `token`, `lexer`, `parser`, `printer`. Every tree prints itself with
//! `Display`, and the text parses to an equal tree.

pub mod ast;
mod error;
pub mod fuzz;
mod lexer;
mod parser;
mod printer;
mod split;
mod token;

pub use error::SyntaxError;
pub use parser::{NESTING_MAX, parse, parse_term, parse_type};
pub use split::split_statements;
pub use token::is_reserved;

#[cfg(test)]
mod tests;
