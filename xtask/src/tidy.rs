//! Rules that neither the compiler nor clippy can state.
//!
//! Each failure is one line: place and the sentence of the rule. Sizes are reported, not failed.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::documents;
use crate::english;
use crate::files;
use crate::layers::{Layers, Member, members};
use crate::names;
use crate::scan;
use crate::structure;
use crate::verification;

/// Path of the reference of settings.
pub const REFERENCE: &str = "docs/user/configuration.md";

/// Changes settings when the configuration is read again.
const RELOAD: &str = "crates/node/src/reload.rs";

/// Lines of a file without its tests above which it is reported.
const FILE_LINES: usize = 800;

/// Code that a crate may not use: (words, replacement).
type Ban = (&'static [&'static str], &'static str);

const FILES: Ban = (&["std::fs", "rustix::fs", "File::open"], "files go through rt::File");
const SOCKETS: Ban = (
    &[
        "TcpStream",
        "TcpListener",
        "UdpSocket",
        "UnixStream",
        "ToSocketAddrs",
        "socket2",
        "rustix::net",
    ],
    "sockets go through rt::Conn",
);
const CLOCK: Ban = (
    &["std::time::Instant", "SystemTime", "Instant::now", "UNIX_EPOCH"],
    "time is an argument or comes from rt",
);
const RANDOM: Ban = (
    &["rand::", "getrandom", "OsRng", "thread_rng", "Uuid::new_v4", "RandomState"],
    "randomness is an argument or comes from rt",
);
const THREADS: Ban =
    (&["std::thread", "thread::spawn", "thread::sleep", "thread_local!"], "tasks come from rt");
const TOKIO: Ban =
    (&["tokio::"], "tokio is known to rt-native and to admin, which runs as a service, only");
const SHARED: Ban = (
    &[
        "Mutex",
        "RwLock",
        "std::sync::atomic",
        "AtomicU64",
        "AtomicUsize",
        "AtomicBool",
        "OnceLock",
        "LazyLock",
        "static mut",
    ],
    "state is owned by its shard or immutable",
);
const UNSAFE: Ban = (&["unsafe"], "unsafe is for rt-native");
const HASHING: Ban = (
    &["collections::HashMap", "collections::HashSet", "HashMap::new", "HashSet::new"],
    "use stdx::FixedMap: the order of the default one changes from run to run",
);
const PROCESS: Ban = (
    &["std::env", "std::process", "println!", "eprintln!", "print!", "dbg!"],
    "input is an argument, output is a value or a log event",
);

const PURE: &[Ban] =
    &[FILES, SOCKETS, CLOCK, RANDOM, THREADS, TOKIO, SHARED, UNSAFE, HASHING, PROCESS];
const SHARD: &[Ban] = PURE;
const TELEMETRY: &[Ban] =
    &[FILES, SOCKETS, CLOCK, RANDOM, THREADS, TOKIO, UNSAFE, HASHING, PROCESS];
const RUNTIME: Ban = (&["tokio::runtime"], "a runtime of its own is a service: rt::service");
/// The HTTP server runs as a service, with sockets and the clock of its timeouts.
const ADMIN: &[Ban] = &[FILES, RANDOM, THREADS, RUNTIME, UNSAFE, HASHING, PROCESS];
const BOUNDARY: &[Ban] = &[UNSAFE, HASHING, PROCESS];
const NATIVE: &[Ban] = &[HASHING, PROCESS];
const TOOL: &[Ban] = &[UNSAFE];

/// Places that may have what their crate's row forbids, each with its reason.
const EXCEPTIONS: &[(&str, &[&str])] = &[
    // Connection counts of all shards, read where a new connection is placed: counters only.
    ("crates/front/cql-server/src/mesh.rs", &["std::sync::atomic", "AtomicUsize"]),
    // Buckets of requests per second, shared by the shards of a node: independent numbers.
    ("crates/front/cql-server/src/request_rates.rs", &["std::sync::atomic", "AtomicU64"]),
    // `std::task::Wake` wants `Arc`: the flag that a waker sets.
    ("crates/front/cql-server/src/pending.rs", &["std::sync::atomic", "AtomicBool"]),
    // A starting node's reports to the thread that started it: written once.
    ("crates/node/src/lib.rs", &["OnceLock"]),
    // Counts of bugs and marks of rare paths, of the whole process: reports only, nothing decides by them.
    ("crates/base/stdx/src/invariant.rs", &["Mutex"]),
    ("crates/base/stdx/src/probe.rs", &["Mutex", "std::sync::atomic", "AtomicBool"]),
    // The simulator's draw for fault points, of the thread that runs it; no other thread sets it.
    ("crates/base/stdx/src/chaos.rs", &["thread_local!"]),
];

fn is_exception(path: &str, word: &str) -> bool {
    EXCEPTIONS.iter().any(|(file, words)| *file == path && words.contains(&word))
}

fn bans(permissions: &str) -> Option<&'static [Ban]> {
    Some(match permissions {
        "pure" => PURE,
        "shard" => SHARD,
        "telemetry" => TELEMETRY,
        "admin" => ADMIN,
        "boundary" => BOUNDARY,
        "native" => NATIVE,
        "tool" => TOOL,
        _ => return None,
    })
}

/// Words that no file of the repository may have, split here so that this one has none of them.
const FORBIDDEN: &[(&str, &str)] = &[
    (concat!("/wo", "rk/"), "a path of one machine"),
    (concat!("/ro", "ot/"), "a path of one machine"),
    (concat!("/ho", "me/"), "a path of one machine"),
    (concat!("to", "do!("), "what is not there is refused with an error"),
    (concat!("unimple", "mented!("), "what is not there is refused with an error"),
    (concat!("FIX", "ME"), "a defect is an issue"),
    (concat!("#[ig", "nore"), "a test runs or is deleted"),
    (concat!("#[should_", "panic"), "a test states what is returned"),
];

/// Checks everything; prints violations; `true` when there are none.
pub fn run(root: &Path) -> Result<bool> {
    let mut wrong: Vec<String> = Vec::new();
    let layers_text = fs::read_to_string(root.join("xtask/layers.toml"))
        .context("cannot read xtask/layers.toml")?;
    let layers = Layers::parse(&layers_text)?;
    let members = members(root)?;
    wrong.extend(layers.violations(&members));
    let architecture = read(root, "ARCHITECTURE.md", &mut wrong);
    let mut long: Vec<(usize, String)> = Vec::new();
    for member in &members {
        manifest(member, &architecture, &mut wrong);
        let permissions = layers.permissions(&member.name).unwrap_or("tool");
        let Some(bans) = bans(permissions) else {
            wrong.push(format!("xtask/layers.toml: unknown permissions \"{permissions}\""));
            continue;
        };
        sources(root, member, permissions, bans, &mut wrong, &mut long)?;
    }
    wrong.extend(structure::violations(root, &members)?);
    wrong.extend(names::violations(root)?);
    wrong.extend(english::violations(root)?);
    settings(root, &members, &mut wrong)?;
    documents::check(root, &members, &mut wrong)?;
    verification::check(root, &mut wrong)?;
    words(root, &mut wrong)?;
    long.sort_by(|a, b| b.cmp(a));
    for (lines, path) in &long {
        println!("note: {path} has {lines} lines without tests, above {FILE_LINES}");
    }
    for line in &wrong {
        println!("tidy: {line}");
    }
    println!("tidy: {} crates, {} wrong", members.len(), wrong.len());
    Ok(wrong.is_empty())
}

fn read(root: &Path, path: &str, wrong: &mut Vec<String>) -> String {
    fs::read_to_string(root.join(path)).unwrap_or_else(|_| {
        wrong.push(format!("{path} is missing"));
        String::new()
    })
}

fn manifest(member: &Member, architecture: &str, wrong: &mut Vec<String>) {
    let name = &member.name;
    if member.license.as_deref() != Some("Apache-2.0") {
        wrong.push(format!("crate \"{name}\" has no \"license.workspace = true\""));
    }
    if member.description.as_deref().is_none_or(str::is_empty) {
        wrong.push(format!("crate \"{name}\" has no description"));
    }
    if !architecture.contains(&format!("`{name}`")) {
        wrong.push(format!("crate \"{name}\" is not named in ARCHITECTURE.md"));
    }
    let text = fs::read_to_string(member.directory.join("Cargo.toml")).unwrap_or_default();
    // A crate that may use unsafe code repeats the workspace's lints without that one.
    if !text.contains("[lints]") && !text.contains("[lints.") {
        wrong.push(format!("crate \"{name}\" has no lints: add \"[lints] workspace = true\""));
    }
}

fn sources(
    root: &Path,
    member: &Member,
    permissions: &str,
    bans: &[Ban],
    wrong: &mut Vec<String>,
    long: &mut Vec<(usize, String)>,
) -> Result<()> {
    for path in files::below(&member.directory.join("src"), &["rs"])? {
        let shown = files::shown(root, &path);
        let source = fs::read_to_string(&path).with_context(|| format!("cannot read {shown}"))?;
        let is_test = path.file_name().is_some_and(|n| n == "tests.rs")
            || path.components().any(|c| c.as_os_str() == "tests");
        let is_root = shown.ends_with("src/lib.rs") || shown.ends_with("src/main.rs");
        if is_root && !source.starts_with("//!") {
            wrong.push(format!("{shown}:1: a crate opens with its map (\"//! …\")"));
        }
        if is_test {
            continue;
        }
        let code = scan::without_tests(&scan::code(&source));
        let lines = code.lines().filter(|l| !l.trim().is_empty()).count();
        if lines > FILE_LINES {
            long.push((lines, shown.clone()));
        }
        for (number, line) in (1..).zip(code.lines()) {
            // The lint that forbids unsafe code names it.
            if line.contains("unsafe_code") {
                continue;
            }
            for (banned, instead) in bans {
                let allowed = |word: &str| is_exception(&shown, word);
                for word in banned.iter().filter(|w| scan::has_word(line, w) && !allowed(w)) {
                    wrong.push(format!(
                        "{shown}:{number}: \"{word}\" in a crate with \"{permissions}\" \
                         permissions: {instead}"
                    ));
                }
            }
        }
        if permissions == "native" {
            safety(&shown, &source, &code, wrong);
        }
    }
    Ok(())
}

/// The table of settings calls those live that a reload changes.
fn live(root: &Path, wrong: &mut Vec<String>) -> Result<()> {
    let source = fs::read_to_string(root.join(RELOAD)).context(RELOAD)?;
    let actions = source.split("#[cfg(test)]").next().unwrap_or_default();
    let guardrails = conf::guardrails::report(&conf::Options::default());
    for setting in conf::options::settings() {
        let is_guardrail = guardrails
            .iter()
            .any(|guardrail| guardrail.settings.iter().any(|(name, _)| name == setting.name));
        let is_live = is_guardrail || actions.contains(&format!("\"{}\" =>", setting.name));
        if is_live != setting.hot {
            let word = if is_live { "hot" } else { "cold" };
            wrong.push(format!("setting \"{}\" is {word} by {RELOAD}", setting.name));
        }
    }
    Ok(())
}

/// Checks that every block of unsafe code has a comment on its soundness.
fn safety(shown: &str, source: &str, code: &str, wrong: &mut Vec<String>) {
    let lines: Vec<&str> = source.lines().collect();
    for (at, line) in code.lines().enumerate() {
        let block = scan::has_word(line, "unsafe") && (line.contains('{') || line.contains("impl"));
        let above = lines.iter().take(at + 1).skip(at.saturating_sub(6));
        if block && !line.contains("unsafe fn") && !above.into_iter().any(|l| l.contains("SAFETY:"))
        {
            wrong.push(format!("{shown}:{}: unsafe code without \"// SAFETY:\" above it", at + 1));
        }
    }
}

/// Checks that every supported setting is read by some crate, and that the reference matches the
/// table.
fn settings(root: &Path, members: &[Member], wrong: &mut Vec<String>) -> Result<()> {
    let mut code = String::new();
    for member in members.iter().filter(|m| m.name != "conf" && m.name != "xtask") {
        for path in files::below(&member.directory.join("src"), &["rs"])? {
            code.push_str(&scan::code(&fs::read_to_string(path)?));
        }
    }
    for (name, status) in conf::options::NAMES {
        let accessor = matches!(
            *name,
            "workdir"
                | "data_file_directories"
                | "commitlog_directory"
                | "commitlog_restore_directories"
                | "commitlog_restore_point_in_time"
                | "max_mutation_size"
                | "partitioner"
                | "endpoint_snitch"
        );
        // Settings with one value only, with an accessor in `conf`, or that allow something never
        // done, need no reader of their own.
        let read = scan::has_word(&code, &format!(".{name}"));
        if *status == conf::Status::Supported && !accessor && !read {
            wrong.push(format!(
                "setting \"{name}\" is called supported and nobody reads it: wire it or call it \
                 not_yet in crates/base/conf/src/options.rs"
            ));
        }
    }
    live(root, wrong)?;
    let reference = fs::read_to_string(root.join(REFERENCE)).unwrap_or_default();
    if reference != conf::reference_markdown() {
        wrong.push(format!("{REFERENCE} is out of date: run cargo xtask reference"));
    }
    Ok(())
}

fn words(root: &Path, wrong: &mut Vec<String>) -> Result<()> {
    let kinds = ["rs", "md", "toml", "sh", "py", "js", "go", "java", "yaml", "yml", "cqltest"];
    for path in files::of_repository(root, &kinds)? {
        let Ok(text) = fs::read_to_string(&path) else {
            continue;
        };
        for (number, line) in (1..).zip(text.lines()) {
            for (word, why) in FORBIDDEN.iter().filter(|(word, _)| line.contains(word)) {
                wrong.push(format!("{}:{number}: \"{word}\": {why}", files::shown(root, &path)));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_permissions_is_known_and_no_other() {
        for row in ["pure", "shard", "telemetry", "admin", "boundary", "native", "tool"] {
            assert!(bans(row).is_some(), "{row}");
        }
        assert!(bans("everything").is_none());
    }

    #[test]
    fn unsafe_code_needs_its_reason_above() {
        let check = |source: &str| {
            let mut wrong = Vec::new();
            safety("x.rs", source, &scan::code(source), &mut wrong);
            wrong.len()
        };
        assert_eq!(check("fn a() {\n    unsafe { b() }\n}\n"), 1);
        assert_eq!(check("fn a() {\n    // SAFETY: b is fine.\n    unsafe { b() }\n}\n"), 0);
        assert_eq!(check("// \"unsafe {\" in words\n"), 0);
    }
}
