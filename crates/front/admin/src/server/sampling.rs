//! Samples of reads and writes: once for a waiting client, or periodically into the log.
//!
//! Source: Cassandra `metrics.SamplingManager`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use tokio::task::JoinHandle;

use super::api::{Answer, Api, ApiError, Busy};
use crate::model::{SampleJob, SampleReport, SampleRequest, SamplerReport};
use crate::nodetool;
use crate::request::{ActionError, AdminReply, AdminRequest, SampleCommand};

/// Jobs at a time.
const JOBS_MAX: usize = 64;

/// Keyspace and table; `None`: all.
type JobId = (Option<String>, Option<String>);

/// The running jobs. A stopped job runs to the end of its round.
#[derive(Clone, Default)]
pub(super) struct Jobs(Arc<Mutex<BTreeMap<JobId, Job>>>);

struct Job {
    task: Option<JoinHandle<()>>,
    is_ending: bool,
}

impl Drop for Job {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

fn job_text((keyspace, table): &JobId) -> String {
    let or_all = |name: &Option<String>| name.clone().unwrap_or_else(|| "*".to_owned());
    format!("{}.{}", or_all(keyspace), or_all(table))
}

impl Jobs {
    fn with<T>(&self, f: impl FnOnce(&mut BTreeMap<JobId, Job>) -> T) -> T {
        // A panic elsewhere does not leave a half-changed map.
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns true if no job samples the same tables.
    fn may_begin(jobs: &BTreeMap<JobId, Job>, id: &JobId) -> bool {
        let all = (None, None);
        let of_keyspace = (id.0.clone(), None);
        let meets = jobs.contains_key(&all)
            || jobs.contains_key(id)
            || jobs.contains_key(&of_keyspace)
            || (id == &all && !jobs.is_empty());
        !meets && jobs.len() < JOBS_MAX
    }

    fn is_ending(&self, id: &JobId) -> bool {
        self.with(|jobs| jobs.get(id).is_none_or(|job| job.is_ending))
    }
}

fn argument(text: &str) -> ApiError {
    ActionError::Argument(text.to_owned()).into()
}

/// The limits of Cassandra's tool.
fn check(request: &SampleRequest) -> Answer<()> {
    let SampleRequest { keyspace, table, capacity, count, duration, interval, .. } = request;
    if table.is_some() && keyspace.is_none() {
        return Err(argument("a table needs its keyspace"));
    }
    if *count == 0 {
        return Err(argument("TopK count (-k) option must have positive value"));
    }
    if count >= capacity {
        return Err(argument(
            "TopK count (-k) option must be smaller then the summary capacity (-s)",
        ));
    }
    if *capacity > SampleRequest::CAPACITY_MAX {
        return Err(argument("Capacity (-s) cannot exceed 1024."));
    }
    let longest = interval.unwrap_or(0).max(*duration);
    if *duration == 0 || longest > SampleRequest::MILLIS_MAX {
        let text = format!("Duration: {longest} must be positive, and at most a week");
        return Err(argument(&text));
    }
    if let Some(interval) = interval.filter(|interval| interval < duration) {
        return Err(argument(&format!(
            "Invalid scheduled sampling interval. Expecting interval >= duration, but interval: \
             {interval} ms; duration: {duration} ms"
        )));
    }
    Ok(())
}

impl Api {
    async fn begin_samples(&self, request: &SampleRequest) -> Answer<()> {
        let begin = SampleCommand::Begin(request.clone());
        self.ask(&AdminRequest::Sample(begin)).await.map(|_| ())
    }

    async fn end_samples(&self, request: &SampleRequest) -> Answer<Vec<SamplerReport>> {
        let mut all: BTreeMap<String, Vec<SampleReport>> = BTreeMap::new();
        let end = SampleCommand::End(request.clone());
        for reply in self.ask(&AdminRequest::Sample(end)).await? {
            let AdminReply::Samples(reports) = reply else { continue };
            for SamplerReport { sampler, samples } in reports {
                all.entry(sampler).or_default().extend(samples);
            }
        }
        let first = |sampler: &String| {
            let mut samples = all.remove(sampler).unwrap_or_default();
            samples
                .sort_by(|a, b| (b.count, &a.table, &a.value).cmp(&(a.count, &b.table, &b.value)));
            samples.truncate(request.count);
            SamplerReport { sampler: sampler.clone(), samples }
        };
        Ok(request.samplers.iter().map(first).collect())
    }

    async fn run_job(self, id: JobId, request: SampleRequest) {
        let pause = Duration::from_millis(request.interval.unwrap_or(request.duration));
        loop {
            if let Err(ApiError(_, why)) = self.begin_samples(&request).await {
                tracing::warn!(
                    job = job_text(&id),
                    why,
                    "a sampling job could not begin its round"
                );
                break;
            }
            tokio::time::sleep(pause).await;
            match self.end_samples(&request).await {
                Ok(reports) => {
                    tracing::info!("{}", nodetool::samples(&reports, nodetool::SamplesIn::Log))
                }
                Err(ApiError(_, why)) => {
                    tracing::warn!(job = job_text(&id), why, "a sampling job has no result");
                    break;
                }
            }
            if self.jobs.is_ending(&id) {
                tracing::info!("The sampling job {} has been cancelled.", job_text(&id));
                break;
            }
        }
        self.jobs.with(|jobs| {
            if let Some(mut job) = jobs.remove(&id) {
                // The job's task is this one, which ends on its own.
                job.task = None;
            }
        });
    }
}

pub(super) async fn sample(
    State(api): State<Api>,
    Json(request): Json<SampleRequest>,
) -> Answer<Json<Vec<SamplerReport>>> {
    check(&request)?;
    let _busy = Busy::new(&api.busy);
    api.begin_samples(&request).await?;
    tokio::time::sleep(Duration::from_millis(request.duration)).await;
    api.end_samples(&request).await.map(Json)
}

/// Names as `keyspace.table`, with `*` for all.
pub(super) async fn jobs(State(api): State<Api>) -> Json<Vec<String>> {
    Json(api.jobs.with(|jobs| jobs.keys().map(job_text).collect()))
}

/// False: there is a job with some of these tables.
pub(super) async fn begin_job(
    State(api): State<Api>,
    Json(request): Json<SampleRequest>,
) -> Answer<Json<bool>> {
    check(&request)?;
    if request.interval.is_none() {
        return Err(argument("a job needs an interval"));
    }
    // The check fails unless the named tables exist.
    api.ask(&AdminRequest::Sample(SampleCommand::Check(request.clone()))).await?;
    let id = (request.keyspace.clone(), request.table.clone());
    let of_task = api.clone();
    let done = api.jobs.with(|jobs| {
        if !Jobs::may_begin(jobs, &id) {
            return false;
        }
        let task = tokio::spawn(of_task.run_job(id.clone(), request));
        jobs.insert(id, Job { task: Some(task), is_ending: false });
        true
    });
    Ok(Json(done))
}

/// Without a keyspace: all jobs.
pub(super) async fn end_job(
    State(api): State<Api>,
    Json(SampleJob { keyspace, table }): Json<SampleJob>,
) -> Answer<Json<bool>> {
    let id = (keyspace, table);
    let is_all = id == (None, None);
    Ok(Json(api.jobs.with(|jobs| {
        let mut is_done = is_all;
        for (known, job) in jobs.iter_mut() {
            if is_all || *known == id {
                is_done = !job.is_ending;
                job.is_ending = true;
            }
        }
        is_done
    })))
}
