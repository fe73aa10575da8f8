//! Signals to real servers: which end them, and how.

#![cfg(unix)]

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// Bound of a wait that only a hanging server reaches.
const PATIENCE: Duration = Duration::from_secs(120);

/// A server with a directory of its own, and its log.
struct Server {
    child: Child,
    lines: Receiver<String>,
    seen: Vec<String>,
    directory: PathBuf,
    /// Its own; `script` stands between it and the child.
    pid: u32,
    /// Ends with the log, or when nothing receives its lines.
    reader: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts one and waits until it serves clients. `through`: the command that starts it.
    fn start(name: &str, through: &[&str]) -> Server {
        let directory =
            std::env::temp_dir().join(format!("helenus-signals-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("c.yaml"), "compaction_throughput: 64MiB/s\n").unwrap();
        let ports = free_ports();
        let server = format!(
            "echo pid $$; exec {} server --config {}/c.yaml --workdir {}/w --smp 1 --memory 256M \
             --native-transport-port {} --api-port {} --native-shard-aware-transport-port 0 2>&1",
            env!("CARGO_BIN_EXE_helenus"),
            directory.display(),
            directory.display(),
            ports[0],
            ports[1],
        );
        let mut command = match through {
            [] => Command::new("sh"),
            [first, rest @ ..] => {
                let mut command = Command::new(first);
                command.args(rest);
                command
            }
        };
        match through.first() {
            Some(&"script") => command.args([&server, "/dev/null"]),
            Some(_) => command.args(["sh", "-c", &server]),
            None => command.args(["-c", &server]),
        };
        let mut child = command
            .env_remove("RUST_LOG")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        let reader = std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let mut started =
            Server { child, lines, seen: Vec::new(), directory, pid: 0, reader: Some(reader) };
        let first = started.wait_for("pid ");
        started.pid = first.trim().trim_start_matches("pid ").parse().unwrap();
        started.wait_for("Startup complete");
        started
    }

    /// Reads the log up to a line with that text.
    fn wait_for(&mut self, text: &str) -> String {
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) if line.contains(text) => return line,
                Ok(line) => self.seen.push(line),
                Err(error) => panic!("no \"{text}\" ({error}) in:\n{}", self.seen.join("\n")),
            }
        }
    }

    fn kill(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.pid).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Waits until no process has the directory.
    fn wait_for_lock(&self) {
        let lock = fs::File::open(self.directory.join("w/.lock")).unwrap();
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    }

    /// Files of the commit log without the one that marks its directory; none after a drain.
    fn commit_log(&self) -> Vec<String> {
        let all = fs::read_dir(self.directory.join("w/commitlog")).unwrap();
        let names = all.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name != "helenus-log-directory").collect()
    }

    /// Waits for its end; the rest of the log.
    fn end(mut self) -> (ExitStatus, String) {
        let mut rest = Vec::new();
        while let Ok(line) = self.lines.recv_timeout(PATIENCE) {
            rest.push(line);
        }
        let status = self.child.wait().unwrap();
        let _ = fs::remove_dir_all(&self.directory);
        (status, rest.join("\n"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Kill the server of a failed test.
        let _ = self.child.kill();
    }
}

/// Ports that were free a moment ago.
fn free_ports() -> [u16; 2] {
    let held = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    held.map(|listener| listener.local_addr().unwrap().port())
}

fn drained((status, log): (ExitStatus, String)) {
    assert!(log.contains("stopped"), "{log}");
    assert_eq!(status.code(), Some(0), "{log}");
}

#[test]
fn a_second_sigterm_does_not_skip_the_drain() {
    let mut server = Server::start("twice", &[]);
    server.kill(Signal::TERM);
    server.wait_for("draining and stopping");
    server.kill(Signal::TERM);
    drained(server.end());
}

#[test]
fn signals_without_a_meaning_end_nothing() {
    let mut server = Server::start("ignored", &[]);
    for (signal, name) in [
        (Signal::USR1, "SIGUSR1"),
        (Signal::USR2, "SIGUSR2"),
        (Signal::QUIT, "SIGQUIT"),
        (Signal::ALARM, "SIGALRM"),
    ] {
        server.kill(signal);
        assert!(server.wait_for("signal ignored").contains(name));
    }
    server.kill(Signal::TERM);
    drained(server.end());
}

#[test]
fn a_hangup_reads_the_configuration_again() {
    let mut server = Server::start("reload", &[]);
    let file = server.directory.join("c.yaml");
    fs::write(&file, "compaction_throughput: 32MiB/s\nnum_tokens: 3\n").unwrap();
    server.kill(Signal::HUP);
    let changed = server.wait_for("setting changed");
    assert!(changed.contains("compaction_throughput") && changed.contains("32MiB/s"), "{changed}");
    let later = server.wait_for("at the next start");
    assert!(later.contains("num_tokens") && !later.contains("compaction"), "{later}");
    fs::write(&file, "compaction_throughput: many\n").unwrap();
    server.kill(Signal::HUP);
    let refused = server.wait_for("configuration not reloaded");
    assert!(refused.contains("compaction_throughput"), "{refused}");
    server.kill(Signal::TERM);
    drained(server.end());
}

/// `script` runs a program on a terminal of its own, which closes when `script` ends.
fn has_script() -> bool {
    let mut tried = Command::new("script");
    tried.args(["-qec", "true", "/dev/null"]).stdin(Stdio::null());
    tried.output().is_ok_and(|output| output.status.success())
}

#[test]
fn a_terminal_that_closes_drains() {
    // Where there is no such program, there is nothing to try.
    if !has_script() {
        return;
    }
    let mut server = Server::start("terminal", &["script", "-qefc"]);
    // The terminal stays: it was a reload.
    server.kill(Signal::HUP);
    server.wait_for("configuration reloaded");
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    // Its log went to the terminal, which is closed: the lock of its directory shows its end.
    server.wait_for_lock();
    assert_eq!(server.commit_log(), [""; 0], "not drained");
}

#[test]
fn a_log_without_a_reader_ends_nothing() {
    let mut server = Server::start("reader", &[]);
    server.lines = channel().1;
    // This line ends the thread that reads, and with it the pipe.
    server.kill(Signal::USR1);
    server.reader.take().unwrap().join().unwrap();
    server.kill(Signal::TERM);
    server.wait_for_lock();
    assert_eq!(server.commit_log(), [""; 0], "not drained");
}
