//! Shard 0 of a node before it has a log: the decision to found a cluster or to join one, and the join. For a node
//! that has a log: the check that the others still accept it.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use cluster::{ClusterSnapshot, Member, MemberState};
use conf::Options;
use conf::snitch::Place;
use internode::{HelloAck, RefusalCode};
use membership::log::LogFile;
use membership::{JoinError, JoinRequest};
use messaging::{Messaging, OpenError, Peer};
use rt::Rt;
use stdx::HostId;

use crate::address_discovery;
use crate::error::{Result as TopologyResult, TopologyError};
use crate::identity::{self, Identity};
use crate::introduction::{self, Membership, Run};
use crate::seeds::{self, Answer};
use crate::unreachable_seeds::{SeedRefusals, is_out_of_reach, nobody_listens, out_of_reach};

/// Longest search of a newcomer for a member among its seeds.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pause between two rounds of questions: doubles each time, from the first to the second.
const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(500));
/// Interval of the log line that says that the node still waits.
const REMIND: Duration = Duration::from_secs(10);
/// Timeout of one member's answer to a join: it may have to ask the voters twice.
const ANSWER: Duration = Duration::from_secs(25);
/// Longest time for which the previous process may make the host id seem in use.
const GHOST: Duration = Duration::from_secs(15);
/// Most members that are asked at a start whether they know this node.
const ASKED_MAX: usize = 16;

/// Outcome of a first start.
pub enum Outcome {
    /// No member was found, and this node is the one to found the cluster.
    Found,
    /// The log of the cluster, in which this node is `Joining`.
    Joined(Box<(LogFile, ClusterSnapshot)>),
}

/// A node without a log that may reach others.
pub struct Newcomer<'a> {
    /// Shard 0.
    pub rt: &'a Rt,
    /// The settings of the start.
    pub options: &'a Options,
    /// The way to other nodes.
    pub messaging: &'a Messaging,
    /// Directory of the metadata log and the identity.
    pub work_dir: &'a str,
    /// Datacenter and rack of the node.
    pub place: &'a Place,
    /// Identity of this node.
    pub identity: Identity,
    /// Number of this run.
    pub run: u64,
    /// False: its directory has data of Cassandra's, which only a founder can take over.
    pub may_join: bool,
}

impl Newcomer<'_> {
    /// Decides, and joins if that is decided.
    ///
    /// # Errors
    /// `Seeds`, `Refused`, `Join`, `Metadata`, `Io`.
    pub async fn found_or_join(&self, base: &schema::Schema) -> TopologyResult<Outcome> {
        let own = seeds::own_address(self.options)?;
        let all = seeds::addresses(self.options)?;
        let replaces = self.replaces()?;
        // A node that replaces another one founds no cluster.
        let is_first = all.first().is_none_or(|first| *first == own) && replaces.is_none();
        let others: Vec<SocketAddr> = all.iter().copied().filter(|seed| *seed != own).collect();
        if others.is_empty() {
            if let Some(address) = replaces {
                let detail = format!(
                    "replace_address_first_boot is {address}, but seeds names no other node that \
                    knows the dead one"
                );
                return Err(TopologyError::Join { through: own.to_string(), detail });
            }
            return Ok(Outcome::Found);
        }
        if let Some(address) = replaces.filter(|address| *address != own.ip()) {
            self.check_dead(SocketAddr::new(address, self.options.storage_port)).await?;
        }
        self.look_for_members(base, &others, is_first).await
    }

    /// The address of the member whose place it takes.
    fn replaces(&self) -> TopologyResult<Option<IpAddr>> {
        self.options.replace_address_first_boot.as_ref().map(seeds::ip).transpose()
    }

    /// Checks that no node answers at the dead member's address. The member that is asked to let
    /// this node in may have started a moment ago, and know no live peer yet.
    async fn check_dead(&self, address: SocketAddr) -> TopologyResult<()> {
        match self.messaging.discover(address).await {
            Ok(ack) => Err(TopologyError::Join {
                through: address.to_string(),
                detail: format!(
                    "Cannot replace a live node: node {} answers at {address}; stop it first",
                    ack.host_id
                ),
            }),
            Err(_) => Ok(()),
        }
    }

    async fn look_for_members(
        &self,
        base: &schema::Schema,
        others: &[SocketAddr],
        is_first: bool,
    ) -> TopologyResult<Outcome> {
        let (rt, begun) = (self.rt, self.rt.now());
        let mut heard_at = begun;
        let mut remind_at = begun;
        let mut pause = PAUSE.0;
        let mut refusals = SeedRefusals::default();
        loop {
            let answers = seeds::ask_all(rt, self.messaging, others).await;
            if seems_to_run(&answers) && rt.now() < begun + GHOST {
                ask_again(rt).await?;
                continue;
            }
            let refusal = answers.iter().find_map(|(at, answer)| seeds::final_refusal(*at, answer));
            if let Some(refusal) = refusal {
                return Err(refusal);
            }
            let members = members_among(&answers);
            if members.is_empty() && self.founds(&answers, is_first) {
                return Ok(Outcome::Found);
            }
            self.check_may_join(others, &members)?;
            self.check_reach(others, &answers, &mut refusals)?;
            let mut waits_for = describe(&answers);
            for (address, ack) in members {
                heard_at = rt.now();
                match self.join_through(base, address, ack).await? {
                    Ok(joined) => return Ok(Outcome::Joined(Box::new(joined))),
                    Err(text) => waits_for = format!("{address}: {text}"),
                }
            }
            let now = rt.now();
            if now.since(heard_at) >= PATIENCE {
                return Err(TopologyError::Seeds { detail: waits_for });
            }
            if now >= remind_at {
                tracing::info!(%waits_for, "waiting to join the cluster");
                remind_at = now + REMIND;
            }
            let next = now + pause;
            pause = (pause * 2).min(PAUSE.1);
            if rt.timeout(next, rt.stop_requested()).await.is_ok() {
                return Err(TopologyError::Stopped);
            }
        }
    }

    /// Returns true if this node founds the cluster when no seed is a member of one.
    fn founds(&self, answers: &[Answer], is_first: bool) -> bool {
        // Its own address may look different to the node than in the configuration.
        let first = answers.first();
        let is_itself =
            first.is_some_and(|(_, answer)| refusal_code(answer) == Some(RefusalCode::Yourself));
        self.options.replace_address_first_boot.is_none() && (is_first || is_itself)
    }

    /// Checks that the data of this node may come into a cluster that has members.
    ///
    /// # Errors
    /// `Join`.
    fn check_may_join(
        &self,
        others: &[SocketAddr],
        members: &[(SocketAddr, &HelloAck)],
    ) -> TopologyResult<()> {
        if members.is_empty() || self.may_join {
            return Ok(());
        }
        Err(TopologyError::Join {
            through: others.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
            detail:
                "the data directory is one of Cassandra's, which can only be taken over by a node \
                     that founds a cluster; remove the seeds, or choose an empty --workdir"
                    .to_owned(),
        })
    }

    /// Checks that waiting for the seeds can succeed.
    ///
    /// # Errors
    /// `Setting`: no node will ever answer at these addresses.
    fn check_reach(
        &self,
        others: &[SocketAddr],
        answers: &[Answer],
        refusals: &mut SeedRefusals,
    ) -> TopologyResult<()> {
        let own = seeds::own_address(self.options)?;
        if members_among(answers).is_empty() && is_out_of_reach(own.ip(), others) {
            return Err(TopologyError::Setting(out_of_reach(own.ip(), others)));
        }
        if refusals.are_final(answers, self.rt.now()) {
            return Err(TopologyError::Setting(nobody_listens(own, others)));
        }
        Ok(())
    }

    /// Asks one member; `Ok(Err(..))` is the reason to retry.
    async fn join_through(
        &self,
        base: &schema::Schema,
        address: SocketAddr,
        ack: &HelloAck,
    ) -> TopologyResult<Result<(LogFile, ClusterSnapshot), String>> {
        let (rt, through) = (self.rt, ack.host_id);
        self.messaging.set_peer(through, Peer { address, shard_count: ack.shard_count });
        let request = JoinRequest {
            member: self.member()?,
            tokens: u16::try_from(self.options.num_tokens).unwrap_or(u16::MAX),
            replication_factor: u16::try_from(
                self.options.allocate_tokens_for_local_replication_factor,
            )
            .unwrap_or(u16::MAX),
            replaces: self.replaces()?,
        };
        let deadline = rt.now() + ANSWER;
        // A second start then asks as the same node.
        identity::write(&rt.fs(), self.work_dir, self.identity).await?;
        let asked = membership::ask_to_join(self.messaging, through, &request, deadline).await;
        let joined_at = match asked {
            Ok(epoch) => epoch,
            Err(JoinError::Again(text)) => return Ok(Err(text)),
            Err(JoinError::Refused(detail)) => {
                return Err(TopologyError::Join { through: address.to_string(), detail });
            }
        };
        let fetched = membership::fetch_log(self.messaging, through, rt.now() + ANSWER).await;
        let (framed, epoch) = match fetched {
            Ok((_, epoch)) if epoch < joined_at => {
                return Ok(Err("the member's log does not have this node yet".to_owned()));
            }
            Ok(fetched) => fetched,
            Err(text) => return Ok(Err(text)),
        };
        let created = membership::log::create(rt, self.work_dir, base, &framed, epoch).await?;
        let host = self.identity.host_id;
        let snapshot = created.snapshot.as_ref().and_then(|folded| folded.with_local(host));
        let Some(snapshot) = snapshot else { return Err(TopologyError::Removed { host }) };
        let identity = Identity { cluster_id: Some(snapshot.cluster_id), ..self.identity };
        identity::write(&rt.fs(), self.work_dir, identity).await?;
        let run = Run { number: self.run, shards: rt.shard_count() };
        let introduced =
            introduction::introduction(self.options, &identity, run, Membership::Member);
        self.messaging.set_identity(introduced);
        introduction::introduce(self.messaging, None, &snapshot);
        tracing::info!(cluster_id = %snapshot.cluster_id, host_id = %host, %address,
            members = snapshot.members.len(), "admitted to the cluster");
        Ok(Ok((created.log, snapshot)))
    }

    fn member(&self) -> TopologyResult<Member> {
        let options = self.options;
        let mut tokens = options.initial_token.clone();
        if options.replace_address_first_boot.is_some() && !tokens.is_empty() {
            tracing::warn!("initial_token is ignored: this node takes the tokens of the dead node");
        }
        tokens.sort();
        Ok(Member {
            host_id: self.identity.host_id,
            storage: seeds::own_address(options)?,
            rpc: seeds::socket(options.announced_rpc_address(), options.native_transport_port)?,
            datacenter: self.place.datacenter.clone(),
            rack: self.place.rack.clone(),
            tokens,
            moving_to: Vec::new(),
            state: MemberState::Joining,
            replaces: None,
            shards: self.rt.shard_count(),
            features: cluster::features::SUPPORTED,
            release: cql_plan::system_rows::RELEASE_VERSION.to_owned(),
        })
    }
}

/// Returns the answers of nodes that are members of a cluster.
fn members_among(answers: &[Answer]) -> Vec<(SocketAddr, &HelloAck)> {
    let answered = answers.iter().filter_map(|(at, answer)| Some((*at, answer.as_ref().ok()?)));
    answered.filter(|(_, ack)| ack.cluster_id.is_some()).collect()
}

fn refusal_code(answer: &Result<HelloAck, OpenError>) -> Option<RefusalCode> {
    match answer {
        Err(OpenError::Refused { code, .. }) => Some(*code),
        _ => None,
    }
}

/// Returns true if a peer sees another process with this node's host id. After a power cut that is
/// the previous run.
fn seems_to_run(answers: &[Answer]) -> bool {
    answers.iter().any(|(_, answer)| refusal_code(answer) == Some(RefusalCode::DuplicateHostId))
}

async fn ask_again(rt: &Rt) -> TopologyResult<()> {
    tracing::info!("another process seems to run with this node's host id; retrying");
    match rt.timeout(rt.now() + Duration::from_secs(1), rt.stop_requested()).await {
        Ok(()) => Err(TopologyError::Stopped),
        Err(_) => Ok(()),
    }
}

fn describe(answers: &[Answer]) -> String {
    let each = answers.iter().map(|(address, answer)| match answer {
        Ok(_) => format!("{address}: is no member of a cluster yet"),
        Err(error) => format!("{address}: {error}"),
    });
    each.collect::<Vec<_>>().join("; ")
}

/// Asks some of the members, and the seeds, if they accept this node's identity. A node that does
/// not answer does not count: a cluster may be started in any order. A node that answers is at that
/// address.
///
/// # Errors
/// `Refused`: another cluster, a host id in use, or no member any more.
pub async fn check_welcome(
    rt: &Rt,
    options: &Options,
    messaging: &Messaging,
    snapshot: &ClusterSnapshot,
) -> TopologyResult<()> {
    let own = seeds::own_address(options)?;
    let me = snapshot.local.host_id;
    let mut addresses = seeds::addresses(options)?;
    let is_other = |host: &HostId| *host != me;
    let members = snapshot.members.values().filter(|m| is_other(&m.host_id)).map(|m| m.storage);
    addresses.extend(members.filter(|address| *address != cluster::ADDRESS_UNKNOWN));
    addresses.retain(|address| *address != own);
    addresses.sort_unstable();
    addresses.dedup();
    addresses.truncate(ASKED_MAX);
    let give_up = rt.now() + GHOST;
    while !addresses.is_empty() {
        let answers = seeds::ask_all(rt, messaging, &addresses).await;
        let is = |wanted| answers.iter().any(|(_, answer)| refusal_code(answer) == Some(wanted));
        if seems_to_run(&answers) && rt.now() < give_up {
            ask_again(rt).await?;
            continue;
        }
        let refusal = answers.iter().find_map(|(at, answer)| seeds::final_refusal(*at, answer));
        if let Some(refusal) = refusal {
            return Err(refusal);
        }
        let is_welcome = answers.iter().any(|(_, answer)| answer.is_ok());
        if is(RefusalCode::UnknownHost) && !is_welcome {
            return Err(TopologyError::Removed { host: me });
        }
        address_discovery::sighted(messaging, snapshot, &answers, |_| true);
        break;
    }
    Ok(())
}
