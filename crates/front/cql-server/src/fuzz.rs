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
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = move || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed as usize
        };
        for data in corpus {
            super::fuzz_sasl_plain(data);
        }
        for _ in 0..10_000 {
            let mut data = corpus[random() % corpus.len()].to_vec();
            for _ in 0..random() % 4 {
                let at = random() % (data.len() + 1);
                data.insert(at, [0, b'x', 0xff, random() as u8][random() % 4]);
            }
            super::fuzz_sasl_plain(&data);
        }
    }
}
