//! Programs and sockets of this machine for the audit log: archive commands, and the syslog socket.

use audit::AuditHelper;
use audit::binlog::{Archiver, WriteFailure};
use rustix::process::{Pid, Signal, kill_process_group};
use std::io::{ErrorKind, Read};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

/// How long a full socket may delay a message.
const SEND_MAX: Duration = Duration::from_secs(5);
/// How long an archive command may run: it holds a thread that also opens files.
const ARCHIVE_MAX: Duration = Duration::from_secs(300);
/// How often the end of a command is polled.
const POLL: Duration = Duration::from_millis(50);
/// Bytes of a command's messages that are logged.
const MESSAGE_BYTES_MAX: u64 = 16 << 10;

/// Runs archive commands and sends to the syslog socket.
pub struct MachineHelper;

impl Archiver for MachineHelper {
    fn archive(&self, command: &str, path: &str) -> Result<(), String> {
        run_command(command, path, ARCHIVE_MAX)
    }
}

impl AuditHelper for MachineHelper {
    fn send_syslog(&self, socket: &str, messages: &[String]) -> Result<(), WriteFailure> {
        let failed = |error: std::io::Error| format!("{socket}: {error}");
        let datagrams = UnixDatagram::unbound().map_err(failed)?;
        datagrams.set_write_timeout(Some(SEND_MAX)).map_err(failed)?;
        datagrams.connect(socket).map_err(failed)?;
        for (written, message) in messages.iter().enumerate() {
            let mut bytes = message.as_bytes();
            loop {
                match datagrams.send(bytes) {
                    Ok(_) => break,
                    // EMSGSIZE: the text of the statement is cut to what a datagram takes.
                    Err(error) if error.raw_os_error() == Some(90) && bytes.len() > 512 => {
                        bytes = bytes.get(..bytes.len() / 2).unwrap_or_default();
                    }
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => return Err(WriteFailure { written, error: failed(error) }),
                }
            }
        }
        Ok(())
    }
}

/// Runs a command, and kills it after `limit`.
fn run_command(command: &str, path: &str, limit: Duration) -> Result<(), String> {
    // Words are separated by blanks and no shell is involved, like in Cassandra.
    let mut words = command.split_whitespace().map(|word| word.replace("%path", path));
    let program = words.next().ok_or("the command is empty")?;
    let mut run = Command::new(&program);
    run.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    // A group of its own: what the command started is killed with it.
    run.process_group(0);
    let mut child = run.spawn().map_err(|error| format!("cannot run {program}: {error}"))?;
    let messages = child.stderr.take().map(read_messages);
    let deadline = Instant::now() + limit;
    let status = loop {
        let ended = child.try_wait().map_err(|error| format!("cannot await {program}: {error}"))?;
        if let Some(status) = ended {
            break status;
        }
        if Instant::now() >= deadline {
            kill_group(&mut child);
            return Err(format!("{program} killed: it did not end within {} s", limit.as_secs()));
        }
        std::thread::sleep(POLL);
    };
    if status.success() {
        return Ok(());
    }
    // A process that the command left behind may hold the pipe open.
    let text = messages.and_then(|text| text.recv_timeout(POLL * 10).ok()).unwrap_or_default();
    Err(format!("{program} ended with {status}: {}", text.trim()))
}

/// Kills a command and all that it started, but for what left its process group.
fn kill_group(child: &mut Child) {
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    // It may have ended by now. The group is that of the command until it is awaited.
    if group.is_none_or(|group| kill_process_group(group, Signal::KILL).is_err()) {
        let _ = child.kill();
    }
    let _ = child.wait();
}

/// Reads what a command complains about. Bytes above the limit are read and discarded.
fn read_messages(mut from: ChildStderr) -> Receiver<String> {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut text = Vec::new();
        // The bytes read until an error are good enough for a message.
        let _ = (&mut from).take(MESSAGE_BYTES_MAX).read_to_end(&mut text);
        let _ = std::io::copy(&mut from, &mut std::io::sink());
        let _ = sender.send(String::from_utf8_lossy(&text).into_owned());
    });
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_gets_the_path_and_its_failure_is_told_in_its_words() {
        let helper = MachineHelper;
        assert_eq!(helper.archive("/bin/test -d %path", "/"), Ok(()));
        let failed = helper.archive("/bin/ls %path", "/nowhere/at/all").unwrap_err();
        assert!(failed.contains("/nowhere/at/all"), "{failed}");
        let failed = helper.archive("/nowhere/command %path", "/").unwrap_err();
        assert!(failed.starts_with("cannot run /nowhere/command"), "{failed}");
    }

    #[test]
    fn a_command_that_does_not_end_is_killed() {
        let failed = run_command("/bin/sleep 3600", "/", Duration::ZERO).unwrap_err();
        assert_eq!(failed, "/bin/sleep killed: it did not end within 0 s");
    }

    /// A child of the command holds its end of a pipe open until it is killed, too.
    #[test]
    fn children_of_a_command_are_killed_with_it() {
        let directory = tempfile::tempdir().unwrap();
        let fifo = directory.path().join("fifo");
        let made = Command::new("/usr/bin/mkfifo").arg(&fifo).status().unwrap();
        assert!(made.success());
        let script = directory.path().join("archive.sh");
        // The child opens the pipe; the command waits for it.
        std::fs::write(&script, "sh -c 'exec 3>\"$0\"; sleep 3600' \"$1\" & wait\n").unwrap();
        let (command, path) = (format!("/bin/sh {} %path", script.display()), fifo.display());
        let ended = std::thread::scope(|scope| {
            // Opened for reading once the child has opened it for writing; the end comes when the child is gone.
            let reader = scope.spawn(|| std::fs::read(&fifo));
            let failed = run_command(&command, &path.to_string(), Duration::from_secs(1));
            assert!(failed.unwrap_err().ends_with("killed: it did not end within 1 s"));
            // For a child that was killed before it opened the pipe.
            drop(std::fs::OpenOptions::new().read(true).write(true).open(&fifo));
            reader.join().unwrap()
        });
        assert_eq!(ended.unwrap(), b"");
    }

    #[test]
    fn messages_arrive_at_a_datagram_socket_and_too_long_ones_are_cut() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let socket = UnixDatagram::bind(&path).unwrap();
        let path = path.to_str().unwrap().to_owned();
        let sent = [String::from("<13>first"), "x".repeat(4 << 20)];
        let receiver = std::thread::spawn(move || {
            let mut buffer = vec![0; 8 << 20];
            let first = socket.recv(&mut buffer).unwrap();
            let text = String::from_utf8(buffer[..first].to_vec()).unwrap();
            (text, socket.recv(&mut buffer).unwrap())
        });
        assert_eq!(MachineHelper.send_syslog(&path, &sent), Ok(()));
        let (first, second) = receiver.join().unwrap();
        assert_eq!(first, "<13>first");
        assert!((512..4 << 20).contains(&second), "{second}");
        let error = MachineHelper.send_syslog("/nowhere/socket", &sent).unwrap_err();
        assert_eq!(error.written, 0);
        assert!(error.error.starts_with("/nowhere/socket: "), "{error:?}");
    }
}
