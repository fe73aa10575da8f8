//! Processes that outlive the command that started them.
//!
//! A number alone would identify another process some day. It is stored with the process's start
//! time, and both are checked before every signal.

use std::fs;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use serde::{Deserialize, Serialize};

/// Most of a log that is read for its last lines.
const TAIL_BYTES_MAX: u64 = 1 << 20;

/// Which process it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Its number.
    pub pid: u32,
    /// Start time in the system's form: number and start time together are unique.
    pub began: String,
}

/// How a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It runs or waits.
    Running,
    /// Stopped by SIGSTOP.
    Paused,
    /// Ended, or the number is another process's now.
    Gone,
}

/// Signal to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM.
    Terminate,
    /// SIGKILL.
    Kill,
    /// SIGSTOP.
    Stop,
    /// SIGCONT.
    Continue,
}

impl Signal {
    fn number(self) -> rustix::process::Signal {
        match self {
            Signal::Terminate => rustix::process::Signal::TERM,
            Signal::Kill => rustix::process::Signal::KILL,
            Signal::Stop => rustix::process::Signal::STOP,
            Signal::Continue => rustix::process::Signal::CONT,
        }
    }
}

impl Identity {
    /// The process of that number; `None` when there is none.
    pub fn of(pid: u32) -> Option<Identity> {
        let (_, began) = look(pid)?;
        Some(Identity { pid, began })
    }

    /// How it is now.
    pub fn state(&self) -> State {
        match look(self.pid) {
            Some((state, began)) if began == self.began => state,
            _ => State::Gone,
        }
    }

    /// Sends the signal.
    ///
    /// # Errors
    /// The process has ended, or belongs to another user.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        let gone = || io::Error::new(io::ErrorKind::NotFound, "the process has ended");
        let number = i32::try_from(self.pid).ok();
        let pid = number.and_then(rustix::process::Pid::from_raw).ok_or_else(gone)?;
        #[cfg(target_os = "linux")]
        {
            use rustix::process::{PidfdFlags, pidfd_open, pidfd_send_signal};
            // The handle names one process for good: the process that is checked is the one that is
            // signalled.
            match pidfd_open(pid, PidfdFlags::empty()) {
                Ok(handle) => {
                    if self.state() == State::Gone {
                        return Err(gone());
                    }
                    return Ok(pidfd_send_signal(&handle, signal.number())?);
                }
                Err(rustix::io::Errno::SRCH) => return Err(gone()),
                // Kernels before 5.3.
                Err(_) => {}
            }
        }
        if self.state() == State::Gone {
            return Err(gone());
        }
        Ok(rustix::process::kill_process(pid, signal.number())?)
    }
}

/// Returns state and start time of a process that exists.
fn look(pid: u32) -> Option<(State, String)> {
    if Path::new("/proc/self/stat").exists() {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let (state, ticks) = of_stat(&stat)?;
        return Some((state, format!("{} {ticks}", boot.trim())));
    }
    // Systems without /proc: the same from `ps`, in a fixed language.
    let shown = std::process::Command::new("ps")
        .args(["-o", "state=,lstart=", "-p", &pid.to_string()])
        .env("LC_ALL", "C")
        .output()
        .ok()?;
    of_ps(&String::from_utf8_lossy(&shown.stdout))
}

/// State, and start time in ticks since the system booted, from `/proc/<pid>/stat`.
fn of_stat(stat: &str) -> Option<(State, u64)> {
    // The name in parentheses may hold spaces; fields are counted after it.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let state = of_letter(fields.next()?)?;
    let ticks = fields.nth(18)?.parse().ok()?;
    Some((state, ticks))
}

fn of_ps(line: &str) -> Option<(State, String)> {
    let (letters, began) = line.trim().split_once(char::is_whitespace)?;
    Some((of_letter(letters)?, began.trim().to_owned()))
}

/// Returns the state, or `None` for a process that has ended but has not been reaped yet.
fn of_letter(letters: &str) -> Option<State> {
    match letters.chars().next()? {
        'Z' | 'X' | 'x' => None,
        'T' => Some(State::Paused),
        _ => Some(State::Running),
    }
}

/// The last lines of a file; empty when it cannot be read.
pub fn tail(path: &Path, lines: usize) -> String {
    let read = || -> io::Result<Vec<u8>> {
        let mut file = fs::File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES_MAX)))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let all: Vec<&str> = text.lines().collect();
    let mut out = String::new();
    for line in all.iter().skip(all.len().saturating_sub(lines)) {
        out.push_str(line);
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn start_time_is_read_behind_a_name_with_spaces() {
        let fields: Vec<String> = (4..=22).map(|n| n.to_string()).collect();
        let stat = |state: &str| format!("42 (a (b) c) {state} {} 23 24\n", fields.join(" "));
        assert_eq!(of_stat(&stat("S")), Some((State::Running, 22)));
        assert_eq!(of_stat(&stat("T")), Some((State::Paused, 22)));
        assert_eq!(of_stat(&stat("Z")), None);
        assert_eq!(of_stat("42 (a) S 1"), None);
    }

    #[test]
    fn ps_says_the_same() {
        let (state, began) = of_ps("Ss   Sat Nov 21 05:14:49 2026\n").unwrap();
        assert_eq!((state, began.as_str()), (State::Running, "Sat Nov 21 05:14:49 2026"));
        assert_eq!(of_ps("Z+   Sat Nov 21 05:14:49 2026"), None);
        assert_eq!(of_ps("\n"), None);
    }

    #[test]
    fn a_process_that_began_at_another_time_is_not_touched() {
        let mut child =
            Command::new("sleep").arg("60").stdout(Stdio::null()).spawn().expect("sleep runs");
        let this = Identity::of(child.id()).unwrap();
        assert_eq!(this.state(), State::Running);
        let other = Identity { began: "never".to_owned(), ..this.clone() };
        assert_eq!(other.state(), State::Gone);
        assert_eq!(other.signal(Signal::Kill).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(child.try_wait().unwrap().is_none(), "a foreign process was signalled");
        this.signal(Signal::Kill).unwrap();
        child.wait().unwrap();
        assert_eq!(this.state(), State::Gone);
        assert!(this.signal(Signal::Terminate).is_err());
    }

    #[test]
    fn tail_is_the_last_lines() {
        let path = std::env::temp_dir().join(format!("helenus-tail-{}", std::process::id()));
        fs::write(&path, "a\nb\nc").unwrap();
        assert_eq!(tail(&path, 2), "b\nc\n");
        assert_eq!(tail(&path, 9), "a\nb\nc\n");
        fs::remove_file(&path).unwrap();
        assert_eq!(tail(&path, 9), "");
    }
}
