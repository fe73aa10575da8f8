//! Stable counter ids: the identity under which each shard of this node writes counter cells, over
//! restarts.
//!
//! A writer's cell of a counter is its whole count. A writer that continues from a smaller count
//! than it had written reverts increments that other replicas have already. So an id is reused only
//! when the previous run ended cleanly: everything that it wrote is in files. The file
//! `counter-id-N` records that. It is written at the end of a run and revoked before the next one
//! counts. Any other start uses a new id, which costs each counter 32 bytes. (Cassandra always uses
//! its host id.)
//!
//! The body of the file is `in use` or `<number of shards> <32 hex digits>`, and a line feed. A
//! file that is missing, damaged or of an earlier release is never believed: the shard counts as a
//! new writer, which is always safe.

use codec::SmallForm;
use data::counter::CounterId;
use rt::{Rt, SmallContent};
use stdx::ShardId;

/// Name of a shard's file, before its number.
pub(crate) const PREFIX: &str = "counter-id-";
const FORM: SmallForm = SmallForm { kind: "counter-id", version: 2 };
const BYTES_MAX: usize = 512;
const IN_USE: &[u8] = b"in use\n";

fn path(work_dir: &str, shard: ShardId) -> String {
    format!("{}/{PREFIX}{}", work_dir.trim_end_matches('/'), shard.0)
}

/// The id for this run, and whether it is that of an earlier one.
pub(crate) async fn take(rt: &Rt, work_dir: &str) -> (CounterId, bool) {
    let path = path(work_dir, rt.shard());
    let body = match rt.fs().read_small(FORM, &path, BYTES_MAX).await {
        Ok(SmallContent::Body(body)) => Some(body),
        Ok(SmallContent::Missing) => None,
        Ok(SmallContent::Legacy(_)) => {
            tracing::warn!(
                %path,
                "starting a new counter id: the file is damaged or of an earlier release"
            );
            None
        }
        Err(error) => {
            tracing::warn!(%error, "starting a new counter id");
            None
        }
    };
    let is_in_use = body.as_deref() == Some(IN_USE);
    let kept = body.and_then(|body| parse(&body, rt.shard_count()));
    if !is_in_use {
        match (rt.fs().write_small(FORM, &path, IN_USE).await, kept) {
            (Ok(()), Some(id)) => return (id, true),
            (Ok(()), None) => {}
            (Err(error), _) => tracing::warn!(%error, "starting a new counter id"),
        }
    }
    let mut id = [0; 16];
    for half in id.chunks_mut(8) {
        half.copy_from_slice(&rt.random_u64().to_be_bytes());
    }
    (CounterId(id), false)
}

/// Records that everything written as `id` is in files.
pub(crate) async fn keep(rt: &Rt, work_dir: &str, id: CounterId) {
    let path = path(work_dir, rt.shard());
    let hex: String = id.0.iter().map(|byte| format!("{byte:02x}")).collect();
    let text = format!("{} {hex}\n", rt.shard_count());
    if let Err(error) = rt.fs().write_small(FORM, &path, text.as_bytes()).await {
        tracing::warn!(%error, "cannot persist the counter id: the next start begins a new one");
    }
}

/// With another number of shards partitions have other owners: their counts are in files of others.
fn parse(bytes: &[u8], shards: u16) -> Option<CounterId> {
    let text = std::str::from_utf8(bytes).ok()?.strip_suffix('\n')?;
    let (count, hex) = text.split_once(' ')?;
    if count.parse() != Ok(shards) || hex.len() != 32 {
        return None;
    }
    u128::from_str_radix(hex, 16).ok().map(|id| CounterId(id.to_be_bytes()))
}
