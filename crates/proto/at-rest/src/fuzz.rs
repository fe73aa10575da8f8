//! Fuzz targets: plain functions over bytes that must never panic.

use stdx::invariant;

use crate::block::{TRAILER_BYTES, UnkeyedCheck, open_whole, seal_whole};
use crate::key_file::parse_keys;
use crate::record::KeyRecord;
use crate::secret::DataKey;
use crate::small::{open_small, record_of_small};

/// A sealed file as it is stored; and any bytes come back from their sealed form.
pub fn fuzz_sealed_file(data: &[u8]) {
    let key = DataKey::new([3; 32]);
    drop(open_whole(&key, "fuzz", data.to_vec()));
    let trailer = data.len().checked_sub(TRAILER_BYTES).and_then(|at| data.get(at..));
    if let Some(trailer) = trailer
        && let Ok(check) = UnkeyedCheck::new(data.len() as u64, trailer)
    {
        drop(check.check(0, &mut data.to_vec()));
    }
    let sealed = seal_whole(&key, "fuzz", [7; 16], data);
    let opened = open_whole(&key, "fuzz", sealed);
    invariant!(opened.as_deref() == Ok(data), "sealed bytes come back");
}

/// The record of a data key.
pub fn fuzz_key_record(data: &[u8]) {
    if let Ok(record) = KeyRecord::decode(data) {
        invariant!(KeyRecord::decode(&record.encode()) == Ok(record), "a record comes back");
    }
}

/// A key file.
pub fn fuzz_key_file(data: &[u8]) {
    drop(parse_keys(&String::from_utf8_lossy(data)));
}

/// A small sealed file.
pub fn fuzz_sealed_small(data: &[u8]) {
    drop(record_of_small(data));
    drop(open_small(&DataKey::new([3; 32]), "fuzz", data));
}

#[cfg(test)]
mod tests {
    use testkit::mutate;

    use super::*;
    use crate::key_file::generated_line;
    use crate::small::seal_small;

    #[test]
    fn mutated_files_records_and_key_files_are_refused_or_read() {
        let key = DataKey::new([3; 32]);
        let sealed = |length| seal_whole(&key, "fuzz", [7; 16], &vec![1; length]);
        mutate(&[sealed(0), sealed(10), sealed(5000)], fuzz_sealed_file);
        let line = generated_line("a", [1; 32]).unwrap();
        let ring = parse_keys(&line).unwrap().ring;
        let fill = |out: &mut [u8]| out.fill(2);
        let (key, record) = ring.new_data_key(&mut { fill }).unwrap();
        mutate(&[record.encode()], fuzz_key_record);
        let small = seal_small(&key, &record, "fuzz", b"x", &mut { fill }).unwrap();
        mutate(&[small], fuzz_sealed_small);
        let scylla = "AES/CBC/PKCS5Padding:128:AAAAAAAAAAAAAAAAAAAAAA==";
        mutate(&[format!("none\n# x\n{line}\n{scylla}\n")], fuzz_key_file);
    }
}
