//! The processes of a measurement: the mock, two equal peers, our gateway, and the load client.
//!
//! Whoever is measured has CPU 0 to itself, mock and client share CPU 1, so that neither takes from
//! the other. Everything listens on loopback and ends with the [`Rig`].
//!
//! Invariant: peer and gateway get the same upstream, the same CPU and the same priority.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::judge::Arm;
use super::table::STREAM_BYTES_MAX;
use crate::process;

/// The CPU of whoever is measured behind a mock.
const CPU_SUBJECT: &str = "0";
/// The CPU of mock and client.
const CPU_RIG: &str = "1";
/// The key that our gateway asks for, and its SHA-256. It guards a loopback port for some minutes.
const KEY: &str = "ft-bars";
const KEY_SHA256: &str = "ee85cca90cd5798f0f07584b2efbe753e9562925c7b2d7c5ed07b3c2f16929ab";
/// How long a process may take to listen.
const START: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(20);
const CHAT: &str = "/v1/chat/completions";

/// A process that ends with this.
#[derive(Debug)]
pub(super) struct Running {
    child: Child,
    what: &'static str,
}

impl Running {
    /// Its process id.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // SIGTERM first: nginx must get to end its worker. Best effort, since we are leaving.
        let _ = Command::new("kill").arg(self.pid().to_string()).stderr(Stdio::null()).status();
        for _ in 0..100 {
            if self.child.try_wait().is_ok_and(|ended| ended.is_some()) {
                return;
            }
            std::thread::sleep(POLL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How processes are started.
#[derive(Clone, Debug)]
pub(super) struct Launcher {
    /// Configurations and logs.
    pub(super) dir: PathBuf,
    /// The gateway's binary.
    pub(super) gateway: PathBuf,
    /// The same with kernels for this very machine, as the engine's peer has them.
    pub(super) engine: PathBuf,
    /// Niceness of all, where we may say so: others on the machine disturb less.
    pub(super) nice: Option<&'static str>,
}

/// One endpoint under test.
#[derive(Debug)]
pub(super) struct Subject {
    /// Who it is.
    pub(super) arm: Arm,
    /// Where it takes chat requests.
    pub(super) url: String,
    /// Where it takes them over HTTP/2 without TLS.
    pub(super) url_http2: String,
    /// Header lines that it wants.
    headers: Vec<String>,
    process: Option<Running>,
}

/// A mock and everything in front of it.
#[derive(Debug)]
pub(super) struct Rig {
    /// The mock's address.
    pub(super) mock: SocketAddr,
    /// In the order of [`Arm`].
    pub(super) subjects: Vec<Subject>,
    mock_process: Running,
    launcher: Launcher,
}

impl Launcher {
    /// Starts a mock and these arms in front of it.
    ///
    /// # Errors
    /// When one of them does not come up; its log is named.
    pub(super) fn rig(&self, arms: &[Arm], mock_args: &[&str]) -> Result<Rig> {
        let (mock_process, mock) = self.mock(mock_args)?;
        let subjects = arms.iter().map(|arm| self.subject(*arm, mock)).collect::<Result<_>>()?;
        Ok(Rig { mock, subjects, mock_process, launcher: self.clone() })
    }

    /// Starts one arm in front of `upstream`.
    ///
    /// # Errors
    /// When it does not come up; its log is named.
    pub(super) fn subject(&self, arm: Arm, upstream: SocketAddr) -> Result<Subject> {
        match arm {
            Arm::Ours => self.ours(upstream),
            Arm::Nginx | Arm::Again => self.nginx(arm, upstream),
            Arm::Llama | Arm::Tuned | Arm::Clean => bail!("{arm:?} is no gateway"),
            Arm::Direct => {
                let url = format!("http://{upstream}{CHAT}");
                Ok(Subject { arm, url_http2: url.clone(), url, headers: Vec::new(), process: None })
            }
        }
    }

    /// A command on that CPU, at our priority.
    fn command(&self, cpu: &str, program: &Path) -> Command {
        let mut command = self.everywhere("taskset".as_ref());
        command.args(["--cpu-list", cpu]).arg(program);
        command
    }

    /// A command on every CPU, at our priority.
    pub(super) fn everywhere(&self, program: &Path) -> Command {
        let Some(nice) = self.nice else { return Command::new(program) };
        let mut command = Command::new("nice");
        command.args(["-n", nice]).arg(program);
        command
    }

    fn mock(&self, args: &[&str]) -> Result<(Running, SocketAddr)> {
        let program = process::target().join("release/mock-upstream");
        let mut child = self.command(CPU_RIG, &program).args(args).stdout(Stdio::piped()).spawn()?;
        let stdout = child.stdout.take().context("the mock's stdout was piped")?;
        let running = Running { child, what: "mock-upstream" };
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let addr = line.trim().strip_prefix("http://").context("the mock did not start")?;
        Ok((running, addr.parse().context("the mock's first line is no address")?))
    }

    fn ours(&self, upstream: SocketAddr) -> Result<Subject> {
        let addr = free_port()?;
        let config = self.file(
            &format!("firsttoken-{}.toml", addr.port()),
            &format!(
                "listen = \"{addr}\"\n[[keys]]\nname = \"bars\"\nsha256 = \"{KEY_SHA256}\"\n\
                 [[upstreams]]\nname = \"mock\"\nprovider = \"openai\"\nbase_url = \"http://{upstream}\"\nauth = \"none\"\n\
                 [[upstreams]]\nname = \"claude\"\nprovider = \"anthropic\"\nbase_url = \"http://{upstream}\"\nauth = \"none\"\n\
                 [[models]]\nname = \"claude\"\nupstream = \"claude\"\n[[models]]\nname = \"*\"\nupstream = \"mock\"\n\
                 [limits]\nstream_bytes_max = {STREAM_BYTES_MAX}\n"
            ),
        )?;
        let log = self.dir.join(format!("firsttoken-{}.log", addr.port()));
        let mut command = self.command(CPU_SUBJECT, &self.gateway);
        command.args(["serve", "--config"]).arg(config);
        let process = start("firsttoken", &mut command, &log, addr)?;
        let url = format!("http://{addr}{CHAT}");
        let headers = vec![format!("authorization: Bearer {KEY}")];
        Ok(Subject { arm: Arm::Ours, url_http2: url.clone(), url, headers, process: Some(process) })
    }

    fn nginx(&self, arm: Arm, upstream: SocketAddr) -> Result<Subject> {
        let program =
            process::find("nginx").context("nginx is missing\nhint: apt-get install nginx-light")?;
        let (addr, http2) = (free_port()?, free_port()?);
        let dir = self.dir.join(format!("nginx-{}", addr.port()));
        std::fs::create_dir_all(&dir)?;
        let config =
            self.file(&format!("nginx-{}.conf", addr.port()), &nginx_config(&dir, addr, http2, upstream))?;
        let mut command = self.command(CPU_SUBJECT, &program);
        command.arg("-p").arg(&dir).arg("-c").arg(config).args(["-g", "daemon off;"]);
        let process = start("nginx", &mut command, &dir.join("stderr"), addr)?;
        let (url, url_http2) = (format!("http://{addr}{CHAT}"), format!("http://{http2}{CHAT}"));
        Ok(Subject { arm, url, url_http2, headers: Vec::new(), process: Some(process) })
    }

    /// Writes a configuration; where it is.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn file(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.dir.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }
}

/// A proxy that adds as little as it can: one worker, nothing buffered, connections kept.
fn nginx_config(dir: &Path, addr: SocketAddr, http2: SocketAddr, upstream: SocketAddr) -> String {
    let dir = dir.display();
    let temp = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("  {kind}_temp_path {dir}/{kind};\n"))
        .concat();
    format!(
        "worker_processes 1;\nworker_rlimit_nofile 20000;\npid {dir}/pid;\nerror_log {dir}/error.log warn;\n\
         events {{ worker_connections 18000; }}\n\
         http {{\n{temp}  access_log off;\n  tcp_nodelay on;\n\
           client_max_body_size 64m;\n  client_body_buffer_size 1m;\n\
           keepalive_requests 10000000;\n  http2_max_concurrent_streams 1000;\n\
           upstream mock {{ server {upstream}; keepalive 6000; keepalive_requests 10000000; }}\n\
           server {{\n    listen {addr} backlog=4096;\n    listen {http2} http2 backlog=4096;\n\
             location / {{\n      proxy_pass http://mock;\n      proxy_http_version 1.1;\n\
               proxy_set_header Connection \"\";\n      proxy_buffering off;\n\
               proxy_read_timeout 600s;\n      proxy_next_upstream off;\n    }}\n  }}\n}}\n"
    )
}

/// Starts a server and waits until it accepts.
///
/// # Errors
/// When it ends, or does not accept; its log is in the message.
pub(super) fn start(
    what: &'static str,
    command: &mut Command,
    log: &Path,
    addr: SocketAddr,
) -> Result<Running> {
    let stderr = File::create(log)?;
    command.stdin(Stdio::null()).stdout(stderr.try_clone()?).stderr(stderr);
    let child = command.spawn().with_context(|| format!("cannot start {what}"))?;
    let mut running = Running { child, what };
    for _ in 0..START.as_millis() / POLL.as_millis() {
        if let Some(status) = running.child.try_wait()? {
            bail!("{what} ended with {status}:\n{}", std::fs::read_to_string(log).unwrap_or_default());
        }
        if TcpStream::connect(addr).is_ok() {
            return Ok(running);
        }
        std::thread::sleep(POLL);
    }
    bail!(
        "{what} does not listen on {addr} after {START:?}:\n{}",
        std::fs::read_to_string(log).unwrap_or_default()
    )
}

/// A port that is free now.
pub(super) fn free_port() -> Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

impl Subject {
    /// Arguments that send the load client here.
    fn target(&self, url: &str) -> Vec<String> {
        let headers = self.headers.iter().flat_map(|h| ["--header".to_owned(), h.clone()]);
        ["--url".to_owned(), url.to_owned()].into_iter().chain(headers).collect()
    }

    /// Its process, by which its CPU time and memory are found; the floor has none.
    fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Running::pid)
    }
}

/// Starts one load client at one subject.
pub(super) struct Client<'a> {
    launcher: &'a Launcher,
    /// The CPU that it shares with the mock; `None`: wherever there is room.
    cpu: Option<&'static str>,
    args: Vec<String>,
}

impl Rig {
    /// A client of that mode at that subject.
    pub(super) fn client<'a>(&'a self, mode: &str, subject: &'a Subject) -> Client<'a> {
        self.launcher.client(mode, subject, &subject.url)
    }

    /// The same over HTTP/2.
    pub(super) fn client_http2<'a>(&'a self, mode: &str, subject: &'a Subject) -> Client<'a> {
        self.launcher.client(mode, subject, &subject.url_http2).with(&["--http2"])
    }

    /// `NAME=PID` of the subject and of the mock, for CPU time.
    pub(super) fn trees(&self, subject: &Subject) -> Vec<String> {
        let subject = subject.pid().map(|pid| format!("subject={pid}"));
        subject.into_iter().chain([format!("mock={}", self.mock_process.pid())]).collect()
    }
}

impl Launcher {
    /// A client of that mode at this URL of that subject.
    pub(super) fn client(&self, mode: &str, subject: &Subject, url: &str) -> Client<'_> {
        let args = std::iter::once(mode.to_owned()).chain(subject.target(url)).collect();
        Client { launcher: self, cpu: Some(CPU_RIG), args }
    }

    /// A client of that mode, beside a subject that has every CPU.
    pub(super) fn client_everywhere(&self, mode: &str, url: &str) -> Client<'_> {
        let args = [mode, "--url", url].map(str::to_owned).to_vec();
        Client { launcher: self, cpu: None, args }
    }
}

impl Client<'_> {
    /// Further arguments.
    pub(super) fn with(mut self, args: &[&str]) -> Self {
        self.args.extend(args.iter().map(|a| (*a).to_owned()));
        self
    }

    fn command(&self) -> Command {
        let program = process::target().join("release/load-client");
        let mut command = match self.cpu {
            Some(cpu) => self.launcher.command(cpu, &program),
            None => self.launcher.everywhere(&program),
        };
        command.args(&self.args);
        command
    }

    /// Runs it to its end.
    ///
    /// # Errors
    /// When it fails; what it said is in the message.
    pub(super) fn report(self) -> Result<Value> {
        Ok(serde_json::from_str(&process::output(&mut self.command())?)?)
    }

    /// Starts it; nobody listens to what it says, and it ends with what is returned.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(super) fn spawn(self) -> Result<Running> {
        let child = self.command().stdout(Stdio::null()).spawn()?;
        Ok(Running { child, what: "load-client" })
    }

    /// Starts one that keeps its streams until it is dropped.
    ///
    /// # Errors
    /// When it does not come up.
    pub(super) fn hold(self) -> Result<Held> {
        let mut child = self.command().stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let stdout = child.stdout.take().context("the client's stdout was piped")?;
        let mut held = Held {
            running: Running { child, what: "load-client" },
            lines: BufReader::new(stdout),
            opened: Value::Null,
        };
        held.opened = held.line()?;
        Ok(held)
    }
}

/// A client that keeps its streams.
#[derive(Debug)]
pub(super) struct Held {
    running: Running,
    lines: BufReader<std::process::ChildStdout>,
    /// How it stood when all had been opened.
    pub(super) opened: Value,
}

impl Held {
    /// How it stands now.
    ///
    /// # Errors
    /// When the client has ended.
    pub(super) fn count(&mut self) -> Result<Value> {
        self.running.child.stdin.as_mut().context("the client's stdin was piped")?.write_all(b"\n")?;
        self.line()
    }

    fn line(&mut self) -> Result<Value> {
        let mut line = String::new();
        if self.lines.read_line(&mut line)? == 0 {
            bail!("{} ended before its time: its reason is above", self.running.what);
        }
        Ok(serde_json::from_str(&line)?)
    }
}
