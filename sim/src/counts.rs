//! Counters: a read lies between the acknowledged increments and these plus all increments with
//! unknown outcome. In the end all nodes show the same.

use std::collections::BTreeMap;

use cql_wire::Consistency;
use rt::Rt;
use stdx::Instant;

use crate::checks::Verdict;
use crate::client::{Answer, Client, Lost};
use crate::history::Ending;

/// The table.
pub const SCHEMA: &str = "CREATE TABLE IF NOT EXISTS ks.counts (k int PRIMARY KEY, n counter) \
                          WITH caching = {'rows_per_partition': 'ALL'}";

/// One increment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Increment {
    by: i64,
    sent: Instant,
    /// `None`: unknown.
    acknowledged: Option<Instant>,
    refused: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Read {
    node: usize,
    begin: Instant,
    end: Instant,
    value: i64,
    /// Read of the survey after healing.
    is_last: bool,
}

#[derive(Clone, Debug, Default)]
struct Counter {
    increments: Vec<Increment>,
    reads: Vec<Read>,
}

/// All counters of a run.
#[derive(Clone, Debug, Default)]
pub struct Counts(BTreeMap<i32, Counter>);

impl Counts {
    /// Returns the keys with requests.
    pub fn keys(&self) -> Vec<i32> {
        self.0.keys().copied().collect()
    }
}

/// Checks that every read is within its bounds, and that the last ones are equal.
pub fn within(counts: &Counts) -> Verdict {
    for (key, counter) in &counts.0 {
        for read in &counter.reads {
            let of = |is: &dyn Fn(&&Increment) -> bool| -> i64 {
                counter.increments.iter().filter(is).map(|i| i.by).sum()
            };
            let least = of(&|i| i.acknowledged.is_some_and(|at| at <= read.begin));
            let most = of(&|i| !i.refused && i.sent <= read.end);
            if read.value < least || read.value > most {
                return Err(format!(
                    "counter {key}, read through node {} at {} us: {} instead of {least} to {most}",
                    read.node,
                    read.begin.0 / 1_000,
                    read.value
                ));
            }
        }
        let mut last = counter.reads.iter().filter(|read| read.is_last);
        if let Some(first) = last.next()
            && let Some(other) = last.find(|read| read.value != first.value)
        {
            return Err(format!(
                "counter {key}: {} through node {}, {} through node {}",
                first.value, first.node, other.value, other.node
            ));
        }
    }
    Ok(())
}

/// Treatment of an increment in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// It stays in doubt.
    Left,
    /// It is sent once more, which is wrong.
    SentAgain,
}

/// When a counter is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// While others add to it.
    Meanwhile,
    /// In the end, at ALL, for the comparison of all nodes.
    Last,
}

/// Adds to a counter, or to several in a counter batch.
pub async fn add(
    rt: &Rt,
    client: &mut Client,
    to: &[(i32, i64)],
    doubt: Doubt,
    counts: impl Fn(&mut dyn FnMut(&mut Counts)),
) -> Result<Ending, Lost> {
    let (sent, mut begun) = (rt.now(), Vec::new());
    counts(&mut |all| {
        for (key, by) in to {
            let increments = &mut all.0.entry(*key).or_default().increments;
            increments.push(Increment { by: *by, sent, acknowledged: None, refused: false });
            begun.push((*key, increments.len() - 1));
        }
    });
    let text = statement(to);
    let mut answer = client.query(&text).await?;
    if doubt == Doubt::SentAgain && matches!(answer, Answer::Error(0x1100 | 0x1500, _)) {
        answer = client.query(&text).await?;
    }
    let ending = match answer {
        Answer::Done => Ending::Done,
        // Parts of a batch may have been carried out before another part was refused.
        Answer::Error(0x1000, _) if to.len() == 1 => Ending::Refused,
        other => doubtful(other),
    };
    let is_whole = to.len() == 1;
    counts(&mut |all| {
        for (key, index) in &begun {
            let increments = &mut all.0.entry(*key).or_default().increments;
            if let Some(increment) = increments.get_mut(*index) {
                increment.refused = is_whole && ending == Ending::Refused;
                increment.acknowledged = (ending == Ending::Done).then(|| rt.now());
            }
        }
    });
    Ok(ending)
}

fn statement(to: &[(i32, i64)]) -> String {
    let one = |(key, by): &(i32, i64)| format!("UPDATE ks.counts SET n = n + {by} WHERE k = {key}");
    match to {
        [single] => one(single),
        several => {
            let parts: Vec<String> = several.iter().map(one).collect();
            format!("BEGIN COUNTER BATCH {}; APPLY BATCH", parts.join("; "))
        }
    }
}

/// Reads a counter through a node.
pub async fn read(
    rt: &Rt,
    client: &mut Client,
    key: i32,
    node: usize,
    when: When,
    counts: impl Fn(&mut dyn FnMut(&mut Counts)),
) -> Result<Ending, Lost> {
    let (begin, is_last) = (rt.now(), when == When::Last);
    let level = client.consistency();
    if is_last {
        client.set_consistency(Consistency::All);
    }
    let answer = client.query(&format!("SELECT n FROM ks.counts WHERE k = {key}")).await;
    client.set_consistency(level);
    let value = match answer? {
        Answer::Rows(rows, _) => match rows.as_slice() {
            [] => Some(0),
            [row] => {
                let bytes = row.first().and_then(|v| v.as_deref());
                bytes.and_then(|b| b.try_into().ok()).map(i64::from_be_bytes)
            }
            _ => None,
        },
        other => return Ok(doubtful(other)),
    };
    let Some(value) = value else { return Ok(Ending::Wrong(format!("counter {key}: no value"))) };
    let end = rt.now();
    counts(&mut |all| {
        let reads = &mut all.0.entry(key).or_default().reads;
        reads.push(Read { node, begin, end, value, is_last });
    });
    Ok(Ending::Done)
}

fn doubtful(answer: Answer) -> Ending {
    match answer {
        Answer::Error(0x1000, _) => Ending::Refused,
        Answer::Error(code, message) => {
            let text = format!("error 0x{code:04x}: {message}");
            match code {
                0x1001 | 0x1002 | 0x1100 | 0x1200 | 0x1300 | 0x1500 => Ending::Unknown(text),
                _ => Ending::Wrong(format!("counter: {text}")),
            }
        }
        other => Ending::Wrong(format!("counter: {other:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(increments: &[(i64, u64, Option<u64>, bool)], value: i64, at: u64) -> Verdict {
        let increments = increments.iter().map(|(by, sent, end, refused)| Increment {
            by: *by,
            sent: Instant(*sent),
            acknowledged: end.map(Instant),
            refused: *refused,
        });
        let (begin, end) = (Instant(at), Instant(at + 5));
        let read = Read { node: 0, begin, end, value, is_last: false };
        let counter = Counter { increments: increments.collect(), reads: vec![read] };
        within(&Counts(BTreeMap::from([(1, counter)])))
    }

    #[test]
    fn several_increments_are_a_counter_batch() {
        let one = "UPDATE ks.counts SET n = n + 2 WHERE k = 1";
        assert_eq!(statement(&[(1, 2)]), one);
        let batch = format!("BEGIN COUNTER BATCH {one}; {one}; APPLY BATCH");
        assert_eq!(statement(&[(1, 2), (1, 2)]), batch);
    }

    #[test]
    fn a_value_outside_what_can_be_is_noticed() {
        let increments = [
            (3, 0, Some(10), false),
            (2, 20, None, false),
            (4, 30, None, true),
            (1, 90, None, false),
        ];
        for value in [3, 5] {
            assert!(verdict(&increments, value, 50).is_ok(), "{value}");
        }
        for value in [0, 2, 6, 7, 9] {
            assert!(verdict(&increments, value, 50).is_err(), "{value}");
        }
        // While the first is in flight, and after the last was sent.
        assert!(verdict(&increments, 0, 5).is_ok());
        assert!(verdict(&increments, 6, 100).is_ok());
    }

    #[test]
    fn nodes_that_do_not_agree_in_the_end_are_noticed() {
        let read =
            |node, value| Read { node, begin: Instant(9), end: Instant(9), value, is_last: true };
        let unknown = Increment { by: 2, sent: Instant(1), acknowledged: None, refused: false };
        let with =
            |reads| Counts(BTreeMap::from([(1, Counter { increments: vec![unknown], reads })]));
        assert!(within(&with(vec![read(0, 2), read(1, 2)])).is_ok());
        let error = within(&with(vec![read(0, 2), read(1, 0)])).unwrap_err();
        assert!(error.contains("2 through node 0, 0 through node 1"), "{error}");
    }
}
