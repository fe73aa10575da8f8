//! Servers as processes: start, measure, stop.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Clock ticks of `/proc/PID/stat` per second (`sysconf(_SC_CLK_TCK)`, 100 on Linux).
const TICKS: f64 = 100.0;

/// A running server.
pub struct Server {
    child: Child,
    address: String,
    started_after: Duration,
}

/// Builds the release binary.
pub fn build_helenus(root: &Path) -> Result<()> {
    let words = ["build", "--release", "--bin", "helenus"];
    let status = Command::new("cargo").current_dir(root).args(words).status()?;
    if !status.success() {
        bail!("the release build failed");
    }
    Ok(())
}

impl Server {
    /// Helenus on an empty directory.
    pub fn helenus(root: &Path, home: &Path, memory: &str) -> Result<Server> {
        let data = home.join("helenus-data");
        if data.exists() {
            std::fs::remove_dir_all(&data)?;
        }
        let mut command = Command::new(root.join("target/release/helenus"));
        command.arg("server").arg("--workdir").arg(&data);
        command.args(["--memory", memory, "--native-transport-port", "19142"]);
        command.args(["--native-shard-aware-transport-port", "0", "--api-port", "19143"]);
        Server::spawn(command, home, "helenus", 19142)
    }

    /// Starts a command and waits until CQL answers on the port.
    pub fn spawn(mut command: Command, home: &Path, name: &str, port: u16) -> Result<Server> {
        let log = std::fs::File::create(home.join(format!("{name}.log")))?;
        let address = format!("127.0.0.1:{port}");
        if answers(&address) {
            bail!("another server answers on {address}");
        }
        let started = Instant::now();
        let child = command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        let mut server = Server { child, address, started_after: Duration::ZERO };
        while !answers(&server.address) {
            if let Some(status) = server.child.try_wait()? {
                bail!("{name} ended with {status}; see {}", home.join(name).display());
            }
            if started.elapsed() > Duration::from_secs(180) {
                server.stop()?;
                bail!("{name} does not answer CQL after 180 s");
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        server.started_after = started.elapsed();
        Ok(server)
    }

    /// Host and port.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// From the start of the process to the first CQL answer.
    pub fn started_after(&self) -> Duration {
        self.started_after
    }

    /// User and system seconds so far.
    pub fn cpu_seconds(&self) -> Result<f64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        let rest = stat.rsplit(')').next().unwrap_or("");
        let field = |i: usize| rest.split_whitespace().nth(i).and_then(|v| v.parse::<f64>().ok());
        match (field(11), field(12)) {
            (Some(user), Some(system)) => Ok((user + system) / TICKS),
            _ => bail!("cannot read /proc/{}/stat", self.child.id()),
        }
    }

    /// Resident memory now.
    pub fn rss_mib(&self) -> Result<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap_or("");
        let kib = line.split_whitespace().nth(1).and_then(|v| v.parse::<f64>().ok());
        kib.map(|k| k / 1024.0).context("no VmRSS")
    }

    /// Ends the process, this one only: SIGTERM, and SIGKILL after a minute.
    pub fn stop(mut self) -> Result<()> {
        let pid = self.child.id().to_string();
        Command::new("kill").args(["-TERM", &pid]).status()?;
        let begun = Instant::now();
        while self.child.try_wait()?.is_none() {
            if begun.elapsed() > Duration::from_secs(60) {
                self.child.kill()?;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }
}

/// Whether STARTUP is answered by READY or AUTHENTICATE.
fn answers(address: &str) -> bool {
    let ask = || -> std::io::Result<bool> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        let mut frame = vec![4, 0, 0, 0, 1, 0, 0, 0, 22, 0, 1, 0, 11];
        frame.extend_from_slice(b"CQL_VERSION");
        frame.extend_from_slice(&[0, 5]);
        frame.extend_from_slice(b"3.0.0");
        stream.write_all(&frame)?;
        let mut header = [0_u8; 9];
        stream.read_exact(&mut header)?;
        Ok(header[4] == 2 || header[4] == 3)
    };
    ask().unwrap_or(false)
}
