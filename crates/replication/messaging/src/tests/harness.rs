//! Nodes for tests: one shard each, known to each other by number.

use super::ledger::{End, SharedLedger};
use crate::*;
use internode::{ErrorReply, Features, Identity, Verb, VersionRange};
use rt::sim::{SimNode, World, WorldOptions};
use rt::{Group, Rt};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use stdx::{HostId, ShardId, Uuid};

pub(super) const PORT: u16 = 7000;

pub(super) fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub(super) fn host(n: u8) -> HostId {
    HostId(Uuid::from_bytes([n; 16]))
}

pub(super) fn name(n: u8) -> String {
    format!("n{n}")
}

pub(super) fn identity(n: u8) -> Identity {
    Identity {
        cluster_id: Some(Uuid::from_bytes([0xcc; 16])),
        cluster_name: "Test Cluster".to_owned(),
        host_id: host(n),
        incarnation: 1,
        shard_count: 1,
        joining: false,
        versions: VersionRange::THIS,
        features: Features::LZ4,
    }
}

/// Quick to notice things, so that scenarios are short.
pub(super) fn settings() -> Settings {
    Settings {
        connect_timeout: millis(500),
        backoff_max: millis(1000),
        keepalive_interval: millis(500),
        keepalive_timeout: millis(1500),
        write_stall: millis(1500),
        compression: true,
        ..Settings::default()
    }
}

pub(super) fn world(seed: u64) -> World {
    World::new(seed, WorldOptions::default())
}

pub(super) fn address(world: &World, n: u8) -> SocketAddr {
    SocketAddr::new(world.ip(&name(n)), PORT)
}

pub(super) fn outgoing(rt: &Rt, to: u8, verb: Verb, in_millis: u64) -> Outgoing {
    let deadline = rt.now() + millis(in_millis);
    Outgoing { host: host(to), shard: ShardId(0), verb, deadline, trace: None }
}

/// A node of a test: started again by the same call.
pub(super) struct TestNode {
    pub(super) node: SimNode,
    pub(super) rt: Rt,
    pub(super) messaging: Messaging,
}

/// Starts node `n`, which knows the nodes of `known` at their addresses and serves with `handler`.
/// It ends when it is asked to stop.
pub(super) fn start(
    world: &World,
    identity: Identity,
    known: &[u8],
    settings: Settings,
    handler: impl FnOnce(&Rt) -> Rc<dyn Handler>,
) -> TestNode {
    let n = identity.host_id.0.as_bytes()[0];
    let peers: Vec<_> = known.iter().map(|k| (host(*k), address(world, *k))).collect();
    let made = Rc::new(RefCell::new(None));
    let out = made.clone();
    let node = world.client(&name(n), move |rt| {
        let mesh = Arc::new(MessagingMesh::new(1));
        let messaging = Messaging::new(&rt, identity, Arc::new(settings), mesh);
        for (host, address) in peers {
            messaging.set_peer(host, Peer { address, shard_count: 1 });
        }
        messaging.serve(handler(&rt));
        *out.borrow_mut() = Some((rt.clone(), messaging.clone()));
        async move {
            let any = SocketAddr::from(([0, 0, 0, 0], PORT));
            messaging.listen(any).await.unwrap();
            rt.stop_requested().await;
            messaging.stop(millis(1000)).await;
        }
    });
    let (rt, messaging) = made.take().unwrap();
    TestNode { node, rt, messaging }
}

impl TestNode {
    /// Runs a task on the node until it is done.
    pub(super) fn run<T: 'static, F: Future<Output = T> + 'static>(
        &self,
        world: &World,
        task: impl FnOnce(Rt, Messaging) -> F,
    ) -> T {
        let done = self.begin(task);
        world.run_until(|| done.borrow().is_some(), Duration::from_secs(600)).unwrap();
        done.take().unwrap()
    }

    /// Starts a task on the node; its result appears in the cell.
    pub(super) fn begin<T: 'static, F: Future<Output = T> + 'static>(
        &self,
        task: impl FnOnce(Rt, Messaging) -> F,
    ) -> Rc<RefCell<Option<T>>> {
        let done = Rc::new(RefCell::new(None));
        let (out, body) = (done.clone(), task(self.rt.clone(), self.messaging.clone()));
        let gate = self.rt.gate("test");
        let task = async move { *out.borrow_mut() = Some(body.await) };
        gate.spawn(&self.rt, Group::Statement, "test", task).unwrap();
        done
    }

    pub(super) fn counter(&self, metric: &str) -> u64 {
        let snapshot = self.rt.telemetry().snapshot();
        let of_name = snapshot.metrics.iter().filter(|m| m.name == metric);
        of_name
            .map(|m| match m.value {
                telemetry::Value::Counter(n) => n,
                _ => 0,
            })
            .sum()
    }

    pub(super) fn dropped(&self, reason: &str) -> u64 {
        let snapshot = self.rt.telemetry().snapshot();
        let label = ("reason", reason.to_owned());
        let of_reason = snapshot.metrics.iter().filter(|m| m.labels.contains(&label));
        of_reason
            .map(|m| match m.value {
                telemetry::Value::Counter(n) => n,
                _ => 0,
            })
            .sum()
    }
}

/// Answers with the payload behind eight bytes of token, which tell the ledger; the ninth byte says
/// how.
pub(super) struct Echo {
    pub(super) rt: Rt,
    pub(super) ledger: SharedLedger,
    pub(super) seen: Rc<Cell<u64>>,
}

pub(super) const NOW: u8 = 0;
pub(super) const LATER: u8 = 1;
pub(super) const NEVER: u8 = 2;
pub(super) const DROP: u8 = 3;
pub(super) const FAIL: u8 = 4;

impl Echo {
    pub(super) fn new(rt: &Rt, ledger: &SharedLedger) -> Rc<Echo> {
        Rc::new(Echo { rt: rt.clone(), ledger: ledger.clone(), seen: Rc::default() })
    }
}

impl Handler for Echo {
    fn handle(&self, request: Request<'_>, responder: Responder) {
        self.seen.set(self.seen.get() + 1);
        let payload = request.payload.to_vec();
        let Some((token, rest)) = payload.split_first_chunk::<8>() else { return };
        self.ledger.borrow_mut().executed(u64::from_be_bytes(*token));
        match rest.first().copied().unwrap_or(NOW) {
            NOW => responder.respond(|out| out.extend_from_slice(&payload)),
            FAIL => responder.fail(&ErrorReply::DiskFull),
            DROP => drop(responder),
            how => {
                let rt = self.rt.clone();
                let gate = rt.gate("later");
                let task = async move {
                    if how == NEVER {
                        rt.sleep_until(responder.deadline() + millis(50)).await;
                    } else {
                        rt.sleep(Duration::from_micros(rt.random_u64() % 30_000)).await;
                    }
                    responder.respond(|out| out.extend_from_slice(&payload));
                };
                let _ = gate.spawn(&self.rt, Group::Statement, "later", task);
            }
        }
    }
}

/// Tells the ledger; the payload must be the one that [`payload`] makes for the token.
pub(super) struct Recorder {
    pub(super) rt: Rt,
    pub(super) ledger: SharedLedger,
    pub(super) batches: Cell<u64>,
}

impl Completions for Recorder {
    fn complete(&self, completion: Completion<'_>) {
        let token = completion.token;
        let end = match completion.result {
            Ok(answer) => {
                let right = answer.payload.get(..8) == Some(&token.to_be_bytes());
                End::Answer { right: right && !answer.more }
            }
            Err(error) => End::Error(error),
        };
        self.ledger.borrow_mut().ended(token, self.rt.now(), end);
    }

    fn batch_done(&self) {
        self.batches.set(self.batches.get() + 1);
    }
}

pub(super) fn payload(token: u64, how: u8, length: usize) -> Vec<u8> {
    let mut out = token.to_be_bytes().to_vec();
    out.push(how);
    out.resize(out.len() + length, token as u8);
    out
}

pub(super) fn recorder(node: &TestNode, ledger: &SharedLedger) -> (Rc<Recorder>, Client) {
    let recorder =
        Rc::new(Recorder { rt: node.rt.clone(), ledger: ledger.clone(), batches: Cell::new(0) });
    let client = node.messaging.client(recorder.clone());
    (recorder, client)
}

/// Sends with a fresh token and tells the ledger. Refusals by `send` are ends too.
pub(super) fn send(
    client: &Client,
    ledger: &SharedLedger,
    token: u64,
    to: &Outgoing,
    payload: &[u8],
) -> Option<SendId> {
    ledger.borrow_mut().sent(token, to.deadline);
    match client.send(to, token, |out| out.extend_from_slice(payload)) {
        Ok(id) => Some(id),
        Err(error) => {
            let now = client.outbound.env.rt.now();
            ledger.borrow_mut().ended(token, now, End::Error(error));
            None
        }
    }
}

/// Two nodes that know each other, echoing.
pub(super) fn pair(world: &World, settings: Settings) -> (TestNode, TestNode, SharedLedger) {
    let ledger = SharedLedger::default();
    let node = |n: u8, known: u8| {
        start(world, identity(n), &[known], settings.clone(), |rt| Echo::new(rt, &ledger))
    };
    let nodes = (node(1, 2), node(2, 1));
    world.run_for(millis(10));
    (nodes.0, nodes.1, ledger)
}
