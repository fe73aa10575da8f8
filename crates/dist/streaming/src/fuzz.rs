//! Fuzz targets: bytes from peers.

use crate::wire::{FetchAnswer, FetchRequest};

/// Any bytes are refused, or mean a request that is read the same when it is written again.
pub fn fuzz_stream_request(data: &[u8]) {
    if let Ok(answer) = FetchAnswer::decode(data) {
        let mut again = Vec::new();
        answer.encode(&mut again);
        stdx::invariant!(again == data, "a stream answer is written otherwise again");
    }
    let Ok(request) = FetchRequest::decode(data) else { return };
    drop(request.key_ranges());
    let mut again = Vec::new();
    request.encode(&mut again);
    let decoded = FetchRequest::decode(&again);
    stdx::invariant!(decoded.as_ref() == Ok(&request), "a stream request is read otherwise again");
}
