//! Fuzz targets: bytes from peers.

use crate::wire::{ChunkRequest, FetchAnswer, FetchRequest, OpenAnswer, OpenRequest};

/// Any bytes are refused, or mean a request that is read the same when it is written again.
pub fn fuzz_stream_request(data: &[u8]) {
    if let Ok(answer) = FetchAnswer::decode(data) {
        let mut again = Vec::new();
        answer.encode(&mut again);
        stdx::invariant!(again == data, "a stream answer is written otherwise again");
    }
    if let Ok(open) = OpenRequest::decode(data) {
        let mut again = Vec::new();
        open.encode(&mut again);
        stdx::invariant!(OpenRequest::decode(&again) == Ok(open), "read otherwise again");
    }
    if let Ok(answer) = OpenAnswer::decode(data) {
        let mut again = Vec::new();
        answer.encode(&mut again);
        stdx::invariant!(OpenAnswer::decode(&again) == Ok(answer), "read otherwise again");
    }
    if let Ok(chunk) = ChunkRequest::decode(data) {
        let mut again = Vec::new();
        chunk.encode(&mut again);
        stdx::invariant!(ChunkRequest::decode(&again) == Ok(chunk), "read otherwise again");
    }
    let Ok(request) = FetchRequest::decode(data) else { return };
    drop(request.key_ranges());
    let mut again = Vec::new();
    request.encode(&mut again);
    let decoded = FetchRequest::decode(&again);
    stdx::invariant!(decoded.as_ref() == Ok(&request), "a stream request is read otherwise again");
}
