//! Shard threads, and what one of them gives to the executor that runs on it ([`Env`]).

use crate::pool::Pool;
use crate::service::Clock;
use crate::uring::{self, Uring};
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};
use std::cell::RefCell;
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Sleep;

/// Which file backend to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IoBackend {
    /// io_uring where the kernel allows it, else threads.
    #[default]
    Auto,
    /// io_uring, or refuse to start.
    IoUring,
    /// `pread`, `pwrite`, `fdatasync` on pool threads.
    Threads,
}

/// How to use this machine.
#[derive(Clone, Debug, Default)]
pub struct NativeOptions {
    /// Pin shard n to the n-th of these cpus (modulo their number); `None` pins nothing.
    pub cpuset: Option<Vec<usize>>,
    /// File backend.
    pub io: IoBackend,
}

/// Environment of one shard thread. Cheap to clone, stays on its thread.
#[derive(Clone)]
pub struct Env {
    inner: Rc<Inner>,
}

struct Inner {
    work_dir: String,
    start: std::time::Instant,
    pool: Arc<Pool>,
    uring: Option<Rc<Uring>>,
    alarm: RefCell<Option<Alarm>>,
    rng: RefCell<ChaCha8Rng>,
}

struct Alarm {
    at: u64,
    sleep: Pin<Box<Sleep>>,
}

impl Env {
    /// Nanoseconds since the node started.
    pub fn now_nanos(&self) -> u64 {
        // 64 bits of nanoseconds are 584 years of running.
        let elapsed = self.inner.start.elapsed();
        elapsed
            .as_secs()
            .wrapping_mul(1_000_000_000)
            .wrapping_add(u64::from(elapsed.subsec_nanos()))
    }

    /// The clock of [`Env::now_nanos`], for other threads.
    pub fn clock(&self) -> Clock {
        Clock { start: self.inner.start }
    }

    /// Microseconds since the Unix epoch.
    pub fn wall_micros(&self) -> i64 {
        match std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH) {
            Ok(d) => i64::try_from(d.as_micros()).unwrap_or(i64::MAX),
            Err(e) => i64::try_from(e.duration().as_micros()).map_or(i64::MIN, |n| -n),
        }
    }

    /// Uniform, from a generator seeded by the operating system.
    pub fn random_u64(&self) -> u64 {
        self.inner.rng.borrow_mut().next_u64()
    }

    /// Fills `out` with random bytes.
    pub fn random_fill(&self, out: &mut [u8]) {
        self.inner.rng.borrow_mut().fill_bytes(out);
    }

    /// Threads for blocking work.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.inner.pool
    }

    /// Hands queued file operations to the kernel and wakes those that are done. Once per loop
    /// turn.
    pub fn flush(&self) {
        if let Some(ring) = &self.inner.uring {
            ring.flush();
        }
    }

    /// Returns true if file operations are queued that the kernel has not seen.
    pub fn has_unsubmitted(&self) -> bool {
        self.inner.uring.as_ref().is_some_and(|ring| ring.has_unsubmitted())
    }

    /// Wakes tasks whose file operations are done. Ready once `deadline` (nanoseconds since start)
    /// has passed; until then both register `cx`.
    pub fn poll_idle(&self, cx: &mut Context<'_>, deadline: Option<u64>) -> Poll<()> {
        if let Some(ring) = &self.inner.uring {
            ring.poll_ready(cx);
        }
        let mut alarm = self.inner.alarm.borrow_mut();
        let Some(at) = deadline else {
            *alarm = None;
            return Poll::Pending;
        };
        let when = tokio::time::Instant::from_std(self.inner.start + Duration::from_nanos(at));
        match &mut *alarm {
            Some(set) if set.at == at => {}
            Some(set) => {
                set.at = at;
                set.sleep.as_mut().reset(when);
            }
            none => *none = Some(Alarm { at, sleep: Box::pin(tokio::time::sleep_until(when)) }),
        }
        match &mut *alarm {
            Some(set) => set.sleep.as_mut().poll(cx),
            None => Poll::Pending,
        }
    }

    /// Asks to be polled again after the reactor has polled sockets and timers.
    pub fn yield_to_reactor(&self, cx: &mut Context<'_>) {
        // Tokio keeps the waker until its driver has run; the future itself holds nothing.
        let _ = pin!(tokio::task::yield_now()).poll(cx);
    }

    /// Lets other threads that wait for this processor go first, if there are any.
    pub fn yield_processor(&self) {
        std::thread::yield_now();
    }

    pub(crate) fn uring(&self) -> Option<&Rc<Uring>> {
        self.inner.uring.as_ref()
    }

    /// `path` below the node's work directory, unless it is absolute.
    pub(crate) fn resolve(&self, path: &str) -> String {
        if path.starts_with('/') || self.inner.work_dir.is_empty() {
            return path.to_string();
        }
        format!("{}/{}", self.inner.work_dir.trim_end_matches('/'), path)
    }
}

/// The running threads of one node.
pub struct Threads {
    handles: Vec<std::thread::JoinHandle<Result<(), String>>>,
    io: String,
}

impl Threads {
    /// Which file backend is in use and, when it was not the first choice, why.
    pub fn io_description(&self) -> &str {
        &self.io
    }

    /// Waits until every shard's future is done.
    ///
    /// # Errors
    /// The first shard's panic or failure to start, in words.
    pub fn join(self) -> Result<(), String> {
        let mut first = Ok(());
        for (shard, handle) in self.handles.into_iter().enumerate() {
            let result = handle.join().unwrap_or_else(|panic| {
                let text = panic
                    .downcast_ref::<String>()
                    .cloned()
                    .or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_string()));
                Err(format!("shard {shard} panicked: {}", text.unwrap_or_default()))
            });
            if first.is_ok() {
                first = result;
            }
        }
        first
    }
}

/// Main function of one shard: called on its thread, with its number and environment.
pub type ShardMain = Arc<dyn Fn(u16, Env) -> Pin<Box<dyn Future<Output = ()>>> + Send + Sync>;

/// The chosen file backend: see [`choose_io`].
pub struct ChosenIo {
    use_ring: Result<bool, String>,
    description: String,
}

impl ChosenIo {
    /// Which backend is in use and, when it was not the first choice, why.
    pub fn description(&self) -> &str {
        &self.description
    }
}

/// Starts one thread per shard, each running the future that `main` makes. Shard n is pinned to the
/// n-th cpu of `cpuset` (modulo its length).
pub fn start(
    name: &str,
    shards: u16,
    work_dir: &str,
    cpuset: Option<&[usize]>,
    io: ChosenIo,
    main: &ShardMain,
) -> Threads {
    let ChosenIo { use_ring, description: io } = io;
    let start = std::time::Instant::now();
    let pool = Arc::new(Pool::new());
    let mut handles = Vec::new();
    for shard in 0..shards {
        let cpu = cpuset.and_then(|set| {
            let n = set.len();
            (n > 0).then(|| set.get(usize::from(shard) % n).copied()).flatten()
        });
        let (pool, main) = (Arc::clone(&pool), Arc::clone(main));
        let work_dir = work_dir.to_string();
        let use_ring = use_ring.clone();
        let body = move || -> Result<(), String> {
            if let Some(cpu) = cpu {
                pin_to(cpu)?;
            }
            run_shard(shard, work_dir, start, pool, use_ring?, &main)
        };
        let thread = std::thread::Builder::new().name(format!("{name}-shard-{shard}"));
        match thread.spawn(body) {
            Ok(handle) => handles.push(handle),
            Err(e) => handles.push(failed_thread(format!("shard {shard}: no thread: {e}"))),
        }
    }
    Threads { handles, io }
}

fn failed_thread(why: String) -> std::thread::JoinHandle<Result<(), String>> {
    // Another thread that only carries the error; if that fails too, the error cannot be reported.
    std::thread::spawn(move || Err(why))
}

/// Probes `io_uring`, unless the options exclude it, and selects the backend.
pub fn choose_io(wanted: IoBackend) -> ChosenIo {
    let probed = match wanted {
        IoBackend::Threads => None,
        IoBackend::Auto | IoBackend::IoUring => Some(uring::probe()),
    };
    let (use_ring, description) = match (wanted, probed) {
        (IoBackend::Threads, _) | (_, None) => {
            (Ok(false), "files: threads (as configured)".to_string())
        }
        (_, Some(Ok(()))) => (Ok(true), "files: io_uring".to_string()),
        (IoBackend::Auto, Some(Err(why))) => (Ok(false), format!("files: threads ({why})")),
        (IoBackend::IoUring, Some(Err(why))) => (
            Err(format!("io_uring was asked for but cannot be used: {why}")),
            format!("files: none ({why})"),
        ),
    };
    ChosenIo { use_ring, description }
}

fn pin_to(cpu: usize) -> Result<(), String> {
    let mut set = rustix::thread::CpuSet::new();
    if cpu >= rustix::thread::CpuSet::MAX_CPU {
        return Err(format!("cpu {cpu} in the cpuset does not exist"));
    }
    set.set(cpu);
    rustix::thread::sched_setaffinity(None, &set).map_err(|e| format!("pin to cpu {cpu}: {e}"))
}

fn run_shard(
    shard: u16,
    work_dir: String,
    start: std::time::Instant,
    pool: Arc<Pool>,
    use_ring: bool,
    main: &ShardMain,
) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(tokio::runtime::LocalOptions::default())
        .map_err(|e| format!("shard {shard}: no reactor: {e}"))?;
    let mut key = [0u8; 32];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| std::io::Read::read_exact(&mut file, &mut key))
        .map_err(|e| format!("shard {shard}: no random seed: {e}"))?;
    let main = Arc::clone(main);
    let body = async move {
        let ring = if use_ring {
            Some(Rc::new(Uring::new().map_err(|e| format!("shard {shard}: io_uring: {e}"))?))
        } else {
            None
        };
        let inner = Inner {
            work_dir,
            start,
            pool,
            uring: ring,
            alarm: RefCell::new(None),
            rng: RefCell::new(ChaCha8Rng::from_seed(key)),
        };
        main(shard, Env { inner: Rc::new(inner) }).await;
        Ok(())
    };
    runtime.block_on(async move {
        // A spawned task, not the root future: the reactor then wakes it without an eventfd write.
        match tokio::task::spawn_local(tokio::task::unconstrained(body)).await {
            Ok(result) => result,
            Err(e) => match e.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(e) => Err(format!("shard {shard}: {e}")),
            },
        }
    })
}

/// INV-native-3: nothing of a shard but what [`crate::cross`], [`crate::pool`] and [`crate::service`] make can be sent
/// to another thread.
/// Does not compile when `Env` becomes `Send`: then both impls apply.
const _: () = {
    trait NotSend<Marker> {
        const HOLDS: () = ();
    }
    struct IsSend;
    impl<T: ?Sized> NotSend<()> for T {}
    impl<T: ?Sized + Send> NotSend<IsSend> for T {}
    <Env as NotSend<_>>::HOLDS
};
