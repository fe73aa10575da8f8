//! The machine against a server of three statements, with the bytes cut at every length; the driver
//! against the same server in a simulated world.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use cql_wire::event::{EventKind, EventKinds};
use cql_wire::request::RequestOptions;
use cql_wire::response::{encode_frame, put_auth_token, put_authenticate, put_error, put_event};
use cql_wire::response::{put_prepared, put_void};
use cql_wire::rows::MetadataMode;
use cql_wire::{
    ColumnSpec, ColumnsBlock, Consistency, ErrorBody, ErrorCode, Event, FrameDecoder, FrameExtras,
    Negotiated, Opcode, ProtocolVersion, QueryParameters, Request, RequestFrame, RowsEncoder, Side,
    WireType, pack_segments,
};
use rt::sim::{World, WorldOptions};
use rt::{ListenOptions, Rt};

use super::*;

const NONE: FrameExtras<'_> = FrameExtras { tracing_id: None, warnings: &[], custom_payload: &[] };
/// Rows that the server has: the values 0..5.
const ROWS: u8 = 5;
const PASSWORD: &[u8] = b"\0ann\0secret";

/// Answers a login with a password, `rows` (in pages of two), `warm` (after an event), PREPARE.
struct Server {
    decoder: FrameDecoder,
    version: ProtocolVersion,
    input: Vec<u8>,
    agreed: bool,
}

impl Server {
    fn new(version: ProtocolVersion) -> Server {
        let decoder = FrameDecoder::new(Side::Server, 1 << 20);
        Server { decoder, version, input: Vec::new(), agreed: false }
    }

    fn take(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.input.extend_from_slice(bytes);
        let mut out = Vec::new();
        let input = std::mem::take(&mut self.input);
        let mut rest = input.as_slice();
        while let Some(frame) = self.decoder.next(&mut rest).unwrap() {
            let mut answer = Vec::new();
            let begins = frame.header.opcode == Opcode::Startup;
            respond(&frame, self.version, &mut answer);
            match self.agreed && self.version.has_segments() {
                true => pack_segments(&answer, false, &mut out),
                false => out.extend_from_slice(&answer),
            }
            if begins {
                self.decoder.start(self.version, None).unwrap();
                self.agreed = true;
            }
        }
        self.input = rest.to_vec();
        out
    }
}

fn respond(frame: &cql_wire::Frame<'_>, version: ProtocolVersion, out: &mut Vec<u8>) {
    let stream = frame.header.stream;
    let mut put = |stream, opcode, write: &dyn Fn(&mut Vec<u8>) -> Result<(), _>| {
        encode_frame(out, version, stream, opcode, &NONE, |body| write(body)).unwrap();
    };
    let refuse = |body: &mut Vec<u8>, error: &ErrorBody<'_>, text: &str| {
        put_error(body, version, error, text)
    };
    let negotiated = Negotiated::plain(version);
    match RequestFrame::decode(frame, negotiated).unwrap().request {
        Request::Startup(options) if options.iter().any(|(_, value)| value == "refused") => {
            put(stream, Opcode::Error, &|b| refuse(b, &ErrorBody::ProtocolError, "not you"));
        }
        Request::Startup(_) => {
            put(stream, Opcode::Authenticate, &|body| put_authenticate(body, "PasswordAuth"));
        }
        Request::AuthResponse(Some(PASSWORD)) => {
            put(stream, Opcode::AuthSuccess, &|body| put_auth_token(body, None));
        }
        Request::AuthResponse(_) => {
            put(stream, Opcode::Error, &|b| refuse(b, &ErrorBody::BadCredentials, "wrong"));
        }
        Request::Prepare { .. } => put(stream, Opcode::Result, &|body| {
            let none = ColumnsBlock::default();
            let prepared = cql_wire::response::PreparedResponse {
                id: b"id",
                result_metadata_id: b"result",
                markers: &none,
                partition_key_indexes: &[],
                extra_flags: 0,
                columns: None,
            };
            put_prepared(body, negotiated, &prepared)
        }),
        Request::Register(_) => put(stream, Opcode::Ready, &|_| Ok(())),
        Request::Query { query: "silence", .. } => {}
        Request::Query { query: "warm", .. } => {
            let event = Event::StatusChange { up: true, address: "10.0.0.1:9042".parse().unwrap() };
            put(-1, Opcode::Event, &|body| put_event(body, version, &event));
            put(stream, Opcode::Result, &|body| {
                put_void(body);
                Ok(())
            });
        }
        Request::Query { query: "rows", parameters }
        | Request::Execute { id: b"id", parameters, .. } => page(out, version, stream, &parameters),
        _ => put(stream, Opcode::Error, &|body| refuse(body, &ErrorBody::Invalid, "no such table")),
    }
}

fn page(out: &mut Vec<u8>, version: ProtocolVersion, stream: i16, asked: &QueryParameters<'_>) {
    let spec = ColumnSpec { keyspace: "ks", table: "t", name: "n", kind: WireType::Blob };
    let columns = ColumnsBlock::encode(&[spec], version).unwrap();
    let mode = MetadataMode::Full;
    let mut rows = RowsEncoder::begin(out, version, stream, &NONE, &columns, mode).unwrap();
    let from = asked.paging_state.and_then(|state| state.first().copied()).unwrap_or(0);
    let to = ROWS.min(from + 2);
    for n in from..to {
        rows.value(&[n]).unwrap();
        rows.end_row();
    }
    rows.finish((to < ROWS).then_some(&[to][..])).unwrap();
}

fn login(password: &str) -> Login {
    Login { user: Some(("ann".to_owned(), password.to_owned())), ..Login::plain() }
}

/// Carries bytes between the two, `step` of the server's at a time, until neither has any.
fn carry(
    machine: &mut Machine,
    server: &mut Server,
    step: usize,
    mut each: impl FnMut(&mut Machine),
) {
    loop {
        let bytes = machine.unsent().to_vec();
        machine.sent();
        let answer = server.take(&bytes);
        if answer.is_empty() {
            return;
        }
        for part in answer.chunks(step) {
            machine.input().extend_from_slice(part);
            each(machine);
        }
    }
}

#[test]
fn logins_and_answers_are_the_same_wherever_the_bytes_are_cut() {
    for version in [ProtocolVersion::V3, ProtocolVersion::V4, ProtocolVersion::V5] {
        for step in 1..80 {
            let (mut machine, mut server) = (Machine::new(version, 1 << 20), Server::new(version));
            machine.begin_login(login("secret")).unwrap();
            let mut entered = false;
            carry(&mut machine, &mut server, step, |machine| {
                entered = machine.poll_login().unwrap()
            });
            assert!(entered, "{version} in steps of {step}");
            let parameters = QueryParameters::new(Consistency::One);
            for (stream, query) in [(3, "warm"), (4, "rows"), (5, "nothing")] {
                let options = RequestOptions { stream, ..RequestOptions::default() };
                machine.send(&Request::Query { query, parameters }, &options).unwrap();
            }
            let mut seen = Vec::new();
            carry(&mut machine, &mut server, step, |machine| {
                while let Some(received) = machine.next_response().unwrap() {
                    let stream = received.stream;
                    let text = match Reply::of(received) {
                        Ok(Reply { answer: Answer::Rows(page), .. }) => {
                            format!("{:?} {:?}", page.value(1, 0), page.paging_state)
                        }
                        Ok(reply) => format!("{:?}", reply.answer),
                        Err(refusal) => refusal.message.to_owned(),
                    };
                    seen.push(format!("{stream} {text}"));
                }
            });
            let expected = ["-1 Void", "3 Void", "4 Some([1]) Some([2])", "5 no such table"];
            assert_eq!(seen, expected, "{version} in steps of {step}");
        }
    }
}

#[test]
fn a_login_fails_with_what_the_server_says() {
    let fails = |login: Login| {
        let version = ProtocolVersion::V5;
        let (mut machine, mut server) = (Machine::new(version, 1 << 20), Server::new(version));
        machine.begin_login(login).unwrap();
        let mut error = None;
        carry(&mut machine, &mut server, 1000, |machine| error = machine.poll_login().err());
        error.unwrap()
    };
    let said = |code, message: &str| ServerError { code, message: message.to_owned() };
    let wrong = LoginError::WrongCredentials(said(ErrorCode::BadCredentials, "wrong"));
    assert_eq!(fails(login("guess")), wrong);
    assert_eq!(fails(Login::plain()), LoginError::NoCredentials("PasswordAuth".to_owned()));
    let refused = LoginError::Refused(said(ErrorCode::ProtocolError, "not you"));
    assert_eq!(fails(Login::plain().with("X", "refused")), refused);
}

#[test]
fn damaged_bytes_are_an_error_and_not_an_answer() {
    let mut machine = Machine::new(ProtocolVersion::V4, 100);
    machine.input().extend_from_slice(&[0x84, 0, 0, 1, 8, 0, 0, 0, 2, 0, 0]);
    assert!(matches!(machine.next_response(), Err(MessageFault::Body(_))), "a short body");
    let mut machine = Machine::new(ProtocolVersion::V4, 100);
    machine.input().extend_from_slice(&[0x04, 0, 0, 1, 8, 0, 0, 0, 0]);
    assert!(matches!(machine.next_response(), Err(MessageFault::Frame(_))), "a request");
    let mut machine = Machine::new(ProtocolVersion::V4, 100);
    machine.input().extend_from_slice(&[0x84, 0, 0, 1, 8, 0, 0, 0, 92]);
    machine.input().extend_from_slice(&[0; 92]);
    assert!(matches!(machine.next_response(), Err(MessageFault::Frame(_))), "above the limit");
}

/// Runs `client` in a world with the server; returns true if it completed.
fn in_world<F: Future<Output = ()> + 'static>(
    client: impl FnOnce(Rt, std::net::SocketAddr) -> F + 'static,
) {
    let world = World::new(11, WorldOptions::default());
    world.client("server", |rt| async move {
        let any = "0.0.0.0:9042".parse().unwrap();
        let listener = rt.listen(any, ListenOptions::default()).await.unwrap();
        let conn = listener.accept().await.unwrap();
        let (mut server, mut bytes) = (Server::new(ProtocolVersion::V5), Vec::new());
        while conn.read(&mut bytes, 7).await.is_ok_and(|read| read > 0) {
            conn.write_all(&server.take(&bytes)).await.unwrap();
            bytes.clear();
        }
    });
    let address = std::net::SocketAddr::new(world.ip("server"), 9042);
    let (done, seen) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(false)));
    let mark = Rc::clone(&done);
    world.client("client", move |rt| async move {
        rt.sleep(Duration::from_secs(1)).await;
        client(rt, address).await;
        mark.set(true);
    });
    seen.set(world.run_until(|| done.get(), Duration::from_secs(100)).is_ok());
    assert!(seen.get(), "the client did not come to its end");
}

fn options() -> ConnectOptions {
    ConnectOptions { login: login("secret"), ..ConnectOptions::default() }
}

/// INV-cql-client-2: the server sends an event before an answer.
#[test]
fn a_client_in_a_simulated_world_reads_pages_and_events() {
    in_world(|rt, address| async move {
        let mut client = Connection::connect(&rt, address, options()).await.unwrap();
        let parameters = QueryParameters::new(Consistency::One);
        let prepared = client.prepare("rows").await.unwrap();
        for query in [Query::Text("rows"), Query::Prepared(&prepared)] {
            let mut values = Vec::new();
            let mut take = |page: &Page| {
                values
                    .extend((0..page.len()).flat_map(|row| page.named(row, "n").unwrap().to_vec()));
            };
            client.pages(query, parameters, &mut take).await.unwrap();
            assert_eq!(values, [0, 1, 2, 3, 4]);
        }
        client.register(EventKinds::NONE.with(EventKind::StatusChange)).await.unwrap();
        client.execute(Query::Text("warm"), parameters).await.unwrap();
        let event = client.next_event(rt.now() + Duration::from_secs(1)).await.unwrap();
        let address = "10.0.0.1:9042".parse().unwrap();
        assert_eq!(event, ServerEvent::Status { up: true, address });
        let refused = client.execute(Query::Text("x"), parameters).await.unwrap_err();
        assert_eq!(refused.to_string(), "no such table");
    });
}

#[test]
fn a_silent_server_is_given_up_in_time() {
    in_world(|rt, address| async move {
        let mut client = Connection::connect(&rt, address, options()).await.unwrap();
        client.set_answer_timeout(Duration::from_secs(3));
        let (begun, parameters) = (rt.now(), QueryParameters::new(Consistency::One));
        let error = client.execute(Query::Text("silence"), parameters).await.unwrap_err();
        assert_eq!(error, ClientError::AnswerTimeout(Duration::from_secs(3)));
        assert_eq!(rt.now(), begun + Duration::from_secs(3));
    });
}

#[test]
fn a_token_belongs_to_the_first_end_that_is_not_below_it() {
    let ring = TokenRing::new(vec![(9, vec![]), (7, vec![1]), (-5, vec![0, 1]), (7, vec![2])]);
    let replicas = |token| ring.replicas(ring.position(token));
    assert_eq!(replicas(-6), [0, 1]);
    assert_eq!(replicas(-5), [0, 1]);
    assert_eq!(replicas(-4), [1]);
    assert_eq!(replicas(7), [1]);
    assert_eq!(replicas(8), [0; 0]);
    assert_eq!(replicas(10), [0, 1], "around the ring");
    assert_eq!(TokenRing::default().position(0), 0);
    assert_eq!(ring.tokens().collect::<Vec<_>>(), [-5, 7, 9]);
}

#[test]
fn keys_of_one_part_are_the_part_and_others_are_framed() {
    let mut key = Vec::new();
    push_key_part(b"ab", 1, &mut key);
    assert_eq!(key, b"ab");
    key.clear();
    push_key_part(b"ab", 2, &mut key);
    push_key_part(b"", 2, &mut key);
    assert_eq!(key, [0, 2, b'a', b'b', 0, 0, 0, 0]);
}
