//! Plain functions over bytes from outside; none may panic.

use std::time::Duration;

use stdx::{HostId, Instant, Uuid, WallMicros};

use crate::api::{Config, Input, Member, Output};
use crate::machine::Gossip;
use crate::message::Message;
use crate::state::AppState;

/// One message as another node sends it.
pub fn fuzz_gossip_message(data: &[u8]) {
    if let Ok(message) = Message::decode(data) {
        let mut again = Vec::new();
        message.encode(&mut again);
        assert!(Message::decode(&again) == Ok(message), "a message changes on its way");
    }
}

/// Messages, each with a length byte and a byte for the sender, at a machine of three members.
pub fn fuzz_gossip_machine(data: &[u8]) {
    let host = |n: u8| HostId(Uuid::from_u128(u128::from(n)));
    let config = Config { wall: WallMicros(1_700_000_000_000_000), ..Config::new(host(1), 5) };
    let mut gossip = Gossip::new(config, AppState::default());
    let members = (1..=3).map(|n| Member { host: host(n), is_seed: n == 2 }).collect();
    let mut out = Vec::new();
    gossip.step(Instant::ZERO, 1, Input::Members(members), &mut out);
    let mut now = Instant::ZERO;
    let mut known = [(0, 0); 4];
    let mut rest = data;
    while let Some(([length, from], after)) = rest.split_first_chunk::<2>() {
        let (payload, after) = after.split_at(usize::from(*length).min(after.len()));
        rest = after;
        now = now + Duration::from_millis(u64::from(*length) * 20);
        let input = match Message::decode(payload) {
            Ok(message) => Input::Received { from: host(from % 5), message },
            Err(_) => Input::Tick { wall: WallMicros(1_700_000_000_000_000) },
        };
        out.clear();
        gossip.step(now, u64::from(*from), input, &mut out);
        assert!(out.len() <= 64, "one message makes {} outputs", out.len());
        for output in &out {
            if let Output::Send { message, .. } = output {
                let mut bytes = Vec::new();
                message.encode(&mut bytes);
                assert!(Message::decode(&bytes).is_ok(), "an answer cannot be read");
            }
        }
        for (n, seen) in (0_u8..).zip(known.iter_mut()) {
            let now_known = gossip.peer(host(n)).map_or((0, 0), |p| (p.generation, p.version));
            assert!(now_known >= *seen, "knowledge goes back");
            *seen = now_known;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::tests::samples;
    use crate::sim::Random;
    use crate::state::{Digest, PeerState};

    /// Conversations with hosts, generations and versions near each other.
    fn corpus(random: &mut Random) -> Vec<u8> {
        let mut bytes = Vec::new();
        for _ in 0..1 + random.below(12) {
            let mut small = |n: usize| random.below(n) as u64;
            let host = HostId(Uuid::from_u128(u128::from(small(5))));
            let digest = Digest { host, generation: small(8), version: small(8) };
            let version = small(8);
            let app = (small(2) == 1)
                .then(|| AppState { version: version.min(3), ..AppState::default() });
            let state = PeerState { host, generation: small(8), version, app };
            let message = match small(4) {
                0 => Message::Syn { digests: vec![digest] },
                1 => Message::Ack { wanted: vec![digest], states: vec![state] },
                2 => Message::Ack2 { states: vec![state] },
                _ => samples()[small(6) as usize].clone(),
            };
            let mut payload = Vec::new();
            message.encode(&mut payload);
            bytes.push(payload.len() as u8);
            bytes.push(small(5) as u8);
            bytes.extend_from_slice(&payload);
        }
        bytes
    }

    #[test]
    fn mutated_messages_and_conversations_never_panic() {
        let mut random = Random(9);
        for _ in 0..20_000 {
            let mut bad = corpus(&mut random);
            for _ in 0..random.below(4) {
                let at = random.below(bad.len());
                bad[at] ^= 1 << random.below(8);
            }
            fuzz_gossip_machine(&bad);
            fuzz_gossip_message(&bad[2.min(bad.len())..]);
        }
    }
}
