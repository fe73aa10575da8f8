//! Fuzz target: the body of `metadata/truncated`.

/// Decodes bytes as the body of `metadata/truncated`.
///
/// # Panics
/// Never, whatever the bytes.
pub fn fuzz_truncation_records(data: &[u8]) {
    crate::records::fuzz(data);
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
}
