//! A provider of keys beside the nodes, whose keys wrap those of all their files. It hangs, fails, answers rubbish, and
//! rotates its key.
//!
//! The checker: every complete SSTable of every node is encrypted, the provider was asked, and what was acknowledged is
//! there (the other checkers).

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use conf::key_hosts::VaultHosts;
use conf::{AtRestOptions, KeyProvider, Options};
use key_providers::fake::{FakeProvider, Fault};
use rt::sim::{SimNode, World};
use rt::{Group, ListenOptions, Rt};

use crate::nodes::{Nodes, name};
use crate::run::Run;

const MACHINE: &str = "keys";
const PORT: u16 = 8200;
const READ_BYTES: usize = 4096;
/// Period of checks of keys in use: short enough for a rotation to matter.
const REFRESH: Duration = Duration::from_secs(5);

/// The provider of a run.
pub struct KeyServer {
    provider: Rc<RefCell<FakeProvider>>,
    _machine: SimNode,
}

impl KeyServer {
    /// Starts the machine of the provider.
    pub fn start(world: &World) -> KeyServer {
        let provider = Rc::new(RefCell::new(FakeProvider::new()));
        let (served, at) = (provider.clone(), SocketAddr::new(world.ip(MACHINE), PORT));
        let machine = world.client(MACHINE, move |rt| serve(rt, at, served));
        KeyServer { provider, _machine: machine }
    }

    /// Breaks the provider in a way that a random number chooses, or rotates its key.
    pub fn break_it(&self, random: u64) {
        let mut provider = self.provider.borrow_mut();
        // None that is answered at once: a node that is starting would end, as it should.
        let faults = [Fault::Hangs, Fault::Fails, Fault::Garbles];
        match faults.get(usize::try_from(random % 5).unwrap_or(0)) {
            Some(fault) => provider.fault = *fault,
            None => provider.keys.values_mut().for_each(|version| *version += 1),
        }
    }

    /// The provider answers again.
    pub fn mend(&self) {
        self.provider.borrow_mut().fault = Fault::None;
    }
}

async fn serve(rt: Rt, at: SocketAddr, provider: Rc<RefCell<FakeProvider>>) {
    let Ok(listener) = rt.listen(at, ListenOptions::default()).await else { return };
    let gate = rt.gate("provider");
    loop {
        let Ok(conn) = listener.accept().await else { continue };
        let provider = provider.clone();
        let served = async move {
            let mut request = Vec::new();
            while conn.read(&mut request, READ_BYTES).await.is_ok_and(|read| read > 0) {
                let answer = provider.borrow_mut().answer(&request);
                if let Some(answer) = answer {
                    // A client that is gone asks again.
                    let _ = conn.write_all(&answer).await;
                    conn.shutdown();
                    return;
                }
            }
        };
        // A closed gate: the machine is ending.
        let _ = gate.spawn(&rt, Group::Admin, "connection", served);
    }
}

/// Gives the next node the settings.
pub fn prepare(nodes: &Nodes, options: &mut Options) {
    let number = nodes.members.len();
    let map = AtRestOptions {
        enabled: !(nodes.sabotage.plain_files && number == 1),
        key_provider: KeyProvider::Vault,
        host: Some("sim".to_owned()),
        ..AtRestOptions::default()
    };
    options.user_info_encryption = map.clone();
    options.system_info_encryption = map;
    let ip = nodes.world.ip(MACHINE);
    let text = format!(
        "{{sim: {{endpoint: 'http://{ip}:{PORT}', token: token, master_key: k, timeout: 2s}}}}"
    );
    let hosts = conf::yaml::parse(&text).ok().and_then(|node| VaultHosts::parse(&node).ok());
    options.vault_hosts = hosts.unwrap_or_default();
    options.vault_hosts.0.values_mut().for_each(|host| host.key_cache_refresh = REFRESH);
}

/// Checks the disks of all nodes.
///
/// # Errors
/// A complete SSTable is in the clear, or the provider was not asked.
pub fn check(run: &mut Run) -> Result<(), String> {
    let Some(server) = &run.nodes.key_server else { return Ok(()) };
    let served = server.provider.borrow().served;
    let mut sealed = 0;
    for number in 0..run.nodes.members.len() {
        let node = name(number);
        let disk = run.nodes.world.disk(&node);
        let paths: BTreeSet<String> = disk.list().into_iter().collect();
        for data in paths.iter().filter(|path| path.ends_with("-Data.db")) {
            let set = data.trim_end_matches("Data.db");
            if !paths.contains(&format!("{set}TOC.txt")) {
                continue;
            }
            if !disk.read(data).is_some_and(|bytes| at_rest::is_sealed(&bytes)) {
                return Err(format!("{node}: {data} is not encrypted"));
            }
            sealed += 1;
        }
    }
    let nodes = run.nodes.members.len() as u64;
    if served < nodes || sealed < nodes {
        return Err(format!(
            "{nodes} nodes have {sealed} encrypted files; {served} keys were given"
        ));
    }
    run.nodes.probes.bump("key given by the provider", served);
    run.nodes.probes.bump("encrypted file of a node", sealed);
    Ok(())
}
