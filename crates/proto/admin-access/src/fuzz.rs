//! Fuzz entries: any bytes as a header, a token file, a password file.

use crate::credentials::Credentials;
use crate::password_file::password_of;
use crate::tokens::Tokens;

/// No input panics.
///
/// # Panics
/// A header that was read is written and read as something else.
pub fn fuzz_credentials(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Some(read) = Credentials::parse(&text) {
        let again = Credentials::parse(&read.header());
        assert!(again.as_ref() == Some(&read), "credentials changed on their way through a header");
    }
    if let Ok(tokens) = Tokens::parse(&text) {
        drop(tokens.find(&text).cloned());
    }
    let _ = password_of(&text, "user");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_mutation_of_credentials_panics() {
        let hash = format!("# tokens\nprometheus read-only sha256:{}\n", "0f".repeat(32));
        let corpus = [
            b"Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==".as_slice(),
            b"Bearer helenus_00ff",
            b"user password\nother word\n",
            hash.as_bytes(),
        ];
        testkit::Mutations::of(corpus).rounds(10_000).run(fuzz_credentials);
    }
}
