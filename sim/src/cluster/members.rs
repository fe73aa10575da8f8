//! The nodes of a run: what the seed makes of them, their starts and ends, and what takes their place.

use std::sync::Arc;
use std::time::Duration;

use conf::{CommitLogSync, DiskFailurePolicy, Options};
use node::{Node, Outcome, PageLimit, Program};
use rt::sim::{SimNode, World};
use stdx::Token;

use super::Run;
use crate::by_itself;
use crate::datacenters;
use crate::nemesis;
use crate::scenario::{Fault, Scenario};
use crate::schedule;

/// One node over all its lives.
pub struct Member {
    /// Name of machine, disk and address.
    pub name: String,
    pub(super) options: Options,
    /// Its present or last life.
    pub life: SimNode,
    outcome: Arc<Outcome>,
    /// Whether it was started and not ended by the driver.
    pub is_up: bool,
    /// It joins, or its disk is bad: it may end by itself as long as not everything is healed.
    pub may_end: bool,
    /// It is no member any more, or dead for good.
    pub has_left: bool,
    /// It was started while the others served clients, and has not ended since then. Who starts it
    /// again lets it join again.
    pub is_newcomer: bool,
    /// It has started with another number of shards.
    pub is_resharded: bool,
    /// Partitions and files that it got from others in earlier lives.
    pub streamed: u64,
    /// The administrator's way in.
    pub admin: Arc<admin::AdminMesh>,
}

impl Member {
    /// Its shards.
    pub fn shards(&self) -> u16 {
        self.options.smp.unwrap_or(1)
    }

    /// From its next start on it goes on with files that cannot be opened.
    pub fn start_with_damaged_files(&mut self, policy: DiskFailurePolicy) {
        self.options.disk_failure_policy = policy;
    }

    /// Its tokens, when it was started for the first time.
    pub fn tokens(&self) -> u32 {
        self.options.num_tokens
    }

    /// Why it ended by itself; empty: it did not.
    pub fn ending(&self) -> String {
        self.outcome.failure().map_or(String::new(), ToString::to_string)
    }
}

impl Run {
    /// What the seed makes of a node: shards, tokens, memory, durability.
    fn options(&self, name: &str) -> Options {
        let world = &self.world;
        let mut options = Options { workdir: "/data".to_owned(), ..Options::default() };
        options.smp = u16::try_from(1 + world.random_u64() % self.scenario.shards_max).ok();
        options.num_tokens = [1, 4, 16][(world.random_u64() % 3) as usize];
        // What was acknowledged in periodic mode does not survive a power cut.
        let cuts = self.scenario.has(Fault::PowerCut);
        let modes = [CommitLogSync::Batch, CommitLogSync::Group, CommitLogSync::Periodic];
        let count = if cuts { 2 } else { 3 };
        options.commitlog_sync = modes[(world.random_u64() % count) as usize];
        if world.random_u64().is_multiple_of(3) {
            options.memory = Some(conf::MemorySize(4 << 20));
        }
        // Some have two disks.
        if self.members.len() % 3 == 1 {
            options.data_file_directories = vec!["/data/data".to_owned(), "/data/more".to_owned()];
        }
        // Some cache rows, and some of them know after a restart which.
        if self.members.len() % 4 > 1 {
            options.row_cache_size = conf::DataSize(256 << 10);
        }
        if self.members.len() % 4 == 3 {
            options.row_cache_save_period = Duration::from_secs(20);
        }
        // Pages end behind few tombstones, not behind equally many on all nodes.
        options.query_tombstone_page_limit = [2, 10_000, 12][self.members.len() % 3];
        options.stream_entire_sstables = world.random_u64().is_multiple_of(2);
        options.hinted_handoff_enabled = self.scenario.hints;
        // What a power cut tears is larger than a sector: many hints are written at a time.
        let periods =
            if self.scenario.hint_cuts { [1_000, 3_000, 8_000] } else { [10, 300, 10_000] };
        options.hints_flush_period =
            Duration::from_millis(periods[(world.random_u64() % 3) as usize]);
        if self.scenario.auto_repair {
            options.auto_repair_enabled = !self.sabotage.unscheduled;
            options.auto_repair_window = schedule::WINDOW;
            options.auto_repair_turn = schedule::TURN;
            options.auto_repair_initial_delay = schedule::TURN;
        }
        if self.mends_by_itself {
            by_itself::settings(&mut options, !self.sabotage.unscheduled);
        }
        if self.scenario.even {
            let token = self.scenario.even_token(self.members.len() as u64);
            options.num_tokens = 1;
            options.initial_token = vec![Token(token)];
        }
        options.start_native_transport = true;
        options.native_shard_aware_transport_port = 0;
        options.rpc_address = conf::Address::Ip([0, 0, 0, 0].into());
        options.broadcast_rpc_address = Some(conf::Address::Ip(world.ip(name)));
        if self.scenario.has_datacenters() {
            let number = self.members.len() as u64;
            let (dc, rack) = (self.scenario.datacenter(number), self.scenario.rack(number));
            options.endpoint_snitch = conf::Snitch::GossipingPropertyFile;
            options.datacenter = Some(format!("dc{}", 1 + dc));
            options.rack = Some(format!("r{}", 1 + rack));
        }
        if self.scenario.nodes > 1 {
            options.listen_address = conf::Address::Ip(world.ip(name));
            options.seeds = vec![world.ip("n1").to_string()];
        }
        options
    }

    /// Starts the next node.
    pub(super) fn add_member(&mut self, is_joining: bool) -> String {
        let name = nemesis::name(self.members.len());
        let options = self.options(&name);
        let (life, outcome, admin) = start(&self.world, &name, &options, &self.scenario);
        nemesis::usual_links(self, self.members.len());
        let of_member = name.clone();
        self.members.push(Member {
            name: of_member,
            options,
            life,
            outcome,
            is_up: true,
            may_end: is_joining,
            has_left: false,
            is_newcomer: is_joining,
            is_resharded: false,
            streamed: 0,
            admin,
        });
        name
    }

    /// Starts the nodes that join.
    pub fn join(&mut self) {
        for _ in 0..self.scenario.joining {
            self.add_member(true);
        }
        if self.scenario.joining > 1 {
            self.watch_movements();
        }
    }

    /// Notes that a node ends: what it counted is kept.
    pub fn ended(&mut self, number: usize) {
        let Some(member) = self.members.get_mut(number) else { return };
        member.is_up = false;
        let counted = member.life.telemetry();
        member.streamed += datacenters::streamed(&counted);
        self.probes.add_node(&counted);
    }

    /// Starts a node again on its disk.
    pub fn restart(&mut self, number: usize) {
        let Some(member) = self.members.get_mut(number) else { return };
        if member.is_up || member.has_left {
            return;
        }
        if self.scenario.other_shards {
            let random = self.world.random_u64();
            let smp = u16::try_from(1 + random / 2 % self.scenario.shards_max).ok();
            if random.is_multiple_of(2) && smp != member.options.smp {
                member.options.smp = smp;
                member.is_resharded = true;
                if self.sabotage.unsharded_log {
                    let disk = self.world.disk(&member.name);
                    let of_log = |path: &String| path.contains("/commitlog/");
                    disk.list().into_iter().filter(of_log).for_each(|path| disk.remove(&path));
                }
                self.probes.bump("started with another number of shards", 1);
            }
        }
        (member.life, member.outcome, member.admin) =
            start(&self.world, &member.name, &member.options, &self.scenario);
        member.is_up = true;
        member.is_newcomer = false;
    }

    /// A node starts with an empty disk in the place of the member that had its address.
    pub fn replace(&mut self, number: usize) {
        self.wipe(number);
        let Some(member) = self.members.get_mut(number) else { return };
        let ip = self.world.ip(&member.name);
        member.options.replace_address_first_boot = Some(conf::Address::Ip(ip));
        member.may_end = true;
        self.restart(number);
    }

    /// Two machines have each other's disks: what belongs to the disk goes along.
    pub fn swap_options(&mut self, a: usize, b: usize) {
        let options = |n: usize| self.members.get(n).map(|m| m.options.clone());
        let (Some(of_a), Some(of_b)) = (options(a), options(b)) else { return };
        for (number, address, rest) in [(a, of_a.clone(), of_b.clone()), (b, of_b, of_a)] {
            if let Some(member) = self.members.get_mut(number) {
                member.options = Options {
                    listen_address: address.listen_address,
                    broadcast_rpc_address: address.broadcast_rpc_address,
                    replace_address_first_boot: None,
                    ..rest
                };
            }
        }
    }
}

fn start(
    world: &World,
    name: &str,
    options: &Options,
    scenario: &Scenario,
) -> (SimNode, Arc<Outcome>, Arc<admin::AdminMesh>) {
    let outcome = Arc::new(Outcome::default());
    let small = PageLimit { bytes: 150, left_out: 300, ..PageLimit::default() };
    let page_limit = scenario.small_pages.then_some(small);
    let program = Program { page_limit, ..Program::default() };
    let (options, told) = (options.clone(), outcome.clone());
    let (spec, main, admin) = Node::prepare_with_admin(name, options, told, program);
    (world.start_node(spec, main), outcome, admin)
}
