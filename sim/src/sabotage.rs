//! Deliberate errors of a run, for tests of checkers.

/// Deliberate errors of a run, so that tests see the checkers notice them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sabotage {
    /// Clients write and read at ONE instead of QUORUM.
    pub weak_levels: bool,
    /// Conditional writes are sent without their conditions, serial reads at QUORUM.
    pub unconditional: bool,
    /// Tombstones go after `gc_grace_seconds` without a repair.
    pub early_purge: bool,
    /// Batches are not logged.
    pub unlogged_batches: bool,
    /// Replicas are compared at once, without waiting and reading at ALL.
    pub unrepaired: bool,
    /// Nothing is healed.
    pub unhealed: bool,
    /// Increments in doubt are sent again.
    pub repeated_increments: bool,
    /// Automatic repairs are off.
    pub unscheduled: bool,
    /// One node of a new datacenter loses some of the files that it copied.
    pub unbuilt: bool,
    /// Aborted operations continue.
    pub no_aborts: bool,
    /// A node that starts with another number of shards does not take its commit log over.
    pub unsharded_log: bool,
    /// A row of those that are folded changes before anything breaks.
    pub spoilt_rows: bool,
    /// Some memory of the world is leaked when the run is over.
    pub kept_world: bool,
    /// One node of an encrypted cluster connects in the clear, and the others accept it.
    pub clear_node: bool,
    /// One node of an encrypted cluster asks for no certificates.
    pub trusting_node: bool,
    /// One node whose files must be encrypted writes them in the clear.
    pub plain_files: bool,
    /// Files are deleted before a start that should find them damaged.
    pub unseen_damage: bool,
}
