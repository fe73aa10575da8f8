//! Entry points for fuzzing: any bytes in, no panic (INV-codec-1) and no output above the cap (INV-codec-2).

use crate::compression::{self, Algorithm, Compressor};
use crate::reader::Reader;
use crate::small_file::SmallForm;
use stdx::invariant;

/// Every reading method in an order that the data chooses.
pub fn fuzz_reader(data: &[u8]) {
    let mut r = Reader::new(data, "fuzz");
    while let Ok(choice) = r.u8() {
        let before = r.position();
        let taken = match choice % 20 {
            0 => r.u16().is_ok(),
            1 => r.i32().is_ok(),
            2 => r.u64().is_ok(),
            3 => r.u128().is_ok(),
            4 => r.f64().is_ok(),
            5 => r.u32_le().is_ok(),
            6 => r.bytes(usize::from(choice)).is_ok(),
            7 => r.bytes_u16().is_ok(),
            8 => r.bytes_i32().is_ok(),
            9 => r.bytes_vint().is_ok(),
            10 => r.utf8_u16().is_ok(),
            11 => r.vint_unsigned().is_ok(),
            12 => r.vint_signed().is_ok(),
            13 => r.vint_unsigned_i32().is_ok(),
            14 => r.vint_signed_i32().is_ok(),
            15 => r.vint_len().is_ok(),
            16 => r.len_i32().is_ok(),
            17 => r.sub(usize::from(choice), "inner").is_ok_and(|mut inner| inner.u32().is_ok()),
            18 => r.check_count(usize::from(choice), 3).is_ok(),
            _ => r.bool().is_ok(),
        };
        invariant!(
            taken || r.position() == before || choice % 20 == 17,
            "a failed read moves nothing"
        );
    }
    invariant!(r.position() <= data.len(), "position stays inside");
}

/// Room that a vector may have after `max` bytes were asked for: it doubles, and starts with a few.
fn room_max(max: usize) -> usize {
    max.saturating_mul(2).max(64)
}

/// The first byte chooses the compressor and the cap, the rest is the block.
pub fn fuzz_decompress(data: &[u8]) {
    let Some((choice, block)) = data.split_first() else { return };
    let algorithm = match choice & 3 {
        0 => Algorithm::Lz4,
        1 => Algorithm::Snappy,
        2 => Algorithm::Deflate,
        _ => Algorithm::Zstd,
    };
    let max = 1usize << (choice >> 4);
    let mut out = Vec::new();
    if let Ok(mut compressor) = Compressor::new(algorithm) {
        let result = compressor.decompress(block, max, &mut out);
        invariant!(out.len() <= max, "INV-codec-2: {} bytes above the cap of {max}", out.len());
        invariant!(
            out.capacity() <= room_max(max),
            "INV-codec-2: room for {} bytes allocated, the cap is {max}",
            out.capacity()
        );
        invariant!(result.is_ok() || out.is_empty(), "an error leaves nothing behind");
    }
    out.clear();
    let raw = compression::lz4::decompress(block, max, &mut out);
    invariant!(
        out.len() == if raw.is_ok() { max } else { 0 },
        "a raw block has its exact length or none"
    );
}

/// A small durable file; a decoded one encodes to the same bytes.
pub fn fuzz_small_file(data: &[u8]) {
    let form = SmallForm { kind: "run", version: 2 };
    if let Ok(body) = form.decode(data) {
        invariant!(form.encode(body) == data, "a small file has one encoding");
    }
}

#[cfg(test)]
mod tests {
    use testkit::mutate;

    use super::*;

    /// INV-codec-1.
    #[test]
    fn reading_any_bytes_never_panics() {
        mutate(
            &[
                (0..=255).collect(),
                vec![0xff; 40],
                vec![9, 3, 1, 2, 3, 11, 0xfe, 0, 0, 0, 0, 0, 0, 1],
            ],
            fuzz_reader,
        );
    }

    #[test]
    fn any_bytes_as_a_small_file_never_panic() {
        let of = |kind, version, body: &[u8]| SmallForm { kind, version }.encode(body);
        let corpus = [of("run", 2, b"run 7\n"), of("run", 3, b""), of("other", 2, b"\n"), vec![]];
        mutate(&corpus, fuzz_small_file);
    }

    #[test]
    fn decompressing_any_bytes_never_panics_nor_passes_the_cap() {
        let mut corpus = Vec::new();
        for (tag, algorithm) in
            [Algorithm::Lz4, Algorithm::Snappy, Algorithm::Deflate, Algorithm::Zstd]
                .iter()
                .enumerate()
        {
            for sample in [&b""[..], b"abcabcabcabcabcabcabcabcabcabcabcabc", &[7; 3000]] {
                let mut data = vec![0xc0 | tag as u8];
                Compressor::new(*algorithm).unwrap().compress(sample, &mut data).unwrap();
                corpus.push(data);
            }
        }
        mutate(&corpus, fuzz_decompress);
    }
}
