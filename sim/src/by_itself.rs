//! Damaged files that nobody repairs: the node itself must begin the repair that brings back what is lost of
//! them, and let go of them, while a replica is dead at first and the node ends in the middle.

use std::collections::BTreeMap;
use std::time::Duration;

use conf::{DataRate, Options};

use crate::checks::{self, Rows};
use crate::cluster::Run;
use crate::nemesis::name;
use crate::operator::OPERATION_MAX;
use crate::survey;

/// From the start of a node until it begins repairs by itself.
const BEGIN: Duration = Duration::from_secs(20);
/// The schedule has its turns so seldom that it repairs nothing meanwhile.
const TURN: Duration = Duration::from_secs(86_400);
const WINDOW: Duration = Duration::from_secs(365 * 86_400);
/// Slow enough to be met in the middle.
const THROUGHPUT: DataRate = DataRate(4 << 10);
/// Longest time until a node says that a repair waits for a dead replica: one that began before that was
/// noticed fails first, and rests.
const WAITS_MAX: Duration = Duration::from_secs(240);
const WAITS_LOOK: Duration = Duration::from_secs(1);
/// Longest time until a repair runs, and how often it is looked.
const RUNS_MAX: Duration = Duration::from_secs(240);
const RUNS_LOOK: Duration = Duration::from_millis(50);
/// Longest time until damaged files are let go of: what failed three times rests for four minutes, and others
/// take a repair whose coordinator was killed for one that goes on for ten.
const MENDED_MAX: Duration = Duration::from_secs(1_000);

/// What a node shows at ONE, by table.
pub type Right = BTreeMap<String, Rows>;

/// Where damaged files are repaired by themselves, nothing else is.
pub fn settings(options: &mut Options, is_enabled: bool) {
    options.auto_repair_enabled = is_enabled;
    options.auto_repair_initial_delay = BEGIN;
    options.auto_repair_turn = TURN;
    options.auto_repair_window = WINDOW;
    options.auto_repair_throughput = THROUGHPUT;
}

impl Run {
    /// Has each replica have everything, so that what is right is known: what a node shows then.
    ///
    /// # Errors
    /// That a repair fails, or the node does not answer.
    pub fn make_right(&mut self, number: usize) -> Result<Right, String> {
        self.world.run_for(self.scenario.settle);
        self.repair_all()?;
        self.shown_by(number)
    }

    fn shown_by(&mut self, number: usize) -> Result<Right, String> {
        let (address, scenario) = (self.address(&name(number)), self.scenario.clone());
        self.ask("what is right", OPERATION_MAX, move |rt| {
            survey::look_at_one(rt, address, scenario)
        })?
    }

    /// Of the damaged files of a node there are copies just now. Waits until it has let go of all of them, and
    /// looks whether everything is there again; perhaps another node is down at first, perhaps it ends itself
    /// in the middle.
    ///
    /// # Errors
    /// That it does not, or what is missing.
    pub fn mend_by_itself(&mut self, number: usize, right: &Right) -> Result<(), String> {
        let draw = self.world.random_u64();
        let others: Vec<usize> = self.staying().into_iter().filter(|n| *n != number).collect();
        let other = others.get((draw / 4) as usize % others.len().max(1)).copied();
        let files = self.damaged(number)?.len();
        if let Some(other) = other.filter(|_| draw.is_multiple_of(2) && files > 0) {
            self.stop(other);
            if self.wait_for_words(number, "not alive", (WAITS_MAX, WAITS_LOOK))? {
                self.bump("repair for a damaged file waited for a dead node");
            }
            self.restart(other);
            self.serve_again(other)?;
        }
        if (draw / 2).is_multiple_of(2)
            && self.wait_for_words(number, "of its ranges runs", (RUNS_MAX, RUNS_LOOK))?
        {
            self.stop(number);
            self.bump("node ended while it repaired for a damaged file");
            self.restart(number);
            self.serve_again(number)?;
        }
        let keeps = "keeps, although it should repair what is lost of";
        self.wait_for_damaged((number, MENDED_MAX), keeps, |_| false)?;
        for _ in 0..files {
            self.bump("damaged file let go of without being asked");
        }
        // Before anything else repairs something.
        let shown = self.shown_by(number)?;
        let was = [("what was".to_owned(), right.clone()), (name(number), shown)];
        checks::converged(&was).map_err(|what| format!("let go of damaged files: {what}"))?;
        let (tables, _) = self.look()?;
        checks::converged(&tables).map_err(|what| format!("let go of damaged files: {what}"))
    }

    /// Waits until a node says so of the repair for one of its damaged files; false: it has none any more.
    fn wait_for_words(
        &mut self,
        number: usize,
        words: &str,
        (most, look): (Duration, Duration),
    ) -> Result<bool, String> {
        let limit = self.world.now() + most;
        loop {
            let files = self.damaged(number)?;
            let says = |file: &admin::model::DamagedReport| {
                file.repair.as_ref().is_some_and(|repair| repair.contains(words))
            };
            if files.is_empty() || files.iter().any(says) {
                return Ok(!files.is_empty());
            }
            if self.world.now() > limit {
                let name = name(number);
                return Err(format!("{name} does not say \"{words}\" of damaged files: {files:?}"));
            }
            self.world.run_for(look);
        }
    }
}
