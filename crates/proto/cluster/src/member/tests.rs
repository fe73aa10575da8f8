use super::*;
use crate::testing::member;

#[test]
fn a_member_comes_back_as_it_was_written() {
    let mut all = Vec::new();
    for (i, state) in MemberState::ALL.into_iter().enumerate() {
        let mut m = member(i as u128 + 1, "dc1", "rack1", &[-5, 3, i64::MAX]);
        m.state = state;
        m.release = "5.0.9".to_owned();
        m.features = u64::MAX;
        m.shards = 65_535;
        m.replaces = (i % 2 == 0).then_some(HostId(Uuid::from_u128(77)));
        m.moving_to = vec![Token(i64::MIN), Token(9)];
        m.rpc = "[2001:db8::1]:9042".parse().unwrap();
        all.push(m);
    }
    for m in all {
        let mut bytes = Vec::new();
        m.encode(&mut bytes);
        let mut r = Reader::new(&bytes, "member");
        assert_eq!(Member::decode(&mut r).unwrap(), m);
        r.finish().unwrap();
        for cut in 0..bytes.len() {
            assert!(Member::decode(&mut Reader::new(&bytes[..cut], "member")).is_err(), "{cut}");
        }
    }
}

#[test]
fn the_bytes_of_a_member_stay_what_they_are() {
    let mut m = member(1, "dc", "r", &[7]);
    m.release = "5".to_owned();
    m.shards = 2;
    let mut bytes = Vec::new();
    m.encode(&mut bytes);
    let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(
        hex,
        "01\
         00000000000000000000000000000001\
         047f0000011b58\
         047f0000012352\
         026463\
         0172\
         010000000000000007\
         00\
         02\
         00\
         0002\
         0000000000000000\
         0135"
    );
}

#[test]
fn what_a_member_owns_follows_its_state() {
    let mut m = member(1, "dc1", "r1", &[1, 2]);
    m.moving_to = vec![Token(9)];
    let counts: Vec<(usize, usize)> = MemberState::ALL
        .into_iter()
        .map(|s| {
            m.state = s;
            (m.tokens_when(false).len(), m.tokens_when(true).len())
        })
        .collect();
    assert_eq!(counts, [(0, 2), (0, 2), (2, 2), (2, 0), (2, 0), (2, 1), (2, 1)]);
}
