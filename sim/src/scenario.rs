//! [`Scenario`]: what a file below `sim/scenarios/` asks for. The form is the part of TOML that it
//! needs: comments, `[tables]`, `key = number`. Everything that is not in the file is drawn from the
//! seed.

use std::collections::BTreeMap;
use std::time::Duration;

/// The scenarios that come with the program: name and file.
pub const FILES: &[(&str, &str)] = &[
    ("one", include_str!("../scenarios/one.toml")),
    ("cluster", include_str!("../scenarios/cluster.toml")),
    ("partitions", include_str!("../scenarios/partitions.toml")),
    ("crashes", include_str!("../scenarios/crashes.toml")),
    ("bad_links", include_str!("../scenarios/bad_links.toml")),
    ("schema", include_str!("../scenarios/schema.toml")),
    ("joining", include_str!("../scenarios/joining.toml")),
    ("five", include_str!("../scenarios/five.toml")),
    ("lwt", include_str!("../scenarios/lwt.toml")),
    ("changing", include_str!("../scenarios/changing.toml")),
    ("cells", include_str!("../scenarios/cells.toml")),
    ("hints", include_str!("../scenarios/hints.toml")),
    ("joining_beside_dead", include_str!("../scenarios/joining_beside_dead.toml")),
    ("resurrection", include_str!("../scenarios/resurrection.toml")),
    ("counters", include_str!("../scenarios/counters.toml")),
    ("swapping", include_str!("../scenarios/swapping.toml")),
    ("disks", include_str!("../scenarios/disks.toml")),
    ("two_dcs", include_str!("../scenarios/two_dcs.toml")),
    ("new_datacenter", include_str!("../scenarios/new_datacenter.toml")),
    ("repairing", include_str!("../scenarios/repairing.toml")),
    ("aborting", include_str!("../scenarios/aborting.toml")),
    ("giving_up", include_str!("../scenarios/giving_up.toml")),
    ("other_shards", include_str!("../scenarios/other_shards.toml")),
    ("racks", include_str!("../scenarios/racks.toml")),
    ("levels", include_str!("../scenarios/levels.toml")),
    ("altering", include_str!("../scenarios/altering.toml")),
    ("handing_over", include_str!("../scenarios/handing_over.toml")),
    ("counters_moving", include_str!("../scenarios/counters_moving.toml")),
    ("lwt_moving", include_str!("../scenarios/lwt_moving.toml")),
    ("joining_together", include_str!("../scenarios/joining_together.toml")),
    ("joining_strict", include_str!("../scenarios/joining_strict.toml")),
    ("strategies", include_str!("../scenarios/strategies.toml")),
    ("inverted", include_str!("../scenarios/inverted.toml")),
    ("scans", include_str!("../scenarios/scans.toml")),
    ("filters", include_str!("../scenarios/filters.toml")),
    ("indexes", include_str!("../scenarios/indexes.toml")),
    ("vectors", include_str!("../scenarios/vectors.toml")),
    ("encrypted", include_str!("../scenarios/encrypted.toml")),
    ("sealed", include_str!("../scenarios/sealed.toml")),
];

/// Fault that the driver of a run may inject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// A node gets SIGKILL and starts again.
    Kill,
    /// A machine loses power and starts again.
    PowerCut,
    /// A node's tasks do not run.
    Pause,
    /// One node is cut off from the other nodes, both ways.
    Isolate,
    /// Two nodes are cut off from each other.
    Partition,
    /// No segment arrives from one node at another; the other direction is open.
    OneWay,
    /// All connections between two nodes are reset.
    Reset,
    /// All connections between a node and its clients are reset.
    ClientReset,
    /// The links of a node are slow.
    SlowLink,
    /// The links of a node lose segments and reset connections.
    LossyLink,
    /// The links of a node carry few bytes per second.
    ThinLink,
    /// A wall clock jumps by up to 20 s, back or on.
    ClockJump,
    /// A wall clock runs up to 20 % too fast or too slowly for a while; the accumulated difference
    /// stays.
    ClockDrift,
    /// Each file call of a node takes 5 to 50 ms.
    SlowDisk,
    /// Disk and links of a node are slow.
    SlowNode,
    /// A disk has no room; the node starts again when it has.
    DiskFull,
    /// A disk refuses writes, and some reads; the node restarts on a good one.
    BadDisk,
    /// Bits of data files are flipped, until the node starts again with the files as they were.
    BitRot,
    /// Nothing passes between two datacenters.
    Datacenters,
    /// The nodes stop and start, one after the other.
    RollingRestart,
    /// Two nodes swap their addresses.
    SwapAddresses,
    /// A node dies with its disk; a new one replaces it.
    Replace,
    /// A node leaves. Once in a run.
    Decommission,
    /// A node dies for good and is taken out. Once in a run.
    Remove,
    /// Memtables are flushed and files merged on one node.
    Compact,
    /// A node with one token moves to another one.
    Move,
    /// A node copies its data from the others.
    Rebuild,
    /// A full or incremental repair begins on a node.
    Repair,
    /// An operator turns the schedule of repairs of a node off while one runs, and on again.
    Unschedule,
    /// A node begins to leave, or to move to another token, and an operator aborts that. In
    /// scenarios with newcomers half of the joins are aborted too; in those with rebuilds and
    /// removals, these.
    Abort,
    /// The keyspace gets another number of replicas. Only for conditional writes: of the others, a
    /// replica that is new has nothing until it is repaired.
    AlterKeyspace,
    /// The keys of a node change: to renewed ones, or to those of another cluster. In the end it has its own again.
    ChangeKeys,
    /// The provider of the keys of files hangs or fails for a while, or rotates its key.
    BreakKeys,
}

impl Fault {
    /// All, with the names in files.
    pub const ALL: [(&str, Fault); 33] = [
        ("kill", Fault::Kill),
        ("power_cut", Fault::PowerCut),
        ("pause", Fault::Pause),
        ("isolate", Fault::Isolate),
        ("partition", Fault::Partition),
        ("one_way", Fault::OneWay),
        ("reset", Fault::Reset),
        ("client_reset", Fault::ClientReset),
        ("slow_link", Fault::SlowLink),
        ("lossy_link", Fault::LossyLink),
        ("thin_link", Fault::ThinLink),
        ("clock_jump", Fault::ClockJump),
        ("clock_drift", Fault::ClockDrift),
        ("slow_disk", Fault::SlowDisk),
        ("slow_node", Fault::SlowNode),
        ("disk_full", Fault::DiskFull),
        ("bad_disk", Fault::BadDisk),
        ("bit_rot", Fault::BitRot),
        ("datacenters", Fault::Datacenters),
        ("rolling_restart", Fault::RollingRestart),
        ("swap_addresses", Fault::SwapAddresses),
        ("replace", Fault::Replace),
        ("decommission", Fault::Decommission),
        ("remove", Fault::Remove),
        ("compact", Fault::Compact),
        ("move", Fault::Move),
        ("rebuild", Fault::Rebuild),
        ("repair", Fault::Repair),
        ("unschedule", Fault::Unschedule),
        ("abort", Fault::Abort),
        ("alter_keyspace", Fault::AlterKeyspace),
        ("change_keys", Fault::ChangeKeys),
        ("break_keys", Fault::BreakKeys),
    ];

    /// Its name in files.
    pub fn name(self) -> &'static str {
        Fault::ALL.iter().find(|(_, fault)| *fault == self).map_or("", |(name, _)| name)
    }
}

/// How often a client does what, in parts of the sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mix {
    /// QUORUM writes of the next value of a key of its own.
    pub write: u64,
    /// QUORUM reads of any key.
    pub read: u64,
    /// QUORUM reads of a partition or of a whole table, in pages.
    pub scan: u64,
    /// QUORUM deletions of a key of its own.
    pub delete: u64,
    /// Logged batches over two partitions of two tables.
    pub batch: u64,
    /// `CREATE TABLE IF NOT EXISTS` of one of a few names.
    pub create: u64,
    /// Conditional writes and serial reads of few partitions.
    pub lwt: u64,
    /// Writes, expiring writes and deletions of all kinds of single cells, and reads of them.
    pub cells: u64,
    /// Increments and reads of counters.
    pub count: u64,
    /// `ALTER TABLE` of a table that is read and written: its comment, and columns that come and go.
    pub alter: u64,
    /// Tables that are made and dropped.
    pub scratch: u64,
}

impl Mix {
    /// Sum of the parts.
    pub fn total(&self) -> u64 {
        self.write
            + self.read
            + self.scan
            + self.delete
            + self.batch
            + self.create
            + self.lwt
            + self.cells
            + self.count
            + self.alter
            + self.scratch
    }
}

/// A scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// Its name: the file's without `.toml`.
    pub name: String,
    /// Number of fixed seeds that `sim` runs without arguments; 0: only on request.
    pub seeds: u64,
    /// Nodes from the beginning.
    pub nodes: u64,
    /// Nodes that join while clients are served and things break.
    pub joining: u64,
    /// A node has 1 to this many shards, by the seed.
    pub shards_max: u64,
    /// Every node has one token, all equally far apart; newcomers stand as far from each other as
    /// they can, so that they may move at the same time.
    pub even: bool,
    /// Replication factor.
    pub replication: u64,
    /// Datacenters, between which nodes are dealt out; each has that many replicas.
    pub datacenters: u64,
    /// Racks of each datacenter.
    pub racks: u64,
    /// Full repair of every node before replicas are compared.
    pub repairs: bool,
    /// Hints are stored for replicas that are away.
    pub hints: bool,
    /// Nodes repair their tables by themselves, every few seconds.
    pub auto_repair: bool,
    /// A node that starts again may have another number of shards.
    pub other_shards: bool,
    /// The nodes that join are a datacenter of their own. The keyspace gets replicas there once all
    /// is healed, and with some seeds loses them again after that.
    pub new_datacenter: bool,
    /// There is a table whose partitions are large enough to be sent as files.
    pub large: bool,
    /// Power cuts hit while a file of hints is being written, if a node has any to write.
    pub hint_cuts: bool,
    /// `propagation_delay_in_seconds` of the table of cells; `None`: the usual.
    pub propagation_delay_seconds: Option<u64>,
    /// `gc_grace_seconds` of the table of cells; `None`: the usual.
    pub gc_grace_seconds: Option<u64>,
    /// Each table is compacted by a strategy that the seed draws.
    pub strategies: bool,
    /// Partitions of a random table with known answers; each has a client of its own.
    pub inverted: u64,
    /// Clients that aggregate and filter tables whose rows are known.
    pub folding: u64,
    /// Clients that write an indexed table and read by its indexes.
    pub indexing: u64,
    /// Reads of 100 by these clients that are reads of the rows nearest to a vector.
    pub nearest: u64,
    /// Pages of scans between shards and nodes have a few rows.
    pub small_pages: bool,
    /// Most keys are written and read at other levels than QUORUM.
    pub levels: bool,
    /// Connections between nodes are encrypted: all, or those between racks.
    pub encryption: bool,
    /// Clients at the same time.
    pub clients: u64,
    /// Requests of all clients together.
    pub operations: u64,
    /// Keys that are written and read.
    pub keys: u64,
    /// Partitions of conditional writes.
    pub lwt_partitions: u64,
    /// Longest pause of a client between two requests.
    pub think: Duration,
    /// Shares of the clients' requests.
    pub mix: Mix,
    /// Number of faults.
    pub faults: u64,
    /// A fault lasts up to this long.
    pub fault_length_max: Duration,
    /// Which faults, each with its share.
    pub kinds: Vec<(Fault, u64)>,
    /// Longest time of the phase with faults.
    pub safety: Duration,
    /// How soon all nodes must answer again when everything is healed.
    pub liveness: Duration,
    /// Time for hints and replayed batches before replicas are compared.
    pub settle: Duration,
    /// By how much a request may outlive the server's own limit.
    pub lateness: Duration,
}

/// Error in a scenario file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}, line {line}: {problem}")]
pub struct ScenarioError {
    file: String,
    line: usize,
    problem: String,
}

impl Scenario {
    /// Returns true if files are encrypted by keys of a provider.
    pub fn has_key_provider(&self) -> bool {
        self.kinds.iter().any(|(fault, _)| *fault == Fault::BreakKeys)
    }

    /// Parses a file.
    ///
    /// # Errors
    /// Names the file, the line and the expectation.
    pub fn parse(name: &str, text: &str) -> Result<Scenario, ScenarioError> {
        let mut values = Values::parse(name, text)?;
        let mut number = |key: &str, or: u64| values.take(key).unwrap_or(or);
        let millis = Duration::from_millis;
        let some = |n: u64| (n < u64::MAX).then_some(n);
        let mut scenario = Scenario {
            name: name.to_owned(),
            seeds: number("seeds", 0),
            nodes: number("nodes", 3),
            joining: number("joining", 0),
            shards_max: number("shards_max", 3),
            even: number("even", 0) > 0,
            replication: number("replication", 3),
            datacenters: number("datacenters", 1).max(1),
            racks: number("racks", 1).max(1),
            repairs: number("repair", 0) > 0,
            hints: number("hints", 1) > 0,
            auto_repair: number("auto_repair", 0) > 0,
            other_shards: number("other_shards", 0) > 0,
            new_datacenter: number("new_datacenter", 0) > 0,
            large: number("large", 0) > 0,
            hint_cuts: number("hint_cuts", 0) > 0,
            propagation_delay_seconds: some(number("propagation_delay_seconds", u64::MAX)),
            gc_grace_seconds: some(number("gc_grace_seconds", u64::MAX)),
            strategies: number("strategies", 0) > 0,
            inverted: number("workload.inverted", 0),
            folding: number("workload.folding", 0),
            indexing: number("workload.indexing", 0),
            nearest: number("workload.nearest", 0),
            small_pages: number("small_pages", 0) > 0,
            levels: number("workload.levels", 0) > 0,
            encryption: number("encryption", 0) > 0,
            clients: number("workload.clients", 6),
            operations: number("workload.operations", 2000),
            keys: number("workload.keys", 60),
            lwt_partitions: number("workload.lwt_partitions", crate::lwt::PARTITIONS).max(1),
            think: millis(number("workload.think_millis", 20)),
            mix: Mix {
                write: number("workload.write", 0),
                read: number("workload.read", 0),
                scan: number("workload.scan", 0),
                delete: number("workload.delete", 0),
                batch: number("workload.batch", 0),
                create: number("workload.create", 0),
                lwt: number("workload.lwt", 0),
                cells: number("workload.cells", 0),
                count: number("workload.count", 0),
                alter: number("workload.alter", 0),
                scratch: number("workload.scratch", 0),
            },
            faults: number("faults.count", 0),
            fault_length_max: millis(number("faults.longest_millis", 5_000)),
            kinds: Vec::new(),
            safety: Duration::from_secs(number("phases.safety_seconds", 300)),
            liveness: Duration::from_secs(number("phases.liveness_seconds", 60)),
            settle: Duration::from_secs(number("phases.settle_seconds", 40)),
            lateness: millis(number("phases.lateness_millis", 1_000)),
        };
        for (kind, fault) in Fault::ALL {
            if let Some(share) = values.take(&format!("faults.{kind}")) {
                scenario.kinds.push((fault, share));
            }
        }
        values.end()?;
        let wrong = |problem: &str| {
            Err(ScenarioError { file: name.to_owned(), line: 0, problem: problem.to_owned() })
        };
        if !(1..=9).contains(&(scenario.nodes + scenario.joining))
            || scenario.nodes == 0
            || scenario.shards_max == 0
        {
            return wrong("1 to 9 nodes with at least one shard are expected");
        }
        if scenario.replication == 0 || scenario.replication * scenario.datacenters > scenario.nodes
        {
            return wrong("replication is expected to be 1 to the number of nodes of a datacenter");
        }
        if scenario.clients == 0 || scenario.keys < scenario.clients || scenario.mix.total() == 0 {
            return wrong("clients, as many keys and something to do are expected");
        }
        if scenario.faults > 0 && scenario.kinds.iter().all(|(_, share)| *share == 0) {
            return wrong("faults are to happen but none has a share");
        }
        Ok(scenario)
    }

    /// Returns true if clocks jump or drift in it.
    pub fn do_clocks_jump(&self) -> bool {
        self.has(Fault::ClockJump) || self.has(Fault::ClockDrift)
    }

    /// The datacenter of a node, both from 0.
    pub fn datacenter(&self, node: u64) -> u64 {
        match self.new_datacenter {
            true => u64::from(node >= self.nodes),
            false => node % self.datacenters,
        }
    }

    /// Returns true if nodes need a configured datacenter.
    pub fn has_datacenters(&self) -> bool {
        self.datacenters > 1 || self.racks > 1 || self.new_datacenter
    }

    /// Returns true if clients alter and drop tables, so that the schema of each epoch is compared.
    pub fn changes_schema(&self) -> bool {
        self.mix.alter + self.mix.scratch > 0
    }

    /// Returns true if that fault may happen.
    pub fn has(&self, wanted: Fault) -> bool {
        self.kinds.iter().any(|(fault, share)| *fault == wanted && *share > 0)
    }

    /// The token of a node, from 0, when all have one and stand evenly: the first ones each in the
    /// middle of a part of the ring, newcomers between two parts.
    pub fn even_token(&self, node: u64) -> i64 {
        let halves = match node.checked_sub(self.nodes) {
            None => 2 * node + 1,
            Some(newcomer) => 2 * (newcomer * self.nodes / self.joining.max(1) + 1),
        };
        let half = (1_u128 << 64) / u128::from(2 * self.nodes);
        (u128::from(halves) * half + (1 << 63)) as u64 as i64
    }

    /// The rack of a node in its datacenter, from 0.
    pub fn rack(&self, node: u64) -> u64 {
        node / self.datacenters % self.racks
    }

    /// The replication of the keyspace, as CREATE KEYSPACE wants it.
    pub fn replication_text(&self) -> String {
        self.replicated(self.replication)
    }

    /// The same with that many replicas in each datacenter.
    pub fn replicated(&self, replication: u64) -> String {
        if !self.has_datacenters() {
            return format!("{{'class': 'SimpleStrategy', 'replication_factor': {replication}}}");
        }
        let of_each = (1..=self.datacenters).map(|dc| format!(", 'dc{dc}': {replication}"));
        format!("{{'class': 'NetworkTopologyStrategy'{}}}", of_each.collect::<String>())
    }

    /// Returns the built-in scenario of that name.
    pub fn of_name(name: &str) -> Option<Result<Scenario, ScenarioError>> {
        let (name, text) = FILES.iter().find(|(known, _)| *known == name)?;
        Some(Scenario::parse(name, text))
    }
}

/// The numbers of a file by `table.key`, with their lines.
struct Values {
    file: String,
    numbers: BTreeMap<String, (u64, usize)>,
}

impl Values {
    fn parse(file: &str, text: &str) -> Result<Values, ScenarioError> {
        let mut values = Values { file: file.to_owned(), numbers: BTreeMap::new() };
        let mut table = String::new();
        for (line, text) in (1..).zip(text.lines()) {
            let wrong = |problem: &str| ScenarioError {
                file: file.to_owned(),
                line,
                problem: problem.to_owned(),
            };
            let text = text.split('#').next().unwrap_or_default().trim();
            if text.is_empty() {
                continue;
            }
            if let Some(name) = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')) {
                table = format!("{name}.");
                continue;
            }
            let Some((key, value)) = text.split_once('=') else {
                return Err(wrong("\"key = number\" or \"[table]\" is expected"));
            };
            let Ok(value) = value.trim().replace('_', "").parse() else {
                return Err(wrong("a number is expected behind \"=\""));
            };
            let key = format!("{table}{}", key.trim());
            if values.numbers.insert(key, (value, line)).is_some() {
                return Err(wrong("the key is there for the second time"));
            }
        }
        Ok(values)
    }

    fn take(&mut self, key: &str) -> Option<u64> {
        self.numbers.remove(key).map(|(value, _)| value)
    }

    fn end(self) -> Result<(), ScenarioError> {
        match self.numbers.into_iter().min_by_key(|(_, (_, line))| *line) {
            None => Ok(()),
            Some((key, (_, line))) => Err(ScenarioError {
                file: self.file,
                line,
                problem: format!("unknown key \"{key}\""),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_that_comes_along_is_right() {
        for (name, text) in FILES {
            let scenario = Scenario::parse(name, text).unwrap();
            assert_eq!(scenario.name, *name);
            // Limits on the cost of one run, so that all of them stay affordable.
            assert!(scenario.operations <= 2_500 && scenario.faults <= 16, "{name}");
        }
    }

    #[test]
    fn a_file_is_read_and_what_it_does_not_say_is_usual() {
        let text = "# comment\nnodes = 5 # five\nreplication = 2\n[workload]\nwrite = 1_0\n\n\
                    [faults]\ncount = 3\none_way = 2\nkill = 1\n";
        let scenario = Scenario::parse("x", text).unwrap();
        assert_eq!((scenario.nodes, scenario.replication, scenario.mix.write), (5, 2, 10));
        assert_eq!(scenario.kinds, [(Fault::Kill, 1), (Fault::OneWay, 2)]);
        assert_eq!((scenario.faults, scenario.operations), (3, 2000));
    }

    #[test]
    fn even_tokens_are_far_from_each_other() {
        let scenario = Scenario::of_name("joining_together").unwrap().unwrap();
        let count = scenario.nodes + scenario.joining;
        let mut tokens: Vec<i64> = (0..count).map(|n| scenario.even_token(n)).collect();
        let (first, second) = (tokens[count as usize - 2], tokens[count as usize - 1]);
        tokens.sort_unstable();
        let least = tokens.windows(2).map(|w| w[1].abs_diff(w[0])).min().unwrap();
        assert!(least > u64::MAX / scenario.nodes / 3, "{tokens:?}");
        // With three replicas, three nodes between newcomers keep their ranges apart.
        let between = tokens.iter().filter(|t| (first..=second).contains(t)).count() - 2;
        assert!((3..=scenario.nodes as usize - 3).contains(&between), "{tokens:?}");
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        let error = |text: &str| Scenario::parse("x", text).unwrap_err().to_string();
        assert_eq!(error("nodes = 3\nnode = 4"), "x, line 2: unknown key \"node\"");
        assert_eq!(error("[faults]\nkil = 4"), "x, line 2: unknown key \"faults.kil\"");
        assert!(error("nodes 3").contains("line 1: \"key = number\""));
        assert!(error("nodes = many").contains("a number is expected"));
        assert!(error("nodes = 3\nnodes = 3").contains("second time"));
        assert!(error("nodes = 3\nreplication = 4\n[workload]\nread = 1").contains("replication"));
        assert!(error("[workload]\nread = 1\n[faults]\ncount = 1").contains("none has a share"));
    }
}
