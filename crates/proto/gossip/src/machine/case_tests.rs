//! The machine step by step, as text: what happens to it in, messages, events and views out (`testdata`).

use std::collections::BTreeMap;
use std::fmt::Write as _;

use stdx::{Epoch, HostId, Instant, Uuid, WallMicros};
use testkit::cases::{Case, check};

use super::Gossip;
use crate::api::{Config, Event, Input, Member, Output};
use crate::message::Message;
use crate::state::{AppState, Digest, DiskUsage, Flags, PeerState};

/// Generations of the files are counted from here.
const GENERATION: u64 = 1_700_000_000;
const WALL: WallMicros = WallMicros(1_700_000_000_000_000);

fn host(text: &str) -> HostId {
    HostId(Uuid::from_u128(text.parse().expect("a number of a node")))
}

fn name(host: HostId) -> u128 {
    host.0.as_u128()
}

/// `+5`, or `0` for none.
fn generation_text(generation: u64) -> String {
    match generation {
        0 => "0".to_owned(),
        n => format!("{:+}", n as i64 - GENERATION as i64),
    }
}

fn generation(text: &str) -> u64 {
    match text.strip_prefix('+') {
        Some(n) => GENERATION + n.parse::<u64>().expect("a generation"),
        None => match text.strip_prefix('-') {
            Some(n) => GENERATION - n.parse::<u64>().expect("a generation"),
            None => text.parse().expect("a generation"),
        },
    }
}

fn flags_text(flags: Flags) -> String {
    let mut text = String::new();
    for (flag, word) in [
        (Flags::CQL_READY, " cql"),
        (Flags::SHUTTING_DOWN, " stopping"),
        (Flags::WRONG_CLOCK, " wrong_clock"),
    ] {
        if flags.has(flag) {
            text.push_str(word);
        }
    }
    if flags.disk_usage() != DiskUsage::NotAvailable {
        let _ = write!(text, " {}", flags.disk_usage().name().to_lowercase());
    }
    text
}

/// `epoch=3 load=5 cql stopping full`, with `app=VERSION` in front of news.
fn app<'w>(version: u64, words: impl Iterator<Item = &'w str>) -> AppState {
    let mut app = AppState { version, ..AppState::default() };
    for word in words {
        match word.split_once('=') {
            Some(("epoch", n)) => app.epoch = Epoch(n.parse().expect("an epoch")),
            Some(("load", n)) => app.load = n.parse().expect("bytes"),
            Some(("shards", n)) => app.shards = n.parse().expect("shards"),
            _ => {
                app.flags = match word {
                    "cql" => app.flags.with(Flags::CQL_READY),
                    "stopping" => app.flags.with(Flags::SHUTTING_DOWN),
                    "wrong_clock" => app.flags.with(Flags::WRONG_CLOCK),
                    "full" => app.flags.with_disk_usage(DiskUsage::Full),
                    other => panic!("unknown word {other}"),
                }
            }
        }
    }
    app
}

fn app_text(app: &AppState) -> String {
    format!("app={} epoch={} load={}{}", app.version, app.epoch.0, app.load, flags_text(app.flags))
}

/// `3 +5 10`: node, generation, version.
fn digest(line: &str) -> Digest {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [node, of, version] = words[..] else { panic!("not a digest: {line}") };
    Digest {
        host: host(node),
        generation: generation(of),
        version: version.parse().expect("a version"),
    }
}

/// The same, then perhaps `app=VERSION` and what it says.
fn state(line: &str) -> PeerState {
    let mut words = line.split_whitespace();
    let three: Vec<&str> = words.by_ref().take(3).collect();
    let Digest { host, generation, version } = digest(&three.join(" "));
    let said = words.next().map(|first| {
        let of = first.strip_prefix("app=").expect("app=VERSION").parse().expect("a version");
        app(of, words)
    });
    PeerState { host, generation, version, app: said }
}

fn message_text(message: &Message) -> String {
    let digests = |all: &[Digest]| -> String {
        let text = |d: &Digest| {
            format!("\n  {} {} {}", name(d.host), generation_text(d.generation), d.version)
        };
        all.iter().map(text).collect()
    };
    let states = |all: &[PeerState]| -> String {
        let text = |s: &PeerState| {
            let app = s.app.as_ref().map_or(String::new(), |app| format!(" {}", app_text(app)));
            let generation = generation_text(s.generation);
            format!("\n  news {} {generation} {}{app}", name(s.host), s.version)
        };
        all.iter().map(text).collect()
    };
    match message {
        Message::Syn { digests: all } => format!("syn{}", digests(all)),
        Message::Ack { wanted, states: news } => {
            format!("ack{}{}", digests(wanted).replace("\n  ", "\n  wants "), states(news))
        }
        Message::Ack2 { states: news } => format!("ack2{}", states(news)),
        Message::Echo { .. } => "echo".to_owned(),
        Message::EchoReply { nonce } => format!("echo_reply {nonce}"),
    }
}

fn event_text(event: Event) -> String {
    match event {
        Event::Up { host } => format!("{} is up", name(host)),
        Event::Down { host, reason } => format!("{} is down: {reason:?}", name(host)),
        Event::Restarted { host, generation } => {
            format!("{} restarted as {}", name(host), generation_text(generation))
        }
        Event::StateChanged { host } => format!("{} has another state", name(host)),
        Event::GenerationRaised { generation } => {
            format!("own generation raised to {}", generation_text(generation))
        }
        Event::Impostor { generation } => {
            format!("impostor with {}", generation_text(generation))
        }
        Event::Unbelievable { host, generation } => {
            format!("{} cannot have {}", name(host), generation_text(generation))
        }
    }
}

/// Node 1, its clock, and the ECHOs that it has sent.
#[derive(Default)]
struct Node {
    gossip: Option<Gossip>,
    now: Instant,
    steps: u64,
    nonces: BTreeMap<HostId, u64>,
}

impl Node {
    fn step(&mut self, input: Input) -> String {
        self.steps += 1;
        let mut out = Vec::new();
        let gossip = self.gossip.as_mut().expect("`node` comes first");
        gossip.step(self.now, self.steps, input, &mut out);
        let mut text = String::new();
        for output in out {
            let _ = match output {
                Output::Send { to, message } => {
                    if let Message::Echo { nonce } = &message {
                        self.nonces.insert(to, *nonce);
                    }
                    writeln!(text, "to {}: {}", name(to), message_text(&message))
                }
                Output::Event(event) => writeln!(text, "{}", event_text(event)),
                Output::WakeAt(at) => writeln!(text, "wake at {}", at.0 as f64 / 1e9),
            };
        }
        if text.is_empty() { "nothing".to_owned() } else { text }
    }

    fn hear(&mut self, case: &Case, message: Message) -> String {
        let from = host(case.value("from").expect("from=NODE"));
        self.step(Input::Received { from, message })
    }

    fn view(&self) -> String {
        let gossip = self.gossip.as_ref().expect("`node` comes first");
        let mut text = String::new();
        for host in gossip.hosts() {
            let Some(view) = gossip.peer_at(host, self.now) else { continue };
            let (generation, app) = (generation_text(view.generation), app_text(view.app));
            let alive = if view.is_alive { "up" } else { "down" };
            let _ = write!(text, "{} {generation} {} {alive} {app}", name(host), view.version);
            let _ = writeln!(text, " phi {:.1}", view.phi);
        }
        text
    }

    fn run(&mut self, case: &Case) -> String {
        if let Some(seconds) = case.parsed::<f64>("at") {
            let at = Instant((seconds * 1e9) as u64);
            assert!(at >= self.now, "{}: time goes back", case.place);
            self.now = at;
        }
        let lines = || case.input.lines();
        match case.command.as_str() {
            "node" => {
                let own = case.value("generation").map_or(GENERATION, generation);
                let config = Config { wall: WALL, ..Config::new(host("1"), own) };
                self.gossip = Some(Gossip::new(config, AppState::default()));
                self.step(Input::Members(members(case)))
            }
            "members" => self.step(Input::Members(members(case))),
            "tick" => self.step(Input::Tick { wall: WALL }),
            // So many seconds of ticks, every one of a round.
            "rounds" => {
                let mut text = String::new();
                for _ in 0..case.parsed::<u64>("count").expect("count") {
                    self.now = Instant(self.now.0 + 1_000_000_000);
                    let printed = self.step(Input::Tick { wall: WALL });
                    let is_event = |line: &&str| line.contains(" is ") || line.contains("echo");
                    for line in printed.lines().filter(is_event) {
                        let _ = writeln!(text, "{}: {line}", self.now.0 / 1_000_000_000);
                    }
                }
                if text.is_empty() { "nothing".to_owned() } else { text }
            }
            "syn" => self.hear(case, Message::Syn { digests: lines().map(digest).collect() }),
            "ack" => {
                let wanted = lines().filter_map(|line| line.strip_prefix("wants ")).map(digest);
                let states = lines().filter_map(|line| line.strip_prefix("news ")).map(state);
                let message = Message::Ack { wanted: wanted.collect(), states: states.collect() };
                self.hear(case, message)
            }
            "ack2" => self.hear(case, Message::Ack2 { states: lines().map(state).collect() }),
            "echo" => {
                let nonce = case.parsed("nonce").expect("nonce");
                self.hear(case, Message::Echo { nonce })
            }
            // The nonce of the last ECHO to that node, or, `wrong`, another one.
            "reply" => {
                let from = host(case.value("from").expect("from=NODE"));
                let known = self.nonces.get(&from).copied().unwrap_or(0);
                let nonce = if case.has("wrong") { known ^ 1 } else { known };
                self.hear(case, Message::EchoReply { nonce })
            }
            "update" => {
                let words = case.words.iter().map(String::as_str).filter(|w| !w.starts_with("at="));
                self.step(Input::Update(app(0, words)))
            }
            "lost" => self.step(Input::Lost { host: host(case.value("host").expect("host")) }),
            "refused" => {
                self.step(Input::Refused { host: host(case.value("host").expect("host")) })
            }
            "announce" => self.step(Input::Announce),
            "view" => self.view(),
            other => panic!("{}: unknown command {other}", case.place),
        }
    }
}

/// `of=1,2s,3`: an `s` marks seeds.
fn members(case: &Case) -> Vec<Member> {
    let of = case.value("of").expect("of=NODES").split(',');
    let member = |text: &str| match text.strip_suffix('s') {
        Some(id) => Member { host: host(id), is_seed: true },
        None => Member { host: host(text), is_seed: false },
    };
    of.map(member).collect()
}

#[test]
fn cases_of_the_machine() {
    check(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata"), || {
        let mut node = Node::default();
        move |case: &Case| node.run(case)
    });
}
