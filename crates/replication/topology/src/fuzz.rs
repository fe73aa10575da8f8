//! Decoders of this crate as plain functions over any bytes; they must never panic.

use crate::identity::Identity;
use crate::orders::{put_order, read_order};

/// `metadata/identity`. What is read is written the same way.
pub fn fuzz_identity(data: &[u8]) {
    if let Ok(identity) = Identity::decode_file(data) {
        assert_eq!(Identity::decode_file(&identity.encode_file()), Ok(identity));
    }
}

/// The payload of `TakeOver`.
pub fn fuzz_take_over(data: &[u8]) {
    if let Ok(order) = read_order(data) {
        let mut again = Vec::new();
        put_order(&order, &mut again);
        assert_eq!(again, data);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::orders::{Order, What};
    use stdx::{Epoch, HostId, Uuid};
    use testkit::Mutations;

    #[test]
    fn no_mutation_of_an_identity_or_an_order_panics() {
        let host_id = HostId(Uuid::from_u128(0x1234));
        let identity = Identity { host_id, cluster_id: Some(Uuid::from_u128(7)) }.encode_file();
        testkit::mutate([&identity], fuzz_identity);
        // With a checksum that fits, so that the lines before it are parsed, in both forms.
        let form = codec::SmallForm { kind: "identity", version: 2 };
        let body = form.decode(&identity).unwrap();
        Mutations::of([body]).run(|bytes| fuzz_identity(&form.encode(bytes)));
        Mutations::of([body]).run(|bytes| {
            let old = [&b"helenus identity 1\n"[..], bytes].concat();
            let check = format!("check {:08x}\n", codec::crc32(&old));
            fuzz_identity(&[&old, check.as_bytes()].concat());
        });
        for what in [What::Member(host_id), What::Keyspace("ks".to_owned())] {
            let order = Order { what, epoch: Epoch(9) };
            let mut bytes = Vec::new();
            put_order(&order, &mut bytes);
            assert_eq!(read_order(&bytes), Ok(order));
            assert!(read_order(&bytes[1..]).is_err());
            testkit::mutate([&bytes], fuzz_take_over);
        }
    }
}
