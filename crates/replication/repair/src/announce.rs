//! [`Announcer`]: sends the messages of [`crate::announcement`] to the replicas of a repair.

use std::future::Future;
use std::pin::pin;
use std::rc::Rc;

use internode::Verb;
use messaging::Outgoing;
use stdx::{HostId, ShardId, TableId, Uuid};

use crate::announcement::{News, encode, joined};
use crate::clock::Clock;
use crate::env::Env;
use crate::error::RepairError;
use crate::exchange::{Work, all};
use crate::job::Job;
use crate::participation::{Estimating, Participations, RepairKey};
use crate::scope::{Kind, Preview, Session};
use crate::shards::{Order, Shards};

/// Announces the repairs of this node to it and to the replicas.
pub(crate) struct Announcer {
    env: Rc<Env>,
    shards: Rc<Shards>,
    participations: Rc<Participations>,
}

impl Announcer {
    pub(crate) fn new(
        env: Rc<Env>,
        shards: Rc<Shards>,
        participations: Rc<Participations>,
    ) -> Announcer {
        Announcer { env, shards, participations }
    }

    /// Takes in news of a repair, from a peer or of this node itself. Returns a comparison whose
    /// size is to be estimated now. Shard 0.
    pub(crate) fn hear(&self, about: RepairKey, news: News) -> Option<Estimating> {
        self.participations.take(about, news, Clock::read(&self.env.rt))
    }

    /// Records news of a repair of this node.
    fn hear_own(&self, job: &Job, news: News) -> Option<Estimating> {
        let initiator = (self.env.snapshot)().local.host_id;
        self.hear(RepairKey { initiator, repair: job.session }, news)
    }

    /// Finds out how much there is to compare.
    pub(crate) async fn estimate(&self, asked: Estimating) {
        let Estimating { id, table, ranges } = asked;
        // If a shard cannot tell, the estimate is unknown.
        let found = self.shards.on_all(&Order::Estimate { table, ranges }).await;
        let found = found.unwrap_or_default().estimate;
        self.participations.note_estimate(id, found, self.env.rt.wall());
    }

    /// Tells this node and the replicas of all sessions that a repair begins, and of which ranges.
    pub(crate) fn begins(&self, job: &Job, sessions: &[Session], tables: &[TableId]) {
        let mut hosts: Vec<HostId> = sessions.iter().flat_map(|s| s.peers.clone()).collect();
        hosts.sort_unstable();
        hosts.dedup();
        let begins = |ranges| News::Begins {
            incremental: job.options.kind() == Kind::Incremental,
            global: job.options.is_global(),
            preview: Preview::of(&job.options),
            tables: tables.to_vec(),
            ranges,
        };
        let _ = self.hear_own(job, begins(joined(sessions.iter())));
        for host in &hosts {
            let of_host = sessions.iter().filter(|s| s.peers.contains(host));
            self.send(*host, job.session, &begins(joined(of_host)));
        }
        *job.told.borrow_mut() = hosts;
    }

    /// Announces to the replicas of a session that a table is about to be compared, and waits until
    /// they know it: the requests that they get from then on are counted for it.
    ///
    /// # Errors
    /// The repair was ended meanwhile.
    pub(crate) async fn compares(
        &self,
        job: &Job,
        hosts: &[HostId],
        news: News,
    ) -> Result<(), RepairError> {
        let mut payload = Vec::new();
        encode(&mut payload, job.session, &news);
        if let Some(asked) = self.hear_own(job, news) {
            self.estimate(asked).await;
        }
        let payload = &payload;
        let work = hosts.iter().map(|host| -> Work<'_, ()> {
            Box::pin(async move {
                let outgoing = self.outgoing(*host);
                let asked =
                    self.env.messaging.request(&outgoing, |out| out.extend_from_slice(payload));
                if let Err(error) = self.env.unless_ended(job, asked).await? {
                    tracing::debug!(%host, %error, "replica does not report its part in a repair");
                }
                Ok(())
            })
        });
        all(work.collect(), usize::MAX).await?;
        Ok(())
    }

    /// Tells this node and all replicas of the repair.
    pub(crate) fn to_all(&self, job: &Job, news: &News) {
        let told = job.told.borrow();
        for host in told.iter() {
            self.send(*host, job.session, news);
        }
        let _ = self.hear_own(job, news.clone());
    }

    /// Does the work, and sends the replicas periodic signs of life meanwhile.
    pub(crate) async fn with_signs_of_life<T>(
        &self,
        job: &Job,
        work: impl Future<Output = T>,
    ) -> T {
        let mut work = pin!(work);
        loop {
            let next = self.env.rt.now() + self.env.settings.session_idle / 4;
            match self.env.rt.timeout(next, work.as_mut()).await {
                Ok(done) => return done,
                Err(_) => self.to_all(job, &News::GoesOn),
            }
        }
    }

    fn outgoing(&self, host: HostId) -> Outgoing {
        // A node that does not answer soon must not hold the repair up.
        let deadline = self.env.rt.now() + self.env.settings.retry_pause * 8;
        Outgoing { host, shard: ShardId(0), verb: Verb::RepairTell, deadline, trace: None }
    }

    fn send(&self, host: HostId, repair: Uuid, news: &News) {
        let outgoing = self.outgoing(host);
        let sent = self.env.messaging.send_one_way(&outgoing, |out| encode(out, repair, news));
        if let Err(error) = sent {
            tracing::debug!(%host, %error, "cannot announce a repair to a replica");
        }
    }
}
