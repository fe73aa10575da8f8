//! Samples of what partitions are read and written.

use serde::{Deserialize, Serialize};

/// Body of `POST /api/v1/samples`: subject and parameters of the samples.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SampleRequest {
    /// Tables of this keyspace; `None`: of all.
    pub keyspace: Option<String>,
    /// This table of it; `None`: all.
    pub table: Option<String>,
    /// Places of each sampler, 1 to [`SampleRequest::CAPACITY_MAX`]: more are more accurate.
    pub capacity: usize,
    /// Number of results per sampler; fewer than `capacity`.
    pub count: usize,
    /// Milliseconds of sampling.
    pub duration: u64,
    /// Milliseconds from one round to the next, for a job; at least `duration`.
    pub interval: Option<u64>,
    /// Names of samplers: `READS`, `WRITES`, and so on.
    pub samplers: Vec<String>,
}

impl SampleRequest {
    /// See `capacity`.
    pub const CAPACITY_MAX: usize = 1024;
    /// Most milliseconds of a round, and between rounds: a week.
    pub const MILLIS_MAX: u64 = 7 * 86_400_000;
}

impl Default for SampleRequest {
    fn default() -> SampleRequest {
        SampleRequest {
            keyspace: None,
            table: None,
            capacity: 256,
            count: 10,
            duration: 10_000,
            interval: None,
            samplers: store::Sampler::ALL.iter().map(|s| s.name().to_owned()).collect(),
        }
    }
}

/// Part of the answer: what one sampler found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SamplerReport {
    /// Its name.
    pub sampler: String,
    /// The first, largest count first.
    pub samples: Vec<SampleReport>,
}

/// One of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SampleReport {
    /// Keyspace and table, with a dot.
    pub table: String,
    /// The partition's key as text, or the query.
    pub value: String,
    /// How often or how much.
    pub count: u64,
    /// By how much `count` may be too high.
    pub error: u64,
}

/// Body of `DELETE /api/v1/samples/jobs`: the job to stop, or with neither all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SampleJob {
    /// See [`SampleRequest`].
    pub keyspace: Option<String>,
    /// See [`SampleRequest`].
    pub table: Option<String>,
}
