//! A node that starts on files which cannot be opened: it must answer nothing without what they have, and a
//! full repair must bring that back and let go of them.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use conf::DiskFailurePolicy;

use crate::by_itself::Right;
use crate::cluster::Run;
use crate::nemesis::name;
use crate::operator::OPERATION_MAX;
use crate::rotting::BEHIND_COPIES;
use crate::survey::{self, Reads};

/// How long a node is given to stop in order.
const STOP_MAX: Duration = Duration::from_secs(30);

/// What is done to one component of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Harm {
    /// A bit of it flips.
    Flip,
    /// Its end is gone.
    Cut,
    /// Nothing is in it.
    Empty,
    /// It is gone.
    Lose,
}

/// Whether a component is harmed in a certain way: without its TOC.txt a file was never complete, which is no
/// damage but a write that a crash cut off.
fn is_damage(component: &str, harm: Harm) -> bool {
    component != "TOC.txt" || harm != Harm::Lose
}

impl Run {
    /// Components of a stopped node's files of the workload are damaged; it starts all the same, with
    /// `disk_failure_policy` `best_effort` or `ignore`. Gives the node, unless it has no file.
    ///
    /// # Errors
    /// That it does not start, that an answer lacks something or has something else, that it does not make
    /// copies of what can be read.
    pub fn start_on_damaged_files(&mut self) -> Result<Option<usize>, String> {
        let staying = self.staying();
        let drawn = self.world.random_u64() as usize % staying.len().max(1);
        let Some(number) = staying.get(drawn).copied() else { return Ok(None) };
        let right = Rc::new(self.make_right(number)?);
        self.flush(number)?;
        // What compactions have begun to remove is not looked at by anybody.
        self.world.run_for(Duration::from_secs(2));
        self.stop(number);
        let harmed = self.harm_files(number);
        let draw = self.world.random_u64();
        let policy = match draw.is_multiple_of(2) {
            true => DiskFailurePolicy::BestEffort,
            false => DiskFailurePolicy::Ignore,
        };
        if let Some(member) = self.members.get_mut(number) {
            member.start_with_damaged_files(policy);
        }
        // The mark of the first start must be good for the second one.
        for _ in 0..1 + draw / 2 % 2 {
            self.stop(number);
            self.restart(number);
            self.serve_again(number)?;
            self.read_damaged(number, &right).map_err(|what| format!("{what} ({harmed:?})"))?;
        }
        for _ in &harmed {
            self.bump("file damaged before a start");
        }
        // Beside one damaged replica two others are enough.
        self.read_at_quorum()?;
        // Else the damage of an index that nobody has read is found behind the repair.
        self.verify_files(number)?;
        self.wait_for_copies(number)?;
        self.read_damaged(number, &right).map_err(|what| format!("{what} ({harmed:?})"))?;
        match self.mends_by_itself {
            true => self.mend_by_itself(number, &right)?,
            false => self.world.run_for(BEHIND_COPIES),
        }
        Ok(Some(number))
    }

    /// Ends a node that runs.
    pub fn stop(&mut self, number: usize) {
        let Some(life) = self.members.get(number).filter(|m| m.is_up).map(|m| m.life.clone())
        else {
            return;
        };
        if self.world.random_u64().is_multiple_of(2) {
            life.request_stop();
            // Elapsed: it is killed.
            let _ = self.world.run_until(|| !self.world.is_alive(&life), STOP_MAX);
        }
        self.world.kill(&life);
        self.ended(number);
    }

    /// Waits until a node that was started serves clients.
    ///
    /// # Errors
    /// That it does not.
    pub fn serve_again(&mut self, number: usize) -> Result<(), String> {
        let (address, others) = (self.address(&name(number)), self.staying().len() - 1);
        let what = format!("the start of {} again", name(number));
        self.ask(&what, OPERATION_MAX, move |rt| survey::serves(rt, address, others))
    }

    /// Whatever is read of it is right, or fails.
    fn read_damaged(&mut self, number: usize, right: &Rc<Right>) -> Result<(), String> {
        let (address, scenario) = (self.address(&name(number)), self.scenario.clone());
        let right = right.clone();
        let reads: Reads = self.ask("reading damaged files", OPERATION_MAX, move |rt| {
            survey::right_or_failed(rt, address, scenario, right)
        })??;
        for (count, what) in [
            (reads.right, "node with damaged files answered right"),
            (reads.failed, "node with damaged files answered with an error"),
        ] {
            if count > 0 {
                self.bump(what);
            }
        }
        Ok(())
    }

    /// Damages about half of the files of a node that is stopped; what was done to which.
    fn harm_files(&mut self, number: usize) -> Vec<(String, Harm)> {
        let disk = self.world.disk(&name(number));
        let mut sets: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for path in disk.list() {
            let is_used = |part: &str| !path.contains(part);
            if path.contains("/ks/")
                && ["/snapshots/", "/backups/", "helenus-", "-Released."].into_iter().all(is_used)
                && let Some((stem, component)) = path.rsplit_once('-')
            {
                sets.entry(stem.to_owned()).or_default().push(component.to_owned());
            }
        }
        let mut harmed = Vec::new();
        for (stem, components) in sets {
            if self.world.random_u64().is_multiple_of(2) {
                continue;
            }
            if self.sabotage.unseen_damage {
                for component in &components {
                    disk.remove(&format!("{stem}-{component}"));
                }
                continue;
            }
            // Seldom more than one.
            for _ in 0..1 + u64::from(self.world.random_u64().is_multiple_of(4)) {
                let drawn = self.world.random_u64() as usize % components.len().max(1);
                let Some(component) = components.get(drawn) else { continue };
                let harms = [Harm::Flip, Harm::Cut, Harm::Empty, Harm::Lose];
                let harm = harms[(self.world.random_u64() % 4) as usize];
                let path = format!("{stem}-{component}");
                let Some(bytes) = disk.read(&path).filter(|_| is_damage(component, harm)) else {
                    continue;
                };
                let place = self.world.random_u64() % (bytes.len() as u64).max(1);
                match harm {
                    Harm::Flip => {
                        disk.flip_bit(&path, 8 * place + self.world.random_u64() % 8);
                    }
                    Harm::Cut => {
                        disk.write(&path, bytes.get(..place as usize).unwrap_or(&[]));
                    }
                    Harm::Empty => disk.write(&path, &[]),
                    Harm::Lose => disk.remove(&path),
                }
                harmed.push((path, harm));
            }
        }
        harmed
    }
}
