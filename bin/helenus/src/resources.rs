//! Resources of this machine: cores, memory (of the cgroup, where it is smaller), open files.

use std::fs;

/// Default of a node's memory: the machine's memory divided by this.
const MEMORY_SHARE: u64 = 4;
/// Upper limit of the default of a node's memory.
const MEMORY_DEFAULT_MAX: u64 = 8 << 30;
/// Smallest memory that the setting accepts.
const MEMORY_MIN: u64 = 64 << 20;

/// Cores this process may use: affinity mask and cgroup quota respected, at least 1, at most 256.
pub fn cores() -> u16 {
    let n = std::thread::available_parallelism().map_or(1, usize::from);
    u16::try_from(n).unwrap_or(u16::MAX).clamp(1, 256)
}

/// Default of a node's memory: a quarter of the RAM or of the cgroup's limit, at most 8 GiB.
pub fn memory_default() -> u64 {
    let ram = fs::read_to_string("/proc/meminfo").ok().and_then(|t| total_ram(&t));
    let limit = cgroup_memory_limit();
    let available = match (ram, limit) {
        (Some(ram), Some(limit)) => ram.min(limit),
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) => 4 << 30,
    };
    share_of(available)
}

fn share_of(available: u64) -> u64 {
    (available / MEMORY_SHARE).clamp(MEMORY_MIN, MEMORY_DEFAULT_MAX)
}

fn total_ram(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|l| l.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The smallest limit of this process's cgroup and those above it, version 2 or 1.
fn cgroup_memory_limit() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let mut limits = Vec::new();
    for (path, file) in cgroup_files(&groups) {
        let mut directory = path.as_str();
        loop {
            let text = fs::read_to_string(format!("{directory}/{file}")).unwrap_or_default();
            limits.extend(cgroup_limit(&text));
            match directory.rsplit_once('/') {
                Some((above, _)) if above.starts_with("/sys/fs/cgroup") => directory = above,
                _ => break,
            }
        }
    }
    limits.into_iter().min()
}

/// Directories and names of the files that hold the limit.
fn cgroup_files(groups: &str) -> Vec<(String, &'static str)> {
    let mut files = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(number), Some(controllers), Some(path)) =
            (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let path = path.trim_end_matches('/');
        if number == "0" && controllers.is_empty() {
            files.push((format!("/sys/fs/cgroup{path}"), "memory.max"));
        } else if controllers.split(',').any(|c| c == "memory") {
            files.push((format!("/sys/fs/cgroup/memory{path}"), "memory.limit_in_bytes"));
        }
    }
    files
}

/// Parses a limit; `None` for "max" and for its form in version 1 (a number near 2^63).
fn cgroup_limit(text: &str) -> Option<u64> {
    text.trim().parse().ok().filter(|n| *n < 1 << 62)
}

/// Raises the limit of open files to the maximum without privileges; returns it. Files, SSTables
/// and connections of a node need more than the 1,024 of a shell.
pub fn raise_open_files() -> Option<u64> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    }
}

/// CPU time that a process has used so far, and its resident memory; `None` when it is gone.
pub fn usage_of(pid: u32) -> Option<Usage> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    Some(Usage { cpu_ticks: cpu_ticks(&stat)?, resident_bytes: resident(&status)? })
}

/// Clock ticks per second in `/proc/<pid>/stat`: a constant of Linux's interface.
pub const TICKS_PER_SECOND: u64 = 100;

/// See [`usage_of`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// User and system time, [`TICKS_PER_SECOND`].
    pub cpu_ticks: u64,
    /// Resident memory.
    pub resident_bytes: u64,
}

fn cpu_ticks(stat: &str) -> Option<u64> {
    // The name in parentheses may hold spaces; fields are counted after it.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    user.checked_add(system)
}

fn resident(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ram_is_read_from_meminfo() {
        let text = "MemTotal:       16384256 kB\nMemFree:         1000 kB\n";
        assert_eq!(total_ram(text), Some(16_384_256 * 1024));
        assert_eq!(total_ram("MemFree: 1 kB\n"), None);
    }

    #[test]
    fn a_quarter_is_taken_between_the_bounds() {
        assert_eq!(share_of(4 << 30), 1 << 30);
        assert_eq!(share_of(1 << 40), 8 << 30);
        assert_eq!(share_of(100 << 20), 64 << 20);
    }

    #[test]
    fn cgroups_of_both_versions_are_found() {
        assert_eq!(
            cgroup_files("0::/user.slice/a.scope\n"),
            [("/sys/fs/cgroup/user.slice/a.scope".to_owned(), "memory.max")]
        );
        assert_eq!(
            cgroup_files("5:cpu,memory:/docker/x\n4:pids:/docker/x\n"),
            [("/sys/fs/cgroup/memory/docker/x".to_owned(), "memory.limit_in_bytes")]
        );
        assert_eq!(cgroup_limit("max\n"), None);
        assert_eq!(cgroup_limit("9223372036854771712\n"), None);
        assert_eq!(cgroup_limit("268435456\n"), Some(256 << 20));
    }

    #[test]
    fn cpu_time_is_read_behind_a_name_with_spaces() {
        let stat = "42 (a (b) c) S 1 2 3 4 5 6 7 8 9 10 70 30 0 0 20 0 1 0 5";
        assert_eq!(cpu_ticks(stat), Some(100));
        assert_eq!(resident("Name: x\nVmRSS:\t  1024 kB\n"), Some(1 << 20));
    }
}
