//! The authorization matrix: every kind of statement and every system table, with each permission on each level of
//! resource, granted in every way, against the golden file `tests/authorization/matrix.txt`.
//!
//! `tests/authorization/run.sh` runs the same statements against a real Cassandra. After an intended change,
//! `UPDATE_EXPECT=1` rewrites the file.

use super::roles::{guarded, login, server_with};
use super::*;
use cql_syntax::ast::StatementKind;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

const SETUP: &str = include_str!("../../../../../tests/authorization/setup.txt");
const GRANTS: &str = include_str!("../../../../../tests/authorization/grants.txt");
const STATEMENTS: &str = include_str!("../../../../../tests/authorization/statements.txt");
const MATRIX: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../../tests/authorization/matrix.txt");

/// A statement of the matrix.
#[derive(Clone, Debug, Default)]
struct Case {
    text: String,
    /// Permissions that the role has beside the one that varies.
    with: Vec<String>,
    /// Restores the state after it succeeded.
    then: Option<String>,
}

fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
}

fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for line in lines(STATEMENTS) {
        match line.strip_prefix("  ") {
            None => cases.push(Case { text: line.to_owned(), ..Case::default() }),
            Some(line) => {
                let case = cases.last_mut().unwrap();
                match line.split_once(": ").unwrap() {
                    ("with", with) => case.with = with.split("; ").map(str::to_owned).collect(),
                    ("then", then) => case.then = Some(then.to_owned()),
                    (other, _) => panic!("{other}"),
                }
            }
        }
    }
    cases
}

/// `SELECT ON TABLE mx.t` and all others.
fn grants() -> Vec<String> {
    let of_line = |line: &str| {
        let (resource, permissions) = line.split_once(": ").unwrap();
        let on = |permission: &str| format!("{permission} ON {resource}");
        permissions.split(' ').map(on).collect::<Vec<_>>()
    };
    lines(GRANTS).flat_map(of_line).collect()
}

/// Position of a kind of statement. A new kind fails the build here: give it a number, raise
/// [`KINDS`], and add a statement of it to `statements.txt`.
fn position(kind: &StatementKind) -> usize {
    match kind {
        StatementKind::Select(_) => 0,
        StatementKind::Insert(_) => 1,
        StatementKind::Update(_) => 2,
        StatementKind::Delete(_) => 3,
        StatementKind::Batch(_) => 4,
        StatementKind::Truncate(_) => 5,
        StatementKind::Use(_) => 6,
        StatementKind::CreateKeyspace(_) => 7,
        StatementKind::AlterKeyspace(_) => 8,
        StatementKind::DropKeyspace(_) => 9,
        StatementKind::CreateTable(_) => 10,
        StatementKind::CopyTable(_) => 11,
        StatementKind::AlterTable(_) => 12,
        StatementKind::DropTable(_) => 13,
        StatementKind::CreateType(_) => 14,
        StatementKind::AlterType(_) => 15,
        StatementKind::DropType(_) => 16,
        StatementKind::CreateIndex(_) => 17,
        StatementKind::DropIndex(_) => 18,
        StatementKind::CreateView(_) => 19,
        StatementKind::AlterView(_) => 20,
        StatementKind::DropView(_) => 21,
        StatementKind::CreateTrigger(_) => 22,
        StatementKind::DropTrigger(_) => 23,
        StatementKind::CreateFunction(_) => 24,
        StatementKind::DropFunction(_) => 25,
        StatementKind::CreateAggregate(_) => 26,
        StatementKind::DropAggregate(_) => 27,
        StatementKind::CreateRole(_) => 28,
        StatementKind::AlterRole(_) => 29,
        StatementKind::DropRole(_) => 30,
        StatementKind::CreateUser(_) => 31,
        StatementKind::AlterUser(_) => 32,
        StatementKind::DropUser(_) => 33,
        StatementKind::GrantPermissions(_) => 34,
        StatementKind::RevokePermissions(_) => 35,
        StatementKind::GrantRole(_) => 36,
        StatementKind::RevokeRole(_) => 37,
        StatementKind::ListPermissions(_) => 38,
        StatementKind::ListRoles(_) => 39,
        StatementKind::ListUsers => 40,
        StatementKind::AddIdentity(_) => 41,
        StatementKind::DropIdentity(_) => 42,
        StatementKind::Describe(_) => 43,
        StatementKind::PruneView(_) => 44,
    }
}

const KINDS: usize = 45;

#[test]
fn every_kind_of_statement_is_in_the_matrix() {
    let kind = |case: &Case| {
        let parsed = cql_syntax::parse(&case.text);
        position(&parsed.unwrap_or_else(|error| panic!("{}: {error}", case.text)).kind)
    };
    let found: BTreeSet<usize> = cases().iter().map(kind).collect();
    assert_eq!(found, (0..KINDS).collect());
}

fn outcome(got: Got) -> String {
    match got.body {
        Body::Error(ErrorCode::Unauthorized, text) => format!("Unauthorized: {text}"),
        Body::Error(code, _) => format!("{code:?}"),
        _ => "ok".to_owned(),
    }
}

/// The REVOKE of each GRANT, last first.
fn taken_back(grants: &[String]) -> Vec<String> {
    let back = |grant: &String| grant.replace("GRANT ", "REVOKE ").replace(" TO ", " FROM ");
    grants.iter().rev().map(back).collect()
}

/// A server that asks for passwords and makes indexes.
fn with_indexes() -> ServerSettings {
    changed(guarded(), |query| query.indexes.available = true)
}

/// Outcomes of all cases, by way, then case, then outcome: the grants.
type Outcomes = BTreeMap<&'static str, Vec<BTreeMap<String, Vec<String>>>>;

struct Runner {
    root: Client,
    member: Client,
    superuser: Client,
    cases: Vec<Case>,
    outcomes: Outcomes,
}

impl Runner {
    async fn start(rt: &Rt) -> Runner {
        let server = server_with(rt, with_indexes()).await;
        let mut root = login(&server, "root", "secret").await;
        for statement in lines(SETUP) {
            root.must(statement).await;
        }
        let member = login(&server, "m", "secret").await;
        let superuser = login(&server, "su", "secret").await;
        Runner { root, member, superuser, cases: cases(), outcomes: Outcomes::default() }
    }

    /// Runs all cases while the role has a grant, given by the statements `give`.
    async fn run(&mut self, way: &'static str, grant: &str, give: &[String]) {
        self.all(give).await;
        for at in 0..self.cases.len() {
            let case = self.cases[at].clone();
            let base: Vec<String> =
                case.with.iter().map(|with| format!("GRANT {with} TO m")).collect();
            self.all(&base).await;
            let client = if way == "superuser" { &mut self.superuser } else { &mut self.member };
            let got = outcome(client.query(&case.text).await);
            let then = case.then.filter(|_| got == "ok");
            let of_way = self.outcomes.entry(way).or_default();
            of_way.resize(self.cases.len(), BTreeMap::new());
            of_way[at].entry(got).or_default().push(grant.to_owned());
            self.all(&taken_back(&base)).await;
            match then.as_deref() {
                Some("setup") => {
                    for statement in lines(SETUP) {
                        self.root.query(statement).await;
                    }
                }
                Some(then) => {
                    self.root.must(then).await;
                }
                None if base.is_empty() => continue,
                None => {}
            }
            // A dropped resource has no permissions any more; the grant may be of this case.
            self.all(give).await;
        }
        self.all(&taken_back(give)).await;
    }

    /// Executes statements as the superuser; some have no effect.
    async fn all(&mut self, statements: &[String]) {
        for statement in statements {
            self.root.query(statement).await;
        }
    }

    async fn run_all(&mut self) {
        self.run("nothing", "nothing", &[]).await;
        self.run("superuser", "superuser", &[]).await;
        self.run("superuser by role", "superuser", &["GRANT su TO m".to_owned()]).await;
        for grant in grants() {
            let to = |role: &str| format!("GRANT {grant} TO {role}");
            let roles = |text: &str| text.to_owned();
            self.run("direct", &grant, &[to("m")]).await;
            self.run("inherited", &grant, &[to("g1"), roles("GRANT g1 TO m")]).await;
            let chain = [to("g2"), roles("GRANT g2 TO g1"), roles("GRANT g1 TO m")];
            self.run("chain", &grant, &chain).await;
        }
    }

    fn render(&self) -> String {
        let mut out = String::new();
        for (at, case) in self.cases.iter().enumerate() {
            let _ = writeln!(out, "{}", case.text);
            for with in &case.with {
                let _ = writeln!(out, "  with {with}");
            }
            let of = |way: &str| &self.outcomes[way][at];
            let only = |way: &str| of(way).keys().next().cloned().unwrap_or_default();
            let nothing = only("nothing");
            for way in ["nothing", "superuser", "superuser by role"] {
                let _ = writeln!(out, "  {way}: {}", only(way));
            }
            for way in ["direct", "inherited", "chain"] {
                if way != "direct" && of(way) == of("direct") {
                    continue;
                }
                for (outcome, grants) in of(way).iter().filter(|(outcome, _)| **outcome != nothing)
                {
                    let _ = writeln!(out, "  {way}: {outcome}: {}", grants.join(", "));
                }
                if way != "direct" {
                    let _ = writeln!(out, "  {way}: differs from direct");
                }
            }
        }
        out
    }
}

/// Rights of a role without permissions, of one with SELECT and MODIFY on everything, and of a superuser, for
/// each system table.
async fn system_tables(rt: &Rt) -> String {
    let server = server_with(rt, with_indexes()).await;
    let mut root = login(&server, "root", "secret").await;
    for statement in lines(SETUP) {
        root.must(statement).await;
    }
    let mut member = login(&server, "m", "secret").await;
    let schema = server.executor().membership.snapshot().schema.clone();
    let mut names = Vec::new();
    for keyspace in schema.keyspaces.values() {
        if keyspace.name.starts_with("system") {
            names.extend(keyspace.tables.keys().map(|table| format!("{}.{table}", keyspace.name)));
        }
    }
    let mut out = String::new();
    for name in names {
        let select = format!("SELECT * FROM {name} LIMIT 1");
        let truncate = format!("TRUNCATE {name}");
        let none = outcome(member.query(&select).await);
        let truncate_none = outcome(member.query(&truncate).await);
        let granted = outcome(root.query(&format!("GRANT SELECT ON TABLE {name} TO m")).await);
        let by_table = outcome(member.query(&select).await);
        root.query(&format!("REVOKE SELECT ON TABLE {name} FROM m")).await;
        root.must("GRANT SELECT ON ALL KEYSPACES TO m").await;
        root.must("GRANT MODIFY ON ALL KEYSPACES TO m").await;
        let by_all = outcome(member.query(&select).await);
        let truncate_all = outcome(member.query(&truncate).await);
        root.must("REVOKE SELECT ON ALL KEYSPACES FROM m").await;
        root.must("REVOKE MODIFY ON ALL KEYSPACES FROM m").await;
        let _ = writeln!(
            out,
            "{name}\n  nothing: {none}\n  GRANT on it: {granted}, then {by_table}\n  SELECT ON ALL KEYSPACES: \
             {by_all}\n  TRUNCATE with nothing: {truncate_none}\n  TRUNCATE with MODIFY ON ALL KEYSPACES: \
             {truncate_all}"
        );
    }
    out
}

/// `UPDATE_EXPECT=1` writes the golden file.
#[expect(clippy::disallowed_methods, reason = "a golden file of the sources")]
#[test]
fn the_matrix_is_as_the_golden_file_says() {
    let made = Rc::new(std::cell::RefCell::new(String::new()));
    let (first, second) = (made.clone(), made.clone());
    run(|rt| async move {
        let mut runner = Runner::start(&rt).await;
        runner.run_all().await;
        *first.borrow_mut() = runner.render();
    });
    run(|rt| async move {
        let tables = system_tables(&rt).await;
        second.borrow_mut().push_str(&format!("\n# System tables\n{tables}"));
    });
    let made = made.borrow();
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(MATRIX, made.as_bytes()).unwrap();
    }
    let golden = std::fs::read_to_string(MATRIX).unwrap_or_default();
    for (at, (made, golden)) in made.lines().zip(golden.lines()).enumerate() {
        assert_eq!(made, golden, "line {}", at + 1);
    }
    assert_eq!(made.lines().count(), golden.lines().count());
}

#[test]
fn a_batch_with_one_forbidden_part_writes_nothing() {
    run(|rt| async move {
        let mut runner = Runner::start(&rt).await;
        runner.root.must("GRANT MODIFY ON TABLE mx.t TO m").await;
        let insert = |table: &str| format!("INSERT INTO mx.{table} (k, v) VALUES (1, 1)");
        for parts in [[insert("t"), insert("u")], [insert("u"), insert("t")]] {
            for kind in ["", "UNLOGGED "] {
                let batch = format!("BEGIN {kind}BATCH {}; {}; APPLY BATCH", parts[0], parts[1]);
                let got = runner.member.query(&batch).await.error();
                assert_eq!(got.0, ErrorCode::Unauthorized);
            }
        }
        for table in ["mx.t", "mx.u"] {
            let got = runner.root.query(&format!("SELECT * FROM {table}")).await.rows();
            assert!(got.rows.is_empty(), "{table}");
        }
        runner.root.must("GRANT MODIFY ON TABLE mx.u TO m").await;
        runner
            .member
            .must(&format!("BEGIN BATCH {}; {}; APPLY BATCH", insert("t"), insert("u")))
            .await;
    });
}

#[test]
fn a_prepared_statement_is_checked_again_after_every_change_of_permissions() {
    run(|rt| async move {
        let mut runner = Runner::start(&rt).await;
        let prepared = runner.root.prepare("INSERT INTO mx.t (k, v) VALUES (1, 1)").await;
        let refused = |got: Got| matches!(got.body, Body::Error(ErrorCode::Unauthorized, _));
        assert!(refused(runner.member.execute(&prepared, &[]).await));
        for (give, take) in [
            ("GRANT MODIFY ON TABLE mx.t TO m", "REVOKE MODIFY ON TABLE mx.t FROM m"),
            ("GRANT MODIFY ON KEYSPACE mx TO g1", "REVOKE MODIFY ON KEYSPACE mx FROM g1"),
            ("GRANT su TO m", "REVOKE su FROM m"),
        ] {
            runner.root.query("GRANT g1 TO m").await;
            runner.root.must(give).await;
            assert_eq!(runner.member.execute(&prepared, &[]).await.body, Body::Void, "{give}");
            runner.root.must(take).await;
            assert!(refused(runner.member.execute(&prepared, &[]).await), "{take}");
        }
    });
}
