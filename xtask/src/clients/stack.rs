//! The real thing, as processes on loopback: `firsttoken sim`, `firsttoken serve` in front of it, once with a
//! key and once with none, as a new user has it, and nginx in front of the former, buffering and not.
//!
//! Invariant: everything started here ends with this value, however a suite ends.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::process;

/// How long a server may take until it accepts connections.
const START_MS_MAX: u64 = 10_000;
/// How often that is asked.
const START_POLL_MS: u64 = 20;

/// A running stack.
pub(crate) struct Stack {
    environment: Vec<(&'static str, String)>,
    _servers: Vec<Server>,
}

impl Stack {
    /// Builds the binary and starts everything.
    ///
    /// # Errors
    /// When the build fails or a server does not come up; the message names its log.
    pub(crate) fn start() -> Result<Self> {
        process::run(&mut process::cargo(&["build", "--release", "--package", "firsttoken"]))?;
        let folder = process::target().join("clients/stack");
        std::fs::create_dir_all(&folder)?;
        let (sim, gateway, nginx) = (free_address()?, free_address()?, [free_address()?, free_address()?]);
        let keyless = free_address()?;

        let (secret, key_toml) = new_key()?;
        let servers = vec![
            Server::start(
                "sim",
                &folder,
                sim,
                process::command(process::firsttoken(), &["sim", "--listen", &sim.to_string()]),
            )?,
            start_gateway("serve", &folder, gateway, sim, &key_toml)?,
            start_gateway("keyless", &folder, keyless, sim, "")?,
            start_nginx(&folder, gateway, nginx)?,
        ];
        let golden = process::root().join("crates/wire/tests/golden/typed");
        let environment = vec![
            ("FIRSTTOKEN_BINARY", process::firsttoken().to_string_lossy().into_owned()),
            ("FIRSTTOKEN_README", process::root().join("README.md").to_string_lossy().into_owned()),
            ("FIRSTTOKEN_STREAMS", golden.to_string_lossy().into_owned()),
            ("FIRSTTOKEN_KEY", secret),
            ("FIRSTTOKEN_URL", format!("http://{gateway}")),
            ("FIRSTTOKEN_KEYLESS_URL", format!("http://{keyless}")),
            ("SIM_URL", format!("http://{sim}")),
            ("NGINX_BUFFERED_URL", format!("http://{}", nginx[0])),
            ("NGINX_UNBUFFERED_URL", format!("http://{}", nginx[1])),
        ];
        Ok(Self { environment, _servers: servers })
    }

    /// What a suite must know, as environment variables.
    pub(crate) fn environment(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.environment.iter().map(|(name, value)| (*name, value.as_str()))
    }
}

/// A server that ends when it is dropped.
struct Server(Child);

impl Server {
    /// Starts `command` with its output in a log, and waits until it accepts connections.
    fn start(name: &str, folder: &Path, address: SocketAddr, mut command: Command) -> Result<Self> {
        let log = folder.join(format!("{name}.log"));
        let output = std::fs::File::create(&log)?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        let mut server = Self(child);
        for _ in 0..START_MS_MAX / START_POLL_MS {
            if TcpStream::connect(address).is_ok() {
                return Ok(server);
            }
            if let Some(status) = server.0.try_wait()? {
                bail!("{name} ended with {status}\n{}", std::fs::read_to_string(&log).unwrap_or_default());
            }
            std::thread::sleep(Duration::from_millis(START_POLL_MS));
        }
        bail!("{name} does not listen on {address} after {START_MS_MAX} ms; its log is {}", log.display())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A server that is gone already needs no kill.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A real gateway key: the secret, and the TOML that admits it.
fn new_key() -> Result<(String, String)> {
    let args = ["key", "new", "--name", "clients"];
    let printed = process::output(&mut process::command(process::firsttoken(), &args))?;
    let secret = printed.split_whitespace().find(|word| word.starts_with("ft-"));
    let toml = printed.find("[[keys]]").map(|at| printed[at..].trim());
    match (secret, toml) {
        (Some(secret), Some(toml)) => Ok((secret.to_owned(), toml.to_owned())),
        _ => bail!("`firsttoken key new` printed no ft-… secret and [[keys]] table, but:\n{printed}"),
    }
}

/// An address on loopback that was free a moment ago.
fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

/// The gateway, in front of `sim`, with the keys that `key_toml` says.
fn start_gateway(
    name: &str,
    folder: &Path,
    listen: SocketAddr,
    sim: SocketAddr,
    key_toml: &str,
) -> Result<Server> {
    let template = process::root().join("tests/clients/firsttoken.toml");
    let text = std::fs::read_to_string(&template)
        .with_context(|| format!("cannot read {}", template.display()))?
        .replace("@GATEWAY@", &listen.to_string())
        .replace("@SIM@", &sim.to_string())
        .replace("@KEY@", key_toml);
    let config = folder.join(name).with_extension("toml");
    std::fs::write(&config, text)?;
    let config = config.to_string_lossy();
    process::run(&mut process::command(process::firsttoken(), &["check-config", &config]))?;
    let command = process::command(process::firsttoken(), &["serve", "--config", &config]);
    Server::start(name, folder, listen, command)
}

/// nginx before the gateway, twice: as its defaults have it (it buffers, and speaks HTTP/1.0), and as its
/// manual advises for streams. With the defaults a stream without `X-Accel-Buffering: no` arrives 4 kB
/// at a time.
fn start_nginx(
    folder: &Path,
    gateway: SocketAddr,
    [buffered, unbuffered]: [SocketAddr; 2],
) -> Result<Server> {
    let folder = folder.to_string_lossy();
    let server = |listen: SocketAddr, more: &str| {
        format!("server {{ listen {listen}; location / {{ proxy_pass http://{gateway}; {more} }} }}")
    };
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {folder}/nginx-{kind};"))
        .join("\n");
    let config = format!(
        "daemon off;\nmaster_process off;\npid {folder}/nginx.pid;\nerror_log stderr;\nevents {{}}\n\
         http {{\naccess_log off;\n{temporary}\n{}\n{}\n}}\n",
        server(buffered, "proxy_buffering on;"),
        server(unbuffered, "proxy_buffering off; proxy_http_version 1.1; proxy_set_header Connection '';"),
    );
    let file = PathBuf::from(&*folder).join("nginx.conf");
    std::fs::write(&file, config)?;
    let nginx = process::find("nginx").context("nginx is not installed\nhint: cargo xtask test setup")?;
    let command = process::command(nginx, &["-c", &file.to_string_lossy()]);
    Server::start("nginx", Path::new(&*folder), unbuffered, command)
}
