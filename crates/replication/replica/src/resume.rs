//! Position at which a read resumes after a page.

use data::command::{Partitions, ReadCommand, ResumePosition, RingBound};
use data::replica_page::PageEnd;

/// Moves a command beyond the end of a page. Returns false when nothing can follow. `rows` of the
/// partition were returned before that end.
pub fn go_on(command: &mut ReadCommand, end: &PageEnd<'_>, rows: u32) -> bool {
    let resume = |clustering: &[u8]| {
        Some(ResumePosition { clustering: Some(clustering.to_vec()), rows_in_partition: rows })
    };
    match (&mut command.partitions, *end) {
        (_, PageEnd::Exhausted) | (Partitions::Key(_), PageEnd::After { .. }) => return false,
        (Partitions::Key(_), PageEnd::Inside { clustering, .. }) => {
            command.resume = resume(clustering);
        }
        (Partitions::Range(range), PageEnd::After { token, key }) => {
            range.start = RingBound::Key { token, key: key.to_vec(), after: true };
            command.resume = None;
        }
        (Partitions::Range(range), PageEnd::Inside { token, key, clustering }) => {
            range.start = RingBound::Key { token, key: key.to_vec(), after: false };
            command.resume = resume(clustering);
        }
    }
    true
}

/// The key of the partition in which a command goes on, and how many rows of it came before.
pub fn resumed(command: &ReadCommand) -> Option<(&[u8], u32)> {
    let resume = command.resume.as_ref()?;
    match &command.partitions {
        Partitions::Key(key) => Some((key, resume.rows_in_partition)),
        Partitions::Range(range) => match &range.start {
            RingBound::Key { key, after: false, .. } => Some((key, resume.rows_in_partition)),
            _ => None,
        },
    }
}
