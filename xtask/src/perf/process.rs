//! Servers as processes: start, measure, pause, stop. All end with this program: a server that is
//! dropped is killed, and the kernel kills the rest when this program is killed.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::cql;
use super::profile::Profile;

/// Clock ticks of `/proc/PID/stat` per second (`sysconf(_SC_CLK_TCK)`, 100 on Linux).
const TICKS: f64 = 100.0;
/// Longest wait for the first CQL answer.
const START_MAX: Duration = Duration::from_secs(180);
/// CQL port of Helenus in a comparison.
const HELENUS_PORT: u16 = 19142;
/// API port, for `nodetool`.
pub const HELENUS_API_PORT: &str = "19143";
/// CQL port of the null server.
const NULL_PORT: u16 = 19242;

/// Which server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Canned answers on the same runtime.
    Null,
    /// The server under test.
    Helenus,
    /// The yardstick.
    Cassandra,
}

impl Kind {
    /// In tables.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Null => "null server",
            Kind::Helenus => "helenus",
            Kind::Cassandra => "cassandra",
        }
    }
}

/// A running server.
pub struct Server {
    child: Child,
    name: String,
    address: String,
    log: PathBuf,
    started: Instant,
    started_after: Duration,
    paused: bool,
}

/// Names a server that is built already.
const BINARY_VARIABLE: &str = "HELENUS_BINARY";

/// The server that is measured.
pub fn helenus_binary(root: &Path) -> PathBuf {
    std::env::var_os(BINARY_VARIABLE)
        .map_or_else(|| Profile::Dist.program(root, "helenus"), PathBuf::from)
}

/// Builds what is shipped, unless `HELENUS_BINARY` names another.
pub fn build_helenus(root: &Path) -> Result<()> {
    if std::env::var_os(BINARY_VARIABLE).is_some() {
        return Ok(());
    }
    let mut build = Command::new("cargo");
    build.current_dir(root).args(["build", "--bin", "helenus"]);
    Profile::Dist.select(&mut build);
    if !build.status()?.success() {
        bail!("the build of the server failed");
    }
    Ok(())
}

/// Runs `nodetool` on the single Helenus.
///
/// # Errors
/// Its output, if it failed.
pub fn nodetool(root: &Path, words: &[&str]) -> Result<()> {
    let output = Command::new(helenus_binary(root))
        .args(["nodetool", "-p", HELENUS_API_PORT])
        .args(words)
        .output()?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        bail!("nodetool {}: {error}", words.join(" "));
    }
    Ok(())
}

/// Where Helenus has its data in a comparison.
pub fn helenus_data(home: &Path) -> PathBuf {
    home.join("helenus-data")
}

/// Returns a command that the kernel kills when this program ends for any reason. Without `setpriv`
/// (util-linux) the plain command: an interrupt from the terminal still reaches it.
pub fn bound(program: &Path) -> Command {
    let has_setpriv = Command::new("setpriv")
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !has_setpriv {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}

fn local(port: u16) -> String {
    format!("127.0.0.1:{port}")
}

impl Server {
    /// Helenus on an empty directory.
    pub fn helenus(root: &Path, home: &Path, memory: &str) -> Result<Server> {
        let data = helenus_data(home);
        if data.exists() {
            crate::disk::remove_dir_all(&data)?;
        }
        Server::helenus_again(root, home, memory)
    }

    /// Starts Helenus on the existing directory.
    pub fn helenus_again(root: &Path, home: &Path, memory: &str) -> Result<Server> {
        Server::helenus_with(root, home, memory, &[])
    }

    /// The same with more options.
    pub fn helenus_with(
        root: &Path,
        home: &Path,
        memory: &str,
        options: &[&str],
    ) -> Result<Server> {
        let mut command = bound(&helenus_binary(root));
        command.arg("server").arg("--workdir").arg(helenus_data(home));
        command.args(["--memory", memory, "--native-transport-port", &HELENUS_PORT.to_string()]);
        command.args(["--native-shard-aware-transport-port", "0"]);
        command.args(["--api-port", HELENUS_API_PORT]).args(options);
        Server::spawn(command, home, "helenus", &local(HELENUS_PORT))
    }

    /// The null server.
    pub fn null(root: &Path, home: &Path) -> Result<Server> {
        let mut command = bound(&helenus_binary(root));
        command.args(["bench", "null-server", "--port", &NULL_PORT.to_string()]);
        Server::spawn(command, home, "null-server", &local(NULL_PORT))
    }

    /// Starts a command and waits until CQL answers at the address.
    pub fn spawn(command: Command, home: &Path, name: &str, address: &str) -> Result<Server> {
        let mut server = Server::begin(command, home, name, address)?;
        server.wait()?;
        Ok(server)
    }

    /// Starts a command that will serve CQL at the address.
    pub fn begin(mut command: Command, home: &Path, name: &str, address: &str) -> Result<Server> {
        let path = home.join(format!("{name}.log"));
        let log = crate::disk::create(&path)?;
        if cql::answers(address) {
            bail!("another server answers on {address}");
        }
        let started = Instant::now();
        let child = command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        Ok(Server {
            child,
            name: name.to_owned(),
            address: address.to_owned(),
            log: path,
            started,
            started_after: Duration::ZERO,
            paused: false,
        })
    }

    /// Waits until CQL answers.
    pub fn wait(&mut self) -> Result<()> {
        while !cql::answers(&self.address) {
            if let Some(status) = self.child.try_wait()? {
                bail!("{} ended with {status}; see {}", self.name, self.log.display());
            }
            if self.started.elapsed() > START_MAX {
                bail!("{} does not answer CQL after {} s", self.name, START_MAX.as_secs());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        self.started_after = self.started.elapsed();
        Ok(())
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Host and port.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Returns its log.
    pub fn log(&self) -> Result<String> {
        Ok(String::from_utf8_lossy(&crate::disk::read(&self.log)?).into_owned())
    }

    /// From the start of the process to the first CQL answer.
    pub fn started_after(&self) -> Duration {
        self.started_after
    }

    fn signal(&self, signal: &str) -> Result<()> {
        let status = Command::new("kill").args([signal, &self.child.id().to_string()]).status()?;
        if !status.success() {
            bail!("{}: kill {signal} failed; see {}", self.name, self.log.display());
        }
        Ok(())
    }

    /// Pauses the process while another one is measured, so that it takes no CPU.
    pub fn pause(&mut self) -> Result<()> {
        self.signal("-STOP")?;
        self.paused = true;
        Ok(())
    }

    /// Resumes it.
    pub fn go_on(&mut self) -> Result<()> {
        if std::mem::take(&mut self.paused) {
            self.signal("-CONT")?;
        }
        Ok(())
    }

    /// Resumes it and waits until it answers.
    pub fn resume(&mut self) -> Result<()> {
        self.go_on()?;
        let begun = Instant::now();
        while !cql::answers(&self.address) {
            if let Some(status) = self.child.try_wait()? {
                bail!("{} has ended with {status}; see {}", self.name, self.log.display());
            }
            if begun.elapsed() > START_MAX {
                bail!("{} does not answer any more; see {}", self.name, self.log.display());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Ends the process, this one only: SIGTERM, and SIGKILL after a minute. Returns how long it
    /// took.
    pub fn stop(mut self) -> Result<Duration> {
        self.resume()?;
        self.signal("-TERM")?;
        let begun = Instant::now();
        while self.child.try_wait()?.is_none() {
            if begun.elapsed() > Duration::from_secs(60) {
                self.child.kill()?;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(begun.elapsed())
    }

    /// SIGKILL at once.
    pub fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

/// Target of a load.
pub trait Target {
    /// Host and port of every node.
    fn addresses(&self) -> Vec<String>;
    /// User and system seconds so far, of all its processes.
    fn cpu_seconds(&self) -> Result<f64>;
    /// Resident memory now, of all its processes.
    fn rss_mib(&self) -> Result<f64>;
}

impl Target for Server {
    fn addresses(&self) -> Vec<String> {
        vec![self.address.clone()]
    }

    fn cpu_seconds(&self) -> Result<f64> {
        let stat = crate::disk::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        let rest = stat.rsplit(')').next().unwrap_or("");
        let field = |i: usize| rest.split_whitespace().nth(i).and_then(|v| v.parse::<f64>().ok());
        match (field(11), field(12)) {
            (Some(user), Some(system)) => Ok((user + system) / TICKS),
            _ => bail!("cannot read /proc/{}/stat", self.child.id()),
        }
    }

    fn rss_mib(&self) -> Result<f64> {
        let status = crate::disk::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap_or("");
        let kib = line.split_whitespace().nth(1).and_then(|v| v.parse::<f64>().ok());
        kib.map(|k| k / 1024.0).context("no VmRSS")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has ended already, or is about to; an error cannot be reported here.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
