//! The writer and the files in a simulated world: sinks that fail or hang, full queues, restarts.
#![allow(clippy::disallowed_types, reason = "an archiver is shared with threads of the node")]

use super::{event, record as record_of};
use crate::binary::{self, Record};
use crate::binlog::files::LogFiles;
use crate::binlog::{
    Archiver, Destination, FileSettings, FileWriter, FullQueue, Layout, LogCounters, Pushed,
    RecordQueue, WAIT_MAX, WriteFailure, Writer, wait_for,
};
use crate::counters::counters;
use crate::event::{Event, EventRecord, EventType};
use conf::RollCycle;
use rt::Rt;
use rt::sim::{DiskControl, World, WorldOptions};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Runs `main` on one simulated shard.
fn run<F: Future<Output = ()> + 'static>(main: impl FnOnce(Rt) -> F + 'static) {
    run_with_disk(|rt, _| main(rt));
}

fn run_with_disk<F: Future<Output = ()> + 'static>(
    main: impl FnOnce(Rt, DiskControl) -> F + 'static,
) {
    let world = World::new(7, WorldOptions::default());
    let disk = world.disk("n1");
    let done = Rc::new(Cell::new(false));
    let seen = done.clone();
    world.client("n1", move |rt| async move {
        main(rt, disk).await;
        seen.set(true);
    });
    world.run_until(|| done.get(), Duration::from_secs(360_000)).unwrap();
}

/// A sink under test.
#[derive(Default)]
struct Sink {
    /// Attempts that fail before the first success.
    failures: Cell<u32>,
    /// Records that a failing attempt writes all the same.
    in_part: Cell<usize>,
    hangs: Cell<bool>,
    written: RefCell<Vec<String>>,
}

struct Ground {
    sink: Rc<Sink>,
    destination: Rc<Destination<EventRecord>>,
    counters: Rc<LogCounters>,
}

/// A destination for a queue of `limit` bytes that writes to a sink.
fn ground(rt: &Rt, limit: u64, full: FullQueue) -> Ground {
    let sink = Rc::new(Sink::default());
    let to = sink.clone();
    let write = move |records: &[EventRecord]| -> Pin<Box<dyn Future<Output = _>>> {
        let (to, records) = (to.clone(), records.to_vec());
        Box::pin(async move {
            let written = |records: &[EventRecord]| {
                let texts = records.iter().map(|record| record.event.operation.to_string());
                to.written.borrow_mut().extend(texts);
            };
            if to.hangs.get() {
                std::future::pending::<()>().await;
            }
            if to.failures.get() > 0 {
                to.failures.set(to.failures.get() - 1);
                let count = to.in_part.get().min(records.len());
                written(&records[..count]);
                let error = "No space left on device".to_owned();
                return Err(WriteFailure { written: count, error });
            }
            written(&records);
            Ok(())
        })
    };
    let counters = Rc::new(counters(&rt.telemetry()));
    let writer = Writer { log: "log", write: Box::new(write), counters: counters.clone() };
    let destination = Destination::new("test", RecordQueue::new(limit, full), writer);
    let task = destination.clone().run(rt.clone());
    rt.gate("test").spawn(rt, rt::Group::Admin, "writer", task).unwrap();
    Ground { sink, destination, counters }
}

/// Pushes events of 300 bytes, numbered.
fn push(destination: &Destination<EventRecord>, numbers: std::ops::Range<u32>) -> Vec<Pushed> {
    let one = |number: u32| {
        let operation = format!("{number:0100}").into();
        destination.push(record_of(Event { operation, ..event(EventType::Update) }))
    };
    numbers.map(one).collect()
}

fn numbers(sink: &Sink) -> Vec<u32> {
    sink.written.borrow().iter().map(|text| text.parse().unwrap()).collect()
}

/// INV-audit-1 and INV-audit-2.
#[test]
fn a_sink_that_fails_delays_answers_and_loses_nothing() {
    run(|rt| async move {
        let ground = ground(&rt, 1000, FullQueue::Wait);
        ground.sink.failures.set(20);
        let pushed = push(&ground.destination, 0..5);
        assert_eq!(pushed[2..], [Pushed::Queued, Pushed::Over, Pushed::Over]);
        let began = rt.now();
        assert!(!ground.destination.wait(&rt, began + Duration::from_secs(10)).await);
        assert_eq!(numbers(&ground.sink), [0_u32; 0]);
        // New events do not shorten the pause after a failure.
        let failures = ground.counters.failures.get();
        for number in 5..9 {
            push(&ground.destination, number..number + 1);
            rt.sleep(Duration::from_millis(20)).await;
        }
        assert!(ground.counters.failures.get() <= failures + 1);
        assert!(ground.destination.wait(&rt, began + Duration::from_secs(60)).await);
        assert!(rt.now().since(began) >= Duration::from_secs(19));
        ground.destination.close(&rt, rt.now() + Duration::from_secs(5)).await;
        assert_eq!(numbers(&ground.sink), [0, 1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!((ground.counters.failures.get(), ground.counters.dropped.get()), (20, 0));
    });
}

/// INV-audit-2: what is written leaves the queue, and no attempt begins before it.
#[test]
fn a_batch_that_failed_is_written_again_from_the_first_record_that_is_not_written() {
    run(|rt| async move {
        let ground = ground(&rt, 100_000, FullQueue::Wait);
        ground.sink.failures.set(3);
        ground.sink.in_part.set(2);
        push(&ground.destination, 0..7);
        let weight = ground.counters.queue_bytes.get();
        rt.sleep(Duration::from_millis(500)).await;
        assert_eq!(numbers(&ground.sink), [0, 1]);
        assert_eq!(ground.counters.queue_bytes.get(), weight / 7 * 5);
        rt.sleep(Duration::from_secs(10)).await;
        assert_eq!(numbers(&ground.sink), [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!((ground.counters.failures.get(), ground.counters.queue_bytes.get()), (3, 0));
    });
}

#[test]
fn without_waiting_a_full_queue_drops_new_events_and_writes_the_old_ones() {
    run(|rt| async move {
        let ground = ground(&rt, 1000, FullQueue::Drop);
        ground.sink.failures.set(3);
        let pushed = push(&ground.destination, 0..5);
        assert_eq!(pushed[2..], [Pushed::Queued, Pushed::Dropped, Pushed::Dropped]);
        assert!(ground.destination.wait(&rt, rt.now()).await, "no answer waits");
        ground.destination.close(&rt, rt.now() + Duration::from_secs(60)).await;
        assert_eq!(numbers(&ground.sink), [0, 1, 2]);
    });
}

#[test]
fn a_sink_that_hangs_bounds_the_queue_and_does_not_hold_up_a_stop() {
    run(|rt| async move {
        let ground = ground(&rt, 1000, FullQueue::Wait);
        ground.sink.hangs.set(true);
        push(&ground.destination, 0..4);
        assert!(ground.destination.admits());
        push(&ground.destination, 4..7);
        assert!(!ground.destination.admits(), "no request begins above twice the limit");
        let began = rt.now();
        ground.destination.close(&rt, began + Duration::from_secs(5)).await;
        assert!(rt.now().since(began) < Duration::from_secs(10));
        // INV-audit-2: with the batch that hangs.
        assert_eq!(ground.counters.dropped.get(), 7);
        assert_eq!(ground.counters.queue_bytes.get(), 0);
        assert!(ground.destination.wait(&rt, rt.now()).await, "it is closed");
    });
}

#[test]
fn events_that_cannot_wait_are_dropped_and_counted_above_twice_the_limit() {
    run(|rt| async move {
        let ground = ground(&rt, 1000, FullQueue::Wait);
        ground.sink.failures.set(3);
        let mut lost = 0;
        for number in 0..100 {
            let operation = format!("{number:0100}").into();
            let event = Event { operation, ..event(EventType::AdminAction) };
            let logged = ground.destination.is_lost_unlogged(rt.now(), record_of(event));
            lost += u32::from(logged);
        }
        assert_eq!(lost, 1, "one of them is logged");
        assert!(ground.counters.queue_bytes.get() < 2500);
        let dropped = ground.counters.dropped.get();
        ground.destination.close(&rt, rt.now() + Duration::from_secs(60)).await;
        assert_eq!(numbers(&ground.sink).len() as u64 + dropped, 100);
        assert_eq!(ground.counters.dropped.get(), dropped);
    });
}

#[test]
fn events_of_a_sink_that_fails_until_the_stop_are_counted_as_dropped() {
    run(|rt| async move {
        let ground = ground(&rt, 100_000, FullQueue::Wait);
        ground.sink.failures.set(u32::MAX);
        push(&ground.destination, 0..4);
        ground.destination.close(&rt, rt.now() + Duration::from_secs(5)).await;
        assert_eq!(ground.counters.dropped.get(), 4);
    });
}

/// The metric is the sum over all destinations, and falls with each batch that is written.
#[test]
fn the_metric_of_queued_bytes_is_that_of_all_destinations() {
    run(|rt| async move {
        let ground = ground(&rt, 100_000, FullQueue::Wait);
        let writer = Writer {
            log: "log",
            write: Box::new(|_| Box::pin(std::future::pending())),
            counters: ground.counters.clone(),
        };
        let queue = RecordQueue::new(100_000, FullQueue::Wait);
        let other = Destination::new("other", queue, writer);
        push(&ground.destination, 0..2);
        let of_two = ground.counters.queue_bytes.get();
        push(&other, 0..2);
        assert_eq!(ground.counters.queue_bytes.get(), 2 * of_two);
        rt.sleep(Duration::from_secs(1)).await;
        assert_eq!(numbers(&ground.sink), [0, 1]);
        assert_eq!(ground.counters.queue_bytes.get(), of_two);
    });
}

#[test]
fn the_time_that_an_answer_waits_runs_from_the_end_of_its_request() {
    run(|rt| async move {
        let ground = ground(&rt, 1000, FullQueue::Wait);
        ground.sink.hangs.set(true);
        push(&ground.destination, 0..5);
        let taken = wait_for(&rt, vec![ground.destination.clone()], WAIT_MAX);
        rt.sleep(Duration::from_secs(20)).await;
        let began = rt.now();
        assert!(!taken.await);
        assert!(rt.now().since(began) < Duration::from_millis(1));
    });
}

async fn read(rt: &Rt, path: &str) -> Vec<u8> {
    rt.fs().read(path, 1 << 20).await.unwrap()
}

async fn names(rt: &Rt) -> Vec<String> {
    let entries = rt.fs().read_dir("/audit").await.unwrap();
    entries.into_iter().map(|entry| entry.name).collect()
}

#[test]
fn text_files_are_continued_after_a_restart_and_renamed_on_the_next_day() {
    run(|rt| async move {
        let open = || LogFiles::new(&rt, "/audit/", Layout::Text, Some(1 << 20));
        let mut files = open();
        files.append(b"one\n".to_vec()).await.unwrap();
        files.append(b"cut".to_vec()).await.unwrap();
        files.close().await.unwrap();
        let mut files = open();
        files.append(b"two\n".to_vec()).await.unwrap();
        assert_eq!(read(&rt, "/audit/audit.log").await, b"one\ncut\ntwo\n");
        rt.sleep(Duration::from_secs(86_400)).await;
        let finished = files.append(b"three\n".to_vec()).await.unwrap();
        assert_eq!(finished.len(), 1);
        assert_eq!(read(&rt, &finished[0]).await, b"one\ncut\ntwo\n");
        assert_eq!(read(&rt, "/audit/audit.log").await, b"three\n");
    });
}

#[test]
fn binary_files_are_never_continued_and_the_oldest_are_deleted() {
    run(|rt| async move {
        let layout = binary::layout(RollCycle::of_name("MINUTELY").unwrap());
        let open = || LogFiles::new(&rt, "/audit", layout, Some(120));
        let mut files = open();
        files.append(record("one")).await.unwrap();
        files.append(record("two")).await.unwrap();
        let first = names(&rt).await;
        assert_eq!(first.len(), 1);
        let bytes = read(&rt, &format!("/audit/{}", first[0])).await;
        binary::AUDIT_LOG.check_header(&bytes).unwrap();
        let (record_one, length) = binary::next_record(&bytes[16..], 16).unwrap().unwrap();
        assert_eq!(record_one, Record::Line { millis: 0, line: "one" });
        assert_eq!(bytes.len(), 16 + 2 * length);
        let mut files = open();
        files.append(record("three")).await.unwrap();
        assert_eq!(names(&rt).await.len(), 2);
        for _ in 0..5 {
            rt.sleep(Duration::from_secs(60)).await;
            files.append(record("more")).await.unwrap();
        }
        let left = names(&rt).await;
        assert!(!left.contains(&first[0]) && left.len() <= 4, "{left:?}");
    });
}

fn record(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    binary::push_record(&mut bytes, 0, |out| out.extend_from_slice(text.as_bytes()));
    bytes
}

#[test]
fn a_full_disk_leaves_no_empty_files_and_surplus_files_are_deleted_first() {
    run_with_disk(|rt, disk| async move {
        let layout = binary::layout(RollCycle::of_name("MINUTELY").unwrap());
        let open = |most| LogFiles::new(&rt, "/audit", layout, Some(most));
        let mut files = open(1 << 20);
        files.append(record("one")).await.unwrap();
        let first = names(&rt).await;
        disk.set_free_bytes(Some(0));
        rt.sleep(Duration::from_secs(60)).await;
        for _ in 0..5 {
            files.append(record("two")).await.unwrap_err();
        }
        assert_eq!(names(&rt).await, first);
        // The space of a surplus file is enough for the header.
        open(0).append(record("two")).await.unwrap();
        let left = names(&rt).await;
        assert!(left.len() == 1 && left != first, "{left:?}");
    });
}

#[test]
fn a_finished_file_is_returned_after_writes_that_failed() {
    run_with_disk(|rt, disk| async move {
        for layout in [Layout::Text, binary::layout(RollCycle::of_name("DAILY").unwrap())] {
            let mut files = LogFiles::new(&rt, "/audit", layout, None);
            assert!(files.append(record("one")).await.unwrap().is_empty());
            rt.sleep(Duration::from_secs(86_400)).await;
            disk.set_free_bytes(Some(0));
            for _ in 0..3 {
                files.append(record("two")).await.unwrap_err();
            }
            disk.set_free_bytes(None);
            assert_eq!(files.append(record("two")).await.unwrap().len(), 1);
            assert!(files.append(record("three")).await.unwrap().is_empty());
        }
    });
}

/// Fails some times; then it notes what it is given.
#[derive(Default)]
struct FlakyArchiver {
    failures: Mutex<u32>,
    archived: Mutex<Vec<String>>,
}

impl Archiver for FlakyArchiver {
    fn archive(&self, _: &str, path: &str) -> Result<(), String> {
        let mut failures = self.failures.lock().unwrap();
        if *failures > 0 {
            *failures -= 1;
            return Err("no space left".to_owned());
        }
        self.archived.lock().unwrap().push(path.rsplit_once('/').unwrap().1.to_owned());
        Ok(())
    }
}

#[test]
fn a_file_whose_archive_command_failed_is_handed_to_it_with_the_next_finished_file() {
    run(|rt| async move {
        let archiver = Arc::new(FlakyArchiver::default());
        *archiver.failures.lock().unwrap() = 3;
        let writer = FileWriter::new(&rt, "log", Some(archiver.clone()));
        let layout = binary::layout(RollCycle::of_name("DAILY").unwrap());
        let settings = FileSettings {
            directory: "/audit".to_owned(),
            layout,
            bytes_max: 1 << 20,
            archive_command: "archive %path".to_owned(),
            max_archive_retries: 2,
        };
        rt.fs().create_dir_all("/audit").await.unwrap();
        writer.swap(Some(settings)).await.unwrap();
        let mut written = Vec::new();
        for day in 0..4 {
            writer.append(record("one")).await.unwrap();
            written.push(layout.new_name(rt.wall(), &[], 0)[..8].to_owned());
            rt.sleep(Duration::from_secs(3600)).await;
            // The first file is finished on the second day, and its three attempts fail.
            let expected = day.max(1) - 1;
            let archived: Vec<String> = archiver.archived.lock().unwrap().clone();
            let of_days = archived.iter().map(|name| name[..8].to_owned());
            let expected = if day < 2 { &[][..] } else { &written[..=expected] };
            assert_eq!(of_days.collect::<Vec<String>>(), expected, "day {day}");
            rt.sleep(Duration::from_secs(82_800)).await;
        }
    });
}

#[test]
fn a_text_file_that_an_earlier_run_left_is_returned_when_it_is_renamed() {
    run(|rt| async move {
        let open = || LogFiles::new(&rt, "/audit", Layout::Text, None);
        open().append(b"one\n".to_vec()).await.unwrap();
        rt.sleep(Duration::from_secs(86_400)).await;
        assert_eq!(open().append(b"two\n".to_vec()).await.unwrap().len(), 1);
    });
}
