//! Encryption between the nodes of a run: their keys, which change while things break, and what an eavesdropper sees.
//!
//! The checkers: between nodes whose connections must be encrypted no connection begins in the clear, and there are
//! encrypted ones; no stranger is admitted ([`intruder`]). With every second seed all connections must be encrypted, with
//! the others those between racks. With two seeds of four the nodes are `optional`: they speak TLS all the same, as every
//! node does, whatever is cut.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use admin::AdminRequest;
use admin::model::ClusterCommand;
use conf::encryption::{CertificatesOfClients, KeyPlace, TrustPlace};
use conf::{EncryptionOptions, InternodeEncryption, Options, ServerEncryptionOptions};
use rt::sim::World;

use crate::intruder::{self, SharedAttempts};
use crate::nodes::{Nodes, name};
use crate::run::Run;

/// First byte of a TLS connection.
const TLS_HANDSHAKE: u8 = 0x16;
/// Longer than it takes until changed files are noticed and a refused peer is tried again.
const KEYS_NOTICED: Duration = Duration::from_secs(30);
const KEY_FILE: &str = "/tls/node.pem";
const TRUST_FILE: &str = "/tls/trust.pem";

/// Keys that a node may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// Those of the start.
    Usual,
    /// A new certificate of the same authority.
    Renewed,
    /// Keys and authority of another cluster: no new connection is made or accepted.
    OfStrangers,
    /// A certificate of the same authority that has expired: a reload keeps the one in use, a restart uses it, and no
    /// new connection is made or accepted.
    Expired,
}

/// Observations of an eavesdropper on connections between nodes.
#[derive(Default)]
pub struct Seen {
    /// Racks of the machines by address, of nodes only.
    racks: BTreeMap<IpAddr, u64>,
    scope: InternodeEncryption,
    is_optional: bool,
    /// Attempts of strangers.
    attempts: SharedAttempts,
    encrypted: u64,
    plain: u64,
    /// The first connection that began in the clear although it must not.
    leak: Option<String>,
}

/// Shared with the world.
pub type SharedSeen = Rc<RefCell<Seen>>;

impl Seen {
    fn begins(&mut self, from: IpAddr, to: SocketAddr, first: &[u8]) {
        let is_node = self.racks.contains_key(&from);
        if to.port() != Options::default().storage_port || !is_node {
            return;
        }
        if first.first() == Some(&TLS_HANDSHAKE) {
            self.encrypted += 1;
            return;
        }
        self.plain += 1;
        let are_near = self.racks.get(&from) == self.racks.get(&to.ip());
        let is_allowed = self.scope == InternodeEncryption::Rack && are_near;
        if !is_allowed && self.leak.is_none() {
            self.leak = Some(format!("{from} connected to {to} in the clear"));
        }
    }

    /// A node for a stranger to try, and whether nodes refuse strangers in the clear.
    fn target(&self, random: u64) -> Option<(SocketAddr, bool)> {
        let number = random.checked_rem(self.racks.len() as u64)?;
        let ip = self.racks.keys().nth(usize::try_from(number).ok()?)?;
        Some((SocketAddr::new(*ip, Options::default().storage_port), !self.is_optional))
    }
}

/// The scope of a run.
fn scope(seed: u64) -> InternodeEncryption {
    if seed.is_multiple_of(2) { InternodeEncryption::All } else { InternodeEncryption::Rack }
}

/// Listens to the connections of a world.
pub fn eavesdrop(world: &World, seed: u64) -> SharedSeen {
    let seen = SharedSeen::default();
    {
        let mut seen = seen.borrow_mut();
        seen.scope = scope(seed);
        seen.is_optional = seed % 4 >= 2;
    }
    let (sees, knows) = (seen.clone(), seen.clone());
    let attempts = seen.borrow().attempts.clone();
    let targets = Box::new(move |random| knows.borrow().target(random));
    world.client("intruder", move |rt| intruder::run(rt, targets, attempts));
    world.on_begin(move |from, to, first| sees.borrow_mut().begins(from.ip(), to, first));
    seen
}

/// Gives the next node keys and the setting.
pub fn prepare(nodes: &Nodes, seen: &SharedSeen, name: &str, options: &mut Options) {
    let number = nodes.members.len();
    let mut seen = seen.borrow_mut();
    seen.racks.insert(nodes.world.ip(name), nodes.scenario.rack(number as u64));
    write_keys(&nodes.world, name, Keys::Usual);
    let is_clear = nodes.sabotage.clear_node && number == 1;
    let is_trusting = nodes.sabotage.trusting_node && number == 1;
    options.server_encryption_options = ServerEncryptionOptions {
        internode_encryption: if is_clear { InternodeEncryption::None } else { seen.scope },
        tls: EncryptionOptions {
            // With the mistake the others have to accept the node that is in the clear.
            optional: (nodes.sabotage.clear_node || seen.is_optional).then_some(true),
            key: Some(KeyPlace::Store(KEY_FILE.to_owned())),
            trust: Some(TrustPlace::Store(TRUST_FILE.to_owned())),
            require_client_auth: match is_trusting {
                true => CertificatesOfClients::NotRequired,
                false => CertificatesOfClients::Required,
            },
            ..EncryptionOptions::default()
        },
        ..ServerEncryptionOptions::default()
    };
}

fn write_keys(world: &World, node: &str, keys: Keys) {
    let strangers = include_bytes!("fixtures/strangers-ca.pem").as_slice();
    let own = include_bytes!("fixtures/nodes-ca.pem").as_slice();
    let (key, trust) = match keys {
        Keys::Usual => (include_bytes!("fixtures/node.pem").as_slice(), own),
        Keys::Renewed => (include_bytes!("fixtures/renewed.pem").as_slice(), own),
        Keys::Expired => (include_bytes!("fixtures/expired.pem").as_slice(), own),
        Keys::OfStrangers => (include_bytes!("fixtures/stranger.pem").as_slice(), strangers),
    };
    let disk = world.disk(node);
    disk.write(KEY_FILE, key);
    disk.write(TRUST_FILE, trust);
}

impl Keys {
    /// Other keys than those of the start, by a random number.
    pub fn other(random: u64) -> Keys {
        match random % 3 {
            0 => Keys::Renewed,
            1 => Keys::OfStrangers,
            _ => Keys::Expired,
        }
    }
}

/// Changes the keys of a node; it notices within ten seconds, or is notified of half of the changes.
pub fn change_keys(run: &mut Run, node: usize, keys: Keys) {
    write_keys(&run.nodes.world, &name(node), keys);
    if run.nodes.world.random_u64().is_multiple_of(2) {
        let order = AdminRequest::Command(ClusterCommand::ReloadSsl {});
        // A node that is dead reads them when it starts.
        let _ = run.nodes.admin(node, rt::ShardId(0), order);
    }
}

/// Waits until every node has its own keys again and has tried its peers with them.
///
/// # Errors
/// None.
pub fn await_keys(run: &mut Run) -> Result<(), String> {
    run.nodes.world.run_for(KEYS_NOTICED);
    Ok(())
}

/// Checks what was seen.
///
/// # Errors
/// A connection began in the clear where that is not allowed, none was encrypted, or a stranger was admitted.
pub fn check(run: &mut Run) -> Result<(), String> {
    let Some(seen) = run.nodes.eavesdropper.clone() else { return Ok(()) };
    let seen = seen.borrow();
    if let Some(leak) = &seen.leak {
        return Err(format!("encryption between nodes ({:?}): {leak}", seen.scope));
    }
    let nodes = run.nodes.members.len() as u64;
    if seen.encrypted < nodes {
        return Err(format!("{nodes} nodes made {} encrypted connections", seen.encrypted));
    }
    let strangers = seen.attempts.borrow().check()?;
    run.nodes.probes.bump("stranger refused by a node", strangers);
    run.nodes.probes.bump("encrypted connection between nodes", seen.encrypted);
    run.nodes.probes.bump("plain connection within a rack", seen.plain);
    Ok(())
}
