//! The steps of `check` and `test`: named, timed, counted.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use anyhow::{Result, bail};

use crate::perf::process::Server;
use crate::tidy;

/// One step.
pub struct Step {
    /// Its name, to run it alone.
    pub name: &'static str,
    /// Purpose, for the list of steps.
    pub what: &'static str,
    action: Action,
    /// The step with which it begins when all are run, in a process of its own that carries out all such
    /// steps one after the other. They and those that run meanwhile leave one of the two processors idle
    /// for most of their time. Their ports and directories are apart.
    beside: Option<&'static str>,
    /// The step that begins only when it has ended; else nothing but the end of all waits for it.
    before: Option<&'static str>,
}

impl Step {
    const fn new(name: &'static str, what: &'static str, action: Action) -> Self {
        Step { name, what, action, beside: None, before: None }
    }

    const fn beside(mut self, step: &'static str) -> Self {
        self.beside = Some(step);
        self
    }

    const fn before(mut self, step: &'static str) -> Self {
        self.before = Some(step);
        self
    }
}

enum Action {
    /// A command; the first word `cargo` is the cargo that runs this.
    Run(&'static [&'static str]),
    /// The rules of this crate.
    Tidy,
    /// A command against a server that is started for it on an empty directory; its address is in
    /// `HELENUS_HOST` and `HELENUS_PORT`.
    RunWithServer(&'static [&'static str]),
    /// A script that starts servers of its own from the binary in `HELENUS_BIN`.
    RunWithBinary(&'static [&'static str]),
    /// Every `<directory>/<name>/run.sh`, each a step of its own with a server of its own.
    Scripts(&'static str),
    /// Scripts that fetch and build files for later steps, `run.sh` of these directories and of
    /// those in them.
    Prepare(&'static [&'static str]),
}

const fn step(name: &'static str, what: &'static str, words: &'static [&'static str]) -> Step {
    Step::new(name, what, Action::Run(words))
}

const FORMAT: Step =
    step("format", "rustfmt changes nothing", &["cargo", "fmt", "--all", "--check"]);
const TIDY: Step =
    Step::new("tidy", "layers, permissions, licences, names, links and anchors", Action::Tidy);
const LINTS: Step = step(
    "lints",
    "clippy without a warning",
    &["cargo", "clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"],
);
const UNIT: Step = step(
    "unit",
    "unit, property and fuzz-function tests, simulator scenarios",
    &["cargo", "test", "--workspace", "--quiet", "--no-fail-fast"],
);
// With `--tests`, so that dependencies have the features that the tests gave them: else their
// dependencies are built twice.
const BUILD: Step = step(
    "build",
    "the binaries that every later step uses",
    &["cargo", "build", "--quiet", "--workspace", "--bins", "--tests"],
);
const CONFORMANCE: Step = Step::new(
    "conformance",
    "statements and their results as a real Cassandra gave them",
    Action::RunWithServer(&["target/debug/conformance", "conformance/cases"]),
);
const SIMULATOR: Step =
    step("simulator", "fixed seeds, some twice with the same trace", &["target/debug/sim"]);

/// Before a commit.
pub const CHECK: &[Step] = &[FORMAT, TIDY, LINTS, UNIT, BUILD, SIMULATOR, CONFORMANCE];

/// The one test command. One profile (dev) builds everything once. Steps that wait for downloads
/// run beside the compiler, which keeps the processors busy; later two rows of steps that mostly
/// wait.
pub const TEST: &[Step] = &[
    FORMAT,
    TIDY,
    Step::new(
        "prepare",
        "drivers, suites and jars that later steps use are fetched and built",
        Action::Prepare(&[
            "tests/drivers",
            "tests/files",
            "tests/cluster",
            "tests/tls",
            "tests/porcupine",
            "examples/flights",
            "examples/bank",
            "packages",
        ]),
    )
    .beside("lints")
    .before("porcupine"),
    LINTS,
    UNIT,
    BUILD,
    SIMULATOR,
    step(
        "porcupine",
        "histories of simulated runs, judged by the Go library porcupine too",
        &["bash", "tests/porcupine/run.sh"],
    ),
    // A step of its own: the product is built without the feature. Only `udf`, `cql-plan` and their
    // dependents are rebuilt.
    step(
        "lua",
        "user functions in Lua, which only builds with the feature have",
        &[
            "cargo",
            "test",
            "--quiet",
            "-p",
            "udf",
            "-p",
            "cql-plan",
            "--features",
            "cql-plan/lua",
            "--lib",
            "--",
            "lua::",
            "user::",
        ],
    )
    .beside("drivers"),
    step(
        "instructions",
        "instructions and allocations per request against the stored figures",
        &["cargo", "xtask", "perf", "instructions"],
    )
    .beside("drivers"),
    Step::new(
        "drivers",
        "real drivers and tools: every tests/drivers/<name>/run.sh",
        Action::Scripts("tests/drivers"),
    ),
    Step::new(
        "packages",
        "nodes for tests of applications: the wheel, the npm package and the crate, with drivers",
        Action::RunWithBinary(&["bash", "packages/run.sh"]),
    )
    .beside("drivers"),
    Step::new(
        "roles",
        "logins and permissions: recorded cases, and a driver as limited roles",
        Action::RunWithBinary(&["bash", "tests/roles/run.sh"]),
    )
    .beside("drivers"),
    Step::new(
        "tls",
        "TLS from outside: five drivers, two shells, keytool, openssl, nodetool",
        Action::RunWithBinary(&["bash", "tests/tls/run.sh"]),
    )
    .beside("drivers"),
    Step::new(
        "cluster",
        "real nodes that die, stop, lose each other and are replaced under four real drivers",
        Action::RunWithBinary(&["bash", "tests/cluster/run.sh"]),
    )
    .beside("drivers"),
    Step::new(
        "files",
        "a real Cassandra's tools and server on our files, and the reverse",
        Action::RunWithBinary(&["bash", "tests/files/run.sh"]),
    ),
    Step::new(
        "flights",
        "real data loaded while the server is killed: every acknowledged row is there",
        Action::RunWithBinary(&[
            "bash",
            "examples/flights/run.sh",
            "--rows",
            "5000",
            "--chaos",
            "1",
        ]),
    )
    .beside("drivers"),
    Step::new(
        "bank",
        "transfers of lightweight transactions while nodes fail: no money is made or lost",
        Action::RunWithBinary(&[
            "bash",
            "examples/bank/run.sh",
            "--seconds",
            "40",
            "--faults",
            "all",
            "--choice",
            "mixed",
            "--seed",
            "1",
        ]),
    )
    .beside("drivers"),
    Step::new(
        "bank-mistakes",
        "clients of the bank that leave a step out: its check finds each",
        Action::RunWithBinary(&["bash", "examples/bank/run.sh", "--self-test"]),
    )
    .beside("drivers"),
    CONFORMANCE,
    Step::new(
        "invert",
        "random operations whose every answer is known, between flushes and compactions",
        Action::RunWithServer(&["target/debug/invert", "--rounds", "60"]),
    ),
];

/// Port of the servers that steps start; neither the default nor a driver's.
const PORT: u16 = 19_542;

/// A server for one step, on an empty directory, ended afterwards.
fn with_server(root: &Path, name: &str, words: &[&str]) -> Result<bool> {
    let home = root.join("target/test").join(name.replace('/', "-"));
    if home.exists() {
        crate::disk::remove_dir_all(&home)?;
    }
    crate::disk::create_dir_all(&home)?;
    let mut server = Command::new(root.join("target/debug/helenus"));
    server.arg("server").arg("--workdir").arg(home.join("data"));
    server.args(["--native-transport-port", &PORT.to_string()]);
    server.args(["--native-shard-aware-transport-port", &(PORT + 1).to_string()]);
    server.args(["--api-port", &(PORT + 2).to_string(), "--memory", "512MiB", "--smp", "2"]);
    // For the tables that want it, as those of `invert` do.
    server.args(["--row-cache-size", "16MiB"]);
    // A stock Cassandra accepts any timestamp, and the cases were recorded from one.
    server.args(["--maximum-timestamp-fail-threshold", "0s"]);
    // For the suites that make some; off by default.
    server.args(["--user-defined-functions-enabled", "true"]);
    server.args(["--drop-compact-storage-enabled", "true"]);
    server.args(["--sasi-indexes-enabled", "true"]);
    let server = Server::spawn(server, &home, "server", &format!("127.0.0.1:{PORT}"))?;
    let passed = command_with(
        root,
        words,
        &[
            ("HELENUS_HOST", "127.0.0.1"),
            ("HELENUS_PORT", &PORT.to_string()),
            ("HELENUS_API_PORT", &(PORT + 2).to_string()),
        ],
    );
    server.stop()?;
    passed
}

/// Steps that run beside another one: this program again, which prints into a file.
struct Beside {
    steps: Vec<&'static str>,
    /// The steps that wait for it.
    before: Vec<&'static str>,
    /// `None` once it has been waited for.
    process: Option<Child>,
    output: PathBuf,
    rows: PathBuf,
}

impl Beside {
    /// Starts the steps that run beside `step`, if there are some.
    fn start(
        root: &Path,
        program: &Path,
        steps: &'static [Step],
        step: &str,
    ) -> Result<Option<Beside>> {
        let of_it = steps.iter().filter(|s| s.beside == Some(step));
        let before: Vec<&str> = of_it.clone().filter_map(|s| s.before).collect();
        let steps: Vec<&str> = of_it.map(|s| s.name).collect();
        if steps.is_empty() {
            return Ok(None);
        }
        let directory = root.join("target/test");
        crate::disk::create_dir_all(&directory)?;
        let output = directory.join(format!("beside-{step}.log"));
        let rows = directory.join(format!("beside-{step}.rows"));
        if rows.exists() {
            crate::disk::remove_file(&rows)?;
        }
        let file = crate::disk::create(&output)?;
        println!("== {}: beside {step}, into {}", steps.join(", "), output.display());
        let process = Command::new(program)
            .arg("test")
            .args(&steps)
            .env(ROWS, &rows)
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()?;
        Ok(Some(Beside { steps, before, process: Some(process), output, rows }))
    }

    /// Waits for their end, prints their output and adds their rows; one that left no row has
    /// failed.
    fn wait(mut self, table: &mut Vec<Row>) -> Result<()> {
        if let Some(mut process) = self.process.take() {
            process.wait()?;
        }
        print!("{}", String::from_utf8_lossy(&crate::disk::read(&self.output)?));
        let rows = crate::disk::read_to_string(&self.rows).unwrap_or_default();
        let rows: Vec<Row> = rows.lines().filter_map(Row::parse).collect();
        for step in &self.steps {
            if !rows.iter().any(|row| row.name == *step) {
                let name = (*step).to_owned();
                table.push(Row { name, passed: false, minutes: 0.0, processor: 0.0 });
            }
        }
        table.extend(rows);
        Ok(())
    }
}

impl Drop for Beside {
    /// When the steps before it could not be run to the end.
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// Variables in which scripts look for the program. The examples have names of their own, as users
/// run them beside a server, for which every `HELENUS_` variable is a setting.
const BINARY_VARIABLES: [&str; 3] = ["HELENUS_BIN", "FLIGHTS_HELENUS", "BANK_HELENUS"];

/// Names the file into which a process of [`Beside`] writes its rows.
const ROWS: &str = "HELENUS_TEST_ROWS";

/// Runs the steps (the named ones, if any) to the end, despite failures; `true` when all pass.
pub fn run(root: &Path, steps: &'static [Step], names: &[&str]) -> Result<bool> {
    for name in names {
        let script = name.strip_prefix("drivers/").is_some();
        if !script && !steps.iter().any(|s| s.name == *name) {
            bail!("no step \"{name}\"; see cargo xtask steps");
        }
    }
    let started = Instant::now();
    let mut table: Vec<Row> = Vec::new();
    let mut beside: Vec<Beside> = Vec::new();
    // The present path: a step may rebuild it.
    let program = std::env::current_exe()?;
    for step in steps {
        if names.is_empty() {
            if step.beside.is_some() {
                continue;
            }
            for ended in beside.extract_if(.., |other| other.before.contains(&step.name)) {
                ended.wait(&mut table)?;
            }
            beside.extend(Beside::start(root, &program, steps, step.name)?);
        }
        let scripts_of: Vec<&str> =
            names.iter().filter_map(|n| n.strip_prefix(step.name)?.strip_prefix('/')).collect();
        if !names.is_empty() && !names.contains(&step.name) && scripts_of.is_empty() {
            continue;
        }
        match &step.action {
            Action::Run(words) => {
                timed(&mut table, step.name, || command(root, words));
            }
            Action::RunWithBinary(words) => {
                let binary = root.join("target/debug/helenus").display().to_string();
                let environment = BINARY_VARIABLES.map(|name| (name, binary.as_str()));
                timed(&mut table, step.name, || command_with(root, words, &environment));
            }
            Action::RunWithServer(words) => {
                timed(&mut table, step.name, || with_server(root, step.name, words));
            }
            Action::Tidy => timed(&mut table, step.name, || tidy::run(root)),
            Action::Prepare(directories) => {
                timed(&mut table, step.name, || prepare(root, directories));
            }
            Action::Scripts(directory) => {
                for script in scripts(root, directory)? {
                    if scripts_of.is_empty() || scripts_of.contains(&script.as_str()) {
                        let path = format!("{directory}/{script}/run.sh");
                        let name = format!("{}/{script}", step.name);
                        timed(&mut table, &name, || with_server(root, &name, &["bash", &path]));
                    }
                }
            }
        }
    }
    for steps in beside {
        steps.wait(&mut table)?;
    }
    if let Some(path) = std::env::var_os(ROWS) {
        let rows: String = table.iter().map(Row::line).collect();
        return crate::disk::write(Path::new(&path), &rows)
            .map(|()| table.iter().all(|r| r.passed));
    }
    Ok(print_summary(&table, started))
}

/// Prints how the steps went; `true` when all passed, and there were any.
fn print_summary(table: &[Row], started: Instant) -> bool {
    println!();
    for Row { name, passed, minutes, processor } in table {
        let passed = if *passed { "passed" } else { "FAILED" };
        println!("{name:24} {passed} {minutes:6.1} min, {processor:6.1} of a processor");
    }
    let passed = table.iter().filter(|row| row.passed).count();
    let failed = table.len() - passed;
    let minutes = started.elapsed().as_secs_f64() / 60.0;
    let processor: f64 = table.iter().map(|row| row.processor).sum();
    println!("{:24}        {minutes:6.1} min, {processor:6.1} of a processor", "together");
    println!("{passed} passed, {failed} failed");
    failed == 0 && passed > 0
}

/// `soak`: simulator seeds in bulk, in the build that tests use: its assertions are on, and a panic
/// ends a run, not the soak. The options are the simulator's own.
pub fn soak(root: &Path, options: &[&str]) -> Result<bool> {
    if !command(root, &["cargo", "build", "--quiet", "--package", "sim"])? {
        return Ok(false);
    }
    let mut words = vec!["target/debug/sim", "soak"];
    words.extend(options);
    command(root, &words)
}

/// How a step went.
struct Row {
    name: String,
    passed: bool,
    /// By the clock, and of the processors: a step that waits leaves room for another.
    minutes: f64,
    processor: f64,
}

impl Row {
    /// Formats a line for [`ROWS`].
    fn line(&self) -> String {
        format!("{} {} {} {}\n", self.name, self.passed, self.minutes, self.processor)
    }

    /// Parses the output of [`line`](Self::line).
    fn parse(line: &str) -> Option<Row> {
        let mut words = line.split_whitespace();
        let row = Row {
            name: words.next()?.to_owned(),
            passed: words.next()?.parse().ok()?,
            minutes: words.next()?.parse().ok()?,
            processor: words.next()?.parse().ok()?,
        };
        words.next().is_none().then_some(row)
    }
}

/// Minutes of a processor that the processes had that this one started and that have ended: fields 16
/// and 17 of `proc(5)`'s `stat`, in hundredths of a second; 0 where there is no such file.
fn processor_minutes() -> f64 {
    let stat = crate::disk::read_to_string("/proc/self/stat").unwrap_or_default();
    // The second field is a name in brackets, which may have spaces.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace();
    let ticks: f64 = fields.skip(13).take(2).filter_map(|field| field.parse::<f64>().ok()).sum();
    ticks / 6000.0
}

fn timed(table: &mut Vec<Row>, name: &str, step: impl FnOnce() -> Result<bool>) {
    println!("== {name}");
    let started = Instant::now();
    let used = processor_minutes();
    let passed = step().unwrap_or_else(|error| {
        println!("{error:#}");
        false
    });
    let minutes = started.elapsed().as_secs_f64() / 60.0;
    let processor = processor_minutes() - used;
    let outcome = if passed { "passed" } else { "FAILED" };
    println!("== {name}: {outcome} in {minutes:.1} min");
    table.push(Row { name: name.to_owned(), passed, minutes, processor });
}

fn command(root: &Path, words: &[&str]) -> Result<bool> {
    command_with(root, words, &[])
}

fn command_with(root: &Path, words: &[&str], environment: &[(&str, &str)]) -> Result<bool> {
    let Some((program, arguments)) = words.split_first() else { bail!("empty command") };
    let program = if *program == "cargo" { env!("CARGO") } else { program };
    let mut command = Command::new(program);
    command.args(arguments).envs(environment.iter().copied()).current_dir(root);
    // Where everything is built once, what the next build would gain costs a tenth of this one.
    if std::env::var_os("CI").is_some() && std::env::var_os("CARGO_INCREMENTAL").is_none() {
        command.env("CARGO_INCREMENTAL", "0");
    }
    Ok(command.status()?.success())
}

/// Makes a `run.sh` fetch and build its dependencies, and run nothing.
const PREPARE_ONLY: &str = "PREPARE_ONLY";

/// Makes scripts fetch and build their dependencies, one after the other; continues when one fails.
fn prepare(root: &Path, directories: &[&str]) -> Result<bool> {
    let mut passed = true;
    for directory in directories {
        let mut found: Vec<String> =
            scripts(root, directory)?.iter().map(|name| format!("{directory}/{name}")).collect();
        if root.join(directory).join("run.sh").is_file() {
            found.push((*directory).to_owned());
        }
        for script in found {
            let path = format!("{script}/run.sh");
            if !command_with(root, &["bash", &path], &[(PREPARE_ONLY, "1")])? {
                println!("{path} could not get what it needs");
                passed = false;
            }
        }
    }
    Ok(passed)
}

/// Names of the directories that have a `run.sh`, sorted.
fn scripts(root: &Path, directory: &str) -> Result<Vec<String>> {
    let mut names = Vec::new();
    if let Ok(entries) = crate::disk::read_dir(root.join(directory)) {
        for entry in entries {
            let entry = entry?;
            if entry.path().join("run.sh").is_file() {
                names.push(entry.file_name().to_string_lossy().into_owned());
            }
        }
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_steps_are_unique_and_check_is_a_part_of_test() {
        let names: Vec<&str> = TEST.iter().map(|s| s.name).collect();
        let mut unique = names.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), names.len());
        assert!(CHECK.iter().all(|s| names.contains(&s.name)));
    }

    #[test]
    fn steps_run_beside_steps_that_come_with_them() {
        for step in TEST {
            let Some(other) = step.beside else { continue };
            let of_other = TEST.iter().find(|s| s.name == other);
            assert!(of_other.is_some_and(|s| s.beside.is_none()), "{}", step.name);
            let Some(later) = step.before else { continue };
            let place = |name| TEST.iter().position(|s| s.name == name && s.beside.is_none());
            assert!(place(other) < place(later), "{}", step.name);
        }
        assert!(TEST.iter().all(|s| s.beside.is_some() || s.before.is_none()));
        assert!(CHECK.iter().all(|s| s.beside.is_none()));
    }

    #[test]
    fn rows_come_back_from_their_lines() {
        let row = Row { name: "drivers/go".into(), passed: true, minutes: 1.5, processor: 0.25 };
        let back = Row::parse(row.line().trim_end()).expect("a row");
        assert_eq!(back.line(), row.line());
        assert!(Row::parse("drivers/go true 1.5").is_none());
        assert!(Row::parse("drivers/go perhaps 1.5 0.25").is_none());
    }

    #[test]
    fn an_unknown_step_is_an_error() {
        assert!(run(Path::new("."), TEST, &["nonsense"]).is_err());
    }
}
