//! What the tests of all crates share.
//!
//! Owns: cases in text files ([`cases`]). Never: in a product.

pub mod cases;

pub use cases::{Case, check};
