//! An encoder of LZ4 blocks of up to 64 KiB, for the chunks of SSTables.
//!
//! It finds matches as the reference implementation does (8,192 slots, steps that grow after 64
//! positions without a match, matches extended backwards), so that files are as large as Cassandra's.
//! The table survives from block to block: each slot names its block and holds eight bits of the hash.
//! A slot that cannot match is skipped without comparing bytes.
//!
//! Two things are otherwise. Where values are noise there is nothing to find in them, and once a block has shown
//! that, steps grow sooner. And where they are not, places are found by five bytes instead of four, unless four turn out
//! to be better: matches of four take nearly as many bytes as they save, and keep longer ones from being found, but in
//! short rows of numbers there may be no others. Now and then a block is encoded in both ways to tell.
//! Source: `lz4_Block_format.md` of LZ4.

const HASH_BITS: u32 = 13;
const SLOTS: usize = 1 << HASH_BITS;
/// Bytes of the longest block: places have 16 bits, as offsets have.
pub(crate) const BLOCK_BYTES_MAX: usize = 1 << 16;
/// Bytes of the shortest match.
pub(crate) const MATCH_BYTES_MIN: usize = 4;
/// The last bytes of a block are literals.
pub(crate) const LAST_LITERALS: usize = 5;
/// No match begins in the last bytes of a block.
pub(crate) const LAST_MATCH: usize = 12;
/// After `1 << STEP_SHIFT` places without a match the step grows by one.
const STEP_SHIFT: u32 = 6;
/// This many bytes without a match are noise.
const NOISE_BYTES: usize = 96;
/// Positions of noise that are compared together, as they do not depend on each other, and their
/// bytes.
const TOGETHER: usize = 4;
const TOGETHER_BYTES: usize = 16;
/// Search pattern after a match in a block with noise: a number of positions tried one by one, then
/// a number tried at every fourth. The position directly after the match is tried alone: with that
/// the later ones meet more matches in rows of values of even lengths.
const NOISE_TURNS: [(usize, usize); 2] = [(1, 1), (16, NOISE_STEP)];
/// Literals before a match that is found one by one.
const NEAR_BYTES: usize = 1 + TOGETHER;
const NOISE_STEP: usize = 4;
/// After `RHYTHM_FOUND` matches in a rhythm the next one is tried at its expected position, at most
/// `RHYTHM_TRIED` times in a row, without scanning the noise between.
const RHYTHM_FOUND: u32 = 2;
const RHYTHM_TRIED: u32 = 7;
/// Rows that differ by no more bytes may be in one rhythm.
const RHYTHM_BYTES: usize = 16;
/// Blocks after which four bytes and five are compared again: the comparison costs one block of
/// this many.
const BLOCKS_COMPARED: u32 = 64;
/// Blocks that slots can name before the table is cleared.
const BLOCKS_MAX: u32 = 0xff;

/// Ways to find positions in a block: four bytes that may be among noise, five, four.
const NOISE: u8 = 0;
const FIVE: u8 = 1;
const FOUR: u8 = 2;

/// Where four bytes were seen last, by their hash: place (16 bits), hash (8), block (8).
pub(crate) struct Encoder {
    slots: Box<[u32; SLOTS]>,
    block: u32,
    /// More than half of the block before was noise.
    had_noise: bool,
    /// Blocks without noise are hashed by four bytes if true, else by five. `compared` counts down
    /// the blocks until the next comparison of both.
    by_four: bool,
    compared: u32,
}

/// Where matches after long runs of literals lie: in rows of noise values of fixed lengths, each
/// match is as far from the previous one as that one is from its predecessor. Holds while only a
/// match directly after the first lies in between.
#[derive(Default)]
struct Rhythm {
    /// Start of the last such match.
    at: usize,
    /// Distance from the match before.
    period: usize,
    /// Number of matches found at this distance from the one before.
    found: u32,
    /// Distance of the last match that did not keep the period.
    other: usize,
    /// Number of attempts there since.
    tried: u32,
}

impl Rhythm {
    /// A match as far after the last as that is after the one before, and where its bytes were.
    #[inline(always)]
    fn next(&mut self, bytes: &[u8], from: usize, last: usize) -> Option<(usize, usize)> {
        if self.found < RHYTHM_FOUND {
            return None;
        }
        let at = self.at.wrapping_add(self.period);
        let is_there = (from..=last).contains(&at) && four_at(bytes, at) == four_at(bytes, self.at);
        if !is_there {
            return None;
        }
        if self.tried >= RHYTHM_TRIED {
            self.tried = 0;
            return None;
        }
        self.tried = self.tried.wrapping_add(1);
        Some((at, self.at))
    }

    /// Notes where such a match begins.
    #[inline(always)]
    fn note(&mut self, at: usize) {
        let distance = at.wrapping_sub(self.at);
        self.at = at;
        if distance == self.period {
            self.found = self.found.saturating_add(1);
        } else if distance == self.other {
            (self.period, self.found) = (distance, 1);
        } else {
            // A single row that is a little longer or shorter does not end the rhythm.
            self.other = distance;
            if distance.abs_diff(self.period) > RHYTHM_BYTES {
                self.found = 0;
            }
        }
    }
}

/// The four bytes at a place; zero where there are fewer.
#[inline(always)]
pub(crate) fn four_at(bytes: &[u8], at: usize) -> u32 {
    let four = bytes.get(at..).and_then(|rest| rest.first_chunk());
    four.map_or(0, |four| u32::from_le_bytes(*four))
}

/// The eight bytes at a position; near the end the last four are zero.
#[inline(always)]
fn eight_at(bytes: &[u8], at: usize) -> u64 {
    match bytes.get(at..).and_then(|rest| rest.first_chunk()) {
        Some(eight) => u64::from_le_bytes(*eight),
        None => u64::from(four_at(bytes, at)),
    }
}

/// Number of bytes from `at` on, below `end`, that equal those from `earlier` on.
#[inline]
pub(crate) fn count_equal(bytes: &[u8], at: usize, earlier: usize, end: usize) -> usize {
    let now = bytes.get(at..end).unwrap_or(&[]);
    let before = bytes.get(earlier..).unwrap_or(&[]);
    let (eights, rest) = now.as_chunks::<8>();
    let mut count = 0usize;
    for (a, b) in eights.iter().zip(before.as_chunks::<8>().0) {
        let difference = u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b);
        if difference != 0 {
            let equal = usize::try_from(difference.trailing_zeros() / 8).unwrap_or(0);
            return count.wrapping_add(equal);
        }
        count = count.wrapping_add(8);
    }
    let behind = before.get(count..).unwrap_or(&[]);
    count.wrapping_add(rest.iter().zip(behind).take_while(|(a, b)| a == b).count())
}

/// Appends the part of a length that does not fit into its half of a token.
#[inline]
pub(crate) fn put_length(mut left: usize, out: &mut Vec<u8>) {
    while left >= 255 {
        out.push(255);
        left = left.wrapping_sub(255);
    }
    out.push(u8::try_from(left).unwrap_or(0));
}

/// A token and its literals. `match_half` is its lower half.
#[inline]
pub(crate) fn put_literals(literals: &[u8], match_half: u8, out: &mut Vec<u8>) {
    match u8::try_from(literals.len()) {
        Ok(few @ 0..15) => out.push(few << 4 | match_half),
        _ => {
            out.push(0xf0 | match_half);
            put_length(literals.len().wrapping_sub(15), out);
        }
    }
    out.extend_from_slice(literals);
}

impl Encoder {
    pub(crate) fn new() -> Encoder {
        let slots = Box::new([0; SLOTS]);
        Encoder { slots, block: 0, had_noise: false, by_four: false, compared: 0 }
    }

    /// Notes where bytes are, by the hash of their first four or five: where they were before, perhaps.
    #[inline(always)]
    fn note<const BY: u8>(&mut self, eight: u64, at: usize) -> Option<usize> {
        let hash = match BY {
            FIVE => (eight << 24).wrapping_mul(889_523_592_379),
            _ => (eight << 32).wrapping_mul(2_654_435_761),
        };
        let slot = usize::try_from(hash >> (64 - HASH_BITS)).unwrap_or(0);
        let mark = (u32::try_from(hash >> 40 & 0xff).unwrap_or(0) << 8) | self.block;
        let slot = self.slots.get_mut(slot & (SLOTS - 1))?;
        let place = u32::try_from(at & 0xffff).unwrap_or(0);
        let before = std::mem::replace(slot, place << 16 | mark);
        (before & 0xffff == mark).then(|| usize::try_from(before >> 16).unwrap_or(0))
    }

    /// The same of the bytes at a place: where the first four surely were before.
    #[inline(always)]
    fn find<const BY: u8>(&mut self, bytes: &[u8], at: usize) -> Option<usize> {
        let eight = eight_at(bytes, at);
        let four = eight & 0xffff_ffff;
        self.note::<BY>(eight, at).filter(|before| u64::from(four_at(bytes, *before)) == four)
    }

    /// The first place from `at` to `last` whose bytes were there before, and where they were.
    #[inline(always)]
    fn search<const BY: u8>(
        &mut self,
        bytes: &[u8],
        mut at: usize,
        last: usize,
        rhythm: Option<&mut Rhythm>,
    ) -> Option<(usize, usize)> {
        let (mut step, mut tried) = (1, 1usize << STEP_SHIFT);
        if let Some(rhythm) = rhythm {
            if at <= last {
                if let Some(before) = self.find::<BY>(bytes, at) {
                    return Some((at, before));
                }
                at = at.wrapping_add(1);
            }
            for (turns, step) in NOISE_TURNS {
                if step > 1
                    && let Some(there) = rhythm.next(bytes, at, last)
                {
                    return Some(there);
                }
                for _ in 0..turns {
                    let places: Option<&[u8; TOGETHER_BYTES]> =
                        bytes.get(at..).and_then(|rest| rest.first_chunk());
                    let Some(places) = places.filter(|_| at.wrapping_add(TOGETHER_BYTES) <= last)
                    else {
                        break;
                    };
                    for place in [0, step, step.wrapping_mul(2), step.wrapping_mul(3)] {
                        let (four, at) = (four_at(places, place), at.wrapping_add(place));
                        if let Some(before) = self.note::<BY>(u64::from(four), at)
                            && four_at(bytes, before) == four
                        {
                            return Some((at, before));
                        }
                    }
                    at = at.wrapping_add(step.wrapping_mul(TOGETHER));
                }
            }
            (step, tried) = (NOISE_STEP, NOISE_STEP << STEP_SHIFT);
        }
        while at <= last {
            if let Some(before) = self.find::<BY>(bytes, at) {
                return Some((at, before));
            }
            at = at.wrapping_add(step);
            step = tried >> STEP_SHIFT;
            tried = tried.wrapping_add(1);
        }
        None
    }

    /// Appends a block of `bytes`, at most of the first [`BLOCK_BYTES_MAX`].
    pub(crate) fn encode(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        let bytes = bytes.get(..BLOCK_BYTES_MAX).unwrap_or(bytes);
        if self.had_noise {
            return self.encode_by::<NOISE>(bytes, out);
        }
        if self.compared > 0 {
            self.compared = self.compared.wrapping_sub(1);
            return match self.by_four {
                true => self.encode_by::<FOUR>(bytes, out),
                false => self.encode_by::<FIVE>(bytes, out),
            };
        }
        let start = out.len();
        self.encode_by::<FIVE>(bytes, out);
        if self.had_noise {
            return;
        }
        let middle = out.len();
        self.encode_by::<FOUR>(bytes, out);
        let (five, four) = (middle.wrapping_sub(start), out.len().wrapping_sub(middle));
        (self.by_four, self.compared) = (four < five, BLOCKS_COMPARED);
        match self.by_four {
            true => drop(out.drain(start..middle)),
            false => out.truncate(middle),
        }
    }

    fn encode_by<const BY: u8>(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        out.reserve(bytes.len().wrapping_add(bytes.len() / 255).wrapping_add(16));
        if self.block >= BLOCKS_MAX {
            self.slots.fill(0);
            self.block = 0;
        }
        // Zero is of none.
        self.block = self.block.wrapping_add(1);
        let literals = self.encode_matches::<BY>(bytes, out);
        put_literals(bytes.get(literals..).unwrap_or(&[]), 0, out);
    }

    /// All sequences that have a match: where the last literals begin.
    #[inline]
    fn encode_matches<const BY: u8>(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> usize {
        let Some(last) = bytes.len().checked_sub(LAST_MATCH) else { return 0 };
        let end = bytes.len().saturating_sub(LAST_LITERALS);
        let mut literals = 0usize;
        self.note::<BY>(eight_at(bytes, 0), 0);
        let (mut next, mut noise) = (1, 0usize);
        let mut rhythm = Rhythm::default();
        loop {
            let known = (BY == NOISE && noise > 0).then_some(&mut rhythm);
            let Some((mut at, mut before)) = self.search::<BY>(bytes, next, last, known) else {
                break;
            };
            while at > literals
                && let (Some(a), Some(b)) = (at.checked_sub(1), before.checked_sub(1))
                && bytes.get(a) == bytes.get(b)
            {
                (at, before) = (a, b);
            }
            let run = at.saturating_sub(literals);
            if run >= NOISE_BYTES {
                noise = noise.wrapping_add(run);
                rhythm.note(at);
            } else if run > NEAR_BYTES {
                rhythm.found = 0;
            }
            // Matches that directly follow each other.
            loop {
                let behind = |place: usize| place.wrapping_add(MATCH_BYTES_MIN);
                let more = count_equal(bytes, behind(at), behind(before), end);
                let half = u8::try_from(more.min(15)).unwrap_or(15);
                put_literals(bytes.get(literals..at).unwrap_or(&[]), half, out);
                let offset = u16::try_from(at.wrapping_sub(before)).unwrap_or(0);
                out.extend_from_slice(&offset.to_le_bytes());
                if let Some(left) = more.checked_sub(15) {
                    put_length(left, out);
                }
                at = behind(at).wrapping_add(more);
                literals = at;
                if at > last {
                    self.had_noise = noise > bytes.len() / 2;
                    return literals;
                }
                let within = at.wrapping_sub(2);
                self.note::<BY>(eight_at(bytes, within), within);
                match self.find::<BY>(bytes, at) {
                    Some(earlier) => before = earlier,
                    None => break,
                }
            }
            next = at.wrapping_add(1);
        }
        noise = noise.wrapping_add(bytes.len().saturating_sub(literals));
        self.had_noise = noise > bytes.len() / 2;
        literals
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Random numbers below the argument, the same for a seed.
    pub(crate) fn drawing(seed: u64) -> impl FnMut(usize) -> usize {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        move |below| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as usize % below
        }
    }

    /// Noise of few different bytes, runs, and copies of earlier bytes.
    pub(crate) fn sample(length: usize, draw: &mut impl FnMut(usize) -> usize) -> Vec<u8> {
        let mut bytes: Vec<u8> = Vec::new();
        while bytes.len() < length {
            let longest = 1 + draw(400);
            let count = 1 + draw(longest);
            match draw(4) {
                0 => bytes.resize(bytes.len() + count, draw(256) as u8),
                1 if !bytes.is_empty() => {
                    let start = draw(bytes.len());
                    let end = bytes.len().min(start + count);
                    bytes.extend_from_within(start..end);
                }
                2 => (0..count).for_each(|_| bytes.push(draw(3) as u8)),
                _ => (0..count).for_each(|_| bytes.push(draw(256) as u8)),
            }
        }
        bytes.truncate(length);
        bytes
    }

    /// Decodes a block as the format's description says, with its rules for the end of a block.
    pub(crate) fn decode(mut block: &[u8]) -> Vec<u8> {
        fn take(block: &mut &[u8]) -> usize {
            let (first, rest) = block.split_first().unwrap();
            *block = rest;
            usize::from(*first)
        }
        fn length(half: usize, block: &mut &[u8]) -> usize {
            let mut length = half;
            let mut more = half == 15;
            while more {
                let byte = take(block);
                length += byte;
                more = byte == 255;
            }
            length
        }
        let (mut out, mut last_match) = (Vec::<u8>::new(), None);
        loop {
            let token = take(&mut block);
            let literals = length(token >> 4, &mut block);
            out.extend_from_slice(&block[..literals]);
            block = &block[literals..];
            if block.is_empty() {
                let is_rest_plain = last_match
                    .is_none_or(|at| literals >= LAST_LITERALS && out.len() - at >= LAST_MATCH);
                assert!(token & 15 == 0 && is_rest_plain, "the end of a block");
                return out;
            }
            let offset = take(&mut block) | take(&mut block) << 8;
            assert!((1..=out.len()).contains(&offset));
            last_match = Some(out.len());
            let count = length(token & 15, &mut block) + MATCH_BYTES_MIN;
            (0..count).for_each(|_| out.push(out[out.len() - offset]));
        }
    }

    /// Rows of noise with heads that are alike, and lines of text.
    pub(crate) fn rows_and_text() -> (Vec<u8>, Vec<u8>) {
        let mut draw = drawing(4);
        let (mut rows, mut text) = (Vec::new(), Vec::new());
        for n in 0..80u64 {
            rows.extend_from_slice(&[0, 8]);
            rows.extend_from_slice(&n.wrapping_mul(0x9e37).to_be_bytes());
            rows.extend_from_slice(&[0x80, 0x24, 0x80, 0xb2, 0x1b]);
            for _ in 0..5 {
                rows.extend_from_slice(&[8, 32]);
                (0..32).for_each(|_| rows.push(draw(256) as u8));
            }
            rows.push(1);
        }
        let words = ["partition", "row", "cell", "of", "the", "table", "is", "written", "to"];
        while text.len() < 16_000 {
            text.extend_from_slice(words[draw(words.len())].as_bytes());
            text.push(b' ');
        }
        (rows, text)
    }

    fn check(encoder: &mut Encoder, bytes: &[u8]) -> usize {
        let mut block = b"before".to_vec();
        encoder.encode(bytes, &mut block);
        assert_eq!(&block[..6], b"before");
        let block = &block[6..];
        assert!(block.len() <= bytes.len() + bytes.len() / 255 + 16);
        assert!(decode(block) == bytes, "{} bytes", bytes.len());
        let mut out = Vec::new();
        crate::compression::lz4::decompress(block, bytes.len(), &mut out).unwrap();
        assert!(out == bytes);
        block.len()
    }

    #[test]
    fn blocks_of_every_length_hold_what_they_were_given() {
        let mut draw = drawing(1);
        let mut encoder = Encoder::new();
        for length in (0..300).chain([4096, 16_384, 65_534, 65_535, BLOCK_BYTES_MAX]) {
            for _ in 0..4 {
                let bytes = sample(length, &mut draw);
                check(&mut encoder, &bytes);
            }
            check(&mut encoder, &vec![7; length]);
        }
    }

    #[test]
    fn what_earlier_blocks_held_is_not_referred_to() {
        // More blocks than slots can name; each equals the one before, or is a part of it.
        let mut draw = drawing(2);
        let mut encoder = Encoder::new();
        let mut sizes = Vec::new();
        for n in 0..3 * BLOCKS_MAX as usize {
            let bytes = sample(2000, &mut drawing(3 + n as u64 / 2));
            encoder.had_noise = false;
            sizes.push(check(&mut encoder, &bytes));
            check(&mut encoder, &bytes[draw(100)..]);
        }
        let again = check(&mut Encoder::new(), &sample(2000, &mut drawing(3)));
        assert!(sizes[0] == again && sizes[1] == again, "the same block has the same size");
    }

    #[test]
    fn noise_takes_hardly_more_bytes_and_text_less_than_the_reference_implementation_needs() {
        let (rows, text) = rows_and_text();
        let limits = [REFERENCE_ROWS + REFERENCE_ROWS / 800, REFERENCE_TEXT * 97 / 100];
        for (bytes, limit, is_noise) in [(rows, limits[0], true), (text, limits[1], false)] {
            let mut encoder = Encoder::new();
            for _ in 0..3 {
                let size = check(&mut encoder, &bytes);
                assert!(size <= limit, "{size} bytes, limit {limit}");
                assert_eq!(encoder.had_noise, is_noise);
            }
        }
    }

    #[test]
    fn what_repeats_between_the_matches_of_a_rhythm_is_found() {
        // Rows of a head and two values of noise, between which there is, from some row on, a value that repeats.
        let value = b"a value that is repeated  ";
        for noise in [[40, 140], [140, 40], [120, 120]] {
            for from in [0, 30] {
                let (mut draw, mut rows, mut repeats) = (drawing(5), Vec::new(), 0);
                for row in 0..70 {
                    rows.extend_from_slice(b"\x01\0\x08\0\0\0\0\0");
                    (0..noise[0]).for_each(|_| rows.push(draw(256) as u8));
                    if row >= from {
                        rows.extend_from_slice(value);
                        repeats += 1;
                    }
                    (0..noise[1]).for_each(|_| rows.push(draw(256) as u8));
                }
                let mut encoder = Encoder::new();
                let sizes = [0; 3].map(|_| check(&mut encoder, &rows));
                assert!(encoder.had_noise);
                // Each match takes some five bytes; a few rows pass until the encoder notices that
                // the rhythm ended.
                let least = rows.len() - repeats * value.len() - 70 * 8;
                let limit = least + (70 + repeats) * 5 + 12 * value.len();
                assert!(sizes[2] <= limit, "{sizes:?}, {limit}: {noise:?} from {from}");
            }
        }
    }

    #[test]
    fn the_noise_of_rows_in_a_rhythm_is_not_looked_at() {
        let (mut draw, mut rows) = (drawing(6), Vec::new());
        for row in 0..70 {
            rows.extend_from_slice(b"\x01\0\x08\0\0\0\0\0");
            (0..180 + usize::from(row % 9 == 0)).for_each(|_| rows.push(draw(256) as u8));
        }
        let mut encoder = Encoder::new();
        check(&mut encoder, &rows);
        check(&mut encoder, &rows);
        let noted = encoder.slots.iter().filter(|slot| **slot & 0xff == encoder.block).count();
        assert!(noted < 70 * 26, "{noted} places");
    }

    #[test]
    fn short_rows_of_numbers_take_no_more_bytes_than_the_reference_implementation_needs() {
        let (mut draw, mut rows) = (drawing(7), Vec::new());
        for n in 0..350u64 {
            rows.extend_from_slice(&[0x24, 0]);
            rows.extend_from_slice(&(0x018b_cfe9_0000u64 - n * 1000).to_be_bytes());
            rows.extend_from_slice(&[0x20, 0x2b, 0xe8]);
            rows.extend_from_slice(&(0x00ce_da37 - n as u32 * 30_000).to_be_bytes()[1..]);
            rows.extend_from_slice(&[8, 16]);
            (0..16).for_each(|_| rows.push(draw(256) as u8));
            rows.push(8);
            rows.extend_from_slice(&1.5f64.to_be_bytes());
        }
        let mut encoder = Encoder::new();
        for _ in 0..3 {
            let size = check(&mut encoder, &rows);
            assert!(size <= REFERENCE_SERIES, "{size} bytes");
        }
        assert!(encoder.by_four && !encoder.had_noise);
        // Text is better off with five, and is compared again.
        let (_, text) = rows_and_text();
        let sizes = [0; BLOCKS_COMPARED as usize + 1].map(|_| check(&mut encoder, &text));
        assert!(!encoder.by_four && sizes[0] > sizes[BLOCKS_COMPARED as usize]);
    }

    // Sizes that lz4-java 1.10.1, Cassandra 5.0.9's, produces.
    const REFERENCE_SERIES: usize = 10_179;
    const REFERENCE_ROWS: usize = 14_217;
    const REFERENCE_TEXT: usize = 6_536;
}
