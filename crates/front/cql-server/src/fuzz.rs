//! Fuzz target beside frames and CQL, which their crates fuzz: credentials of clients.

/// Takes bytes as a SASL PLAIN token.
///
/// # Panics
/// Never, whatever the bytes.
pub fn fuzz_sasl_plain(data: &[u8]) {
    if let Ok(credentials) = crate::auth::decode_plain(data) {
        stdx::invariant!(
            !credentials.user.is_empty() && !credentials.password.is_empty(),
            "credentials without user or password"
        );
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn no_token_of_a_client_panics() {
        let corpus: [&[u8]; 5] = [b"", b"\0me\0secret", b"a\0b\0c", b"\0\0\0", b"\xff\0\xfe\0\xfd"];
        testkit::Mutations::of(corpus).letters(b"\0x").run(super::fuzz_sasl_plain);
    }
}
