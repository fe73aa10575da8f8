//! Logins and permissions: every path with every kind of client.

use std::sync::Mutex as StdMutex;
use std::time::Duration;

use admin_access::{
    AccessScope, Credentials, Decision, FailedLogins, Principal, Secret, Token, decide,
};

use super::*;
use crate::actions::{ActionLog, ApiAction};
use crate::request::{ApiLogin, LoginReply};
use crate::server::authorise::need_of;

const READER: &str = "helenus_reader";
const OPERATOR: &str = "helenus_operator";

/// Roles `root` (superuser) and `ann` (no permission), password `secret`; the certificate of `client` is `root`.
pub(super) fn answer(login: &ApiLogin) -> AdminReply {
    let role = |name: &str, scope| LoginReply::Role { name: name.to_owned(), scope };
    AdminReply::Login(match login {
        ApiLogin::Password { user, password, .. } => match (user.as_str(), password.0.as_str()) {
            ("root", "secret") => role("root", Some(AccessScope::Operator)),
            ("ann", "secret") => role("ann", None),
            _ => {
                let text = format!("Provided username {user} and/or password are incorrect");
                LoginReply::Refused(text)
            }
        },
        ApiLogin::Certificate(certificate) => match certificate.spiffe_id() {
            Some("spiffe://test.example/client") => role("root", Some(AccessScope::Operator)),
            identity => {
                LoginReply::Refused(format!("Certificate identity {identity:?} not authorized"))
            }
        },
    })
}

pub(super) fn parts() -> AccessParts {
    let token = |name, scope, text| Token::new(name, scope, text).unwrap().line();
    let reader = token("prometheus", AccessScope::ReadOnly, READER);
    let operator = token("deploy", AccessScope::Operator, OPERATOR);
    AccessParts {
        login: LoginPolicy::Everybody,
        tokens: Tokens::parse(&format!("{reader}\n{operator}\n")).unwrap(),
        failures: FailedLogins::delayed_by(Duration::ZERO),
        ..AccessParts::open()
    }
}

fn protected(access: AccessParts) -> TestNode {
    TestNode::start_as(access, None, |shard, request, reply| {
        reply.send(super::answer(shard, request));
    })
}

fn password(user: &str, password: &str) -> Option<String> {
    let password = Secret(password.to_owned());
    Some(Credentials::Password { user: user.to_owned(), password }.header())
}

fn bearer(token: &str) -> Option<String> {
    Some(Credentials::Token(Secret(token.to_owned())).header())
}

impl TestNode {
    /// Head and body of the answer to a client with this header.
    fn send_as(&self, login: Option<&str>, method: &str, path: &str, body: &str) -> (u16, String) {
        let login = login.map(|value| format!("Authorization: {value}\r\n")).unwrap_or_default();
        let mut stream = TcpStream::connect(self.address).unwrap();
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n\
             {login}Content-Length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        (answer.split(' ').nth(1).unwrap().parse().unwrap(), answer)
    }
}

/// The clients of the golden file: name, header, what they are.
fn clients() -> Vec<(&'static str, Option<String>, Principal)> {
    let known = |scope| Principal::Known { name: String::new(), scope };
    vec![
        ("nobody", None, Principal::Anonymous),
        ("read-only", bearer(READER), known(Some(AccessScope::ReadOnly))),
        ("operator", bearer(OPERATOR), known(Some(AccessScope::Operator))),
        ("superuser", password("root", "secret"), known(Some(AccessScope::Operator))),
        ("role without permission", password("ann", "secret"), known(None)),
        ("bad token", bearer("helenus_wrong"), Principal::Rejected),
    ]
}

/// Every path, and every command of those that take several, with the class of its row.
fn requests() -> Vec<(String, String, String, crate::operation::Class)> {
    let mut all = Vec::new();
    for row in ROUTES.iter().chain(SCYLLA) {
        for path in row.paths() {
            let method = row.method.name().to_owned();
            if row.commands.is_empty() {
                all.push((method, path.to_owned(), String::new(), row.class));
                continue;
            }
            for command in row.commands {
                let name = command.name.to_owned();
                all.push((method.clone(), path.to_owned(), name, command.class));
            }
        }
    }
    all
}

/// A path with a value in the place of each name.
fn with_values(path: &str) -> String {
    let parts = path.split('/').map(|part| if part.starts_with('{') { "1" } else { part });
    parts.collect::<Vec<_>>().join("/")
}

/// The golden file has the status of every path for every client. `UPDATE_EXPECT=1` writes it: a new path, or one whose
/// class changes, is a line of the change that a reviewer sees.
/// INV-scope-1.
#[test]
fn every_path_and_command_has_its_scope() {
    let node = protected(parts());
    let clients = clients();
    let names: Vec<&str> = clients.iter().map(|(name, ..)| *name).collect();
    let mut table = format!("# request, class: {}\n", names.join(", "));
    for (method, path, command, class) in requests() {
        let body = match command.as_str() {
            "" => "{}".to_owned(),
            name => format!(r#"{{"command":"{name}"}}"#),
        };
        let mut line = format!("{method} {path} {command}").trim_end().to_owned();
        line.push_str(&format!(" {}:", class.name()));
        for (name, login, principal) in &clients {
            let (status, answer) =
                node.send_as(login.as_deref(), &method, &with_values(&path), &body);
            let expected = match decide(need_of(class), principal) {
                Decision::Allow => None,
                Decision::Unauthenticated => Some(401),
                Decision::Forbidden => Some(403),
            };
            let seen = matches!(status, 401 | 403).then_some(status);
            assert_eq!(seen, expected, "{line} {name}: {answer}");
            line.push_str(&format!(" {}", seen.map_or("allowed".to_owned(), |s| s.to_string())));
        }
        table.push_str(&line);
        table.push('\n');
    }
    node.stop();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/authorisation.txt");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(file, &table).unwrap();
    }
    let expected = std::fs::read_to_string(file).unwrap_or_default();
    let differing = table.lines().zip(expected.lines()).find(|(found, expected)| found != expected);
    assert!(table == expected, "{file} is out of date (UPDATE_EXPECT=1): {differing:?}");
}

/// INV-scope-1.
#[test]
fn paths_and_methods_without_a_row_need_an_operator() {
    let node = protected(parts());
    let (reader, operator) = (bearer(READER), bearer(OPERATOR));
    for (method, path, known) in [
        ("GET", "/nosuch", 404),
        ("GET", "/api/v1/nosuch", 404),
        ("PATCH", "/api/v1/node", 405),
        ("OPTIONS", "/api/v1/drain", 405),
    ] {
        assert_eq!(node.send_as(None, method, path, "").0, 401, "{method} {path}");
        assert_eq!(node.send_as(reader.as_deref(), method, path, "").0, 403, "{method} {path}");
        assert_eq!(node.send_as(operator.as_deref(), method, path, "").0, known, "{method} {path}");
    }
    // HEAD is what GET is.
    assert_eq!(node.send_as(None, "HEAD", "/api/v1/node", "").0, 401);
    assert_eq!(node.send_as(reader.as_deref(), "HEAD", "/api/v1/node", "").0, 200);
    assert_eq!(node.send_as(None, "HEAD", "/health", "").0, 200);
    // A command that does not exist needs what its path needs.
    let unknown = r#"{"command":"nosuch"}"#;
    assert_eq!(node.send_as(reader.as_deref(), "POST", "/api/v1/cluster", unknown).0, 403);
    node.stop();
}

/// INV-admin-3.
#[test]
fn no_answer_tells_whether_a_role_exists() {
    let node = protected(parts());
    let wrong = |user: &str| {
        let (status, answer) =
            node.send_as(password(user, "wrong").as_deref(), "GET", "/api/v1/node", "");
        assert_eq!(status, 401);
        let lines = answer.lines().filter(|line| !line.starts_with("date:"));
        lines.map(|line| line.replace(user, "USER")).collect::<Vec<_>>()
    };
    let (existing, missing) = (wrong("root"), wrong("nooo"));
    assert_eq!(existing, missing);
    let text = existing.join("\n");
    for expected in [
        "www-authenticate: Basic realm=\"helenus\"",
        "www-authenticate: Bearer",
        "Provided username USER and/or password are incorrect",
        "\"kind\":\"unauthenticated\"",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    for malformed in ["Basic !", "Digest x", "root:secret"] {
        assert_eq!(node.send_as(Some(malformed), "GET", "/api/v1/node", "").0, 401, "{malformed}");
    }
    node.stop();
}

#[test]
fn clients_of_this_machine_may_be_exempt() {
    let node = protected(AccessParts { login: LoginPolicy::Remote, ..parts() });
    assert_eq!(
        node.send_as(None, "POST", "/api/v1/flush", r#"{"keyspaces":[],"tables":[]}"#).0,
        200
    );
    // Credentials are not looked at where none are needed, as in Cassandra.
    assert_eq!(node.send_as(bearer("wrong").as_deref(), "GET", "/api/v1/node", "").0, 200);
    node.stop();
}

/// A token is checked before the body arrives: the memory of a client without a login is bounded.
#[test]
fn a_client_without_a_login_is_refused_before_its_body() {
    let node = protected(parts());
    let mut stream = TcpStream::connect(node.address).unwrap();
    let head = "POST /api/v1/load HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 401");
    drop(stream);
    node.stop();
}

/// Requests as the log of actions has them.
#[derive(Default)]
struct Noted(StdMutex<Vec<String>>);

impl ActionLog for Noted {
    fn record(&self, action: &ApiAction<'_>) {
        let ApiAction { user, client, method, path, command, class, outcome } = *action;
        assert!(client.ip().is_loopback());
        let class = class.name();
        let line = format!("{user}|{method} {path} {command}|{class}|{outcome:?}");
        self.0.lock().unwrap().push(line);
    }
}

#[test]
fn each_request_is_recorded_with_user_command_and_outcome() {
    let noted = Arc::new(Noted::default());
    let node = protected(AccessParts { actions: Some(noted.clone()), ..parts() });
    let pause = r#"{"command":"pause_hints","paused":true}"#;
    for (login, method, path, body) in [
        (password("root", "secret"), "POST", "/api/v1/cluster", pause),
        (bearer(READER), "POST", "/api/v1/cluster", pause),
        (bearer(READER), "GET", "/api/v1/node?x=y", ""),
        (password("eve", "guess"), "GET", "/api/v1/node", ""),
        (None, "DELETE", "/api/v1/snapshots", "{}"),
    ] {
        node.send_as(login.as_deref(), method, path, body);
    }
    node.stop();
    let expected = [
        "root|POST /api/v1/cluster pause_hints|changes|Completed(501)",
        "token:prometheus|POST /api/v1/cluster |destroys|Forbidden",
        "token:prometheus|GET /api/v1/node |reads|Completed(200)",
        "eve|GET /api/v1/node |reads|Unauthenticated",
        "|DELETE /api/v1/snapshots |destroys|Unauthenticated",
    ];
    assert_eq!(*noted.0.lock().unwrap(), expected);
}

/// A node whose shards do not answer logins, or refuse to check them.
fn without_logins(access: AccessParts, refusal: Option<ActionError>) -> TestNode {
    static ASKED: StdMutex<Vec<Reply<AdminReply>>> = StdMutex::new(Vec::new());
    TestNode::start_as(access, None, move |shard, request, reply| match (request, &refusal) {
        (AdminRequest::LogIn(_), Some(error)) => reply.send(AdminReply::Failed(error.clone())),
        (AdminRequest::LogIn(_), None) => ASKED.lock().unwrap().push(reply),
        (request, _) => reply.send(super::answer(shard, request)),
    })
}

#[test]
fn a_login_that_is_not_checked_in_time_is_recorded_as_failed() {
    let noted = Arc::new(Noted::default());
    let access = AccessParts { actions: Some(noted.clone()), login_max: Duration::ZERO, ..parts() };
    let node = without_logins(access, None);
    let eve = password("eve", "guess");
    let (status, answer) = node.send_as(eve.as_deref(), "POST", "/api/v1/drain", "{}");
    assert_eq!(status, 503, "{answer}");
    let (_, metrics) = node.send_as(bearer(READER).as_deref(), "GET", "/metrics", "");
    assert!(metrics.contains("\nhelenus_api_failed_logins_total 1\n"), "{metrics}");
    // Probes of health do not wait for the shard, whatever they send.
    assert_eq!(node.send_as(eve.as_deref(), "GET", "/health", "").0, 200);
    node.stop();
    let expected = [
        "eve|POST /api/v1/drain |destroys|Unauthenticated",
        "token:prometheus|GET /metrics |reads|Completed(200)",
        "|GET /health |nothing|Completed(200)",
    ];
    assert_eq!(*noted.0.lock().unwrap(), expected);
}

#[test]
fn a_login_that_a_busy_node_does_not_check_is_no_failed_one() {
    let noted = Arc::new(Noted::default());
    let access = AccessParts { actions: Some(noted.clone()), ..parts() };
    let node = without_logins(access, Some(ActionError::Busy("too many logins".to_owned())));
    let ann = password("ann", "secret");
    let (status, answer) = node.send_as(ann.as_deref(), "GET", "/api/v1/node", "");
    assert_eq!(status, 503, "{answer}");
    assert!(answer.contains("too many logins") && answer.contains("\"kind\":\"busy\""), "{answer}");
    let (_, metrics) = node.send_as(bearer(READER).as_deref(), "GET", "/metrics", "");
    assert!(metrics.contains("\nhelenus_api_failed_logins_total 0\n"), "{metrics}");
    node.stop();
    assert_eq!(noted.0.lock().unwrap()[0], "ann|GET /api/v1/node |reads|Completed(503)");
}
