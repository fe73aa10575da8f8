//! `conformance --target HOST:PORT [--record] FILES...`: runs `.cqltest` files against a server.

use std::net::{TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use conformance::client::{Client, ServerError};
use conformance::file;
use conformance::known::KnownDifferences;
use conformance::run::{Difference, Mode, Report, run};

const USAGE: &str = "\
usage: conformance [--target HOST:PORT] [--record] [--prefix NAME] [--known FILE] [--verbose]
                   FILES...
       conformance --coverage FOLDER

Runs .cqltest files against a server and compares every answer with the file.
  --target HOST:PORT  the server; default HELENUS_HOST and HELENUS_PORT, else 127.0.0.1:9042
  --record            write the answers of the server (a real Cassandra) into the files
  --prefix NAME       keyspaces are named NAME_<file>; default ct
  --known FILE        list of known differences (FILE:LINE reason), which are no failures; default
                      known-differences.txt beside the folder of the files; none with \"\"
  --verbose           name every file, not only those that differ
  --coverage FOLDER   print which forms of statements and errors the cases in FOLDER, `conformance`
                      in the source tree, have
FILES may be folders: all .cqltest files in them, by name.
exit status: 0 all answers agree, 1 some differ, 2 could not run";

/// Longest wait for one answer.
const ANSWER_SECONDS_MAX: u64 = 60;
/// Differences that are printed per file.
const DIFFERENCES_SHOWN: usize = 25;
/// Name of the list of known differences.
const KNOWN: &str = "known-differences.txt";

struct Options {
    target: String,
    mode: Mode,
    prefix: String,
    known: Option<PathBuf>,
    verbose: bool,
    files: Vec<PathBuf>,
}

fn main() -> ExitCode {
    match options().and_then(|options| run_all(&options)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn options() -> Result<Options> {
    let host = std::env::var("HELENUS_HOST").unwrap_or_else(|_| "127.0.0.1".to_owned());
    let port = std::env::var("HELENUS_PORT").unwrap_or_else(|_| "9042".to_owned());
    let mut options = Options {
        target: format!("{host}:{port}"),
        mode: Mode::Check,
        prefix: "ct".to_owned(),
        known: None,
        verbose: false,
        files: Vec::new(),
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--target" => options.target = arguments.next().context("--target needs HOST:PORT")?,
            "--prefix" => options.prefix = arguments.next().context("--prefix needs a name")?,
            "--known" => {
                options.known = Some(arguments.next().context("--known needs a file")?.into());
            }
            "--record" => options.mode = Mode::Record,
            "--coverage" => {
                let folder = arguments.next().context("--coverage needs a folder")?;
                let (productions, files) = conformance::coverage::read(Path::new(&folder))?;
                print!("{}", conformance::coverage::page(&productions, &files)?);
                std::process::exit(0);
            }
            "--verbose" => options.verbose = true,
            "--help" | "-h" => {
                println!("{USAGE}");
                std::process::exit(0);
            }
            other if other.starts_with('-') => bail!("unknown option {other}\n{USAGE}"),
            path => options.files.extend(expand(Path::new(path))?),
        }
    }
    if options.files.is_empty() {
        bail!("no files\n{USAGE}");
    }
    Ok(options)
}

fn expand(path: &Path) -> Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "cqltest") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// The list of known differences: the named one, else the one beside the folder of the files.
fn known_differences(options: &Options) -> Result<KnownDifferences> {
    let path = match &options.known {
        Some(path) if path.as_os_str().is_empty() => return Ok(KnownDifferences::default()),
        Some(path) => path.clone(),
        None => {
            let folder = options.files.first().and_then(|file| file.parent()?.parent());
            match folder.map(|folder| folder.join(KNOWN)) {
                Some(path) if path.exists() => path,
                _ => return Ok(KnownDifferences::default()),
            }
        }
    };
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    KnownDifferences::parse(&text).with_context(|| path.display().to_string())
}

fn run_all(options: &Options) -> Result<bool> {
    let list = known_differences(options)?;
    let (mut checked, mut failed, mut broken) = (0_usize, 0_usize, 0_usize);
    let (mut known, mut outlived) = (0_usize, 0_usize);
    for path in &options.files {
        match run_file(path, options) {
            Ok(report) => {
                let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
                let judged = list.judge(name, report.differences);
                checked += report.checked;
                failed += judged.unknown.len();
                known += judged.known;
                if options.verbose || !judged.unknown.is_empty() {
                    println!(
                        "{}: {} of {} statements differ",
                        path.display(),
                        judged.unknown.len(),
                        report.checked
                    );
                }
                print_differences(path, &judged.unknown);
                if options.mode == Mode::Check {
                    outlived += judged.outlived.len();
                    judged.outlived.iter().for_each(|message| println!("{message}"));
                }
            }
            Err(error) => {
                broken += 1;
                println!("{}: {error:#}", path.display());
            }
        }
    }
    if broken > 0 {
        println!("{broken} files could not be run to their end");
    }
    if outlived > 0 {
        println!("{outlived} known differences no longer differ");
    }
    // What is wrong beside statements counts as failed, so that the last line says all.
    let passed = checked - failed - known;
    let failed = failed + broken + outlived;
    println!(
        "{} files, {passed} passed, {failed} failed, known differences {known}",
        options.files.len()
    );
    println!("{passed} passed, {failed} failed");
    Ok(failed == 0)
}

fn print_differences(path: &Path, differences: &[Difference]) {
    for difference in differences.iter().take(DIFFERENCES_SHOWN) {
        println!("  {}:{}", path.display(), difference.line);
        for line in &difference.source {
            println!("      {line}");
        }
        for line in difference.expected.iter().filter(|line| !difference.got.contains(line)) {
            println!("    - {line}");
        }
        for line in difference.got.iter().filter(|line| !difference.expected.contains(line)) {
            println!("    + {line}");
        }
    }
    if differences.len() > DIFFERENCES_SHOWN {
        println!("  and {} more", differences.len() - DIFFERENCES_SHOWN);
    }
}

fn run_file(path: &Path, options: &Options) -> Result<Report> {
    let text = std::fs::read_to_string(path)?;
    let mut parsed = file::parse(&text)?;
    let stem = path.file_stem().and_then(|stem| stem.to_str()).context("a file without a name")?;
    let keyspace = format!("{}_{}", options.prefix, stem.replace('-', "_"));
    let version = parsed.protocol.unwrap_or(5);
    let connect = |user: Option<(&str, &str)>| connect(&options.target, version, user);
    let report = run(&mut parsed, &connect, &keyspace, options.mode)?;
    if options.mode == Mode::Record {
        std::fs::write(path, file::print(&parsed))?;
    }
    Ok(report)
}

fn connect(
    target: &str,
    version: u8,
    user: Option<(&str, &str)>,
) -> Result<std::result::Result<Client, ServerError>> {
    let address = target
        .to_socket_addrs()
        .with_context(|| format!("address {target}"))?
        .next()
        .ok_or_else(|| anyhow!("no address for {target}"))?;
    let wait = Duration::from_secs(ANSWER_SECONDS_MAX);
    let stream = TcpStream::connect_timeout(&address, wait)
        .with_context(|| format!("connect to {target}"))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(wait))?;
    stream.set_write_timeout(Some(wait))?;
    Client::start_as(Box::new(stream), version, user)
}
