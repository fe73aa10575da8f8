//! `perf streaming`: speed of a copy of a table from one node to another one, as whole files and as
//! rows, and its cost on each side; for comparison the same files over a plain socket.
//!
//! The second node joins without data; `nodetool rebuild` makes it fetch its data, which is
//! everything. Nothing limits the rate. CPU is user and system time of the processes; for the plain
//! copy that of its two threads.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail};
use serde_json::json;

use super::pair::{Pair, Rows, bytes_of, is_data};
use super::process;
use super::report::{Report, Verdict};

const MB: f64 = 1e6;
/// Wanted of whole files, MB per second.
const WHOLE_MB_PER_S: f64 = 200.0;
/// CPU of each side, as a multiple of that of the plain copy.
const COPY_SHARE: f64 = 2.0;
/// Wanted of rows, MB of uncompressed rows per second of CPU of the costlier side.
const ROWS_MB_PER_CPU_S: f64 = 60.0;
/// Buffer of the plain copy; as large as the nodes' own chunks.
const BUFFER_BYTES: usize = 1 << 20;
/// Values of rows that go as rows, as of standard1; whole files do not care.
const VALUE_BYTES: u64 = 32;
const VALUE_BYTES_WHOLE: u64 = 200;

/// Cost of one transfer.
#[derive(Clone, Copy, Debug)]
struct Took {
    mb: f64,
    seconds: f64,
    /// CPU seconds of the sender and the receiver.
    source: f64,
    target: f64,
}

impl Took {
    fn row(&self, what: &str) -> Vec<String> {
        let per_gb = |cpu: f64| format!("{:.2}", cpu / self.mb * 1000.0);
        vec![
            what.to_owned(),
            format!("{:.0}", self.mb),
            format!("{:.0}", self.mb / self.seconds),
            per_gb(self.source),
            per_gb(self.target),
            format!("{:.0}", self.mb / self.source.max(self.target)),
        ]
    }

    fn kept(&self) -> serde_json::Value {
        json!({
            "mb": self.mb, "seconds": self.seconds,
            "source_cpu_s": self.source, "target_cpu_s": self.target,
        })
    }
}

/// Measures; writes `streaming.md` and `streaming.json` below `target/perf`. True also when a goal
/// was missed.
pub fn run(root: &Path, words: &[&str]) -> Result<bool> {
    let (mut mb, mut rows_mb, mut memory) = (1000_u64, 250_u64, "1G");
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let value = words.next().with_context(|| format!("{word} needs a value"))?;
        match *word {
            "--mb" => mb = value.parse()?,
            "--rows-mb" => rows_mb = value.parse()?,
            "--memory" => memory = value,
            _ => bail!("unknown option {word}; see cargo xtask help"),
        }
    }
    process::build_helenus(root)?;
    let home = root.join("target/perf");
    crate::disk::create_dir_all(&home)?;
    let mut report = Report::named("streaming");
    report.keep("machine", super::machine());
    let options = ["--memory", memory, "--stream-throughput-outbound", "0B/s"];

    let pair = filled(root, &home, &options, Rows::of_mb(mb, VALUE_BYTES_WHOLE))?;
    let files = pair.files(1)?;
    let (in_memory, in_files) = (copy(&files, None)?, copy(&files, Some(&home))?);
    let whole = rebuilt(pair, true)?;

    let by_rows = [&options[..], &["--stream-entire-sstables", "false"]].concat();
    let rows = rebuilt(filled(root, &home, &by_rows, Rows::of_mb(rows_mb, VALUE_BYTES))?, false)?;

    let table = [
        in_memory.row("plain socket, out of and into memory"),
        in_files.row("plain socket, file to file"),
        whole.row("whole files"),
        rows.row("rows"),
    ];
    let header =
        ["what", "MB", "MB/s", "CPU-s per GB, source", "target", "MB per CPU-s of the costlier"];
    report.table("Streaming between two nodes of one shard", &header, &table);
    let speed = whole.mb / whole.seconds;
    let per_mb = |took: &Took, side: fn(&Took) -> f64| side(took) / took.mb;
    // The issue names a copy over a socket. A stream reads and writes files, so the fair comparison
    // is the copy from file to file; the socket alone is reported too.
    for (kind, copy) in [("file to file", &in_files), ("the socket alone", &in_memory)] {
        for (side, cpu) in
            [("source", (|t| t.source) as fn(&Took) -> f64), ("target", |t| t.target)]
        {
            let goal = per_mb(copy, cpu) * COPY_SHARE * 1000.0;
            let what = format!("whole files, CPU of the {side} against {kind}");
            let spent = per_mb(&whole, cpu) * 1000.0;
            report.judge(Verdict::at_most(what, spent, goal, "CPU-s per GB"));
        }
    }
    report.judge(Verdict::at_least("whole files", speed, WHOLE_MB_PER_S, "MB/s"));
    let by_cpu = rows.mb / rows.source.max(rows.target);
    report.judge(Verdict::at_least("rows", by_cpu, ROWS_MB_PER_CPU_S, "MB per CPU-s"));
    let all = json!({
        "socket": in_memory.kept(), "files": in_files.kept(),
        "whole": whole.kept(), "rows": rows.kept(),
    });
    report.keep("streaming", all);
    report.write(&home)?;
    println!("{}", report.verdict_lines());
    Ok(true)
}

/// One node with rows in one file.
fn filled(root: &Path, home: &Path, options: &[&str], rows: Rows) -> Result<Pair> {
    let pair = Pair::found(root, home, options)?;
    println!("writing {} rows", rows.count);
    pair.write(rows, "one")?;
    pair.settle(1)?;
    Ok(pair)
}

/// The second node joins and fetches everything.
fn rebuilt(mut pair: Pair, as_files: bool) -> Result<Took> {
    let files = pair.files(1)?;
    let data = bytes_of(files.iter().filter(|f| is_data(f)))?;
    let bytes = if as_files { bytes_of(&files)? } else { data };
    pair.join()?;
    let cpu = |pair: &Pair| Ok::<_, anyhow::Error>((pair.cpu_seconds(1)?, pair.cpu_seconds(2)?));
    let (source, target) = cpu(&pair)?;
    let timed = |keyspace| {
        let begun = Instant::now();
        pair.nodetool(2, &["rebuild", "-ks", keyspace])?;
        Ok::<_, anyhow::Error>(begun.elapsed().as_secs_f64())
    };
    // A rebuild first waits for the longest duration of a write, even if there is nothing to fetch.
    // The first one waits for gossip too.
    timed("system_traces")?;
    let pause = timed("system_traces")?;
    let seconds = timed("perf2")? - pause;
    println!("{seconds:.2} s beside the {pause:.2} s that a rebuild of next to nothing takes");
    let (source_after, target_after) = cpu(&pair)?;
    let received = pair.metrics(2)?;
    let metric = |name: &str| {
        received.iter().filter(|(n, _)| n.ends_with(name)).map(|(_, value)| value).sum::<f64>()
    };
    let (came, whole) =
        (metric("stream_received_bytes_total"), metric("stream_received_files_total"));
    println!("{:.0} MB came, {whole} files of them whole", came / MB);
    if (whole > 0.0) != as_files || came < data as f64 * 0.9 {
        bail!("the second node did not fetch {data} bytes in the way that was wanted");
    }
    let copied = bytes_of(pair.files(2)?.iter().filter(|f| is_data(f)))?;
    if (copied as f64) < data as f64 * 0.9 {
        bail!("{copied} bytes of {data} are there");
    }
    pair.stop()?;
    let (source, target) = (source_after - source, target_after - target);
    Ok(Took { mb: bytes as f64 / MB, seconds, source, target })
}

/// Sends files over a loopback socket, in threads of their own; into files below a directory, or out
/// of memory and to nowhere.
fn copy(files: &[PathBuf], into: Option<&Path>) -> Result<Took> {
    let bytes = bytes_of(files)?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let to = listener.local_addr()?;
    let out = into.map(|home| home.join("pair-copy"));
    let (files, is_stored) = (files.to_vec(), out.is_some());
    let begun = Instant::now();
    let giving = thread::spawn(move || -> Result<f64> {
        let mut stream = TcpStream::connect(to)?;
        let mut buffer = vec![7_u8; BUFFER_BYTES];
        let before = own_cpu()?;
        if is_stored {
            for path in &files {
                let mut file = crate::disk::open(path)?;
                loop {
                    let n = file.read(&mut buffer)?;
                    if n == 0 {
                        break;
                    }
                    stream.write_all(buffer.get(..n).unwrap_or_default())?;
                }
            }
        } else {
            let mut left = bytes;
            while left > 0 {
                let n = buffer.len().min(usize::try_from(left)?);
                stream.write_all(buffer.get(..n).unwrap_or_default())?;
                left -= n as u64;
            }
        }
        Ok(own_cpu()? - before)
    });
    let path = out.clone();
    let taking = thread::spawn(move || -> Result<f64> {
        let (mut stream, _) = listener.accept()?;
        let mut buffer = vec![7_u8; BUFFER_BYTES];
        let mut file = path.map(crate::disk::create).transpose()?;
        let before = own_cpu()?;
        loop {
            let n = stream.read(&mut buffer)?;
            if n == 0 {
                break;
            }
            if let Some(file) = &mut file {
                file.write_all(buffer.get(..n).unwrap_or_default())?;
            }
        }
        Ok(own_cpu()? - before)
    });
    let ended = |side: thread::JoinHandle<Result<f64>>| {
        side.join().map_err(|_| anyhow!("a side of the copy failed"))?
    };
    let (source, target) = (ended(giving)?, ended(taking)?);
    let seconds = begun.elapsed().as_secs_f64();
    if let Some(path) = out {
        crate::disk::remove_file(path)?;
    }
    Ok(Took { mb: bytes as f64 / MB, seconds, source, target })
}

/// Seconds that this thread has run, in user space and in the kernel.
fn own_cpu() -> Result<f64> {
    let text = crate::disk::read_to_string("/proc/thread-self/schedstat")?;
    let nanos = text.split_whitespace().next().and_then(|n| n.parse::<f64>().ok());
    Ok(nanos.context("/proc/thread-self/schedstat")? / 1e9)
}
