//! Options of a node, from the seed and the scenario.

use std::time::Duration;

use conf::{CommitLogSync, DataRate, Options};
use stdx::Token;

use super::Nodes;
use crate::scenario::Fault;

/// Within which every table is to be repaired.
const SCHEDULE_WINDOW: Duration = Duration::from_secs(20);
/// Length of a node's turn to begin.
pub const TURN: Duration = Duration::from_secs(1);
/// Delay from the start of a node to its first automatic repair.
const BEGIN: Duration = Duration::from_secs(20);
/// The schedule has its turns so seldom that it repairs nothing meanwhile.
const MENDING_TURN: Duration = Duration::from_secs(86_400);
const MENDING_WINDOW: Duration = Duration::from_secs(365 * 86_400);
/// Slow enough to be met in the middle.
const THROUGHPUT: DataRate = DataRate(4 << 10);
/// Where damaged files are repaired by themselves, nothing else is.
fn mend_by_itself(options: &mut Options, is_enabled: bool) {
    options.auto_repair_enabled = is_enabled;
    options.auto_repair_initial_delay = BEGIN;
    options.auto_repair_turn = MENDING_TURN;
    options.auto_repair_window = MENDING_WINDOW;
    options.auto_repair_throughput = THROUGHPUT;
}

/// Returns the random settings of a node: shards, tokens, memory, durability.
pub(super) fn of_seed(nodes: &Nodes, name: &str) -> Options {
    let world = &nodes.world;
    let mut options = Options { workdir: "/data".to_owned(), ..Options::default() };
    options.smp = u16::try_from(1 + world.random_u64() % nodes.scenario.shards_max).ok();
    options.num_tokens = [1, 4, 16][(world.random_u64() % 3) as usize];
    // Acknowledged writes of periodic mode do not survive a power cut.
    let cuts = nodes.scenario.has(Fault::PowerCut);
    let modes = [CommitLogSync::Batch, CommitLogSync::Group, CommitLogSync::Periodic];
    let count = if cuts { 2 } else { 3 };
    options.commitlog_sync = modes[(world.random_u64() % count) as usize];
    if world.random_u64().is_multiple_of(3) {
        options.memory = Some(conf::MemorySize(4 << 20));
    }
    // Some have two disks.
    if nodes.members.len() % 3 == 1 {
        options.data_file_directories = vec!["/data/data".to_owned(), "/data/more".to_owned()];
    }
    // Some cache rows, and some of them know after a restart which.
    if nodes.members.len() % 4 > 1 {
        options.row_cache_size = conf::DataSize(256 << 10);
    }
    if nodes.members.len() % 4 == 3 {
        options.row_cache_save_period = Duration::from_secs(20);
    }
    // Pages end after few tombstones, with limits that differ between nodes.
    options.query_tombstone_page_limit = [2, 10_000, 12][nodes.members.len() % 3];
    options.stream_entire_sstables = world.random_u64().is_multiple_of(2);
    options.hinted_handoff_enabled = nodes.scenario.hints;
    // A power cut tears writes larger than a sector: many hints are written at a time.
    let periods = if nodes.scenario.hint_cuts { [1_000, 3_000, 8_000] } else { [10, 300, 10_000] };
    options.hints_flush_period = Duration::from_millis(periods[(world.random_u64() % 3) as usize]);
    if nodes.scenario.auto_repair {
        options.auto_repair_enabled = !nodes.sabotage.unscheduled;
        options.auto_repair_window = SCHEDULE_WINDOW;
        options.auto_repair_turn = TURN;
        options.auto_repair_initial_delay = TURN;
    }
    if nodes.mends_by_itself {
        mend_by_itself(&mut options, !nodes.sabotage.unscheduled);
    }
    if nodes.scenario.even {
        let token = nodes.scenario.even_token(nodes.members.len() as u64);
        options.num_tokens = 1;
        options.initial_token = vec![Token(token)];
    }
    options.start_native_transport = true;
    options.native_shard_aware_transport_port = 0;
    options.rpc_address = conf::Address::Ip([0, 0, 0, 0].into());
    options.broadcast_rpc_address = Some(conf::Address::Ip(world.ip(name)));
    if nodes.scenario.has_datacenters() {
        let number = nodes.members.len() as u64;
        let (dc, rack) = (nodes.scenario.datacenter(number), nodes.scenario.rack(number));
        options.endpoint_snitch = conf::Snitch::GossipingPropertyFile;
        options.datacenter = Some(format!("dc{}", 1 + dc));
        options.rack = Some(format!("r{}", 1 + rack));
    }
    if nodes.scenario.nodes > 1 {
        options.listen_address = conf::Address::Ip(world.ip(name));
        options.seeds = vec![world.ip("n1").to_string()];
    }
    options
}
