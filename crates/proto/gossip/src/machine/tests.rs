use super::*;
use stdx::{Epoch, Uuid};

const WALL: WallMicros = WallMicros(1_700_000_000_000_000);
const GENERATION: u64 = 1_700_000_000;

fn host(n: u128) -> HostId {
    HostId(Uuid::from_u128(n))
}

fn at(seconds: f64) -> Instant {
    Instant((seconds * 1e9) as u64)
}

fn app(version: u64, flags: Flags) -> AppState {
    AppState { version, flags, epoch: Epoch(3), ..AppState::default() }
}

fn state(n: u128, generation: u64, version: u64, app: Option<AppState>) -> PeerState {
    PeerState { host: host(n), generation: GENERATION + generation, version, app }
}

fn digest(n: u128, generation: u64, version: u64) -> Digest {
    Digest { host: host(n), generation, version }
}

/// Node 1 of four; node 2 is a seed.
struct Node {
    gossip: Gossip,
    random: u64,
}

impl Node {
    fn new() -> Node {
        let config = Config { wall: WALL, ..Config::new(host(1), GENERATION) };
        let mut node = Node { gossip: Gossip::new(config, AppState::default()), random: 0 };
        let members = (1..=4).map(|n| Member { host: host(n), is_seed: n == 2 }).collect();
        assert_eq!(node.step(0.0, Input::Members(members)), []);
        node
    }

    fn step(&mut self, seconds: f64, input: Input) -> Vec<Output> {
        let mut out = Vec::new();
        self.random += 1;
        self.gossip.step(at(seconds), self.random, input, &mut out);
        out
    }

    fn tick(&mut self, seconds: f64) -> Vec<Output> {
        self.step(seconds, Input::Tick { wall: WALL })
    }

    fn hear(&mut self, seconds: f64, from: u128, message: Message) -> Vec<Output> {
        self.step(seconds, Input::Received { from: host(from), message })
    }

    fn told(&mut self, seconds: f64, state: PeerState) -> Vec<Output> {
        self.hear(seconds, 2, Message::Ack2 { states: vec![state] })
    }

    /// Tells the state and answers the ECHO.
    fn bring_up(&mut self, seconds: f64, state: PeerState) -> Vec<Output> {
        let who = state.host;
        let mut out = self.told(seconds, state);
        let nonce = out.iter().find_map(|o| match o {
            Output::Send { to, message: Message::Echo { nonce } } if *to == who => Some(*nonce),
            _ => None,
        });
        let message = Message::EchoReply { nonce: nonce.expect("an ECHO") };
        out.extend(self.step(seconds, Input::Received { from: who, message }));
        out
    }
}

fn events(out: &[Output]) -> Vec<Event> {
    let event = |o: &Output| match o {
        Output::Event(e) => Some(*e),
        Output::Send { .. } | Output::WakeAt(_) => None,
    };
    out.iter().filter_map(event).collect()
}

fn syns(out: &[Output]) -> Vec<HostId> {
    let syn = |o: &Output| match o {
        Output::Send { to, message: Message::Syn { .. } } => Some(*to),
        _ => None,
    };
    out.iter().filter_map(syn).collect()
}

#[test]
fn a_syn_is_answered_with_what_is_newer_and_the_wish_for_what_is_newer_there() {
    let mut node = Node::new();
    node.told(0.0, state(3, 5, 10, Some(app(4, Flags::NONE))));
    let g = GENERATION + 5;
    let beat = |since| state(3, 5, 10, (since < 4).then(|| app(4, Flags::NONE)));
    type Row = (Digest, Option<Digest>, Option<PeerState>);
    let table: [Row; 9] = [
        (digest(3, g, 10), None, None),
        (digest(3, g, 11), Some(digest(3, g, 10)), None),
        (digest(3, g, 9), None, Some(beat(9))),
        (digest(3, g, 3), None, Some(beat(3))),
        (digest(3, g + 1, 2), Some(digest(3, g + 1, 0)), None),
        (digest(3, g - 1, 99), None, Some(beat(0))),
        (digest(3, 0, 0), None, Some(beat(0))),
        // Host 4 is a member without a known state; 9 is not a member.
        (digest(4, 7, 1), Some(digest(4, 7, 0)), None),
        (digest(9, 7, 1), None, None),
    ];
    for (given, wanted, told) in table {
        let out = node.hear(1.0, 2, Message::Syn { digests: vec![given] });
        let message = Message::Ack {
            wanted: wanted.into_iter().collect(),
            states: told.into_iter().collect(),
        };
        assert_eq!(out, [Output::Send { to: host(2), message }], "{given:?}");
    }
    // Requested states are sent, except those that are not newer.
    let wanted = vec![digest(3, g, 9), digest(3, g, 10), digest(4, 1, 0), digest(9, 1, 0)];
    let out = node.hear(1.0, 2, Message::Ack { wanted, states: vec![] });
    let message = Message::Ack2 { states: vec![beat(9)] };
    assert_eq!(out, [Output::Send { to: host(2), message }]);
    let nothing = Message::Ack { wanted: vec![digest(3, g, 10)], states: vec![] };
    assert_eq!(node.hear(1.0, 2, nothing), []);
}

/// INV-gossip-4.
#[test]
fn a_peer_is_up_only_when_it_answers_itself() {
    let mut node = Node::new();
    let out = node.told(1.0, state(3, 0, 1, Some(app(1, Flags::CQL_READY))));
    assert_eq!(events(&out), [Event::StateChanged { host: host(3) }]);
    assert!(!node.gossip.is_alive(host(3)));
    // An answer to an earlier ECHO, or from another peer, does not count.
    let [.., Output::Send { message: Message::Echo { nonce }, .. }] = out[..] else { panic!() };
    assert_eq!(node.hear(1.0, 3, Message::EchoReply { nonce: nonce ^ 1 }), []);
    assert_eq!(node.hear(1.0, 4, Message::EchoReply { nonce }), []);
    let out = node.hear(1.1, 3, Message::EchoReply { nonce });
    assert_eq!(events(&out), [Event::Up { host: host(3) }]);
    assert_eq!(node.hear(1.2, 3, Message::EchoReply { nonce }), []);
    assert!(node.gossip.is_alive(host(3)) && node.gossip.is_alive(host(1)));
    // A lost ECHO is repeated with the next heartbeat, and no ECHO is sent to a peer that is up.
    assert_eq!(node.told(2.0, state(3, 0, 2, None)), []);
    node.told(2.0, state(4, 0, 1, None));
    assert!(matches!(
        node.told(3.0, state(4, 0, 2, None))[..],
        [Output::Send { message: Message::Echo { .. }, .. }]
    ));
}

#[test]
fn silence_convicts_and_old_answers_do_not_acquit() {
    let mut node = Node::new();
    node.tick(0.0);
    let out = node.bring_up(0.5, state(3, 0, 1, None));
    let Output::Send { message: Message::Echo { nonce }, .. } = out[0].clone() else { panic!() };
    let mut down_at = None;
    for second in 1..60 {
        if second <= 10 {
            node.told(f64::from(second), state(3, 0, 1 + second as u64, None));
        }
        for event in events(&node.tick(f64::from(second))) {
            assert_eq!(event, Event::Down { host: host(3), reason: DownReason::Convicted });
            assert_eq!(down_at.replace(second), None);
        }
    }
    // Mean of 2 s, 0.5 s and nine times 1 s: 1.045 s; 8 ln 10 of it is 19.3 s after second 10.
    assert_eq!(down_at, Some(30));
    assert_eq!(node.hear(60.0, 3, Message::EchoReply { nonce }), []);
    let out = node.bring_up(61.0, state(3, 0, 12, None));
    assert_eq!(events(&out), [Event::Up { host: host(3) }]);
}

#[test]
fn a_pause_of_the_node_itself_convicts_nobody() {
    for (pause, is_convicted) in [(4.9, true), (5.1, false)] {
        let mut node = Node::new();
        node.tick(0.0);
        node.bring_up(0.0, state(3, 0, 1, None));
        for second in 1..=36 {
            node.tick(f64::from(second));
        }
        // Silent for 36 s with a mean of 2 s: convicted at 36.8 s.
        let out = node.tick(36.0 + pause);
        assert_eq!(!events(&out).is_empty(), is_convicted, "pause of {pause} s");
        // Lenient for 5 s, then as usual.
        if !is_convicted {
            for tenths in (1..50).step_by(10) {
                assert_eq!(events(&node.tick(41.1 + f64::from(tenths) / 10.0)), []);
            }
            assert_eq!(events(&node.tick(46.3)).len(), 1);
        }
    }
}

#[test]
fn a_new_generation_is_a_restart_down_and_up() {
    let mut node = Node::new();
    node.bring_up(1.0, state(3, 0, 90, Some(app(80, Flags::CQL_READY))));
    let out = node.bring_up(2.0, state(3, 1, 2, None));
    let generation = GENERATION + 1;
    assert_eq!(
        events(&out),
        [
            Event::Restarted { host: host(3), generation },
            Event::Down { host: host(3), reason: DownReason::Restarted },
            Event::Up { host: host(3) },
        ]
    );
    // The state of the old process is gone.
    assert_eq!(*node.gossip.peer(host(3)).unwrap().app, AppState::default());
    // News of the old generation, and of the same but older version, change nothing.
    assert_eq!(node.told(3.0, state(3, 0, 99, Some(app(99, Flags::NONE)))), []);
    assert_eq!(node.told(3.0, state(3, 1, 2, Some(app(2, Flags::NONE)))), []);
    let view = node.gossip.peer(host(3)).unwrap();
    assert_eq!((view.generation, view.version), (generation, 2));
}

#[test]
fn a_node_that_says_it_stops_is_down_at_once_until_it_starts_anew() {
    let mut node = Node::new();
    node.bring_up(1.0, state(3, 0, 1, Some(app(1, Flags::CQL_READY))));
    let out = node.told(2.0, state(3, 0, 2, Some(app(2, Flags::SHUTTING_DOWN))));
    assert_eq!(
        events(&out),
        [
            Event::StateChanged { host: host(3) },
            Event::Down { host: host(3), reason: DownReason::Shutdown },
        ]
    );
    // Its last heartbeats by way of others do not bring it back.
    assert_eq!(node.told(3.0, state(3, 0, 3, None)), []);
    let out = node.bring_up(9.0, state(3, 1, 1, Some(app(1, Flags::NONE))));
    assert_eq!(events(&out).last(), Some(&Event::Up { host: host(3) }));
}

#[test]
fn a_node_tells_its_own_changes_once_and_announces_to_all() {
    let mut node = Node::new();
    let ready = AppState { flags: Flags::CQL_READY, ..AppState::default() };
    node.step(1.0, Input::Update(ready.clone()));
    let version = node.gossip.peer(host(1)).unwrap().version;
    node.step(1.0, Input::Update(ready));
    assert_eq!(node.gossip.peer(host(1)).unwrap().version, version, "no change, no version");
    let out = node.step(2.0, Input::Announce);
    let to: Vec<HostId> = out
        .iter()
        .map(|o| match o {
            Output::Send { to, message: Message::Ack2 { states } } => {
                assert_eq!(states[0].app.as_ref().unwrap().flags, Flags::CQL_READY);
                *to
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(to, [host(2), host(3), host(4)]);
}

#[test]
fn each_round_goes_to_a_live_peer_by_chance_a_dead_one_and_a_seed() {
    let mut node = Node::new();
    // No peer is up: one of those that are down, and the seed.
    let out = node.tick(0.0);
    assert!(syns(&out).contains(&host(2)));
    assert_eq!(out.last(), Some(&Output::WakeAt(at(1.0))));
    // Too early: nothing but the same wish.
    assert_eq!(node.tick(0.4), [Output::WakeAt(at(1.0))]);
    node.bring_up(0.5, state(3, 0, 1, None));
    node.bring_up(0.5, state(4, 0, 1, None));
    let mut rounds = [0_usize; 5];
    for second in 1..=3_000 {
        // Keep them alive.
        for n in [3, 4] {
            node.told(f64::from(second), state(n, 0, 1 + second as u64, None));
        }
        let out = node.tick(f64::from(second));
        let to = syns(&out);
        assert!((1..=3).contains(&to.len()), "{to:?}");
        assert!(to.contains(&host(3)) || to.contains(&host(4)));
        for h in to {
            rounds[h.0.as_u128() as usize] += 1;
        }
    }
    // Live ones half of the rounds each; the seed, which is down, 1/3 as down one and 1/3 as seed.
    assert!((1_350..1_650).contains(&rounds[3]) && (1_350..1_650).contains(&rounds[4]));
    let expect = 3_000 * 5 / 9;
    assert!((expect - 150..expect + 150).contains(&rounds[2]), "{rounds:?}");
}

#[test]
fn a_generation_out_of_this_world_is_ignored_and_the_nearest_possible_one_taken() {
    let mut node = Node::new();
    node.told(1.0, state(3, 0, 1, None));
    let ahead = GENERATION_AHEAD_MAX;
    let far = node.told(1.0, state(3, ahead + 1, 1, None));
    let generation = GENERATION + ahead + 1;
    assert_eq!(events(&far), [Event::Unbelievable { host: host(3), generation }]);
    let near = node.told(1.0, state(3, ahead, 1, None));
    let generation = GENERATION + ahead;
    assert_eq!(events(&near), [Event::Restarted { host: host(3), generation }]);
    // The first word may be anything that is not absurd: this node's clock may be wrong.
    for (generation, is_taken) in [(GENERATION_MAX, true), (GENERATION_MAX + 1, false)] {
        let mut node = Node::new();
        let said = PeerState { generation, ..state(3, 0, 1, None) };
        node.told(1.0, said);
        let known = node.gossip.peer(host(3)).unwrap().generation;
        assert_eq!(known == generation, is_taken);
    }
}

#[test]
fn a_node_whose_past_is_ahead_of_it_raises_its_generation_once() {
    let mut node = Node::new();
    let mine = |generation, version| Message::Syn { digests: vec![digest(1, generation, version)] };
    let out = node.hear(1.0, 2, mine(GENERATION, 1));
    assert_eq!(events(&out), []);
    let out = node.hear(1.0, 2, mine(GENERATION + 7, 400));
    let generation = GENERATION + 8;
    assert_eq!(events(&out), [Event::GenerationRaised { generation }]);
    // The answer already has it.
    let Some(Output::Send { message: Message::Ack { wanted, states }, .. }) = out.last() else {
        panic!()
    };
    assert!(wanted.is_empty() && states[0].generation == generation);
    let out = node.hear(1.0, 2, mine(GENERATION + 7, 900));
    assert_eq!(events(&out), []);
    let out = node.told(1.0, state(1, 9, 1, None));
    assert_eq!(events(&out), [Event::Impostor { generation: GENERATION + 9 }]);
}

#[test]
fn who_is_no_member_any_more_is_forgotten_and_who_stays_is_not() {
    let mut node = Node::new();
    node.bring_up(1.0, state(3, 0, 1, None));
    node.bring_up(1.0, state(4, 0, 1, None));
    let members = [1, 3, 5].map(|n| Member { host: host(n), is_seed: false }).to_vec();
    assert_eq!(node.step(2.0, Input::Members(members)), []);
    assert!(node.gossip.is_alive(host(3)) && !node.gossip.is_alive(host(4)));
    assert!(node.gossip.peer(host(4)).is_none());
    assert_eq!(node.gossip.hosts(), [host(1), host(3), host(5)]);
    assert_eq!(node.told(3.0, state(4, 0, 9, None)), []);
}

fn echoes(out: &[Output]) -> Vec<HostId> {
    let echo = |o: &Output| match o {
        Output::Send { to, message: Message::Echo { .. } } => Some(*to),
        _ => None,
    };
    out.iter().filter_map(echo).collect()
}

#[test]
fn a_peer_that_refuses_connections_twice_is_down_within_two_seconds() {
    let mut node = Node::new();
    node.tick(0.0);
    node.bring_up(0.5, state(3, 0, 5, Some(app(5, Flags::NONE))));
    node.tick(1.0);
    // The process ends: its connections do.
    assert_eq!(echoes(&node.step(1.1, Input::Lost { host: host(3) })), [host(3)]);
    let refused = Input::Refused { host: host(3) };
    assert_eq!(node.step(1.1, refused.clone()), [Output::WakeAt(at(1.7))]);
    // A refusal of another connection at the same time.
    assert_eq!(node.step(1.2, refused.clone()), []);
    assert_eq!(node.tick(1.3), [Output::WakeAt(at(1.7))]);
    let out = node.tick(1.7);
    assert_eq!(echoes(&out), [host(3)]);
    assert_eq!(out.last(), Some(&Output::WakeAt(at(2.0))));
    let down = Event::Down { host: host(3), reason: DownReason::Refused };
    assert_eq!(events(&node.step(1.7, refused.clone())), [down]);
    assert!(!node.gossip.is_alive(host(3)));
    // A peer that is down is not convicted again.
    assert_eq!(node.step(2.9, refused), []);
    assert_eq!(node.step(2.9, Input::Lost { host: host(3) }), []);
}

#[test]
fn news_of_a_peer_outweigh_a_refused_connection() {
    let mut node = Node::new();
    node.tick(0.0);
    node.bring_up(0.5, state(3, 0, 5, Some(app(5, Flags::NONE))));
    let refused = Input::Refused { host: host(3) };
    node.step(1.1, refused.clone());
    // Another peer has news of it, which may be older than the refusal.
    assert_eq!(node.told(1.4, state(3, 0, 6, None)), [Output::WakeAt(at(2.0))]);
    assert_eq!(echoes(&node.tick(1.7)), []);
    assert_eq!(node.step(1.8, refused.clone()), []);
    assert!(node.gossip.is_alive(host(3)));
    assert_eq!(echoes(&node.tick(2.0)), [host(3)]);
    // Its own answer ends the suspicion.
    node.hear(2.05, 3, Message::EchoReply { nonce: 0 });
    assert_eq!(node.step(2.1, refused.clone()), [Output::WakeAt(at(2.7))]);
    assert!(node.gossip.is_alive(host(3)));
    // A restart ends what was known of refusals.
    node.bring_up(2.2, state(3, 1, 1, Some(app(1, Flags::NONE))));
    assert_eq!(node.step(2.5, refused), [Output::WakeAt(at(3.1))]);
    assert!(node.gossip.is_alive(host(3)));
}

#[test]
fn refusals_of_strangers_and_of_dead_peers_change_nothing() {
    let mut node = Node::new();
    node.tick(0.0);
    for who in [3, 9] {
        assert_eq!(node.step(0.5, Input::Refused { host: host(who) }), []);
        assert_eq!(node.step(0.6, Input::Lost { host: host(who) }), []);
    }
}
