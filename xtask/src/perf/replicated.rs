//! `perf replicated`: what one replicated request costs each of three nodes (RF 3): instructions in
//! user space and in the kernel, system calls, allocations. One node coordinates all of them and is
//! a replica too; the other two are replicas only.
//!
//! Counted by `perf stat` on the processes while `helenus bench` runs: unlike time, the counts
//! hardly depend on what else the machine does, but on how requests are batched, so on
//! `--in-flight`. Allocations are counted in a run of their own, by probes on the allocator, where
//! the kernel lets this user set them.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::cassandra::Sync;
use super::instructions::ALLOCATORS;
use super::nodes::Nodes;
use super::process::{self, Target};

const WORKLOADS: [(&str, &str); 3] =
    [("QUORUM write", "insert"), ("QUORUM read", "read"), ("INSERT IF NOT EXISTS", "insert-new")];
const COUNTED: [&str; 3] = ["instructions:u", "instructions:k", "raw_syscalls:sys_enter"];
/// Divisor of the number of conditional inserts.
const CONDITIONAL_SHARE: u64 = 10;
/// Group that `perf probe` gives to probes of this binary.
const PROBES: &str = "probe_helenus";

/// Counts and shows; writes `replicated.json` below `target/perf`.
pub fn run(root: &Path, words: &[&str]) -> Result<bool> {
    let (mut operations, mut in_flight, mut memory) = (50_000_u64, "64", "512M");
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let value = words.next().with_context(|| format!("{word} needs a value"))?;
        match *word {
            "--operations" => operations = value.parse()?,
            "--in-flight" => in_flight = value,
            "--memory" => memory = value,
            _ => bail!("unknown option {word}; see cargo xtask help"),
        }
    }
    process::build_helenus(root)?;
    let home = root.join("target/perf");
    crate::disk::create_dir_all(&home)?;
    let binary = process::helenus_binary(root);
    let nodes = Nodes::helenus(root, &home, memory, Sync::Periodic)?;
    let addresses = nodes.addresses();
    let (host, port) =
        addresses.first().and_then(|a| a.split_once(':')).context("no address of a node")?;
    // Each conditional insert is synced, which is far slower than its instructions.
    let share = |verb: &str| if verb == "insert-new" { CONDITIONAL_SHARE } else { 1 };
    let bench = |verb: &str, operations: u64| -> Result<()> {
        let operations = operations / share(verb);
        let output = Command::new(&binary)
            .args(["bench", verb, "--host", host, "--port", port, "--keyspace", "perf3"])
            .args(["--replication-factor", "3", "--consistency", "quorum", "--connections", "2"])
            .args(["--in-flight", in_flight, "--keys", "20000"])
            .args(["--operations", &operations.to_string()])
            .output()?;
        if !output.status.success() {
            bail!("helenus bench {verb}: {}", String::from_utf8_lossy(&output.stdout));
        }
        Ok(())
    };
    // Afterwards every key exists, every connection is open, every cache is warm.
    bench("insert", 20_000.max(operations / 2))?;
    bench("read", operations / 2)?;
    bench("insert-new", operations / 2)?;
    let mut found = Vec::new();
    let mut counts: BTreeMap<(usize, usize, String), f64> = BTreeMap::new();
    let mut count = |events: &[String], operations: u64| -> Result<()> {
        for (workload, (_, verb)) in WORKLOADS.iter().enumerate() {
            let counting: Vec<Child> =
                nodes.pids().iter().map(|pid| begin(*pid, events)).collect::<Result<_>>()?;
            // Until perf has attached itself.
            std::thread::sleep(std::time::Duration::from_millis(300));
            bench(verb, operations)?;
            for (node, child) in counting.into_iter().enumerate() {
                for (event, n) in end(child)? {
                    let name = if event.starts_with(PROBES) { "allocations" } else { &event };
                    let key = (workload, node, name.to_owned());
                    *counts.entry(key).or_default() += n / (operations / share(verb)) as f64;
                }
            }
        }
        Ok(())
    };
    count(&COUNTED.map(str::to_owned), operations)?;
    if let Some(probes) = Probes::set(&binary) {
        count(&probes.0, operations / 5)?;
    }
    for (workload, (name, _)) in WORKLOADS.iter().enumerate() {
        for node in 0..addresses.len() {
            let of = |event: &str| counts.get(&(workload, node, event.to_owned())).copied();
            let [user, kernel, calls] = COUNTED.map(of);
            let allocations = of("allocations");
            let shown =
                |n: Option<f64>, digits| n.map_or("-".to_owned(), |n| format!("{n:.digits$}"));
            let role = if node == 0 { "coordinator and replica" } else { "replica" };
            println!(
                "{name:21} {role:23} {:>8} instructions, {:>8} in the kernel, {:>6} system calls, \
                 {:>6} allocations",
                shown(user, 0),
                shown(kernel, 0),
                shown(calls, 2),
                shown(allocations, 1),
            );
            found.push(json!({
                "request": name, "node": node + 1, "role": role, "instructions": user,
                "kernel_instructions": kernel, "system_calls": calls, "allocations": allocations,
            }));
        }
    }
    nodes.stop()?;
    let all = json!({ "operations": operations, "in_flight": in_flight, "costs": found });
    crate::disk::write(home.join("replicated.json"), serde_json::to_string_pretty::<Value>(&all)?)?;
    Ok(true)
}

fn begin(pid: u32, events: &[String]) -> Result<Child> {
    Command::new("perf")
        .args(["stat", "-x", ";", "-e", &events.join(","), "-p", &pid.to_string()])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot run perf; install linux-perf")
}

/// Returns the counts by event, without those that this machine or user cannot count.
fn end(child: Child) -> Result<Vec<(String, f64)>> {
    let status = Command::new("kill").args(["-INT", &child.id().to_string()]).status()?;
    let output = child.wait_with_output()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    if !status.success() {
        bail!("perf stat ended by itself: {text}");
    }
    let counts: Vec<_> = text.lines().filter_map(counted).collect();
    if counts.is_empty() {
        bail!("perf stat counted nothing: {text}");
    }
    Ok(counts)
}

/// A line `count;unit;event;…` of `perf stat -x ;`.
fn counted(line: &str) -> Option<(String, f64)> {
    let mut fields = line.split(';');
    let count = fields.next()?.trim().parse().ok()?;
    Some((fields.nth(1)?.to_owned(), count))
}

/// Probes on the allocator of a binary, removed when this is dropped.
struct Probes(Vec<String>);

impl Probes {
    fn set(binary: &Path) -> Option<Probes> {
        Probes::remove();
        let mut names = Vec::new();
        for function in ALLOCATORS {
            let name = format!("perf{function}");
            let status = Command::new("perf")
                .args(["probe", "-q", "-x"])
                .arg(binary)
                .args(["--add", &format!("{name}={function}")])
                .stderr(Stdio::null())
                .status();
            if status.is_ok_and(|s| s.success()) {
                names.push(format!("{PROBES}:{name}"));
            }
        }
        (!names.is_empty()).then_some(Probes(names))
    }

    fn remove() {
        // None may be there.
        let _ = Command::new("perf")
            .args(["probe", "-q", "--del", &format!("{PROBES}:perf_rjem*")])
            .stderr(Stdio::null())
            .status();
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        Probes::remove();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_and_what_was_not_counted_is_left_out() {
        let line = "123456;;instructions:u;700;100.00;;";
        assert_eq!(counted(line), Some(("instructions:u".to_owned(), 123_456.0)));
        assert_eq!(counted("<not supported>;;instructions:k;0;100.00;;"), None);
        assert_eq!(counted(""), None);
    }
}
