//! The bytes of requests and answers.

use data::command::RingBound;
use stdx::ShardId;

use super::*;
use store::Component;

use crate::wire::{
    ChunkRequest, FetchAnswer, FetchRequest, FileOffer, OPEN_VERSION, OpenAnswer, OpenRequest,
    Position,
};

fn requests() -> Vec<FetchRequest> {
    let plain = FetchRequest {
        table: TABLE,
        plan: Uuid::from_u128(7),
        operation: "Bootstrap".to_owned(),
        bytes: 1 << 20,
        peer_shards: 4,
        slice: None,
        hold: None,
        position: None,
        ranges: vec![(Token::MIN, Token(-5)), (Token(-5), Token(9)), (Token(20), Token::MAX)],
    };
    let clustering = ClusteringBuf::from_components([b"abcd".as_slice()]).0;
    let after = Position { key: key(3), clustering: None };
    let inside = Position { key: key(3), clustering: Some(clustering) };
    vec![
        FetchRequest { slice: Some((ShardId(2), 3)), ..plain.clone() },
        FetchRequest { hold: Some(77), ..plain.clone() },
        FetchRequest { position: Some(after), ..plain.clone() },
        FetchRequest { position: Some(inside), ranges: vec![], ..plain.clone() },
        plain,
    ]
}

#[test]
fn a_request_is_read_as_it_was_written_and_nothing_else_is() {
    for request in requests() {
        let mut bytes = Vec::new();
        request.encode(&mut bytes);
        assert_eq!(FetchRequest::decode(&bytes), Ok(request));
        for cut in 0..bytes.len() {
            assert!(FetchRequest::decode(&bytes[..cut]).is_err(), "cut at {cut}");
        }
        bytes.push(0);
        assert!(FetchRequest::decode(&bytes).is_err());
    }
}

#[test]
fn what_no_node_asks_is_refused() {
    let plain = requests().pop().unwrap();
    let refused = |request: FetchRequest| {
        let mut bytes = Vec::new();
        request.encode(&mut bytes);
        assert!(FetchRequest::decode(&bytes).is_err(), "{request:?}");
    };
    let ranges = |pairs: &[(i64, i64)]| pairs.iter().map(|(a, b)| (Token(*a), Token(*b))).collect();
    refused(FetchRequest { ranges: ranges(&[(5, 5)]), ..plain.clone() });
    refused(FetchRequest { ranges: ranges(&[(5, 4)]), ..plain.clone() });
    refused(FetchRequest { ranges: ranges(&[(5, 9), (8, 10)]), ..plain.clone() });
    refused(FetchRequest { ranges: ranges(&[(5, 9), (1, 2)]), ..plain.clone() });
    refused(FetchRequest { slice: Some((ShardId(3), 3)), ..plain.clone() });
    refused(FetchRequest { operation: "x".repeat(65), ..plain.clone() });
    let position = Position { key: key(1), clustering: Some(vec![200]) };
    refused(FetchRequest { position: Some(position), ..plain.clone() });
    let mut bytes = Vec::new();
    plain.encode(&mut bytes);
    for (at, value) in [(0, 2), (1, 16), (1, 4)] {
        let mut bytes = bytes.clone();
        bytes[at] = value;
        assert!(FetchRequest::decode(&bytes).is_err());
    }
}

#[test]
fn an_answer_is_read_as_it_was_written() {
    let answer = FetchAnswer { shards: 3, page: b"page" };
    let mut bytes = Vec::new();
    answer.encode(&mut bytes);
    assert_eq!(FetchAnswer::decode(&bytes), Ok(answer));
    for bad in [&bytes[..2], &[1, 0, 0], &[2, 0, 3]] {
        assert!(FetchAnswer::decode(bad).is_err());
    }
}

#[test]
fn ranges_begin_behind_the_position() {
    let token = codec::token_of(&key(3));
    let (below, above) = (Token(token.0 - 10), Token(token.0 + 10));
    let ranges = vec![(Token::MIN, Token(token.0 - 20)), (below, above), (above, Token::MAX)];
    let plain = FetchRequest { ranges, ..requests().pop().unwrap() };
    let bound = |token, after| RingBound::Token { token, after };
    let whole = plain.key_ranges();
    assert_eq!(whole[0].start, bound(Token::MIN, false));
    assert_eq!(whole[1], KeyRange { start: bound(below, true), end: bound(above, true) });
    for (clustering, after) in [(None, true), (Some(vec![]), false)] {
        let position = Some(Position { key: key(3), clustering });
        let left = FetchRequest { position, ..plain.clone() }.key_ranges();
        assert_eq!(left.len(), 2);
        assert_eq!(left[0].start, RingBound::Key { token, key: key(3), after });
        assert_eq!((&left[0].end, &left[1]), (&whole[1].end, &whole[2]));
    }
}

/// The bytes of docs/formats/internode.md: a change here is a new version.
#[test]
fn the_encoding_is_the_documented_one() {
    let hex = |request: &FetchRequest| -> String {
        let mut bytes = Vec::new();
        request.encode(&mut bytes);
        bytes.iter().map(|b| format!("{b:02x}")).collect()
    };
    let all: Vec<String> = requests().iter().map(hex).collect();
    assert_eq!(all.join("\n"), include_str!("golden_request_v1.txt").trim());
}

/// Questions and answers about whole files, with the versions of files and without, as builds before
/// them ask.
#[test]
fn offers_name_the_versions_of_files_unless_they_are_asked_for_without() {
    use store::{AttachedTaken, TakenForms, Version};
    let FetchRequest { table, plan, operation, ranges, .. } = requests().remove(0);
    let hex = |bytes: &[u8]| -> String { bytes.iter().map(|b| format!("{b:02x}")).collect() };
    let versions = vec![Version::Me, Version::Da];
    let taken = |versions| TakenForms { versions, attached: AttachedTaken::No };
    for (version, asked) in [(1, vec![Version::Nb]), (2, versions)] {
        let open = OpenRequest {
            table,
            plan,
            operation: operation.clone(),
            peer_shards: 2,
            ranges: ranges.clone(),
            taken: taken(asked),
            version,
        };
        let mut bytes = Vec::new();
        open.encode(&mut bytes);
        assert_eq!(OpenRequest::decode(&bytes).as_ref(), Ok(&open));
        if version == 2 {
            assert!(hex(&bytes).ends_with("026d656461"), "{}", hex(&bytes));
            // A version that comes one day is not one that is taken.
            let at = bytes.len() - 2;
            bytes[at..].copy_from_slice(b"zz");
            let open = OpenRequest { taken: taken(vec![Version::Me]), ..open };
            assert_eq!(OpenRequest::decode(&bytes), Ok(open));
        }
        let file = |generation, of| FileOffer {
            generation: stdx::Generation(generation),
            version: of,
            components: vec![(Component::Data, 300), (Component::Toc, 5)],
        };
        let of = if version == 1 { Version::Nb } else { Version::Da };
        let answer = OpenAnswer { shards: 2, hold: 9, files: vec![file(4, of)], version };
        let mut bytes = Vec::new();
        answer.encode(&mut bytes);
        let letters = if version == 1 { "" } else { "6461" };
        let expect = format!("0{version}0002000000000000000901{:016x}{letters}0200812c0b05", 4);
        assert_eq!(hex(&bytes), expect);
        assert_eq!(OpenAnswer::decode(&bytes), Ok(answer));
    }
    let mut unknown = Vec::new();
    let none = OpenAnswer { shards: 2, hold: 9, files: vec![], version: 3 };
    none.encode(&mut unknown);
    assert!(OpenAnswer::decode(&unknown).is_err());
}

/// Attached components go by name, to those alone that say that they take them: as a form that builds before
/// them skip.
#[test]
fn attached_components_are_named_to_those_that_take_them() {
    use store::{AttachedName, AttachedTaken, TakenForms, Version};
    let FetchRequest { table, plan, operation, ranges, .. } = requests().remove(0);
    let hex = |bytes: &[u8]| -> String { bytes.iter().map(|b| format!("{b:02x}")).collect() };
    let taken = TakenForms { versions: vec![Version::Nb], attached: AttachedTaken::Yes };
    let version = OPEN_VERSION;
    let open = OpenRequest { table, plan, operation, peer_shards: 2, ranges, taken, version };
    let mut bytes = Vec::new();
    open.encode(&mut bytes);
    assert!(hex(&bytes).ends_with("026e622b61"), "{}", hex(&bytes));
    assert_eq!(OpenRequest::decode(&bytes).as_ref(), Ok(&open));
    let name = AttachedName::parse("I+1.db").unwrap();
    let file = FileOffer {
        generation: stdx::Generation(4),
        version: Version::Nb,
        components: vec![(Component::Attached(name), 300), (Component::Toc, 5)],
    };
    let answer = OpenAnswer { shards: 2, hold: 9, files: vec![file], version };
    let mut bytes = Vec::new();
    answer.encode(&mut bytes);
    let named = hex(&bytes);
    assert!(named.ends_with("6e6202ff06492b312e6462812c0b05"), "{named}");
    assert_eq!(OpenAnswer::decode(&bytes), Ok(answer));
    let chunk = ChunkRequest {
        hold: 9,
        generation: stdx::Generation(4),
        component: Component::Attached(name),
        offset: 1,
        bytes: 2,
    };
    let mut bytes = Vec::new();
    chunk.encode(&mut bytes);
    assert!(hex(&bytes).ends_with("04ff06492b312e64620102"), "{}", hex(&bytes));
    assert_eq!(ChunkRequest::decode(&bytes), Ok(chunk));
    // Not a name in a directory.
    let at = bytes.len() - 5;
    bytes[at] = b'/';
    assert!(ChunkRequest::decode(&bytes).is_err());
}

#[test]
fn the_fuzz_target_takes_anything() {
    let mut corpus = Vec::new();
    for request in requests() {
        let mut data = Vec::new();
        request.encode(&mut data);
        corpus.push(data);
    }
    testkit::Mutations::of(corpus).rounds(20_000).run(crate::fuzz::fuzz_stream_request);
}
