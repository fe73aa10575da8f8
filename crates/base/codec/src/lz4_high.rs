//! A slow encoder of LZ4 blocks with small output: the `high` compressor of `LZ4Compressor`.
//!
//! It works on segments of a block. For each segment it finds the longest match at every position. Then, from the end
//! of the segment to its beginning, it finds the cheapest encoding of the bytes from each position on. All matches
//! cost the same however far back they reach, so the longest match at a position stands for all shorter ones there. A
//! higher level compares more positions.
//!
//! The choice of positions to compare makes it quick, and lower levels good. A match that is longer than the best one
//! so far contains all bytes of that one, and the byte after them. So it is in the chain of each four of these bytes,
//! and the chain that leads the farthest back skips most positions with other bytes. For a long match only the chains
//! at its end are followed, and the one followed before: in runs of one value the others lead only to the preceding
//! position, and the one followed before contains the end of a run.
//!
//! The work of a block is bounded, whatever its bytes are. Each byte pays for a fixed number of positions, and
//! savings are spent later in the block. Without credit a position takes the match of the one before.
//!
//! Memory is reused from block to block: some 300 KiB for chunks of 16 KiB, 900 KiB at most.
//! Source: `lz4_Block_format.md` of LZ4; sizes are compared with those of `lz4hc.c` of LZ4 1.10.

use crate::lz4_encode::{
    LAST_LITERALS, LAST_MATCH, MATCH_BYTES_MIN, count_equal, four_at, put_length, put_literals,
};

const HASH_BITS: u32 = 15;
const SLOTS: usize = 1 << HASH_BITS;
/// Bytes of a block that are parsed together. No match goes over the end of such a stretch.
const STRETCH_BYTES: usize = 1 << 16;
/// Places that are known: a stretch, and as many before it as a match can reach back.
const PLACES: usize = 2 * STRETCH_BYTES;
/// How far back a match reaches.
const DISTANCE_MAX: usize = 0xffff;
/// Length of a match, or of a run of literals, that fills its half of the token.
const HALF_FULL: usize = 15;
/// Longest match whose length is in the token alone.
const SHORT_MATCH: usize = MATCH_BYTES_MIN + HALF_FULL - 1;
/// Longest match whose length takes one byte more.
const MEDIUM_MATCH: usize = SHORT_MATCH + 255;
/// Bytes that a match takes beside those of a longer length: token and offset.
const MATCH_COST: u32 = 3;
/// A match of this many bytes is long enough: the search ends.
const ENOUGH: usize = 4096;
/// Chains of one match among which the one that leads the farthest is followed.
const CHAINS_MAX: usize = 16;
/// Positions that may be compared for each byte of a block, so that a shard is not blocked for
/// long. Text and rows take some ten at all levels, the bases of a genome 45. Bytes that are 0 or 1
/// by chance took 700 without this bound, and tens of thousands where the 1 is rare.
const PLACES_PER_BYTE: i64 = 128;
/// Bytes of a match that are compared in the time of one place.
const BYTES_PER_PLACE: usize = 16;

/// Earlier positions that are compared with one position. Levels are lz4-java's, 1 to 17; those
/// from 12 on are the same. With these numbers all levels make blocks as small as liblz4's or
/// smaller, of rows, text and programs.
fn attempts(level: u8) -> u32 {
    match level {
        0..=3 => 16,
        4 => 32,
        5 => 64,
        6 => 96,
        7 => 128,
        8 => 192,
        9 => 256,
        10 => 512,
        11 => 2048,
        _ => 1 << 12,
    }
}

/// The output at a position: a match, or, with fewer than four bytes, a literal.
#[derive(Clone, Copy, Default)]
struct Step {
    length: u16,
    distance: u16,
}

/// The longest match of a position: its bytes and how far back it is.
#[derive(Clone, Copy)]
struct Match {
    length: usize,
    distance: usize,
    /// Where in the block the four bytes are whose chain was followed last, within the match or before it.
    followed: usize,
}

/// One byte short of a match.
const NONE: Match = Match { length: MATCH_BYTES_MIN - 1, distance: 0, followed: 0 };

/// Offset, from its start, of the last four bytes of a match that is longer by one.
fn last_four(length: usize) -> usize {
    length.wrapping_sub(MATCH_BYTES_MIN - 1)
}

/// See the module's text.
pub(crate) struct HighEncoder {
    attempts: u32,
    /// Positions that may be compared now; below zero when the last match was longer than the
    /// remaining credit.
    credit: i64,
    /// By the hash of four bytes one more than the last place of the block that has them; 0: none has.
    heads: Box<[u32; SLOTS]>,
    /// Distance, by position, to the previous one with the same hash, for the positions known so
    /// far; 0: none near.
    distances: Vec<u16>,
    /// Output at each position of the stretch.
    steps: Vec<Step>,
    /// Bytes that each position of the stretch and everything after it take.
    costs: Vec<u32>,
    /// Positions that were compared, counted where it is done.
    #[cfg(test)]
    looked: std::cell::Cell<u64>,
}

impl HighEncoder {
    /// `level`: 1 to 17, others as the nearest one.
    pub(crate) fn new(level: u8) -> HighEncoder {
        HighEncoder {
            attempts: attempts(level),
            credit: 0,
            heads: Box::new([0; SLOTS]),
            distances: Vec::new(),
            steps: Vec::new(),
            costs: Vec::new(),
            #[cfg(test)]
            looked: std::cell::Cell::new(0),
        }
    }

    /// Appends the block of `bytes`, which are at most LZ4's 0x7e000000.
    pub(crate) fn encode(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        out.reserve(bytes.len().wrapping_add(bytes.len() / 255).wrapping_add(16));
        self.heads.fill(0);
        self.credit = 0;
        let places = bytes.len().min(PLACES).next_power_of_two();
        if self.distances.len() != places {
            self.distances.resize(places, 0);
        }
        let (mut start, mut literals) = (0usize, 0usize);
        while start < bytes.len() {
            let end = start.saturating_add(STRETCH_BYTES).min(bytes.len());
            self.note(bytes, start, end);
            self.find(bytes, start, end);
            self.choose(end.wrapping_sub(start));
            literals = self.put(bytes, start, literals, out);
            start = end;
        }
        put_literals(bytes.get(literals..).unwrap_or(&[]), 0, out);
    }

    /// Notes for the places of a stretch where their four bytes were before.
    fn note(&mut self, bytes: &[u8], start: usize, end: usize) {
        let mask = self.distances.len().wrapping_sub(1);
        // The last three places have no four bytes.
        for at in start..end.min(bytes.len().saturating_sub(MATCH_BYTES_MIN - 1)) {
            let hash = four_at(bytes, at).wrapping_mul(2_654_435_761) >> (32 - HASH_BITS);
            let slot = usize::try_from(hash).unwrap_or(0) & (SLOTS - 1);
            let Some(head) = self.heads.get_mut(slot) else { continue };
            let behind = u32::try_from(at.wrapping_add(1)).unwrap_or(0);
            let before = std::mem::replace(head, behind);
            let distance = if before == 0 { 0 } else { behind.wrapping_sub(before) };
            if let Some(known) = self.distances.get_mut(at & mask) {
                *known = u16::try_from(distance).unwrap_or(0);
            }
        }
    }

    /// How far back the hash of a place was before; 0: nowhere near.
    #[inline(always)]
    fn distance(&self, place: usize) -> usize {
        #[cfg(test)]
        self.looked.update(|looked| looked + 1);
        let mask = self.distances.len().wrapping_sub(1);
        self.distances.get(place & mask).map_or(0, |distance| usize::from(*distance))
    }

    /// Fills the steps of a stretch with the longest match of each place.
    fn find(&mut self, bytes: &[u8], start: usize, end: usize) {
        self.steps.clear();
        self.steps.resize(end.wrapping_sub(start), Step::default());
        // Where matches begin at the latest, and where they end.
        let Some(last) = bytes.len().checked_sub(LAST_MATCH) else { return };
        let limit = end.min(bytes.len().saturating_sub(LAST_LITERALS));
        let mut found = NONE;
        for at in start..end.min(last.wrapping_add(1)) {
            // Behind the first byte of a match there is the rest of it.
            found = match found.length > MATCH_BYTES_MIN {
                true => Match { length: found.length.wrapping_sub(1), ..found },
                false => NONE,
            };
            self.credit = self.credit.saturating_add(PLACES_PER_BYTE);
            found = self.longest(bytes, at, limit, found);
            if found.distance > 0
                && let Some(step) = self.steps.get_mut(at.wrapping_sub(start))
            {
                step.length = u16::try_from(found.length).unwrap_or(u16::MAX);
                step.distance = u16::try_from(found.distance).unwrap_or(0);
            }
        }
    }

    /// The longest match of a place, ending at `limit` at the latest, if there is a longer one than `best`, else that.
    #[inline]
    fn longest(&mut self, bytes: &[u8], at: usize, limit: usize, mut best: Match) -> Match {
        if best.length >= ENOUGH || at.wrapping_add(best.length) >= limit || self.credit <= 0 {
            return best;
        }
        let four = four_at(bytes, at);
        let last = last_four(best.length);
        let followed = best.followed.wrapping_sub(at);
        let Some((_, mut behind)) = self.farthest(at, last, followed) else { return best };
        let mut place = at;
        best.followed = at.wrapping_add(behind);
        for _ in 0..self.attempts {
            if self.credit <= 0 {
                break;
            }
            self.credit = self.credit.wrapping_sub(1);
            let distance = self.distance(place.wrapping_add(behind));
            let Some(earlier) = place.checked_sub(distance).filter(|_| distance > 0) else { break };
            place = earlier;
            if at.wrapping_sub(place) > DISTANCE_MAX {
                break;
            }
            let last = last_four(best.length);
            if four_at(bytes, place.wrapping_add(last)) != four_at(bytes, at.wrapping_add(last))
                || four_at(bytes, place) != four
            {
                continue;
            }
            let length = self.compare(bytes, at, place, limit);
            if length > best.length {
                best = Match { length, distance: at.wrapping_sub(place), ..best };
                if length >= ENOUGH || at.wrapping_add(length) >= limit {
                    break;
                }
                let Some(chain) = self.chain(at, place, best) else { break };
                (place, behind) = chain;
                best.followed = at.wrapping_add(behind);
            }
        }
        best
    }

    /// Counts equal bytes. Charges the credit for this work and for the chains followed afterwards.
    #[inline]
    fn compare(&mut self, bytes: &[u8], at: usize, place: usize, limit: usize) -> usize {
        let length = count_equal(bytes, at, place, limit);
        #[cfg(test)]
        self.looked.update(|looked| looked + (length / BYTES_PER_PLACE) as u64);
        let work = CHAINS_MAX.wrapping_add(2).wrapping_add(length / BYTES_PER_PLACE);
        self.credit = self.credit.wrapping_sub(i64::try_from(work).unwrap_or(i64::MAX));
        length
    }

    /// Returns the chain of the match at `place` that leads the farthest to longer matches: the
    /// position it reaches, and by how far after `place` its bytes are. `None`: no longer match
    /// exists.
    #[inline]
    fn chain(&self, at: usize, place: usize, best: Match) -> Option<(usize, usize)> {
        let last = last_four(best.length);
        let distance = self.distance(at.wrapping_add(last));
        let by_next = at.checked_sub(distance).filter(|_| distance > 0)?;
        let followed = best.followed.wrapping_sub(at);
        let (distance, behind) = self.farthest(place, last.wrapping_sub(1), followed)?;
        match by_next < place.checked_sub(distance)? {
            true => Some((at, last)),
            false => Some((place, behind)),
        }
    }

    /// Compares the chains of the bytes up to `last` after a position: the last few and the
    /// `followed` one. Returns the one that leads the farthest: how far, and by which. `None`: one
    /// of them leads nowhere.
    #[inline]
    fn farthest(&self, place: usize, last: usize, followed: usize) -> Option<(usize, usize)> {
        let mut found = (0, 0);
        for behind in (0..=last).rev().take(CHAINS_MAX) {
            let distance = self.distance(place.wrapping_add(behind));
            if distance == 0 {
                return None;
            }
            if distance > found.0 {
                found = (distance, behind);
            }
        }
        // Else it is one of the last few, or lies before the place.
        if followed.saturating_add(CHAINS_MAX) <= last {
            let distance = self.distance(place.wrapping_add(followed));
            if distance == 0 {
                return None;
            }
            if distance > found.0 {
                found = (distance, followed);
            }
        }
        Some(found)
    }

    /// Shortens the matches of a stretch, or makes literals of them, so that it takes the fewest bytes.
    fn choose(&mut self, length: usize) {
        self.costs.clear();
        self.costs.resize(length.wrapping_add(1), 0);
        // Consecutive literals after a position, and the bytes that the next position takes.
        let (mut literals, mut next) = (0usize, 0u32);
        for at in (0..length).rev() {
            let Some(step) = self.steps.get_mut(at) else { continue };
            literals = literals.wrapping_add(1);
            // One byte, and now and then one more of the run's length.
            let fills =
                literals.checked_sub(HALF_FULL).is_some_and(|more| more.is_multiple_of(255));
            let (mut cost, mut chosen) = (next.wrapping_add(if fills { 2 } else { 1 }), 0);
            let longest = usize::from(step.length);
            let costs = self.costs.get(at..).unwrap_or(&[]);
            let mut consider = |length: usize, more: u32| {
                let behind = costs.get(length).copied().unwrap_or(u32::MAX / 2);
                let with = behind.wrapping_add(MATCH_COST).wrapping_add(more);
                // At the same cost a match, as that keeps runs of literals short, and the longest one.
                if with <= cost {
                    (cost, chosen) = (with, length);
                }
            };
            for length in MATCH_BYTES_MIN..=longest.min(SHORT_MATCH) {
                consider(length, 0);
            }
            // Among lengths that take the same number of bytes the longest is hardly ever the worse
            // one.
            if longest > SHORT_MATCH {
                consider(longest.min(MEDIUM_MATCH), 1);
            }
            if longest > MEDIUM_MATCH {
                let more = longest.wrapping_sub(SHORT_MATCH + 1) / 255;
                consider(longest, u32::try_from(more).unwrap_or(0).wrapping_add(1));
            }
            if chosen > 0 {
                literals = 0;
            }
            step.length = u16::try_from(chosen).unwrap_or(0);
            next = cost;
            if let Some(known) = self.costs.get_mut(at) {
                *known = cost;
            }
        }
    }

    /// Appends the sequences of a stretch: where the literals begin that are left.
    fn put(&self, bytes: &[u8], start: usize, mut literals: usize, out: &mut Vec<u8>) -> usize {
        let mut at = 0usize;
        while let Some(step) = self.steps.get(at) {
            let length = usize::from(step.length);
            let Some(more) = length.checked_sub(MATCH_BYTES_MIN) else {
                at = at.wrapping_add(1);
                continue;
            };
            let begin = start.wrapping_add(at);
            let half = u8::try_from(more.min(HALF_FULL)).unwrap_or(0);
            put_literals(bytes.get(literals..begin).unwrap_or(&[]), half, out);
            out.extend_from_slice(&step.distance.to_le_bytes());
            if let Some(left) = more.checked_sub(HALF_FULL) {
                put_length(left, out);
            }
            at = at.wrapping_add(length);
            literals = begin.wrapping_add(length);
        }
        literals
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lz4_encode::tests::{decode, drawing, rows_and_text, sample};

    fn check(encoder: &mut HighEncoder, bytes: &[u8]) -> usize {
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

    fn noise(length: usize, seed: u64) -> Vec<u8> {
        let mut draw = drawing(seed);
        (0..length).map(|_| draw(256) as u8).collect()
    }

    /// Rows with times, states and measures.
    fn series() -> Vec<u8> {
        let (mut draw, mut rows, mut at) = (drawing(7), Vec::new(), 1_700_000_000_000_u64);
        let words = ["ok", "warn", "offline"];
        while rows.len() < 16_000 {
            at += 1000 + draw(3) as u64 * 250;
            rows.push(4);
            rows.extend_from_slice(&at.to_be_bytes());
            rows.extend_from_slice(&[0x25, 0x80, draw(4) as u8, 8]);
            rows.extend_from_slice(&(200 + draw(64) as u32).to_be_bytes());
            let word = if draw(4) == 0 { words[draw(8).min(2)] } else { words[0] };
            rows.extend_from_slice(&[8, word.len() as u8]);
            rows.extend_from_slice(word.as_bytes());
        }
        rows
    }

    #[test]
    fn blocks_of_every_length_hold_what_they_were_given_at_every_level() {
        let mut draw = drawing(1);
        let long = [4096, 16_384, 65_535, 65_536, 65_537, 131_072, 200_000];
        for level in [1, 3, 9, 10, 12, 17] {
            let mut encoder = HighEncoder::new(level);
            for length in (0..300).chain(long) {
                check(&mut encoder, &sample(length, &mut draw));
                check(&mut encoder, &vec![7; length]);
            }
        }
    }

    #[test]
    fn blocks_are_no_larger_than_those_of_the_reference_implementation() {
        let (rows, text) = rows_and_text();
        // Sizes that liblz4 1.10.0 of lz4-java 1.10.1, Cassandra 5.0.9's, produces at levels 3, 6,
        // 9, 10, 11 and 17.
        let levels = [3, 6, 9, 10, 11, 17];
        for (bytes, sizes) in [
            (rows, [14_207, 14_205, 14_197, 14_197, 14_197, 14_197]),
            (text, [4_255, 3_709, 3_622, 3_378, 3_362, 3_362]),
            (series(), [5_520, 5_320, 5_311, 5_362, 5_311, 5_311]),
        ] {
            for (level, limit) in levels.into_iter().zip(sizes) {
                let size = check(&mut HighEncoder::new(level), &bytes);
                assert!(size <= limit, "{size} bytes, limit {limit}, level {level}");
            }
        }
    }

    /// Runs of at most `zeros_max` zeros, each followed by another byte of `values`.
    fn runs(length: usize, zeros_max: usize, values: usize) -> Vec<u8> {
        let (mut draw, mut bytes) = (drawing(zeros_max as u64), Vec::new());
        while bytes.len() < length {
            let zeros = 1 + draw(zeros_max);
            bytes.resize(bytes.len() + zeros, 0);
            bytes.push(1 + draw(values) as u8);
        }
        bytes.truncate(length);
        bytes
    }

    #[test]
    fn looks_at_a_bounded_number_of_places_whatever_the_bytes_are() {
        let mut draw = drawing(9);
        let mut chance = |of: usize| (0..70_000).map(|_| u8::from(draw(of) == 0)).collect();
        let blocks: [Vec<u8>; 7] = [
            vec![0; 70_000],
            runs(70_000, 60, 255),
            runs(70_000, 2000, 1),
            chance(2),
            chance(100),
            chance(1000),
            noise(70_000, 8),
        ];
        for (number, block) in blocks.iter().enumerate() {
            for (level, length) in
                [(3, 16_384), (9, 16_384), (17, 4096), (17, 16_384), (17, 70_000)]
            {
                let mut encoder = HighEncoder::new(level);
                check(&mut encoder, &block[..length]);
                // Chains are followed at each position before the credit is charged, and the last
                // match may be too long.
                let per_byte = PLACES_PER_BYTE as u64 + CHAINS_MAX as u64 + 1;
                let last = STRETCH_BYTES / BYTES_PER_PLACE + CHAINS_MAX + 2;
                let (looked, limit) =
                    (encoder.looked.get(), per_byte * length as u64 + last as u64);
                assert!(looked <= limit, "{looked} of {limit}: block {number}, level {level}");
            }
        }
    }

    #[test]
    fn runs_take_few_places_and_become_no_larger_than_by_the_reference_implementation() {
        let block = runs(16_384, 60, 255);
        // Level, size from liblz4 1.9.4, positions for each byte.
        for (level, size_max, looked_max) in
            [(3, 2207, 16), (6, 2111, 24), (9, 1997, 30), (12, 1955, 80)]
        {
            let mut encoder = HighEncoder::new(level);
            let size = check(&mut encoder, &block);
            let looked = encoder.looked.get() / block.len() as u64;
            assert!(size <= size_max, "{size} bytes, level {level}");
            assert!(looked <= looked_max, "{looked} places for each byte, level {level}");
        }
    }

    #[test]
    fn higher_levels_find_more() {
        let (_, text) = rows_and_text();
        let sizes = [3, 4, 5, 9].map(|level| check(&mut HighEncoder::new(level), &text));
        assert!(sizes.is_sorted_by(|a, b| a > b), "{sizes:?}");
    }

    #[test]
    fn what_earlier_blocks_held_changes_nothing() {
        let mut kept = HighEncoder::new(3);
        for (seed, length) in (0..40).zip([4000, 70_000, 200, 9000, 140_000].into_iter().cycle()) {
            let bytes = sample(length, &mut drawing(seed));
            let (mut block, mut anew) = (Vec::new(), Vec::new());
            kept.encode(&bytes, &mut block);
            HighEncoder::new(3).encode(&bytes, &mut anew);
            assert!(block == anew, "block {seed}");
        }
    }

    #[test]
    fn matches_reach_back_as_far_as_the_format_can_say_over_stretches_too() {
        let bytes_with = |start: usize, distance: usize| {
            let mut bytes = noise(150_000, 5);
            bytes.copy_within(start..start + 100, start + distance);
            check(&mut HighEncoder::new(9), &bytes)
        };
        let plain = check(&mut HighEncoder::new(9), &noise(150_000, 5));
        // The copy lies in the first stretch, over its end, and in the next.
        for start in [0, 60_000] {
            for (distance, saves) in [(1000, true), (DISTANCE_MAX, true), (DISTANCE_MAX + 1, false)]
            {
                let saved = plain.saturating_sub(bytes_with(start, distance));
                assert_eq!(saved >= 80, saves, "{saved} bytes from {start} to {distance} behind");
            }
        }
    }

    #[test]
    fn the_longest_match_is_found_behind_nearer_ones_in_few_attempts() {
        // A phrase, its beginning many times, a part of it, and the whole phrase again.
        let phrase = noise(60, 6);
        let mut bytes = phrase.clone();
        for length in [4; 50].into_iter().chain([12, phrase.len()]) {
            let between = noise(20, bytes.len() as u64);
            bytes.extend_from_slice(&between);
            bytes.extend_from_slice(&phrase[..length]);
        }
        let at = bytes.len() - phrase.len();
        bytes.extend_from_slice(&noise(20, 7));
        let mut encoder = HighEncoder::new(17);
        check(&mut encoder, &bytes);
        // The part, and from there the phrase, by bytes that its beginnings do not have.
        for (attempts, length) in [(1, 12), (2, phrase.len()), (100, phrase.len())] {
            encoder.attempts = attempts;
            let found = encoder.longest(&bytes, at, bytes.len() - LAST_LITERALS, NONE);
            assert_eq!(found.length, length, "{attempts} attempts");
            assert!(length < phrase.len() || found.distance == at);
        }
    }

    #[test]
    fn levels_above_twelve_are_the_same_and_lower_ones_try_less() {
        assert_eq!(attempts(12), attempts(17));
        let all: Vec<u32> = (3..=12).map(attempts).collect();
        assert!(all.is_sorted_by(|a, b| a < b), "{all:?}");
    }
}
