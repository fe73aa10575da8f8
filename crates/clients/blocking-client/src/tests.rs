//! The driver over a stream in memory, and over sockets of this machine.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use cql_client::{Login, Received, Reply};
use cql_wire::request::RequestOptions;
use cql_wire::response::{encode_frame, put_set_keyspace, put_void};
use cql_wire::{FrameExtras, Opcode, ProtocolVersion, Request};
use http_client::Request as HttpRequest;

use super::*;

const V4: ProtocolVersion = ProtocolVersion::V4;

/// Results of reads in order; then the end of the stream.
#[derive(Default)]
struct Script {
    reads: VecDeque<io::Result<Vec<u8>>>,
    waits: Vec<Duration>,
    written: Vec<u8>,
}

impl Script {
    fn of(reads: impl IntoIterator<Item = io::Result<Vec<u8>>>) -> Script {
        Script { reads: reads.into_iter().collect(), ..Script::default() }
    }
}

impl Read for Script {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let bytes = self.reads.pop_front().unwrap_or(Ok(Vec::new()))?;
        into[..bytes.len()].copy_from_slice(&bytes);
        Ok(bytes.len())
    }
}

impl Write for Script {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.written.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Transport for &mut Script {
    fn set_read_wait(&mut self, wait: Duration) -> io::Result<()> {
        self.waits.push(wait);
        Ok(())
    }
}

fn frame(stream: i16, opcode: Opcode, write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    encode_frame(&mut out, V4, stream, opcode, &FrameExtras::default(), |body| {
        write(body);
        Ok(())
    })
    .unwrap();
    out
}

fn void(stream: i16) -> Vec<u8> {
    frame(stream, Opcode::Result, put_void)
}

fn keyspace(stream: i16) -> Vec<u8> {
    frame(stream, Opcode::Result, |body| put_set_keyspace(body, "ks").unwrap())
}

/// The answer to OPTIONS, as text.
fn ask(connection: &mut CqlConnection<&mut Script>, timeout: Duration) -> Result<String, CqlError> {
    let convert = |received: Received<'_>| match Reply::of(received) {
        Ok(reply) => format!("{:?}", reply.answer),
        Err(refusal) => refusal.message.to_owned(),
    };
    connection.request(&Request::Options, &RequestOptions::default(), Some(timeout), convert)
}

#[test]
fn a_late_answer_is_not_taken_for_the_next_one() {
    let mut late = void(1);
    late.extend(keyspace(-1));
    let mut script = Script::of([Err(ErrorKind::WouldBlock.into()), Ok(late), Ok(keyspace(2))]);
    let mut connection = CqlConnection::new(&mut script, V4, 1000);
    let minute = Duration::from_secs(60);
    assert!(matches!(ask(&mut connection, minute), Err(CqlError::TimedOut)));
    assert_eq!(ask(&mut connection, minute).unwrap(), "SetKeyspace");
    assert!(matches!(ask(&mut connection, minute), Err(CqlError::Closed)));
}

#[test]
fn a_deadline_that_is_over_is_not_waited_for() {
    let mut script = Script::of([Ok(void(1))]);
    let mut connection = CqlConnection::new(&mut script, V4, 1000);
    assert!(matches!(ask(&mut connection, Duration::ZERO), Err(CqlError::TimedOut)));
    drop(connection);
    assert_eq!((script.reads.len(), script.waits.len()), (1, 0));
}

#[test]
fn the_wait_of_a_stream_is_set_when_it_changes_only() {
    let mut script = Script::of([Ok(void(1)), Ok(void(2)), Ok(void(3)), Ok(void(4))]);
    let mut connection = CqlConnection::new(&mut script, V4, 1000);
    for wait in [5, 5, 0] {
        connection.fill(ReadWait::For(Duration::from_millis(wait))).unwrap();
    }
    connection.fill(ReadWait::Stream).unwrap();
    let mut streams = Vec::new();
    connection.drain(|received| streams.push(received.stream)).unwrap();
    drop(connection);
    assert_eq!(streams, [1, 2, 3, 4]);
    assert_eq!(script.waits, [Duration::from_millis(5), Duration::from_micros(1)]);
}

#[test]
fn a_cancelled_wait_ends_and_a_signal_alone_does_not_end_it() {
    let signal = || Err(ErrorKind::Interrupted.into());
    let mut script = Script::of([signal(), Ok(void(1))]);
    let mut connection = CqlConnection::new(&mut script, V4, 1000);
    let flag = Arc::new(AtomicBool::new(false));
    connection.set_cancel(Arc::clone(&flag));
    let minute = Duration::from_secs(60);
    assert_eq!(ask(&mut connection, minute).unwrap(), "Void");
    flag.store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(matches!(ask(&mut connection, minute), Err(CqlError::Cancelled)));
}

#[test]
fn a_login_sends_its_options_and_waits_for_ready() {
    let mut script = Script::of([Ok(frame(0, Opcode::Ready, |_| ()))]);
    let mut connection = CqlConnection::new(&mut script, V4, 1000);
    connection.login(Login::plain().with("DRIVER_NAME", "x"), None).unwrap();
    drop(connection);
    let text = String::from_utf8_lossy(&script.written);
    assert!(text.contains("CQL_VERSION") && text.contains("DRIVER_NAME"), "{text}");
    assert!(script.waits.is_empty(), "the stream's own wait is left alone");
}

#[test]
fn a_port_without_a_listener_names_the_addresses_that_were_tried() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let endpoint = Endpoint { host: "127.0.0.1", port: address.port(), timeout: None };
    match endpoint.dial() {
        Err(DialError::Unreachable { tried, last }) => {
            assert_eq!(tried, [address]);
            assert_eq!(last.unwrap().kind(), ErrorKind::ConnectionRefused);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_body_goes_behind_its_length_and_any_status_is_an_answer() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = vec![0; 4096];
        let mut length = 0;
        while !request[..length].ends_with(b"{\"a\":1}") {
            length += stream.read(&mut request[length..]).unwrap();
        }
        stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nnone").unwrap();
        String::from_utf8_lossy(&request[..length]).into_owned()
    });
    let endpoint = Endpoint { host: "127.0.0.1", port, timeout: None };
    let body: Option<(&str, &[u8])> = Some((http::JSON, b"{\"a\":1}"));
    let request = HttpRequest { method: "POST", path: "/x?y", authorization: None, body };
    let answer = http::exchange(&endpoint, &request, Some(Duration::from_secs(60))).unwrap();
    assert_eq!(answer, http::HttpAnswer { status: 404, body: b"none".to_vec() });
    let sent = server.join().unwrap();
    assert!(sent.starts_with("POST /x?y HTTP/1.1\r\n"), "{sent}");
    assert!(sent.contains("\r\nContent-Length: 7\r\n"), "{sent}");
}
