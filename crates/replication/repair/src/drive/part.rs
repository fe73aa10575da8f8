//! [`Part`]: one table of one session; executes the steps of its plan on this node's data and the
//! peers'.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use cluster::ClusterSnapshot;
use data::TableShape;
use data::page_cursor::PageChain;
use data::replica_page::{PageEnd, ReplicaPage};
use internode::Verb;
use request::{ReconcileCommand, Reconciled, Target, reconcile};
use schema::Table;
use stdx::{DeletionSeconds, HostId, TableId, Token, Uuid};
use store::ReadScope;

use crate::env::Env;
use crate::error::RepairError;
use crate::exchange::{Destination, Work, all};
use crate::job::{Job, JobPart};
use crate::participation::{ReadCount, job_id};
use crate::plan::{Difference, Group, Own, Plan, Step};
use crate::scope::{self, Kind, Session};
use crate::segment::{Position, Segment};
use crate::split;
use crate::wire::{self, Digest};

use super::Drive;

/// Repair of one table in one session.
pub(super) struct Part<'a> {
    pub(super) drive: &'a Drive,
    pub(super) env: &'a Env,
    pub(super) job: &'a Job,
    pub(super) session: &'a Session,
    /// Which one of the repair's sessions it is.
    number: usize,
    /// This table in it: [`job_id`].
    pub(super) id: Uuid,
    pub(super) table: Arc<Table>,
    shape: Rc<TableShape>,
    durable: bool,
    snapshot: Arc<ClusterSnapshot>,
    /// Clock of TTLs, the same for all replicas: a cell that expires between the reads of two of
    /// them is no difference.
    now: DeletionSeconds,
    /// Selects the data to compare.
    pub(super) scope: ReadScope,
}

impl<'a> Part<'a> {
    pub(super) fn new(
        drive: &'a Drive,
        job: &'a Job,
        number: JobPart,
        session: &'a Session,
        table: TableId,
    ) -> Result<Part<'a>, RepairError> {
        let env = &drive.env;
        let number = number.session;
        let snapshot = (env.snapshot)();
        let Some(table) = snapshot.schema.table_by_id(table).cloned() else {
            return Err(RepairError::Dropped(table.to_string()));
        };
        let shape = Rc::new(TableShape::for_table(&table));
        let keyspace = snapshot.schema.keyspace(&table.keyspace);
        let durable = keyspace.is_none_or(|k| k.params.durable_writes);
        let now = env.rt.wall().seconds();
        let scope = ReadScope::Repair;
        let id = job_id(job.session, job.session_of(number), table.id);
        let mut part = Part {
            drive,
            env,
            job,
            session,
            number,
            id,
            table,
            shape,
            durable,
            snapshot,
            now,
            scope,
        };
        // The plan was made with metadata that may be older by now.
        part.check(part.snapshot.clone())?;
        Ok(part)
    }

    pub(super) async fn carry_out(
        &mut self,
        step: Step,
        plan: &mut Plan,
    ) -> Result<(), RepairError> {
        match step {
            Step::Read(segment) => {
                let (own, behind) = self.read(segment).await?;
                plan.read(own, behind);
                // The digests of the peers must be of the same second.
                return Ok(());
            }
            Step::Ask(asked) => {
                let answers = self.ask_hashes(&self.session.peers, &asked).await?;
                plan.answered(asked, &answers);
            }
            Step::Split(difference) => {
                let parts = self.split(&difference).await?;
                let answers = self.ask_hashes(&self.one_of_each(&difference), &parts).await?;
                plan.split(difference, parts, &answers);
            }
            Step::Merge(difference) => self.merge(difference).await?,
            Step::Done => {}
        }
        self.now = self.env.rt.wall().seconds();
        Ok(())
    }

    /// Ends the repair if it was aborted, if the node stops, or if the ranges have other replicas
    /// now.
    pub(super) fn look_around(&mut self) -> Result<(), RepairError> {
        if self.env.stopping.get() {
            return Err(RepairError::Stopping);
        }
        if self.job.aborted.get() {
            return Err(RepairError::Aborted);
        }
        let snapshot = (self.env.snapshot)();
        if snapshot.epoch != self.snapshot.epoch {
            self.check(snapshot)?;
        }
        self.env.check_alive(self.session.peers.iter().copied())
    }

    /// The replicas that are compared with this node.
    pub(super) fn peers(&self) -> String {
        let peers = self.session.peers.iter();
        peers.map(|host| format!("/{}", self.env.address(*host))).collect::<Vec<_>>().join(", ")
    }

    /// Describes the outcome of a comparison.
    pub(super) fn outcome(&self, compared: u64, differing: u64) -> String {
        let (name, peers) = (self.name(), self.peers());
        let is_preview = matches!(self.job.options.kind(), Kind::Preview(_));
        match (differing, is_preview) {
            (0, _) => format!("This node and {peers} are consistent for {name}"),
            (n, true) => {
                format!(
                    "{n} of {compared} stretches of {name} differ between this node and {peers}"
                )
            }
            (n, false) => format!(
                "{n} of {compared} stretches of {name} differed between this node and {peers}; {name} is \
                 fully synced"
            ),
        }
    }

    pub(super) fn name(&self) -> String {
        format!("{}.{}", self.table.keyspace, self.table.name)
    }

    fn check(&mut self, snapshot: Arc<ClusterSnapshot>) -> Result<(), RepairError> {
        let Some(table) = snapshot.schema.table_by_id(self.table.id) else {
            return Err(RepairError::Dropped(self.name()));
        };
        let truncated_at = |s: &ClusterSnapshot| s.truncations.get(&self.table.id).cloned();
        if truncated_at(&snapshot) != truncated_at(&self.snapshot) {
            // Rows read before the truncation must not be resurrected.
            return Err(RepairError::Truncated(self.name()));
        }
        if !scope::still_holds(&snapshot, &self.table.keyspace, self.session) {
            return Err(RepairError::Moved);
        }
        if table.version != self.table.version {
            self.table = table.clone();
            self.shape = Rc::new(TableShape::for_table(table));
        }
        self.snapshot = snapshot;
        Ok(())
    }

    /// This node's page of a segment.
    async fn own_page(&self, segment: &Segment, bytes: usize) -> Result<Vec<u8>, RepairError> {
        let command = segment.command(self.table.id, self.now);
        let (coordinator, scope) = (&self.env.coordinator, self.scope);
        let read = coordinator.replica_reads().read_stretch(&self.snapshot, command, bytes, scope);
        let page = self.env.unless_ended(self.job, read).await??;
        self.job.count(|c| c.bytes_read += page.len() as u64);
        self.env.counts.bytes_read.add(page.len() as u64);
        self.env.pace(self.job, page.len()).await?;
        Ok(page)
    }

    /// The position at which a page ended; `None`: nothing comes after it.
    fn position_of(&self, end: &PageEnd<'_>) -> Option<Position> {
        match self.shape.clustering().is_empty() {
            true => Position::of_whole_partition(end),
            false => Position::of(end),
        }
    }

    /// Reads this node's content of a segment from its start. Returns it and the segments left.
    async fn read(&self, segment: Segment) -> Result<(Vec<Own>, Vec<Segment>), RepairError> {
        let page = self.own_page(&segment, self.env.settings.segment_bytes).await?;
        let page = opened(&page);
        let (read, at) = (ReadCount::of(&page, &segment), self.env.rt.wall());
        self.drive.participations.count_own(self.id, read, at);
        let own = |segment, content: &[u8]| Own {
            segment,
            digest: Some(wire::digest_of(content)),
            bytes: content.len(),
        };
        let Some(end) = self.position_of(&page.end()) else {
            return Ok((vec![own(segment, page.content())], Vec::new()));
        };
        let (before, behind) = segment.split(&end);
        let mut parts = before.into_iter();
        let found = match (parts.next(), parts.next()) {
            (Some(head), Some(tail)) => {
                // Whole partitions, and the beginning of the one in which the page ended.
                let (first, last) = page.content_before_last_partition();
                vec![own(head, first), own(tail, last)]
            }
            (head, _) => head.into_iter().map(|s| own(s, page.content())).collect(),
        };
        Ok((found, behind))
    }

    /// The digests of segments that these peers have.
    async fn ask_hashes(
        &self,
        peers: &[HostId],
        asked: &[Own],
    ) -> Result<Vec<Vec<Digest>>, RepairError> {
        let token = asked.first().map_or(Token::MIN, |o| o.segment.token());
        // Twice as much as here: a peer that has more is read page by page.
        let least = self.env.settings.segment_bytes;
        let commands: Vec<_> = asked
            .iter()
            .map(|o| (o.segment.command(self.table.id, self.now), o.bytes.max(least) * 2))
            .collect();
        let mut payload = Vec::new();
        wire::encode_hashes(&mut payload, self.scope, &commands);
        let payload = &payload;
        let work = peers.iter().map(|host| -> Work<'_, Vec<Digest>> {
            Box::pin(async move {
                let to = Destination::owner(*host, self.table.id, token);
                let answer = self.drive.exchange.ask(self.job, to, Verb::RepairHashes, payload);
                let answer = answer.await?;
                let address = self.env.address(*host);
                let digests = wire::decode_digests(&answer)
                    .map_err(|e| RepairError::Malformed { address, error: e.to_string() })?;
                if digests.len() != asked.len() {
                    let error = format!("{} digests of {}", digests.len(), asked.len());
                    return Err(RepairError::Malformed { address, error });
                }
                Ok(digests)
            })
        });
        self.in_turns(peers, work.collect()).await
    }

    /// The answers of peers in their order: all at once, one after the other, or one of each
    /// datacenter at a time.
    async fn in_turns<'w, T: 'w>(
        &self,
        peers: &[HostId],
        work: Vec<Work<'w, T>>,
    ) -> Result<Vec<T>, RepairError> {
        let options = &self.job.options;
        if options.sequential {
            return all(work, 1).await;
        }
        if !options.datacenter_parallel {
            return all(work, usize::MAX).await;
        }
        let members = &self.snapshot.members;
        let datacenter = |host: &HostId| members.get(host).map(|m| m.datacenter.clone());
        let mut rows: BTreeMap<Option<String>, Vec<(usize, Work<'w, T>)>> = BTreeMap::new();
        for ((at, host), one) in peers.iter().enumerate().zip(work) {
            rows.entry(datacenter(host)).or_default().push((at, one));
        }
        let rows = rows.into_values().map(|row| -> Work<'w, Vec<(usize, T)>> {
            Box::pin(async move {
                let mut answers = Vec::with_capacity(row.len());
                for (at, one) in row {
                    answers.push((at, one.await?));
                }
                Ok(answers)
            })
        });
        let answers = all(rows.collect(), usize::MAX).await?;
        let mut answers: Vec<(usize, T)> = answers.into_iter().flatten().collect();
        answers.sort_by_key(|(at, _)| *at);
        Ok(answers.into_iter().map(|(_, answer)| answer).collect())
    }

    fn one_of_each(&self, difference: &Difference) -> Vec<HostId> {
        let first = |g: &Group| self.session.peers.get(*g.peers.first()?).copied();
        let hosts: Vec<HostId> = difference.others.iter().filter_map(first).collect();
        stdx::invariant!(
            hosts.len() == difference.others.len(),
            "INV-repair-1: {} of {} groups of replicas have a member",
            hosts.len(),
            difference.others.len()
        );
        hosts
    }

    /// Cuts a segment by what this node has of it now.
    async fn split(&self, difference: &Difference) -> Result<Vec<Own>, RepairError> {
        let settings = &self.env.settings;
        let mut positions = {
            let page = self.own_page(&difference.segment, settings.segment_bytes * 2).await?;
            split::positions(&opened(&page), &self.shape, settings.parts)
        };
        // A position gives three segments at most; the last one is after all positions.
        positions.truncate(wire::SEGMENTS_MAX / 4);
        let mut parts = Vec::new();
        for segment in difference.segment.clone().split_all(&positions) {
            let page = self.own_page(&segment, settings.segment_bytes * 2).await?;
            let page = opened(&page);
            let (digest, bytes) = (wire::digest_of_page(&page), page.content().len());
            parts.push(Own { segment, digest, bytes });
        }
        Ok(parts)
    }

    /// Merges what replicas have of a segment, page by page, and sends each what it lacks.
    async fn merge(&mut self, difference: Difference) -> Result<(), RepairError> {
        let mut rest = vec![difference.segment.clone()];
        while let Some(segment) = rest.pop() {
            self.look_around()?;
            let peers = self.one_of_each(&difference);
            let mut pages = vec![self.own_page(&segment, self.env.settings.page_bytes).await?];
            pages.extend(self.ask_pages(&peers, &segment).await?);
            let merged = self.reconcile(&pages)?;
            self.look_around()?;
            self.send_missing(&difference, &merged).await?;
            let end = opened(&merged.page).end();
            if end == PageEnd::Exhausted {
                continue;
            }
            let Some(end) = self.position_of(&end) else { continue };
            let (_, behind) = segment.split(&end);
            rest.extend(behind.into_iter().rev());
        }
        Ok(())
    }

    async fn ask_pages(
        &self,
        peers: &[HostId],
        segment: &Segment,
    ) -> Result<Vec<Vec<u8>>, RepairError> {
        let command = segment.command(self.table.id, self.now);
        let mut payload = Vec::new();
        wire::encode_rows(&mut payload, self.scope, &command, self.env.settings.page_bytes);
        let (payload, token) = (&payload, segment.token());
        let work = peers.iter().map(|host| -> Work<'_, Vec<u8>> {
            Box::pin(async move {
                let to = Destination::owner(*host, self.table.id, token);
                let page = self.drive.exchange.ask(self.job, to, Verb::RepairRows, payload);
                let page = page.await?;
                let address = self.env.address(*host);
                match ReplicaPage::parse(&page, self.shape.stored(), false) {
                    Ok(_) => Ok(page),
                    Err(e) => Err(RepairError::Malformed { address, error: e.to_string() }),
                }
            })
        });
        self.in_turns(peers, work.collect()).await
    }

    /// Merges this node's page (target 0) with those of the groups, in their order.
    fn reconcile(&self, pages: &[Vec<u8>]) -> Result<Reconciled, RepairError> {
        let command = ReconcileCommand {
            reversed: false,
            now: self.now,
            rows_per_partition: u32::MAX,
            counts_static: true,
        };
        let sources: Vec<(Target, PageChain<'_>)> =
            (0..).map(Target).zip(pages.iter().map(|page| PageChain::new(opened(page)))).collect();
        // Cells of hidden columns are repaired too.
        match reconcile(self.shape.stored(), &command, &sources) {
            Ok(merged) => Ok(merged),
            Err(error) => stdx::invariant::broken(format_args!("pages that were checked: {error}")),
        }
    }

    /// Sends each group what its page lacks.
    async fn send_missing(
        &self,
        difference: &Difference,
        merged: &Reconciled,
    ) -> Result<(), RepairError> {
        let mut work: Vec<Work<'_, ()>> = Vec::new();
        let (mut count, mut bytes) = (0, 0);
        for (target, mutations) in &merged.repairs {
            let (peers, is_own) = match usize::from(target.0).checked_sub(1) {
                None => (&difference.like_own, true),
                Some(at) => match difference.others.get(at) {
                    Some(group) => (&group.peers, false),
                    None => stdx::invariant::broken(format_args!(
                        "INV-repair-2: group {at} of {} lacks something and is none",
                        difference.others.len()
                    )),
                },
            };
            let hosts = peers.iter().map(|peer| match self.session.peers.get(*peer) {
                Some(host) => Some(*host),
                None => stdx::invariant::broken(format_args!(
                    "INV-repair-2: replica {peer} of {} would not get what it lacks",
                    self.session.peers.len()
                )),
            });
            let own = is_own.then_some(None);
            for to in own.into_iter().chain(hosts) {
                if self.job.options.pull && to.is_some() {
                    continue;
                }
                for mutation in mutations {
                    count += 1;
                    bytes += mutation.len() as u64;
                    work.push(match self.scope {
                        ReadScope::Pending(session) => Box::pin(
                            self.drive.exchange.send_to_session(self.job, to, mutation, session),
                        ),
                        _ => {
                            Box::pin(self.drive.exchange.send(self.job, to, mutation, self.durable))
                        }
                    });
                }
            }
        }
        self.job.count(|c| {
            c.mutations += count;
            c.mutation_bytes += bytes;
        });
        if matches!(self.job.options.kind(), Kind::Preview(_)) {
            // Futures that were never polled have done nothing.
            return Ok(());
        }
        if count > 0 {
            let now = self.env.rt.wall();
            self.job.change_job(self.number, self.id, |of| {
                of.sent_from.get_or_insert(now);
            });
        }
        self.env.counts.mutations.add(count);
        all(work, self.env.settings.mutations_in_flight).await?;
        Ok(())
    }
}

/// A page that this node made, or that was checked.
fn opened(page: &[u8]) -> ReplicaPage<'_> {
    match ReplicaPage::open(page) {
        Ok(page) => page,
        Err(error) => stdx::invariant::broken(format_args!("page of a stretch: {error}")),
    }
}
