//! The table of verbs: every row is carried out, with the requests that it names.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fmt::Arguments;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use serde_json::json;

use super::*;
use crate::operation::{Call, Method};

/// A request that was sent.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) body: Vec<u8>,
}

/// A terminal without sockets: it notes requests and answers with reports that have nothing in them.
#[derive(Default)]
struct Fake {
    sent: RefCell<Vec<Sent>>,
    printed: RefCell<String>,
    /// Connections are refused.
    is_nobody: Cell<bool>,
}

impl Terminal for Fake {
    fn exchange(&self, request: &ApiRequest<'_>) -> Result<(u16, Vec<u8>), HttpError> {
        if self.is_nobody.get() {
            return Err(HttpError::Connect(io::ErrorKind::ConnectionRefused.into()));
        }
        let path = request.path.to_owned();
        let body = request.body.unwrap_or_default().to_vec();
        self.sent.borrow_mut().push(Sent { method: request.method, path, body });
        Ok((200, answer(request)))
    }

    fn print(&self, text: Arguments<'_>) {
        self.printed.borrow_mut().push_str(&text.to_string());
    }

    fn flush(&self) {}

    fn now_millis(&self) -> u128 {
        1_000
    }

    fn pause(&self, _: Duration) {}

    fn host_names(&self, _: &[&str]) -> Result<String, String> {
        Ok(String::new())
    }
}

/// Answer of an idle node that has one keyspace `ks` with the table `t`.
fn answer(request: &ApiRequest<'_>) -> Vec<u8> {
    use crate::model::*;
    let path = request.path.split('?').next().unwrap_or_default();
    let keyspace = KeyspaceReport {
        name: "ks".to_owned(),
        replication: [("class", "SimpleStrategy"), ("replication_factor", "1")]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .into(),
        tables: vec!["t".to_owned()],
    };
    let node = NodeReport { keyspaces: vec![keyspace], ..NodeReport::default() };
    let cluster = ClusterReport {
        gossip: Some(GossipReport { active: true, peers: Vec::new() }),
        hints: Some(HintsReport::default()),
        settings: Some(SettingsReport::default()),
        streaming: Some(StreamingReport::default()),
        timeouts: [("read".to_owned(), 5)].into(),
        ..ClusterReport::default()
    };
    let running = RepairReport { id: 7, state: "SUCCESSFUL".to_owned(), ..RepairReport::default() };
    let value = match (request.method, path) {
        (Method::Get, "/api/v1/node") => json!(node),
        (Method::Get, "/api/v1/cluster") => json!(cluster),
        (Method::Get, "/api/v1/compactions") => json!(CompactionReport::default()),
        (Method::Get, "/api/v1/latencies") => json!(CoordinatorReport::default()),
        (Method::Get, "/api/v1/endpoints") => json!(EndpointsReport::default()),
        (Method::Get, "/api/v1/auto_repair") => json!(AutoRepairReport::default()),
        (Method::Get, "/api/v1/cidr_filtering") => json!(CidrFilteringReport::default()),
        (Method::Get, "/api/v1/cidr_groups") => json!({}),
        (Method::Get, "/api/v1/repairs") => json!([running]),
        (Method::Get, path) if path.starts_with("/api/v1/repairs/") => json!(running),
        (Method::Get, _) => json!([]),
        (Method::Post, "/api/v1/import") => json!(ImportReport::default()),
        (Method::Post, "/api/v1/samples" | "/api/v1/repaired") => json!([]),
        (Method::Post | Method::Delete, "/api/v1/samples/jobs") => json!(true),
        (Method::Post, path) if path.starts_with("/storage_service/repair_async/") => json!(7),
        _ => json!({}),
    };
    serde_json::to_vec(&value).unwrap()
}

/// Understands a line whose node does not answer.
pub(super) fn parse(text: &str) -> Result<Line, String> {
    let nobody = Fake { is_nobody: Cell::new(true), ..Fake::default() };
    super::parse(text.split_whitespace().map(str::to_owned).collect(), Rc::new(nobody))
}

/// The requests that a line sends.
pub(super) fn sent(text: &str) -> Result<Vec<Sent>, Failure> {
    let fake = Rc::new(Fake::default());
    let words = text.split_whitespace().map(str::to_owned).collect();
    let line = super::parse(words, fake.clone()).map_err(Failure::BadUse)?;
    run(&line)?;
    Ok(fake.sent.take())
}

/// Lines that together make a verb send each of its requests.
fn lines_of(verb: &Verb) -> Vec<String> {
    let arguments: &[&str] = match verb.name {
        "abortbootstrap" => &["--ip 127.0.0.1"],
        "bootstrap" => &["resume"],
        "clearsnapshot" => &["--all"],
        "compact" => &["ks", "-st 1 -et 2 ks", "--partition 1 ks", "-s ks", "--user-defined f"],
        "disablehintsfordc" | "enablehintsfordc" => &["dc1"],
        "dropcidrgroup" => &["g"],
        "forcecompact" => &["ks t 5"],
        "rebuild_index" => &["ks t i"],
        "getauthcacheconfig" => &["--cache-name CredentialsCache"],
        "setauthcacheconfig" => &["--cache-name CredentialsCache --max-entries 5"],
        "getcidrgroupsofip" => &["127.0.0.1"],
        "getendpoints" | "getsstables" => &["ks t 1"],
        "gettimeout" => &["read"],
        "settimeout" => &["read 5"],
        "import" => &["ks t /directory"],
        "profileload" | "toppartitions" => &["", "-i 20000", "--list", "--stop ks t"],
        "getcompactionthreshold" | "refresh" => &["ks t"],
        "removenode" => &["status", "force", "7"],
        "repair_admin" => &["list", "cancel --session 7", "summarize-pending"],
        "setautorepairconfig" => &["enabled true"],
        "setcachecapacity" | "setcachekeystosave" => &["0 1 0"],
        "setcompactionthreshold" => &["ks t 4 32"],
        "setguardrailsconfig" => &["group_by_enabled true"],
        "setlogginglevel" => &["", "store DEBUG", "ring"],
        "settraceprobability" => &["0.5"],
        "sstablerepairedset" => &["--is-repaired ks"],
        "updatecidrgroup" => &["g 10.0.0.0/8"],
        _ if verb.kinds.first() == Some(&Argument::Keyspace) => &["ks"],
        _ if verb.required.is_empty() => &[""],
        _ => &["7"],
    };
    arguments.iter().map(|arguments| format!("{} {arguments}", verb.name)).collect()
}

/// The request as a row names it.
fn call_of<'a>(verb: &'a Verb, sent: &Sent) -> Option<&'a Call> {
    let path = sent.path.split('?').next().unwrap_or_default();
    let body: serde_json::Value = serde_json::from_slice(&sent.body).unwrap_or_default();
    let command = body.get("command").and_then(|name| name.as_str()).unwrap_or_default();
    verb.calls.iter().find(|call| {
        let same = |(a, b): (&str, &str)| a == b || (a.starts_with('{') && !b.is_empty());
        call.method == sent.method
            && call.command == command
            && call.path.split('/').count() == path.split('/').count()
            && call.path.split('/').zip(path.split('/')).all(same)
    })
}

#[test]
fn a_verb_sends_the_requests_of_its_row_and_no_others() {
    let mut wrong = Vec::new();
    for verb in VERBS {
        let mut found = BTreeSet::new();
        for text in lines_of(verb) {
            let fake = Rc::new(Fake::default());
            let words = text.split_whitespace().map(str::to_owned).collect();
            let line = super::parse(words, fake.clone()).unwrap();
            // An idle node has nothing to show for some of them; they have asked then.
            if let Err(failure @ (Failure::Connect(_) | Failure::Help(_))) = run(&line) {
                wrong.push(format!("{text}: {failure:?}"));
            }
            for sent in fake.sent.take() {
                match call_of(verb, &sent) {
                    Some(call) => drop(found.insert(*call)),
                    None => wrong.push(format!("{text} sends {sent:?}")),
                }
            }
        }
        let of_row: BTreeSet<Call> = verb.calls.iter().copied().collect();
        // It asks for the node only for the words of a refusal.
        for call in of_row.difference(&found).filter(|_| verb.name != "refresh") {
            wrong.push(format!("{} does not send {call:?}", verb.name));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn names_are_unique_and_every_verb_has_a_help() {
    let mut names = BTreeSet::new();
    for verb in VERBS {
        for name in [verb.name].iter().chain(verb.aliases) {
            assert!(names.insert(*name), "{name}");
            assert!(refused(name).is_none(), "{name}");
        }
        let text = help(Some(verb.name));
        assert!(text.starts_with(&format!("NAME\n        nodetool {} - ", verb.name)));
        assert!(help(None).contains(&format!("\n    {} ", verb.name)));
        assert!(!verb.help.is_empty());
        assert_eq!(verb.arguments.is_empty(), verb.arguments_max == 0, "{}", verb.name);
        assert_eq!(verb.arguments.is_empty(), verb.kinds.is_empty(), "{}", verb.name);
        assert!(verb.arguments.is_empty() || !verb.arguments_help.is_empty(), "{}", verb.name);
        for flag in verb.flags {
            assert!(!flag.help.is_empty() && flag.names.iter().all(|name| name.starts_with('-')));
        }
    }
    for (name, why) in REFUSED {
        assert!(help(None).contains(&format!("\n    {name}\n")));
        assert!(help(Some(name)).contains(why) && why.len() > 20, "{name}");
    }
    assert_eq!(help(Some("foo")), "Unknown command foo\n\n");
}

#[test]
fn a_node_that_does_not_answer_is_reported() {
    for verb in VERBS {
        for text in lines_of(verb) {
            match run(&parse(&text).unwrap()) {
                Err(Failure::Connect(_)) => {}
                other => assert_eq!(verb.name, "help", "{text}: {other:?}"),
            }
        }
    }
    // It has no command without another word.
    assert_eq!(run(&parse("bootstrap").unwrap()).unwrap(), help(None));
}

#[test]
fn global_options_stand_before_and_behind_the_command() {
    for text in ["-h ::1 -p 10001 -pp status ks", "status -h ::1 ks --port=10001 --print-port"] {
        let line = parse(text).unwrap();
        assert_eq!((line.api.host.as_str(), line.api.port), ("::1", 10_001), "{text}");
        assert_eq!((line.verb, line.style.port), ("status", true), "{text}");
        assert_eq!(line.arguments, ["ks"], "{text}");
    }
    assert_eq!(parse("").unwrap().verb, "help");
    assert_eq!(parse("cfstats").unwrap().verb, "tablestats");
    assert_eq!(parse("cfhistograms ks t").unwrap().verb, "tablehistograms");
}

/// Recorded from a Cassandra 5.0.9.
#[test]
fn lines_that_are_not_understood_are_refused_in_cassandras_words() {
    let thresholds = "<keyspace> <table> <minthreshold> <maxthreshold>";
    for (text, expected) in [
        ("nosuch x", "Found unexpected parameters: [nosuch, x]".to_owned()),
        ("-x flush", "Found unexpected parameters: [-x, flush]".to_owned()),
        ("-x -h flush", "Found unexpected parameters: [-x, -h, flush]".to_owned()),
        ("drain x", "Found unexpected parameters: [x]".to_owned()),
        ("-p x flush", "For input string: \"x\"".to_owned()),
        ("compact -st", "Required values for option 'start_token' not provided".to_owned()),
        ("setcompactionthreshold", format!("Required parameters are missing: {thresholds}")),
    ] {
        assert_eq!(parse(text).unwrap_err(), expected, "{text}");
    }
}

#[test]
fn options_with_two_letters_are_options_of_their_own() {
    let line = parse("snapshot -t tag1 -cf t -sf ks").unwrap();
    assert_eq!(line.value("--tag"), Some("tag1"));
    assert_eq!(line.value("--table"), Some("t"));
    assert!(line.has("--skip-flush"));
    let line = parse("flush -- -ks").unwrap();
    assert_eq!(line.arguments, ["-ks"]);
}

#[test]
fn wrong_lines_are_refused_in_cassandras_words() {
    let refused = [
        ("foo", "Found unexpected parameters: [foo]"),
        ("info -x", "Found unexpected parameters: [-x]"),
        ("info -H", "Found unexpected parameters: [-H]"),
        ("status a b", "Found unexpected parameters: [b]"),
        ("removenode", "Required parameters are missing: remove_operation"),
        ("assassinate", "Required parameters are missing: ip address"),
        ("snapshot -t", "Required values for option 'tag' not provided"),
    ];
    for (text, expected) in refused {
        assert_eq!(parse(text).unwrap_err(), expected, "{text}");
    }
}

#[test]
fn options_of_runbooks_are_accepted() {
    for text in [
        "-Dcom.sun.x=1 -h ::1 status -r",
        "-u me -pw secret -h ::1 status -r",
        "-h ::1 status -r -pwf /no/such/file -u me",
        "--ssl -h ::1 -Djavax.net.ssl.trustStore=/t status -Dx -r",
        "--username=me --password=x -h ::1 status -r",
    ] {
        let line = parse(text).unwrap();
        assert_eq!((line.verb, line.api.host.as_str()), ("status", "::1"), "{text}");
        assert!(line.has("--resolve-ip") && line.arguments.is_empty(), "{text}");
        assert_eq!(line.has("--ssl"), text.contains("--ssl"));
    }
    assert_eq!(parse("-u").unwrap_err(), "Required values for option 'username' not provided");
    let line = parse("--ssl -Djavax.net.ssl.trustStore=/t status -Dx").unwrap();
    assert_eq!(line.properties, ["javax.net.ssl.trustStore=/t", "x"]);
    assert_eq!(parse("flush -- -Dks").unwrap().arguments, ["-Dks"]);
    assert_eq!(parse("-D status").unwrap_err(), "Found unexpected parameters: [-D, status]");
}

#[test]
fn refused_verbs_and_arguments_below_zero() {
    let text = parse("sjk ks").unwrap_err();
    assert!(text.starts_with("sjk is not supported: "), "{text}");
    assert_eq!(parse("move -5").unwrap().arguments, ["-5"]);
    // An option of the command comes before one of all.
    let line = parse("-p 9 import -p ks t /d").unwrap();
    assert_eq!((line.api.port, line.has("--copy-data")), (9, true));
}

#[test]
fn refused_logins_and_permissions_end_as_cassandras_do() {
    use crate::model::ErrorKind;
    let of = |kind| Failure::from(HttpError::Refused(kind, "why".to_owned()));
    for kind in [ErrorKind::Unauthenticated, ErrorKind::TooManyFailures] {
        let failure = of(kind);
        assert_eq!(failure.exit_code(), 1);
        assert!(matches!(failure, Failure::Login(text) if text == "why"));
    }
    let failure = of(ErrorKind::Forbidden);
    assert_eq!(failure.exit_code(), 2);
    assert!(matches!(failure, Failure::Node(text) if text == "Access Denied: why"));
}

#[test]
fn options_of_a_login_are_those_of_cassandra() {
    let line = parse("-u ann -pw secret -pwf /p --ssl -h ::1 status").unwrap();
    let value = |name| line.value(name).unwrap();
    assert_eq!(
        [value("--username"), value("--password"), value("--password-file")],
        ["ann", "secret", "/p"]
    );
    let line = parse("--token-file /t --ssl-ca /ca --ssl-cert /c --ssl-key /k status").unwrap();
    let value = |name| line.value(name).unwrap();
    assert_eq!(value("--token-file"), "/t");
    assert_eq!([value("--ssl-ca"), value("--ssl-cert"), value("--ssl-key")], ["/ca", "/c", "/k"]);
}
