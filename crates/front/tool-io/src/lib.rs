//! Output and exit codes of command-line tools.
//!
//! Owns: [`say!`] and [`say_line!`] for standard output, [`complain!`] and [`complain_line!`] for standard error, the
//! end of a tool that cannot print, the [exit codes](exit), the options with which tools log in at the
//! API ([`api_flags`]). Never: what is printed.
//!
//! The macros of `std` panic if the reader has closed the pipe, as after `helenus server --help | head`;
//! `clippy.toml` of the tools bans them.

pub mod api_flags;
pub mod exit;

use std::fmt::Arguments;
use std::io::{ErrorKind, Write};

/// Prints to standard output.
#[macro_export]
macro_rules! say {
    ($($text:tt)*) => { $crate::put(format_args!($($text)*)) };
}

/// Prints a line to standard output.
#[macro_export]
macro_rules! say_line {
    () => { $crate::put(format_args!("\n")) };
    ($($text:tt)*) => { $crate::put(format_args!("{}\n", format_args!($($text)*))) };
}

/// Prints to standard error.
#[macro_export]
macro_rules! complain {
    ($($text:tt)*) => { $crate::put_error(format_args!($($text)*)) };
}

/// Prints a line to standard error.
#[macro_export]
macro_rules! complain_line {
    ($($text:tt)*) => { $crate::put_error(format_args!("{}\n", format_args!($($text)*))) };
}

/// Writes to standard output. If that fails, ends the process: quietly if the reader has closed the
/// pipe, else with the reason.
pub fn put(text: Arguments<'_>) {
    if let Err(error) = std::io::stdout().write_fmt(text) {
        let code = code_of(&error);
        if code != exit::OK {
            complain_line!("helenus: cannot write: {error}");
        }
        std::process::exit(i32::from(code));
    }
}

/// Writes to standard error. An error is ignored, as it could not be reported: the tool continues.
pub fn put_error(text: Arguments<'_>) {
    let _ = std::io::stderr().write_fmt(text);
}

/// The exit code of a tool that cannot print.
fn code_of(error: &std::io::Error) -> u8 {
    if error.kind() == ErrorKind::BrokenPipe { exit::OK } else { exit::FAILED }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_reader_that_has_gone_is_no_failure() {
        assert_eq!(code_of(&ErrorKind::BrokenPipe.into()), exit::OK);
        assert_eq!(code_of(&ErrorKind::StorageFull.into()), exit::FAILED);
    }
}
