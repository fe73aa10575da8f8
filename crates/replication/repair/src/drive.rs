//! Carries a repair out: does what the walk says, with this node's data and the peers'.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use cluster::{ClusterSnapshot, TokenRange};
use data::TableShape;
use data::page_cursor::PageChain;
use data::replica_page::{PageEnd, ReplicaPage};
use internode::Verb;
use request::{ReconcileCommand, Reconciled, Target, reconcile};
use schema::Table;
use stdx::{DeletionSeconds, HostId, TableId, Token, Uuid};
use store::ReadScope;

use crate::cut;
use crate::error::RepairError;
use crate::exchange::{Work, all};
use crate::job::{Job, RepairState, words};
use crate::participation::{ReadCount, job_id};
use crate::repair::{Inner, Repair};
use crate::scope::{self, Kind, RepairOptions, Scope, Session, text_of};
use crate::stretch::{Place, Stretch};
use crate::tell::News;
use crate::walk::{Difference, Own, Step, Walk, WalkLimits};
use crate::wire::{self, Digest};

/// What a repair of one session of one table works with.
pub(crate) struct Part<'a> {
    pub(crate) inner: &'a Inner,
    pub(crate) job: &'a Job,
    pub(crate) session: &'a Session,
    /// Which one of the repair's sessions it is.
    number: usize,
    /// This table in it: [`job_id`].
    id: Uuid,
    pub(crate) table: Arc<Table>,
    shape: Rc<TableShape>,
    durable: bool,
    snapshot: Arc<ClusterSnapshot>,
    /// The clock of TTLs for all replicas of what is compared now: what expires between the reads
    /// of two of them is no difference.
    now: DeletionSeconds,
    /// What is compared.
    scope: ReadScope,
}

/// Ranges as Cassandra lists them.
fn list_of(ranges: &[TokenRange]) -> String {
    let all: Vec<String> = ranges.iter().map(|r| text_of(*r)).collect();
    format!("[{}]", all.join(", "))
}

/// How replicas are asked, in the words of Cassandra's enum.
pub(crate) fn parallelism(options: &RepairOptions) -> &'static str {
    match (options.sequential, options.datacenter_parallel) {
        (true, _) => "sequential",
        (false, true) => "dc_parallel",
        (false, false) => "parallel",
    }
}

fn describe(job: &Job, range_count: usize) -> String {
    let o = &job.options;
    let list = |names: &[String]| format!("[{}]", names.join(", "));
    format!(
        "Starting repair command #{} ({}), repairing keyspace {} with repair options (parallelism: \
         {}, primary range: {}, incremental: {}, job threads: {}, ColumnFamilies: {}, \
         dataCenters: {}, hosts: {}, previewKind: {}, # of ranges: {range_count}, pull repair: \
         {}, force repair: {}, optimise streams: false, ignore unreplicated keyspaces: {}, \
         repairPaxos: {}, paxosOnly: {})",
        job.id,
        job.session,
        o.keyspace,
        parallelism(o),
        o.primary_range,
        o.kind() == Kind::Incremental,
        o.job_threads,
        list(&o.tables),
        list(&o.datacenters),
        list(&o.hosts),
        match o.kind() {
            Kind::Full | Kind::Incremental => "NONE",
            Kind::Preview(ReadScope::Unrepaired) => "UNREPAIRED",
            Kind::Preview(ReadScope::Repaired) => "REPAIRED",
            Kind::Preview(_) => "ALL",
        },
        o.pull,
        o.force,
        o.ignore_unreplicated,
        o.repairs_paxos(),
        o.paxos_only,
    )
}

impl Repair {
    /// Carries a repair out and says how it went.
    pub(crate) async fn run(&self, job: &Job) {
        let inner = &self.inner;
        let say = |text: String| {
            tracing::info!(keyspace = job.options.keyspace.as_str(), "{text}");
            inner.trace(job, &text);
            job.say(inner.rt.wall(), text);
        };
        inner.trace_start(job);
        let outcome = inner.with_signs_of_life(job, inner.repair(job, &say)).await;
        let ending = outcome.as_ref().map(|_| ()).map_err(ToString::to_string);
        inner.tell_all(job, &News::HasEnded { repaired_at: job.repaired_at.get(), ending });
        match outcome {
            Ok(()) => {
                let summary = summary(job);
                job.note_end(RepairState::Successful, inner.rt.wall(), summary.clone());
                say(summary);
                let took = words(inner.rt.now().since(job.began));
                say(format!("Repair command #{} finished in {took}", job.id));
            }
            Err(error) => {
                say(format!("Repair command #{} failed with error {error}", job.id));
                say(format!("Repair command #{} finished with error", job.id));
                job.note_end(RepairState::Failed, inner.rt.wall(), error.to_string());
            }
        }
        inner.trace_end(job);
    }
}

fn summary(job: &Job) -> String {
    let counts = job.counts.get();
    match (matches!(job.options.kind(), Kind::Preview(_)), counts.differing) {
        (false, _) => "Repair completed successfully".to_owned(),
        (true, 0) => "Previewed data was in sync".to_owned(),
        (true, n) => format!(
            "Total estimated streaming: {n} stretches, {} mutations, {} bytes",
            counts.mutations, counts.mutation_bytes
        ),
    }
}

impl Inner {
    async fn repair(&self, job: &Job, say: &dyn Fn(String)) -> Result<(), RepairError> {
        let snapshot = (self.snapshot)();
        let planned = scope::plan(&snapshot, &job.options).map_err(RepairError::Scope);
        let scope = match planned {
            Ok(scope) => scope,
            Err(error) => {
                say(describe(job, 0));
                return Err(error);
            }
        };
        self.note_plan(job, &scope);
        self.record_start(job, &scope);
        let mut repaired = Vec::new();
        let done = self.repair_scope(job, scope, say, &mut repaired).await;
        let error = done.as_ref().err().map(ToString::to_string);
        self.record_end(job, &repaired, error);
        done
    }

    /// `repaired`: the sessions that were carried out.
    async fn repair_scope(
        &self,
        job: &Job,
        Scope { tables, mut sessions, range_count }: Scope,
        say: &dyn Fn(String),
        repaired: &mut Vec<Session>,
    ) -> Result<(), RepairError> {
        say(describe(job, range_count));
        let kind = job.options.kind();
        if job.options.incremental && kind == Kind::Full {
            say(
                "Not all replicas take part: this is a full repair, and what it compares does not \
                 count as repaired"
                    .to_owned(),
            );
        }
        say(self.intensity(job));
        if job.options.force {
            for session in &mut sessions {
                session.peers.retain(|host| (self.is_alive)(*host));
            }
            sessions.retain(|session| !session.peers.is_empty());
        }
        self.check_alive(sessions.iter().flat_map(|s| s.peers.iter().copied()))?;
        if job.options.repairs_paxos() {
            let left = self.finish_paxos(job, &sessions, say).await?;
            if job.options.paxos_only {
                return match left {
                    0 => Ok(()),
                    n => Err(RepairError::Scope(format!(
                        "{n} paxos rounds could not be finished: do it again when their replicas live"
                    ))),
                };
            }
        }
        for (s, session) in sessions.iter().enumerate() {
            let width: u128 = session.ranges.iter().map(|r| r.width()).sum();
            for t in 0..tables.len() {
                job.expect((t, s), width);
            }
        }
        self.note_sessions(job, &sessions);
        self.tell_begin(job, &sessions, &tables);
        job.details.borrow_mut().compared_from = Some(self.rt.wall());
        for (s, session) in sessions.iter().enumerate() {
            job.note_session_began(s, self.rt.wall());
            let done = self.session(job, (s, session), &tables).await;
            job.note_session_ended(s, self.rt.wall(), done.as_ref().err().map(ToString::to_string));
            let ranges = list_of(&session.ranges);
            let how = match &done {
                Ok(()) => "finished".to_owned(),
                Err(error) => format!("failed with error {error}"),
            };
            say(format!(
                "Repair session {} for range {ranges} {how} (progress: {}%)",
                job.session_of(s),
                job.percent()
            ));
            done?;
            repaired.push(session.clone());
        }
        job.details.borrow_mut().compared_upto = Some(self.rt.wall());
        Ok(())
    }

    /// Brings the lightweight transactions to their ends that any replica of the ranges knows to be
    /// unfinished; how many are left. They may be of other tables whose replicas are down: that does not
    /// keep the rows from being repaired.
    async fn finish_paxos(
        &self,
        job: &Job,
        sessions: &[Session],
        say: &dyn Fn(String),
    ) -> Result<u64, RepairError> {
        let me = (self.snapshot)().local.host_id;
        let (mut found, mut failed) = (0, 0);
        for session in sessions {
            for range in &session.ranges {
                for host in std::iter::once(me).chain(session.peers.iter().copied()) {
                    let patience = self.settings.answer_timeout;
                    let work = self.coordinator.lwt().finish_rounds_at(host, *range, patience);
                    let done = self.unless_ended(job, work).await?;
                    let address = self.address(host);
                    let done =
                        done.map_err(|e| RepairError::Peer { address, error: e.to_string() })?;
                    found += done.found;
                    failed += done.failed;
                }
            }
            let ranges = list_of(&session.ranges);
            say(format!("Paxos repair session {} for range {ranges} finished", job.session));
        }
        say(format!("{found} unfinished paxos rounds found, {failed} of them left"));
        Ok(failed)
    }

    /// How hard it works, for those who wait for it.
    fn intensity(&self, job: &Job) -> String {
        let rate = match self.rate_of(job) {
            0 => "without a limit".to_owned(),
            rate => format!("at most {} KiB/s", rate / 1024),
        };
        format!(
            "Repair intensity: reading {rate}, {} of data at a time, {} tables at a time, replicas \
             asked in {} order",
            format_args!("{} KiB", self.settings.stretch_bytes / 1024),
            job.options.job_threads,
            parallelism(&job.options),
        )
    }

    fn check_alive(&self, hosts: impl Iterator<Item = HostId>) -> Result<(), RepairError> {
        let mut dead: Vec<HostId> = hosts.filter(|h| !(self.is_alive)(*h)).collect();
        dead.sort_unstable();
        dead.dedup();
        match dead.is_empty() {
            true => Ok(()),
            false => {
                Err(RepairError::NotAlive(dead.into_iter().map(|h| self.address(h)).collect()))
            }
        }
    }

    async fn session(
        &self,
        job: &Job,
        (number, session): (usize, &Session),
        tables: &[TableId],
    ) -> Result<(), RepairError> {
        let work = tables.iter().enumerate().map(|(t, table)| -> Work<'_, ()> {
            Box::pin(self.table(job, (t, number), session, *table))
        });
        all(work.collect(), usize::from(job.options.job_threads)).await?;
        Ok(())
    }

    async fn table(
        &self,
        job: &Job,
        number: (usize, usize),
        session: &Session,
        table: TableId,
    ) -> Result<(), RepairError> {
        let part = Part::new(self, job, (session, number.1), table)?;
        let (name, id) = (part.table.name.clone(), part.id);
        let records = self.record_ranges(job, session, &name);
        job.note_job(number.1, id, &name, self.rt.wall());
        let done = self.table_part(job, number, part).await;
        let error = done.as_ref().err().map(ToString::to_string);
        let ended = (self.rt.wall(), error.clone());
        job.change_job(number.1, id, |of| of.ended = Some(ended));
        self.record_ranges_end(job, &name, records, error.as_deref());
        done
    }

    async fn table_part(
        &self,
        job: &Job,
        number: (usize, usize),
        mut part: Part<'_>,
    ) -> Result<(), RepairError> {
        let session = part.session;
        let kind = job.options.kind();
        match kind {
            Kind::Preview(scope) => {
                part.scope = scope;
                return self.compare(job, number, &mut part).await;
            }
            Kind::Full => self.compare(job, number, &mut part).await?,
            Kind::Incremental => {
                let id = self.session_id();
                part.scope = ReadScope::Pending(id);
                let done = match part.open_session(id).await {
                    Ok(()) => self.compare(job, number, &mut part).await,
                    Err(error) => Err(error),
                };
                let done = match done {
                    Ok(()) => part.settle(id).await,
                    Err(error) => Err(error),
                };
                if let Err(error) = done {
                    part.give_up(id).await;
                    return Err(error);
                }
            }
        }
        // A part of the replicas has not made them all equal.
        if job.options.is_global() && session.peers == session.others {
            part.note_repaired().await?;
        }
        Ok(())
    }

    /// Compares a table's ranges and sends what is missing.
    async fn compare(
        &self,
        job: &Job,
        number: (usize, usize),
        part: &mut Part<'_>,
    ) -> Result<(), RepairError> {
        let session = part.session;
        let settings = &self.settings;
        let limits = WalkLimits {
            asked_bytes: settings.stretch_bytes,
            asked_stretches: wire::STRETCHES_MAX / 4,
            merged_bytes: settings.merged_bytes,
        };
        let ranges = session.ranges.iter().map(|r| Stretch::of_tokens(r.start, r.end));
        let mut walk = Walk::new(ranges, limits);
        self.tell_trace(job, || {
            let (name, ranges) = (part.name(), session.ranges.len());
            format!("Comparing {ranges} ranges of {name} with {}", part.peers())
        });
        let (uuid, table) = (job.session_of(number.1), part.table.id);
        let compares = News::Compares { session: uuid, table, ranges: part.ranges() };
        self.tell_compare(job, &session.peers, compares).await?;
        job.change_job(number.1, part.id, |of| of.compared_from = Some(self.rt.wall()));
        let done = self.walk(job, number, part, &mut walk).await;
        let ending = done.as_ref().map(|_| ()).map_err(ToString::to_string);
        if done.is_ok() {
            job.change_job(number.1, part.id, |of| of.compared_upto = Some(self.rt.wall()));
        }
        self.tell_all(job, &News::HasCompared { session: uuid, table, ending });
        done
    }

    /// Goes all the way.
    async fn walk(
        &self,
        job: &Job,
        number: (usize, usize),
        part: &mut Part<'_>,
        walk: &mut Walk,
    ) -> Result<(), RepairError> {
        let settings = &self.settings;
        let mut counted = (0, 0);
        let mut heard = self.rt.now();
        loop {
            part.look_around()?;
            if let ReadScope::Pending(id) = part.scope
                && self.rt.now().since(heard) > settings.session_idle / 8
            {
                heard = self.rt.now();
                part.keep_open(id).await?;
            }
            let step = walk.step();
            let is_over = step == Step::Done;
            if let Err(error) = part.carry_out(step, walk).await {
                // What has changed meanwhile says more than what a replica said about it.
                part.look_around()?;
                return Err(error);
            }
            job.note_left(number, walk.left());
            let (compared, differing) = walk.counts();
            job.count(|c| {
                c.stretches += compared - counted.0;
                c.differing += differing - counted.1;
            });
            self.counts.stretches.add(compared - counted.0);
            self.counts.differing.add(differing - counted.1);
            counted = (compared, differing);
            if is_over {
                job.note_left(number, 0);
                self.tell_trace(job, || part.outcome(compared, differing));
                return Ok(());
            }
        }
    }
}

impl<'a> Part<'a> {
    fn new(
        inner: &'a Inner,
        job: &'a Job,
        (session, number): (&'a Session, usize),
        table: TableId,
    ) -> Result<Part<'a>, RepairError> {
        let snapshot = (inner.snapshot)();
        let Some(table) = snapshot.schema.table_by_id(table).cloned() else {
            return Err(RepairError::Dropped(table.to_string()));
        };
        let shape = Rc::new(TableShape::for_table(&table));
        let keyspace = snapshot.schema.keyspace(&table.keyspace);
        let durable = keyspace.is_none_or(|k| k.params.durable_writes);
        let now = inner.rt.wall().seconds();
        let scope = ReadScope::Repair;
        let id = job_id(job.session, job.session_of(number), table.id);
        let mut part =
            Part { inner, job, session, number, id, table, shape, durable, snapshot, now, scope };
        // The plan was made with metadata that may be older by now.
        part.check(part.snapshot.clone())?;
        Ok(part)
    }

    async fn carry_out(&mut self, step: Step, walk: &mut Walk) -> Result<(), RepairError> {
        match step {
            Step::Read(stretch) => {
                let (own, behind) = self.read(stretch).await?;
                walk.read(own, behind);
                // The digests of the peers must be of the same second.
                return Ok(());
            }
            Step::Ask(asked) => {
                let answers = self.ask_hashes(&self.session.peers, &asked).await?;
                walk.answered(asked, &answers);
            }
            Step::Cut(difference) => {
                let parts = self.cut(&difference).await?;
                let answers = self.ask_hashes(&self.one_of_each(&difference), &parts).await?;
                walk.cut(difference, parts, &answers);
            }
            Step::Merge(difference) => self.merge(difference).await?,
            Step::Done => {}
        }
        self.now = self.inner.rt.wall().seconds();
        Ok(())
    }

    /// Ends the repair when somebody wants that, or when the ranges have other replicas now.
    fn look_around(&mut self) -> Result<(), RepairError> {
        if self.inner.stopping.get() {
            return Err(RepairError::Stopping);
        }
        if self.job.aborted.get() {
            return Err(RepairError::Aborted);
        }
        let snapshot = (self.inner.snapshot)();
        if snapshot.epoch != self.snapshot.epoch {
            self.check(snapshot)?;
        }
        self.inner.check_alive(self.session.peers.iter().copied())
    }

    /// The replicas that are compared with this node.
    fn peers(&self) -> String {
        let peers = self.session.peers.iter();
        peers.map(|host| format!("/{}", self.inner.address(*host))).collect::<Vec<_>>().join(", ")
    }

    /// What a comparison came to.
    fn outcome(&self, compared: u64, differing: u64) -> String {
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

    fn name(&self) -> String {
        format!("{}.{}", self.table.keyspace, self.table.name)
    }

    fn check(&mut self, snapshot: Arc<ClusterSnapshot>) -> Result<(), RepairError> {
        let Some(table) = snapshot.schema.table_by_id(self.table.id) else {
            return Err(RepairError::Dropped(self.name()));
        };
        let truncated_at = |s: &ClusterSnapshot| s.truncations.get(&self.table.id).cloned();
        if truncated_at(&snapshot) != truncated_at(&self.snapshot) {
            // What was read before must not come back.
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

    /// This node's page of a stretch.
    async fn own_page(&self, stretch: &Stretch, bytes: usize) -> Result<Vec<u8>, RepairError> {
        let command = stretch.command(self.table.id, self.now);
        let (coordinator, scope) = (&self.inner.coordinator, self.scope);
        let read = coordinator.replica_reads().read_stretch(&self.snapshot, command, bytes, scope);
        let page = self.inner.unless_ended(self.job, read).await??;
        self.job.count(|c| c.bytes_read += page.len() as u64);
        self.inner.counts.bytes_read.add(page.len() as u64);
        self.inner.pace(self.job, page.len()).await?;
        Ok(page)
    }

    fn has_clustering(&self) -> bool {
        !self.shape.clustering().is_empty()
    }

    /// What this node has of a stretch from its start, and what is left.
    async fn read(&self, stretch: Stretch) -> Result<(Vec<Own>, Vec<Stretch>), RepairError> {
        let page = self.own_page(&stretch, self.inner.settings.stretch_bytes).await?;
        let page = opened(&page);
        self.inner.count_own(self.id, ReadCount::of(&page, &stretch));
        let own = |stretch, content: &[u8]| Own {
            stretch,
            digest: Some(wire::digest_of(content)),
            bytes: content.len(),
        };
        let Some(end) = Place::of(&page.end(), self.has_clustering()) else {
            return Ok((vec![own(stretch, page.content())], Vec::new()));
        };
        let (before, behind) = stretch.cut(&end);
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

    /// The digests of stretches that these peers have.
    async fn ask_hashes(
        &self,
        peers: &[HostId],
        asked: &[Own],
    ) -> Result<Vec<Vec<Digest>>, RepairError> {
        let token = asked.first().map_or(Token::MIN, |o| o.stretch.token());
        // Twice as much as here: who has more is read page by page.
        let least = self.inner.settings.stretch_bytes;
        let commands: Vec<_> = asked
            .iter()
            .map(|o| (o.stretch.command(self.table.id, self.now), o.bytes.max(least) * 2))
            .collect();
        let mut payload = Vec::new();
        wire::encode_hashes(&mut payload, self.scope, &commands);
        let payload = &payload;
        let work = peers.iter().map(|host| -> Work<'_, Vec<Digest>> {
            Box::pin(async move {
                let to = (*host, Some((self.table.id, token)));
                let answer = self.inner.ask(self.job, to, Verb::RepairHashes, payload);
                let answer = answer.await?;
                let address = self.inner.address(*host);
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
        let first = |g: &crate::walk::Group| self.session.peers.get(*g.peers.first()?).copied();
        let hosts: Vec<HostId> = difference.others.iter().filter_map(first).collect();
        stdx::invariant!(
            hosts.len() == difference.others.len(),
            "INV-repair-1: {} of {} groups of replicas have a member",
            hosts.len(),
            difference.others.len()
        );
        hosts
    }

    /// Cuts a stretch by what this node has of it now.
    async fn cut(&self, difference: &Difference) -> Result<Vec<Own>, RepairError> {
        let settings = &self.inner.settings;
        let mut places = {
            let page = self.own_page(&difference.stretch, settings.stretch_bytes * 2).await?;
            cut::places(&opened(&page), &self.shape, settings.parts)
        };
        // A place gives three stretches at most; the last one has what lies behind all places.
        places.truncate(wire::STRETCHES_MAX / 4);
        let mut parts = Vec::new();
        for stretch in difference.stretch.clone().cut_all(&places) {
            let page = self.own_page(&stretch, settings.stretch_bytes * 2).await?;
            let page = opened(&page);
            let (digest, bytes) = (wire::digest_of_page(&page), page.content().len());
            parts.push(Own { stretch, digest, bytes });
        }
        Ok(parts)
    }

    /// Merges what replicas have of a stretch, page by page, and sends each what it lacks.
    async fn merge(&mut self, difference: Difference) -> Result<(), RepairError> {
        let mut rest = vec![difference.stretch.clone()];
        while let Some(stretch) = rest.pop() {
            self.look_around()?;
            let peers = self.one_of_each(&difference);
            let mut pages = vec![self.own_page(&stretch, self.inner.settings.page_bytes).await?];
            pages.extend(self.ask_pages(&peers, &stretch).await?);
            let merged = self.reconcile(&pages)?;
            self.look_around()?;
            self.send_missing(&difference, &merged).await?;
            let end = opened(&merged.page).end();
            if end == PageEnd::Exhausted {
                continue;
            }
            let Some(end) = Place::of(&end, self.has_clustering()) else { continue };
            let (_, behind) = stretch.cut(&end);
            rest.extend(behind.into_iter().rev());
        }
        Ok(())
    }

    async fn ask_pages(
        &self,
        peers: &[HostId],
        stretch: &Stretch,
    ) -> Result<Vec<Vec<u8>>, RepairError> {
        let command = stretch.command(self.table.id, self.now);
        let mut payload = Vec::new();
        wire::encode_rows(&mut payload, self.scope, &command, self.inner.settings.page_bytes);
        let (payload, token) = (&payload, stretch.token());
        let work = peers.iter().map(|host| -> Work<'_, Vec<u8>> {
            Box::pin(async move {
                let to = (*host, Some((self.table.id, token)));
                let page = self.inner.ask(self.job, to, Verb::RepairRows, payload);
                let page = page.await?;
                let address = self.inner.address(*host);
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
                        ReadScope::Pending(session) => {
                            Box::pin(self.inner.send_to_session(self.job, to, mutation, session))
                        }
                        _ => Box::pin(self.inner.send(self.job, to, mutation, self.durable)),
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
            let now = self.inner.rt.wall();
            self.job.change_job(self.number, self.id, |of| {
                of.sent_from.get_or_insert(now);
            });
        }
        self.inner.counts.mutations.add(count);
        all(work, self.inner.settings.mutations_in_flight).await?;
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
