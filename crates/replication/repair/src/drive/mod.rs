//! [`Drive`]: executes the plan of a repair on the node that coordinates it.

mod incremental;
mod part;
mod text;

use std::rc::Rc;

use stdx::TableId;
use store::ReadScope;

use crate::announce::Announcer;
use crate::announcement::News;
use crate::details::{SessionDetails, texts};
use crate::env::Env;
use crate::error::RepairError;
use crate::exchange::{Exchange, Work, all};
use crate::job::{Job, JobPart, RepairState, words};
use crate::participation::Participations;
use crate::plan::{Plan, PlanLimits, Step};
use crate::recording::Recording;
use crate::scope::{self, Kind, Scope, Session};
use crate::segment::Segment;
use crate::sessions::Sessions;
use crate::shards::Shards;
use crate::wire;

use part::Part;
use text::{describe, list_of, summary};

/// Dependencies of the repairs that this node runs.
pub(crate) struct Drive {
    pub(crate) env: Rc<Env>,
    pub(crate) exchange: Rc<Exchange>,
    pub(crate) announcer: Rc<Announcer>,
    pub(crate) shards: Rc<Shards>,
    pub(crate) sessions: Rc<Sessions>,
    pub(crate) participations: Rc<Participations>,
}

impl Drive {
    /// Runs a repair and records its outcome.
    pub(crate) async fn run(&self, job: &Job) {
        let env = &self.env;
        let recording = Recording::new(env, job);
        let say = |text: String| {
            tracing::info!(keyspace = job.options.keyspace.as_str(), "{text}");
            recording.trace(&text);
            job.say(env.rt.wall(), text);
        };
        recording.start_trace();
        let outcome = self.announcer.with_signs_of_life(job, self.repair(job, &say)).await;
        let ending = outcome.as_ref().map(|_| ()).map_err(ToString::to_string);
        self.announcer.to_all(job, &News::HasEnded { repaired_at: job.repaired_at.get(), ending });
        match outcome {
            Ok(()) => {
                let summary = summary(job);
                job.note_end(RepairState::Successful, env.rt.wall(), summary.clone());
                say(summary);
                let took = words(env.rt.now().since(job.began));
                say(format!("Repair command #{} finished in {took}", job.id));
            }
            Err(error) => {
                say(format!("Repair command #{} failed with error {error}", job.id));
                say(format!("Repair command #{} finished with error", job.id));
                job.note_end(RepairState::Failed, env.rt.wall(), error.to_string());
            }
        }
        recording.end_trace();
    }

    async fn repair(&self, job: &Job, say: &dyn Fn(String)) -> Result<(), RepairError> {
        let snapshot = (self.env.snapshot)();
        let planned = scope::plan(&snapshot, &job.options).map_err(RepairError::Scope);
        let scope = match planned {
            Ok(scope) => scope,
            Err(error) => {
                say(describe(job, 0));
                return Err(error);
            }
        };
        let recording = Recording::new(&self.env, job);
        self.note_plan(job, &scope);
        recording.start(&scope);
        let mut repaired = Vec::new();
        let done = self.repair_scope(job, scope, say, &mut repaired).await;
        let error = done.as_ref().err().map(ToString::to_string);
        recording.end(&repaired, error);
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
                session.peers.retain(|host| (self.env.is_alive)(*host));
            }
            sessions.retain(|session| !session.peers.is_empty());
        }
        self.env.check_alive(sessions.iter().flat_map(|s| s.peers.iter().copied()))?;
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
                job.expect(JobPart { table: t, session: s }, width);
            }
        }
        self.note_sessions(job, &sessions);
        self.announcer.begins(job, &sessions, &tables);
        job.details.borrow_mut().compared_from = Some(self.env.rt.wall());
        for (s, session) in sessions.iter().enumerate() {
            job.note_session_began(s, self.env.rt.wall());
            let done = self.session(job, s, session, &tables).await;
            job.note_session_ended(
                s,
                self.env.rt.wall(),
                done.as_ref().err().map(ToString::to_string),
            );
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
        job.details.borrow_mut().compared_upto = Some(self.env.rt.wall());
        Ok(())
    }

    /// Completes the lightweight transactions that a replica of the ranges knows as unfinished.
    /// Returns how many are left. They may belong to other tables whose replicas are down, so they
    /// do not prevent the repair of the rows.
    async fn finish_paxos(
        &self,
        job: &Job,
        sessions: &[Session],
        say: &dyn Fn(String),
    ) -> Result<u64, RepairError> {
        let me = (self.env.snapshot)().local.host_id;
        let (mut found, mut failed) = (0, 0);
        for session in sessions {
            for range in &session.ranges {
                for host in std::iter::once(me).chain(session.peers.iter().copied()) {
                    let patience = self.env.settings.answer_timeout;
                    let work = self.env.coordinator.lwt().finish_rounds_at(host, *range, patience);
                    let done = self.env.unless_ended(job, work).await?;
                    let address = self.env.address(host);
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

    /// Describes the load of a repair, for the operator.
    fn intensity(&self, job: &Job) -> String {
        let rate = match self.env.throttle.rate_of(job) {
            0 => "without a limit".to_owned(),
            rate => format!("at most {} KiB/s", rate / 1024),
        };
        format!(
            "Repair intensity: reading {rate}, {} of data at a time, {} tables at a time, replicas \
             asked in {} order",
            format_args!("{} KiB", self.env.settings.segment_bytes / 1024),
            job.options.job_threads,
            job.options.parallelism(),
        )
    }

    async fn session(
        &self,
        job: &Job,
        number: usize,
        session: &Session,
        tables: &[TableId],
    ) -> Result<(), RepairError> {
        let work = tables.iter().enumerate().map(|(t, table)| -> Work<'_, ()> {
            Box::pin(self.table(job, JobPart { table: t, session: number }, session, *table))
        });
        all(work.collect(), usize::from(job.options.job_threads)).await?;
        Ok(())
    }

    async fn table(
        &self,
        job: &Job,
        number: JobPart,
        session: &Session,
        table: TableId,
    ) -> Result<(), RepairError> {
        let part = Part::new(self, job, number, session, table)?;
        let (name, id) = (part.table.name.clone(), part.id);
        let recording = Recording::new(&self.env, job);
        let records = recording.start_ranges(session, &name);
        job.note_job(number.session, id, &name, self.env.rt.wall());
        let done = self.table_part(job, number, part).await;
        let error = done.as_ref().err().map(ToString::to_string);
        let ended = (self.env.rt.wall(), error.clone());
        job.change_job(number.session, id, |of| of.ended = Some(ended));
        recording.end_ranges(&name, records, error.as_deref());
        done
    }

    async fn table_part(
        &self,
        job: &Job,
        number: JobPart,
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
                let id = self.env.session_id();
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
        number: JobPart,
        part: &mut Part<'_>,
    ) -> Result<(), RepairError> {
        let session = part.session;
        let settings = &self.env.settings;
        let limits = PlanLimits {
            asked_bytes: settings.segment_bytes,
            asked_segments: wire::SEGMENTS_MAX / 4,
            merged_bytes: settings.merged_bytes,
        };
        let ranges = session.ranges.iter().map(|r| Segment::of_tokens(r.start, r.end));
        let mut plan = Plan::new(ranges, limits);
        Recording::new(&self.env, job).line(|| {
            let (name, ranges) = (part.name(), session.ranges.len());
            format!("Comparing {ranges} ranges of {name} with {}", part.peers())
        });
        let (uuid, table) = (job.session_of(number.session), part.table.id);
        let compares = News::Compares { session: uuid, table, ranges: part.ranges() };
        self.announcer.compares(job, &session.peers, compares).await?;
        job.change_job(number.session, part.id, |of| of.compared_from = Some(self.env.rt.wall()));
        let done = self.plan(job, number, part, &mut plan).await;
        let ending = done.as_ref().map(|_| ()).map_err(ToString::to_string);
        if done.is_ok() {
            job.change_job(number.session, part.id, |of| {
                of.compared_upto = Some(self.env.rt.wall())
            });
        }
        self.announcer.to_all(job, &News::HasCompared { session: uuid, table, ending });
        done
    }

    /// Carries the plan out, step by step.
    async fn plan(
        &self,
        job: &Job,
        number: JobPart,
        part: &mut Part<'_>,
        plan: &mut Plan,
    ) -> Result<(), RepairError> {
        let settings = &self.env.settings;
        let mut counted = (0, 0);
        let mut heard = self.env.rt.now();
        loop {
            part.look_around()?;
            if let ReadScope::Pending(id) = part.scope
                && self.env.rt.now().since(heard) > settings.session_idle / 8
            {
                heard = self.env.rt.now();
                part.keep_open(id).await?;
            }
            let step = plan.step();
            let is_over = step == Step::Done;
            if let Err(error) = part.carry_out(step, plan).await {
                // A change of the cluster explains more than a replica's error about it.
                part.look_around()?;
                return Err(error);
            }
            job.note_left(number, plan.left());
            let (compared, differing) = plan.counts();
            job.count(|c| {
                c.segments += compared - counted.0;
                c.differing += differing - counted.1;
            });
            self.env.counts.segments.add(compared - counted.0);
            self.env.counts.differing.add(differing - counted.1);
            counted = (compared, differing);
            if is_over {
                job.note_left(number, 0);
                Recording::new(&self.env, job).line(|| part.outcome(compared, differing));
                return Ok(());
            }
        }
    }

    /// Records the plan in the job's details.
    fn note_plan(&self, job: &Job, scope: &Scope) {
        let snapshot = (self.env.snapshot)();
        let name = |id| snapshot.schema.table_by_id(id).map(|t| t.name.to_string());
        let mut details = job.details.borrow_mut();
        details.tables = scope.tables.iter().filter_map(|id| name(*id)).collect();
        details.unfiltered = scope.sessions.iter().map(texts).collect();
        details.planned_at = Some(self.env.rt.wall());
    }

    /// Which sessions will be carried out.
    fn note_sessions(&self, job: &Job, sessions: &[Session]) {
        let planned_at = self.env.rt.wall();
        let of = |session: &Session| SessionDetails {
            id: self.env.session_id(),
            ranges: texts(session),
            participants: session.peers.iter().map(|host| self.env.address(*host)).collect(),
            planned_at,
            started_at: None,
            ended: None,
            jobs: Vec::new(),
        };
        let sessions = sessions.iter().map(of).collect();
        job.details.borrow_mut().sessions = sessions;
    }
}
