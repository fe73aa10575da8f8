//! Files that rot for good: the node finds them, keeps what can be read of them, and a full repair brings
//! back what is lost.

use std::time::Duration;

use admin::model::{CompactionCommand, DamagedReport, VerifyRequest};
use admin::{AdminReply, AdminRequest, UpkeepReply, UpkeepRequest};
use rt::ShardId;

use crate::cluster::Run;
use crate::nemesis::{name, rot};

/// Longest time until what can be read of damaged files is in others, and until a repair has let them go.
const HEALED_MAX: Duration = Duration::from_secs(300);
/// A repair counts from so long behind the copies: the product wants ten seconds.
pub const BEHIND_COPIES: Duration = Duration::from_secs(12);

impl Run {
    /// Bits of a node's files of the workload flip, and stay so; the node is told to verify its files.
    /// Gives the node, unless it has no file.
    ///
    /// # Errors
    /// That it does not find what rots, or make copies of the rest.
    pub fn rot_files(&mut self) -> Result<Option<usize>, String> {
        let staying: Vec<usize> = (0..self.members.len())
            .filter(|n| self.members.get(*n).is_some_and(|m| !m.has_left))
            .collect();
        let drawn = self.world.random_u64() as usize % staying.len().max(1);
        let Some(number) = staying.get(drawn).copied() else { return Ok(None) };
        let right = match self.mends_by_itself {
            true => Some(self.make_right(number)?),
            false => None,
        };
        self.flush(number)?;
        // What compactions have begun to remove is not looked at by anybody.
        self.world.run_for(Duration::from_secs(2));
        let bits = rot(self, number);
        if bits.is_empty() {
            return Ok(None);
        }
        for _ in &bits {
            self.bump("file rotten for good");
        }
        self.verify_files(number)?;
        if self.damaged(number)?.is_empty() {
            return Err(format!("{} does not find what rotted: {bits:?}", name(number)));
        }
        self.wait_for_copies(number)?;
        match right {
            Some(right) => self.mend_by_itself(number, &right)?,
            None => self.world.run_for(BEHIND_COPIES),
        }
        Ok(Some(number))
    }

    /// A node verifies its files of the workload, so that damage is known that no read has met.
    ///
    /// # Errors
    /// That it does not answer.
    pub fn verify_files(&mut self, number: usize) -> Result<(), String> {
        for shard in self.shards_of(number) {
            let verify = CompactionCommand::Verify {
                keyspaces: vec!["ks".to_owned()],
                tables: Vec::new(),
                how: VerifyRequest::default(),
            };
            // Answered with what is wrong.
            let verify = AdminRequest::Upkeep(UpkeepRequest::Compaction(verify));
            self.admin_at(number, shard, verify)?;
        }
        Ok(())
    }

    /// A repair of everything has ended: no file is damaged any more.
    ///
    /// # Errors
    /// Which one is.
    pub fn let_go_of_damaged(&mut self, number: usize) -> Result<(), String> {
        self.wait_for_damaged((number, HEALED_MAX), "keeps after a repair", |_| false)
    }

    /// Waits until what can be read of all damaged files of a node is in others.
    ///
    /// # Errors
    /// Of which one it is not.
    pub fn wait_for_copies(&mut self, number: usize) -> Result<(), String> {
        let lacks = "has no copies of what can be read of";
        self.wait_for_damaged((number, HEALED_MAX), lacks, |file| file.salvaged)
    }

    /// Waits until all damaged files of a node are as they should be, or gone; for so long at most.
    ///
    /// # Errors
    /// Which one is not.
    pub fn wait_for_damaged(
        &mut self,
        (number, most): (usize, Duration),
        what: &str,
        is_right: impl Fn(&DamagedReport) -> bool,
    ) -> Result<(), String> {
        let limit = self.world.now() + most;
        loop {
            let damaged = self.damaged(number)?;
            let Some(wrong) = damaged.iter().find(|file| !is_right(file)) else { return Ok(()) };
            if self.world.now() > limit {
                return Err(format!("{} {what} {wrong:?}", name(number)));
            }
            self.world.run_for(Duration::from_secs(1));
        }
    }

    fn shards_of(&self, number: usize) -> impl Iterator<Item = ShardId> + use<> {
        (0..self.members.get(number).map_or(0, |m| m.shards())).map(ShardId)
    }

    /// What a node names as damaged.
    ///
    /// # Errors
    /// That it does not answer.
    pub fn damaged(&mut self, number: usize) -> Result<Vec<DamagedReport>, String> {
        let mut all = Vec::new();
        for shard in self.shards_of(number) {
            let asked = AdminRequest::Upkeep(UpkeepRequest::Damaged);
            match self.admin_at(number, shard, asked)? {
                AdminReply::Upkeep(UpkeepReply::Damaged(files)) => all.extend(files),
                other => return Err(format!("damaged files of {}: {other:?}", name(number))),
            }
        }
        Ok(all)
    }
}
