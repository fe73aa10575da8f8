use super::*;

fn key(byte: u8) -> DataKey {
    DataKey::new([byte; 32])
}

fn content(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i * 7 % 251) as u8).collect()
}

const SALT: Salt = [9; SALT_BYTES];

fn sealed(length: usize) -> Vec<u8> {
    seal_whole(&key(1), "Data.db", SALT, &content(length))
}

/// Opens a part of a file as a reader does.
fn part(file: &[u8], offset: u64, length: usize) -> Result<Vec<u8>> {
    let physical = file.len() as u64;
    let (from, bytes) = Opener::end_span(physical);
    let mut end = file[from as usize..][..bytes].to_vec();
    let opener = Opener::of_end(&key(1), "Data.db", physical, &mut end)?;
    let Some(span) = opener.span(offset, length) else { return Ok(Vec::new()) };
    let mut bytes = file[span.offset as usize..][..span.length].to_vec();
    opener.open(span, &mut bytes)?;
    bytes.truncate(span.plain);
    Ok(bytes)
}

const LENGTHS: [usize; 9] =
    [0, 1, 100, PAYLOAD_BYTES - 1, PAYLOAD_BYTES, PAYLOAD_BYTES + 1, 8151, 8152, 20_000];

#[test]
fn files_of_all_lengths_come_back_whole_and_in_parts() {
    for length in LENGTHS {
        let (plain, file) = (content(length), sealed(length));
        assert_eq!(file.len() as u64, physical_length(length as u64));
        assert!(is_sealed(&file));
        assert_eq!(open_whole(&key(1), "Data.db", file.clone()), Ok(plain.clone()));
        for offset in [0, 1, 4075, 4076, 4077, 8000, length.saturating_sub(1), length] {
            for wanted in [0, 1, 100, 4076, 5000, 1 << 20] {
                let expected = plain.get(offset..).unwrap_or(&[]);
                let expected = &expected[..wanted.min(expected.len())];
                let found = part(&file, offset as u64, wanted).unwrap();
                assert_eq!(found, expected, "{length}: {wanted} at {offset}");
            }
        }
    }
}

#[test]
fn pieces_of_any_size_are_sealed_like_the_whole() {
    let plain = content(20_000);
    for size in [1, 977, 4076, 4096] {
        let mut sealer = Sealer::new(&key(1), "Data.db", SALT);
        let mut out = Vec::new();
        plain.chunks(size).for_each(|piece| sealer.put(piece, &mut out));
        assert_eq!(out.len() % BLOCK_BYTES, 0, "only whole blocks before the end");
        sealer.finish(&mut out);
        assert_eq!(out, sealed(20_000));
    }
}

#[test]
fn every_flipped_byte_and_every_cut_is_found_with_the_key_and_without() {
    for length in [0, 5, PAYLOAD_BYTES, 9000] {
        let file = sealed(length);
        let unkeyed = |file: &[u8]| {
            let at = file.len().checked_sub(TRAILER_BYTES);
            let trailer = at.and_then(|at| file.get(at..)).unwrap_or(&[]);
            let check = UnkeyedCheck::new(file.len() as u64, trailer)?;
            let end = check.blocks_end() as usize;
            check.check(0, &mut file[..end].to_vec())
        };
        assert_eq!(unkeyed(&file), Ok(()));
        for at in 0..file.len() {
            let mut bad = file.clone();
            bad[at] ^= 0x40;
            let opened = open_whole(&key(1), "Data.db", bad.clone());
            assert!(opened.is_err(), "INV-at-rest-1: {length}: flip at {at}");
            assert!(unkeyed(&bad).is_err(), "{length}: flip at {at}");
        }
        for end in (0..file.len()).step_by(if length > 100 { 61 } else { 1 }) {
            assert!(open_whole(&key(1), "Data.db", file[..end].to_vec()).is_err());
            assert!(unkeyed(&file[..end]).is_err(), "{length}: cut at {end}");
        }
    }
}

/// Writes the checksums again, as an attacker can who knows the format and no key.
fn reseal(file: &mut [u8]) {
    let trailer_at = file.len() - TRAILER_BYTES;
    let crc_at = file.len() - CRC_BYTES;
    let crc = codec::crc32(&file[trailer_at..crc_at]).to_le_bytes();
    file[crc_at..].copy_from_slice(&crc);
    let trailer = Trailer::decode(&file[trailer_at..], file.len() as u64).unwrap();
    let crc = BlockCrc::new(&trailer.salt);
    for (number, block) in (0..).zip(file[..trailer_at].chunks_mut(BLOCK_BYTES)) {
        let (body, stored) = block.split_at_mut(block.len() - CRC_BYTES);
        stored.copy_from_slice(&crc.of(trailer.position(number), body));
    }
}

#[test]
fn moved_replayed_and_foreign_blocks_are_found_although_the_checksums_fit() {
    let length = PAYLOAD_BYTES * 4;
    let file = sealed(length);
    let blocks = |file: &mut Vec<u8>, to: usize, from: &[u8]| {
        file[to * BLOCK_BYTES..][..BLOCK_BYTES].copy_from_slice(from);
    };
    let block = |file: &[u8], number: usize| file[number * BLOCK_BYTES..][..BLOCK_BYTES].to_vec();
    let mut cases = Vec::new();
    // Two blocks change places.
    let mut bad = file.clone();
    blocks(&mut bad, 0, &block(&file, 1));
    blocks(&mut bad, 1, &block(&file, 0));
    cases.push(("swapped", bad));
    // A block of an earlier writing, of another component, of another file set.
    for (what, other) in [
        ("replayed", seal_whole(&key(1), "Data.db", [8; SALT_BYTES], &content(length))),
        ("of another component", seal_whole(&key(1), "Index.db", SALT, &content(length))),
        ("of another set", seal_whole(&key(2), "Data.db", SALT, &content(length))),
    ] {
        let mut bad = file.clone();
        blocks(&mut bad, 1, &block(&other, 1));
        cases.push((what, bad));
        cases.push((what, other));
    }
    // Cut at a block's end, and extended, with a trailer that says so.
    for (what, plain) in [("cut", PAYLOAD_BYTES * 3), ("extended", PAYLOAD_BYTES * 5)] {
        let mut bad = file[..file.len() - TRAILER_BYTES].to_vec();
        bad.resize(physical_length(plain as u64) as usize - TRAILER_BYTES, 0);
        if what == "extended" {
            blocks(&mut bad, 4, &block(&file, 3));
        }
        let mut trailer = file[file.len() - TRAILER_BYTES..].to_vec();
        trailer[32..40].copy_from_slice(&(plain as u64).to_le_bytes());
        bad.extend_from_slice(&trailer);
        cases.push((what, bad));
    }
    for (what, mut bad) in cases {
        if what != "of another component" && what != "replayed" && what != "of another set" {
            reseal(&mut bad);
        }
        let is_same_name = what == "replayed" && bad[bad.len() - 20] == 8;
        if is_same_name {
            // A whole earlier file opens: which writing is the newest is not known to its bytes.
            continue;
        }
        assert!(open_whole(&key(1), "Data.db", bad).is_err(), "INV-at-rest-1: {what}");
    }
}

#[test]
fn one_flipped_ciphertext_byte_with_a_fitting_checksum_is_found() {
    let mut bad = sealed(9000);
    bad[100] ^= 1;
    reseal(&mut bad);
    let error = open_whole(&key(1), "Data.db", bad.clone()).unwrap_err();
    assert!(error.to_string().contains("was changed, moved"), "{error}");
    assert_eq!((error.offset(), error.is_damage()), (0, true));
    // Other blocks open.
    assert_eq!(part(&bad, 5000, 10), Ok(content(9000)[5000..5010].to_vec()));
}

#[test]
fn the_bytes_on_disk_are_as_documented() {
    let file = seal_whole(&key(1), "Data.db", SALT, b"helenus");
    let hex: String = file.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, GOLDEN);
    assert_eq!(open_whole(&key(1), "Data.db", file), Ok(b"helenus".to_vec()));
}

const GOLDEN: &str = concat!(
    "0446254debec6a",                   // "helenus", encrypted
    "3574d0db797afbb3fa972a20a4ad558b", // tag
    "63786661",                         // checksum of the block
    "484c4e5345414c44",                 // magic
    "010000000010000009090909090909090909090909090909",
    "0700000000000000", // plain length
    "13b5ee8a",         // checksum of the trailer
);
