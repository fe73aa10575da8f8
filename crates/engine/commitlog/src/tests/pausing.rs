//! Replays that wait between records.

use codec::Algorithm;

use super::*;
use crate::{Next, Visitor};

/// Pauses behind every so manieth record.
struct Pausing {
    rt: Rt,
    every: usize,
    found: Vec<(LogPosition, Vec<u8>)>,
    records: usize,
    is_paused: bool,
    pauses: usize,
}

impl Visitor for Pausing {
    type Error = LogError;

    fn record(
        &mut self,
        header: &SegmentHeader,
        at: LogPosition,
        record: Record<'_>,
    ) -> Result<Next, &'static str> {
        assert!(!self.is_paused, "a record before the pause");
        assert_eq!(header.id, at.segment);
        if let Record::Mutation(bytes) = record {
            self.found.push((at, bytes.to_vec()));
        }
        self.records += 1;
        self.is_paused = self.records.is_multiple_of(self.every);
        Ok(if self.is_paused { Next::Pause } else { Next::GoOn })
    }

    async fn pause(&mut self) -> Result<(), LogError> {
        assert!(self.is_paused);
        self.rt.sleep(Duration::from_micros(10)).await;
        self.is_paused = false;
        self.pauses += 1;
        Ok(())
    }
}

#[test]
fn a_replay_that_pauses_gives_every_record_once_whatever_packs_them() {
    for compression in [None, Some(Algorithm::Lz4), Some(Algorithm::Zstd)] {
        let world = World::new(61, WorldOptions::default());
        life(&world, move |rt| async move {
            let options = LogOptions { compression, ..options(&rt, PERIODIC) };
            let log = CommitLog::open(&rt, options).await.unwrap();
            let ticket = TableTicket::new(&table());
            for i in 0..200 {
                log.append(&ticket, &[i; 100]).unwrap();
                // Several are in one block.
                if i % 7 == 0 {
                    log.commit().await.unwrap();
                }
            }
            log.close().await.unwrap();
        });
        life(&world, move |rt| async move {
            for every in [1, 2, 5, 1_000] {
                let log = CommitLog::open(&rt, options(&rt, PERIODIC)).await.unwrap();
                let mut pausing = Pausing {
                    rt: rt.clone(),
                    every,
                    found: Vec::new(),
                    records: 0,
                    is_paused: false,
                    pauses: 0,
                };
                let summary = log.replay(&mut pausing).await.unwrap();
                let bytes: Vec<Vec<u8>> = pausing.found.iter().map(|(_, b)| b.clone()).collect();
                assert_eq!(bytes, expected(200), "{compression:?}, every {every}");
                assert!(pausing.found.is_sorted_by(|(a, _), (b, _)| a < b), "in order");
                assert_eq!(pausing.pauses, pausing.records / every);
                assert!(!pausing.is_paused, "the last one, too");
                assert_eq!((summary.mutations, summary.tails.len()), (200, 0));
                assert_eq!(log.old_headers().await.unwrap().len() as u64, summary.segments);
            }
        });
    }
}
