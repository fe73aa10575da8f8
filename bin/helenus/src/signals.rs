//! Signals to a server: which of them stop it, reload its configuration or are ignored.
//!
//! Invariant: no signal that can be caught ends the process before its memtables are flushed, but a
//! second interrupt from a terminal. Signals are caught before the node starts.

use std::fs::File;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use rt::Stopper;
use rustix::process::Signal as Number;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit;

/// A second Ctrl-C counts only this long after the drain began. Programs such as `timeout` send the
/// same signal twice at once, to the process and to its group.
const SECOND_INTERRUPT_AFTER: Duration = Duration::from_secs(1);

/// Reaction to a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reaction {
    /// Flush everything, then end.
    Drain,
    /// End now; acknowledged writes are in the commit log.
    End,
    /// Read the configuration again.
    Reload,
    /// The node drains already.
    Wait,
    /// Continue; the log names the signal.
    Ignore,
}

/// The caught signals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Caught {
    Terminate,
    Interrupt,
    /// With whether the controlling terminal has closed.
    Hangup {
        terminal_closed: bool,
    },
    /// The system is about to end the process: power failure, CPU limit.
    Ending(&'static str),
    /// Signals that would end the process unless they are caught.
    Other(&'static str),
}

impl Caught {
    fn name(self) -> &'static str {
        match self {
            Caught::Terminate => "SIGTERM",
            Caught::Interrupt => "SIGINT",
            Caught::Hangup { .. } => "SIGHUP",
            Caught::Ending(name) | Caught::Other(name) => name,
        }
    }
}

/// The state that decides about the next signal.
#[derive(Clone, Copy, Debug, Default)]
struct Draining {
    /// When the drain began.
    since: Option<Instant>,
}

impl Draining {
    fn react(&mut self, caught: Caught, now: Instant) -> Reaction {
        let stops = match caught {
            Caught::Terminate | Caught::Interrupt | Caught::Ending(_) => true,
            Caught::Hangup { terminal_closed } => terminal_closed,
            Caught::Other(_) => return Reaction::Ignore,
        };
        match (self.since, caught) {
            (None, _) if stops => {
                self.since = Some(now);
                Reaction::Drain
            }
            (None, _) => Reaction::Reload,
            (Some(since), Caught::Interrupt)
                if now.saturating_duration_since(since) >= SECOND_INTERRUPT_AFTER =>
            {
                Reaction::End
            }
            (Some(_), _) => Reaction::Wait,
        }
    }
}

/// Signals that would end the process and mean nothing here. SIGQUIT is among them: Java prints its
/// threads on it and continues, and operators of Cassandra send it.
const IGNORED: [(&str, Number); 8] = [
    ("SIGUSR1", Number::USR1),
    ("SIGUSR2", Number::USR2),
    ("SIGQUIT", Number::QUIT),
    ("SIGALRM", Number::ALARM),
    ("SIGVTALRM", Number::VTALARM),
    ("SIGPROF", Number::PROF),
    ("SIGIO", Number::IO),
    // The write that met the limit fails, as on a full disk.
    ("SIGXFSZ", Number::XFSZ),
];

#[cfg(target_os = "linux")]
const ENDING: [(&str, Number); 2] = [("SIGXCPU", Number::XCPU), ("SIGPWR", Number::POWER)];
#[cfg(not(target_os = "linux"))]
const ENDING: [(&str, Number); 1] = [("SIGXCPU", Number::XCPU)];

/// Signals that are caught from now on, and wait to be reacted to.
pub struct Signals {
    runtime: tokio::runtime::Runtime,
    caught: Vec<(Caught, Signal)>,
    terminal: Terminal,
}

impl Signals {
    /// Catches them.
    ///
    /// # Errors
    /// The system's refusal.
    pub fn catch() -> std::io::Result<Signals> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        let terminal = Terminal::now();
        let mut caught = Vec::new();
        {
            let _inside = runtime.enter();
            let mut add = |as_what, number: Number| -> std::io::Result<()> {
                caught.push((as_what, signal(SignalKind::from_raw(number.as_raw()))?));
                Ok(())
            };
            add(Caught::Terminate, Number::TERM)?;
            add(Caught::Interrupt, Number::INT)?;
            add(Caught::Hangup { terminal_closed: false }, Number::HUP)?;
            for (name, number) in ENDING {
                add(Caught::Ending(name), number)?;
            }
            for (name, number) in IGNORED {
                add(Caught::Other(name), number)?;
            }
        }
        Ok(Signals { runtime, caught, terminal })
    }

    /// Reacts to them, on a thread of its own that ends with the process. `reload` is notified of
    /// each request to read the configuration again; a request that waits already covers the next.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn watch(self, stopper: Stopper, reload: SyncSender<()>) -> std::io::Result<()> {
        let Signals { runtime, mut caught, terminal } = self;
        let watch = async move {
            let mut state = Draining::default();
            loop {
                let mut caught = next(&mut caught).await;
                if let Caught::Hangup { terminal_closed } = &mut caught {
                    *terminal_closed = terminal.has_closed();
                }
                let signal = caught.name();
                match state.react(caught, Instant::now()) {
                    Reaction::Drain => {
                        tracing::info!(signal, "draining and stopping");
                        stopper.request_stop();
                    }
                    Reaction::End => {
                        tracing::warn!(signal, "second interrupt: ending without draining");
                        std::process::exit(i32::from(exit::FAILED));
                    }
                    Reaction::Reload => {
                        tracing::info!(signal, "reading the configuration again");
                        // Full: a pending reload, which has not begun yet, will read the present
                        // files.
                        let _ = reload.try_send(());
                    }
                    Reaction::Wait => {
                        tracing::info!(
                            signal,
                            "already draining; Ctrl-C a second or more after the first signal ends \
                             without draining"
                        );
                    }
                    Reaction::Ignore => {
                        tracing::warn!(
                            signal,
                            "signal ignored; SIGTERM drains and stops, SIGHUP reads the configuration \
                             again"
                        );
                    }
                }
            }
        };
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || runtime.block_on(watch))?;
        Ok(())
    }
}

/// The next signal of any kind.
async fn next(all: &mut [(Caught, Signal)]) -> Caught {
    std::future::poll_fn(|context| {
        for (caught, signal) in all.iter_mut() {
            if signal.poll_recv(context).is_ready() {
                return std::task::Poll::Ready(*caught);
            }
        }
        std::task::Poll::Pending
    })
    .await
}

/// The controlling terminal, whose closing sends SIGHUP as `kill -HUP` does.
struct Terminal {
    /// There was one, and its closing is not to be ignored (`nohup`).
    counts: bool,
}

impl Terminal {
    fn now() -> Terminal {
        Terminal { counts: is_open() && !hangups_are_ignored() }
    }

    fn has_closed(&self) -> bool {
        self.counts && !is_open()
    }
}

/// Returns true if this process has a controlling terminal. The system detaches it before it sends
/// SIGHUP.
fn is_open() -> bool {
    File::open("/dev/tty").is_ok()
}

/// Returns true if the process was started with SIGHUP ignored. Known on Linux only.
fn hangups_are_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the reactions to signals, with their times in milliseconds after the first.
    fn reactions(signals: &[(u64, Caught)]) -> Vec<Reaction> {
        let start = Instant::now();
        let mut state = Draining::default();
        let at = |millis| start + Duration::from_millis(millis);
        signals.iter().map(|(millis, caught)| state.react(*caught, at(*millis))).collect()
    }

    #[test]
    fn only_a_later_interrupt_skips_the_drain() {
        use Caught::{Interrupt, Terminate};
        use Reaction::{Drain, End, Wait};
        assert_eq!(reactions(&[(0, Terminate), (1, Terminate)]), [Drain, Wait]);
        assert_eq!(reactions(&[(0, Terminate), (60_000, Terminate)]), [Drain, Wait]);
        assert_eq!(reactions(&[(0, Interrupt), (999, Interrupt)]), [Drain, Wait]);
        assert_eq!(reactions(&[(0, Interrupt), (1000, Interrupt)]), [Drain, End]);
        assert_eq!(reactions(&[(0, Interrupt), (1, Interrupt), (1500, Interrupt)])[2], End);
        assert_eq!(reactions(&[(0, Terminate), (1000, Interrupt)]), [Drain, End]);
        assert_eq!(reactions(&[(0, Interrupt), (5000, Terminate)]), [Drain, Wait]);
        assert_eq!(reactions(&[(0, Caught::Ending("SIGPWR"))]), [Drain]);
    }

    #[test]
    fn a_hangup_reloads_unless_the_terminal_has_closed() {
        let hangup = |terminal_closed| Caught::Hangup { terminal_closed };
        assert_eq!(reactions(&[(0, hangup(false))]), [Reaction::Reload]);
        assert_eq!(reactions(&[(0, hangup(true))]), [Reaction::Drain]);
        let twice = [(0, Caught::Terminate), (2000, hangup(false)), (2000, hangup(true))];
        assert_eq!(reactions(&twice), [Reaction::Drain, Reaction::Wait, Reaction::Wait]);
        for (name, _) in IGNORED {
            let signals =
                [(0, Caught::Other(name)), (0, Caught::Terminate), (2000, Caught::Other(name))];
            assert_eq!(reactions(&signals)[0], Reaction::Ignore);
            assert_eq!(reactions(&signals)[2], Reaction::Ignore);
        }
    }

    #[test]
    fn every_signal_is_caught_once() {
        let mut numbers: Vec<i32> =
            IGNORED.iter().chain(&ENDING).map(|(_, n)| n.as_raw()).collect();
        numbers.extend([Number::TERM, Number::INT, Number::HUP].map(Number::as_raw));
        let count = numbers.len();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), count);
        assert!(Signals::catch().is_ok());
    }
}
