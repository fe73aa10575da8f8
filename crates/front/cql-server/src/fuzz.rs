//! Fuzz targets beside frames and CQL, which their crates fuzz: credentials of clients, `metadata/truncated`.

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

/// Takes bytes as the body of `metadata/truncated`.
///
/// # Panics
/// Never, whatever the bytes.
pub fn fuzz_truncation_records(data: &[u8]) {
    crate::truncate::records::fuzz(data);
}

#[cfg(test)]
mod tests {
    #[test]
    fn no_bytes_as_truncation_records_panic() {
        let good = "cluster 00000000-0000-0000-0000-000000000001\nrun 12\nthrough 7\n\
                    00000000-0000-0000-0000-000000000002 -5\n";
        // The form before had no run.
        for good in [good.to_owned(), good.replace("run 12\n", "")] {
            super::fuzz_truncation_records(good.as_bytes());
            for at in 0..good.len() {
                super::fuzz_truncation_records(&good.as_bytes()[..at]);
                for bit in 0..8 {
                    let mut bad = good.clone().into_bytes();
                    bad[at] ^= 1 << bit;
                    super::fuzz_truncation_records(&bad);
                }
            }
        }
    }

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
