//! `conformance --target HOST:PORT [--record] FILES...`: runs `.cqltest` files against a server.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use conformance::differences::{self, Reasons};
use conformance::run::Mode;
use conformance::suite::{self, Suite};
use conformance::wire;

const USAGE: &str = "\
usage: conformance [--target HOST:PORT] [--record | --record-ours] [--prefix NAME] FILES...
       conformance --coverage FOLDER
       conformance --compat FOLDER

Runs .cqltest files against a server and compares every answer with the file.
  --target HOST:PORT  the server; default HELENUS_HOST and HELENUS_PORT, else 127.0.0.1:9042
  --record            write the answers of the server (a real Cassandra) into the files
  --record-ours       write the answers of the server (ours) where a difference is named
  --prefix NAME       keyspaces are named NAME_<file>; default ct
  --coverage FOLDER   print which forms of statements and errors the cases in FOLDER, `conformance`
                      in the source tree, have
  --compat FOLDER     rebuild the tables of differences in docs/compat/cql.md, beside FOLDER
FILES may be folders: all .cqltest files in them, by name.
exit status: 0 all answers agree, 1 some differ, 2 could not run";

struct Options {
    target: String,
    mode: Mode,
    prefix: String,
    files: Vec<PathBuf>,
}

fn main() -> ExitCode {
    match options().and_then(run_all) {
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
        files: Vec::new(),
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--target" => options.target = arguments.next().context("--target needs HOST:PORT")?,
            "--prefix" => options.prefix = arguments.next().context("--prefix needs a name")?,
            "--record" => options.mode = Mode::Record,
            "--record-ours" => options.mode = Mode::RecordOurs,
            "--compat" => {
                compat(Path::new(&arguments.next().context("--compat needs a folder")?))?;
                std::process::exit(0);
            }
            "--coverage" => {
                let folder = arguments.next().context("--coverage needs a folder")?;
                let (productions, files) = conformance::coverage::read(Path::new(&folder))?;
                let texts = conformance::coverage::read_texts(Path::new(&folder))?;
                print!("{}", conformance::coverage::page(&productions, &files, &texts)?);
                std::process::exit(0);
            }
            "--help" | "-h" => {
                println!("{USAGE}");
                std::process::exit(0);
            }
            other if other.starts_with('-') => bail!("unknown option {other}\n{USAGE}"),
            path => options.files.extend(suite::expand(Path::new(path))?),
        }
    }
    if options.files.is_empty() {
        bail!("no files\n{USAGE}");
    }
    Ok(options)
}

/// Rebuilds the generated part of `docs/compat/cql.md`.
fn compat(folder: &Path) -> Result<()> {
    let list = folder.join(differences::FILE);
    let list = std::fs::read_to_string(&list).with_context(|| list.display().to_string())?;
    let (_, files) = conformance::coverage::read(folder)?;
    let part = conformance::compat::part(&Reasons::parse(&list)?, &files)?;
    let path = folder.join(conformance::compat::DOCUMENT);
    let document = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    Ok(std::fs::write(&path, conformance::compat::insert(&document, &part)?)?)
}

fn run_all(options: Options) -> Result<bool> {
    let Options { target, mode, prefix, files } = options;
    let suite = Suite { files, prefix, mode };
    let verdict = suite::run_all(&suite, &|version, user| wire::connect(&target, version, user));
    verdict.messages.iter().for_each(|line| println!("{line}"));
    // Other errors count as failed statements, so that the last line has everything.
    let passed = verdict.checked - verdict.failed - verdict.known;
    let (failed, known) = (verdict.failed + verdict.broken, verdict.known);
    println!(
        "{} files, {passed} passed, {failed} failed, known differences {known}",
        verdict.files
    );
    println!("{passed} passed, {failed} failed");
    Ok(verdict.is_good())
}
