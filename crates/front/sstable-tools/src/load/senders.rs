//! Threads that bring requests to the nodes, some at each; the queue before them is short, so that
//! reading waits for them.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::http::{Api, HttpError};

/// How long a node may be silent: longer than it waits for its replicas.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often a request is tried, at one node after the other.
const TRIES: u32 = 8;
/// Before the second try; then twice as long each time.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// The first failure; when there is one nothing more is sent.
type Failed = Arc<Mutex<Option<String>>>;

fn lock(failed: &Failed) -> std::sync::MutexGuard<'_, Option<String>> {
    failed.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// The threads.
pub(super) struct Senders {
    queue: SyncSender<Vec<u8>>,
    failed: Failed,
    threads: Vec<JoinHandle<()>>,
}

impl Senders {
    /// Starts that many connections for each node.
    pub(super) fn start(apis: &[Api], path: &str, connections: u16) -> Senders {
        let count = apis.len() * usize::from(connections);
        let (queue, taken) = sync_channel(count);
        let (taken, failed) = (Arc::new(Mutex::new(taken)), Failed::default());
        let start = |number: usize| {
            let mut apis = apis.to_vec();
            let first = number % apis.len().max(1);
            apis.rotate_left(first);
            let (path, taken, failed) = (path.to_owned(), taken.clone(), failed.clone());
            std::thread::spawn(move || work(&apis, &path, &taken, &failed))
        };
        let threads = (0..count).map(start).collect();
        Senders { queue, failed, threads }
    }

    /// Sends when there is room.
    ///
    /// # Errors
    /// An earlier request failed.
    pub(super) fn send(&self, batch: Vec<u8>) -> Result<(), String> {
        if let Some(text) = &*lock(&self.failed) {
            return Err(text.clone());
        }
        self.queue.send(batch).map_err(|_| "nobody sends any more".to_owned())
    }

    /// Waits for all that was sent.
    ///
    /// # Errors
    /// The first failure.
    pub(super) fn finish(self) -> Result<(), String> {
        drop(self.queue);
        let mut has_ended = true;
        for thread in self.threads {
            has_ended &= thread.join().is_ok();
        }
        match lock(&self.failed).take() {
            Some(text) => Err(text),
            None if has_ended => Ok(()),
            None => Err("a thread that sends has ended".to_owned()),
        }
    }
}

fn work(apis: &[Api], path: &str, taken: &Mutex<Receiver<Vec<u8>>>, failed: &Failed) {
    loop {
        let next = {
            let queue = taken.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            queue.recv()
        };
        let Ok(batch) = next else { return };
        // Drain the queue, so that no producer blocks on it.
        if lock(failed).is_some() {
            continue;
        }
        if let Err(text) = deliver(apis, path, &batch) {
            lock(failed).get_or_insert(text);
        }
    }
}

/// Tries one node after the other.
fn deliver(apis: &[Api], path: &str, batch: &[u8]) -> Result<(), String> {
    let (mut last, mut pause) = (String::new(), FIRST_PAUSE);
    for (number, api) in (0..TRIES).zip(apis.iter().cycle()) {
        if number > 0 {
            std::thread::sleep(pause);
            pause *= 2;
        }
        let name = format!("{}:{}", api.host, api.port);
        last = match api.post_bytes(path, batch, PATIENCE) {
            Ok(()) => return Ok(()),
            // A retry would be refused too.
            Err(HttpError::Refused(status @ 400..500, words)) => {
                return Err(format!("{name} refused ({status}): {words}"));
            }
            Err(HttpError::Refused(_, words)) => format!("{name}: {words}"),
            Err(HttpError::Connect(error)) => format!("{name}: {error}"),
            Err(HttpError::Strange(words)) => format!("{name}: {words}"),
        };
    }
    Err(format!("given up after {TRIES} tries: {last}"))
}
