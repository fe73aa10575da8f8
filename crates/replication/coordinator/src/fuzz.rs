//! Fuzz targets: bytes from peers.

use crate::replicated::batch::batch_wire::{BatchRemove, BatchStore, encode_store};

/// Any bytes are refused, or mean a message that is read the same when it is written again.
pub fn fuzz_batch_message(data: &[u8]) {
    if let Ok(store) = BatchStore::decode(data) {
        let mut again = Vec::new();
        encode_store(&mut again, store.id, store.written_at, store.mutations.iter().copied());
        let decoded = BatchStore::decode(&again);
        stdx::invariant!(decoded.as_ref() == Ok(&store), "a batch is read otherwise again");
    }
    if let Ok(remove) = BatchRemove::decode(data) {
        let mut again = Vec::new();
        remove.encode(&mut again);
        stdx::invariant!(BatchRemove::decode(&again) == Ok(remove), "read otherwise again");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stdx::{TimestampMicros, Uuid};

    #[test]
    fn damaged_messages_are_refused_or_mean_something() {
        let (id, at) = (Uuid::from_u128(9), TimestampMicros(7));
        let mut store = Vec::new();
        let mutations: [&[u8]; 3] = [b"one", b"", b"three"];
        encode_store(&mut store, id, at, mutations.into_iter());
        let mut remove = Vec::new();
        BatchRemove { id, written_at: at }.encode(&mut remove);
        for message in [store, remove] {
            fuzz_batch_message(&message);
            for cut in 0..message.len() {
                fuzz_batch_message(&message[..cut]);
            }
            for bit in 0..message.len() * 8 {
                let mut damaged = message.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                fuzz_batch_message(&damaged);
            }
        }
    }
}
