//! Engines in processes of their own, which are killed: the real binary, the demo model, real sockets.

#![cfg(test)]

use std::io::{BufRead as _, BufReader, Lines, Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/demo/firsttoken-demo.gguf");

/// The binary at work, and what it says. It goes with its owner.
struct Running {
    child: Child,
    address: String,
    log: Lines<BufReader<ChildStderr>>,
    /// Kept open: who talks to nobody is told so.
    _said: Lines<BufReader<ChildStdout>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running {
    /// Starts it; its address is what follows `http://` in its greeting.
    fn start(args: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_firsttoken"));
        command.args(args).env_remove("FIRSTTOKEN_LOG").stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let log = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = said.by_ref().map_while(Result::ok).find_map(|line| {
            let (_, rest) = line.split_once("http://")?;
            Some(rest.split([' ', ':']).take(2).collect::<Vec<_>>().join(":"))
        });
        Self { child, address: address.unwrap(), log, _said: said }
    }

    /// The next line of the log that says this.
    fn wait_for(&mut self, what: &str) -> String {
        self.log.by_ref().map_while(Result::ok).find(|line| line.contains(what)).unwrap()
    }

    /// The process of the engine that has been started.
    fn engine(&mut self) -> Pid {
        let line = self.wait_for("runs in a process of its own");
        let (_, pid) = line.split_once("pid=").unwrap();
        Pid::from_raw(pid.split(' ').next().unwrap().parse().unwrap()).unwrap()
    }

    fn ask(&self, path: &str, body: &str) -> BufReader<TcpStream> {
        let mut socket = TcpStream::connect(&self.address).unwrap();
        let length = body.len();
        write!(
            socket,
            "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             connection: close\r\ncontent-length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        BufReader::new(socket)
    }

    fn get(&self, path: &str) -> String {
        let mut socket = TcpStream::connect(&self.address).unwrap();
        write!(socket, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
        let mut said = String::new();
        socket.read_to_string(&mut said).unwrap();
        said
    }

    /// What the engine writes, to the end.
    fn text(&self) -> String {
        let mut said = String::new();
        let body = r#"{"model":"demo","prompt":"Once","max_tokens":12,"temperature":0}"#;
        self.ask("/v1/completions", body).read_to_string(&mut said).unwrap();
        assert!(said.starts_with("HTTP/1.1 200"), "{said}");
        let (_, text) = said.split_once("\"text\":\"").unwrap();
        text.split_once("\",").unwrap().0.to_owned()
    }
}

/// Reads up to a line that has `what` in it.
fn until(stream: &mut impl std::io::BufRead, what: &str) {
    let mut line = String::new();
    while !line.contains(what) {
        line.clear();
        assert!(stream.read_line(&mut line).unwrap() > 0, "it ended without {what}");
    }
}

/// What is left of a stream.
fn rest(mut stream: impl std::io::Read) -> String {
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    rest
}

/// A configuration of an engine in a process of its own, and of a simulated provider.
fn configured(name: &str, sim: &str) -> PathBuf {
    let file = std::env::temp_dir().join(format!("firsttoken-{name}-{}.toml", std::process::id()));
    let toml = format!(
        "[[engines]]\nname = \"demo\"\nfile = \"{MODEL}\"\ncontext_tokens = 1024\nthreads = 1\nkv_host_bytes = 0\n\
         isolate = true\n[[upstreams]]\nname = \"sim\"\nprovider = \"openai\"\nbase_url = \"http://{sim}\"\n\
         auth = \"none\"\n[[models]]\nname = \"sim*\"\nupstream = \"sim\"\n"
    );
    std::fs::write(&file, toml).unwrap();
    file
}

fn serve(file: &std::path::Path) -> Running {
    Running::start(&["serve", "--listen", "127.0.0.1:0", "--config", file.to_str().unwrap()])
}

/// A long answer of the engine: it would take hundreds of tokens.
const CHAT: &str = r#"{"model":"demo","stream":true,"temperature":0,"max_tokens":900,"ignore_eos":true,
    "messages":[{"role":"user","content":"Tell me."}]}"#;

#[test]
fn an_engine_that_is_killed_ends_its_own_streams_and_answers_again() {
    let sim = Running::start(&["sim", "--listen", "127.0.0.1:0"]);
    let file = configured("isolated", &sim.address);
    let mut gate = serve(&file);
    let mut pid = gate.engine();
    let before = gate.text();
    assert!(gate.get("/readyz").starts_with("HTTP/1.1 200"));
    let metrics = gate.get("/metrics");
    assert!(metrics.contains("vllm:num_requests_running{model_name=\"demo\"}"), "{metrics}");
    assert_eq!(metrics.matches("# EOF").count(), 1);
    let deaths = [
        (Signal::KILL, "/v1/chat/completions", "\"error\":"),
        (Signal::ABORT, "/v1/messages", "event: error"),
    ];
    for (signal, path, error) in deaths {
        let other =
            r#"{"model":"sim-ttft1-itl5-n100","stream":true,"messages":[{"role":"user","content":"x"}]}"#;
        let mut other = gate.ask("/v1/chat/completions", other);
        until(&mut other, "content\":");
        let mut stream = gate.ask(path, CHAT);
        until(&mut stream, if path == "/v1/messages" { "text_delta" } else { "content\":" });
        kill_process(pid, signal).unwrap();
        let end = rest(stream);
        assert!(end.contains(error) && !end.contains("[DONE]") && !end.contains("message_stop"), "{end}");
        let other = rest(other);
        assert!(other.contains("[DONE]") && !other.contains("\"error\""), "{other}");
        gate.wait_for("its process has ended, and is started again");
        let again = gate.engine();
        assert_ne!(again, pid);
        pid = again;
        assert_eq!(gate.text(), before);
    }
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn an_engine_that_stands_still_is_not_ready_and_others_go_on() {
    let sim = Running::start(&["sim", "--listen", "127.0.0.1:0"]);
    let file = configured("stopped", &sim.address);
    let mut gate = serve(&file);
    let pid = gate.engine();
    kill_process(pid, Signal::STOP).unwrap();
    let ready = gate.get("/readyz");
    assert!(
        ready.starts_with("HTTP/1.1 503") && ready.contains("engine demo: it does not answer"),
        "{ready}"
    );
    let asked = r#"{"model":"sim-ttft1-itl5-n5","stream":true,"messages":[{"role":"user","content":"x"}]}"#;
    assert!(rest(gate.ask("/v1/chat/completions", asked)).contains("[DONE]"));
    kill_process(pid, Signal::CONT).unwrap();
    assert!(gate.get("/readyz").starts_with("HTTP/1.1 200"));
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn an_engine_ends_with_its_parent_however_that_ends() {
    let file = configured("orphan", "127.0.0.1:9");
    let mut gate = serve(&file);
    gate.engine();
    kill_process(Pid::from_child(&gate.child), Signal::KILL).unwrap();
    // The engine's process has the same standard error: it ends when both have ended.
    assert_eq!(gate.log.by_ref().map_while(Result::ok).filter(|line| line.contains("panic")).count(), 0);
    let mut gate = serve(&file);
    gate.engine();
    kill_process(Pid::from_child(&gate.child), Signal::INT).unwrap();
    let ended = gate.child.wait().unwrap();
    assert!(ended.success(), "{ended}");
    assert_eq!(gate.log.by_ref().map_while(Result::ok).filter(|line| line.contains("ended")).count(), 0);
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn what_is_wrong_with_an_isolated_engine_is_said_at_the_start() {
    let file = configured("wrong", "127.0.0.1:9");
    let toml = std::fs::read_to_string(&file).unwrap();
    let mut checked = Command::new(env!("CARGO_BIN_EXE_firsttoken"));
    let said = String::from_utf8(checked.arg("check-config").arg(&file).output().unwrap().stdout).unwrap();
    assert!(said.contains("1 upstream, 1 engine, ") && said.contains("demo: needs "), "{said}");
    assert!(said.contains("for 1,024 tokens as f16, prefixes 0 B"), "{said}");
    let place = file.with_extension("place");
    std::fs::create_dir(&place).unwrap();
    for (instead, said) in [
        ("kv_type = \"q8_0\"\ncontext_tokens = 16000000", "demo needs "),
        ("gpu_layers = 9", "this binary was built without a GPU"),
    ] {
        std::fs::write(&file, toml.replace("context_tokens = 1024", instead)).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_firsttoken"));
        command.args(["serve", "--listen", "127.0.0.1:0", "--config"]).arg(&file);
        let ended = command.env("XDG_RUNTIME_DIR", &place).output().unwrap();
        let error = String::from_utf8(ended.stderr).unwrap();
        assert!(!ended.status.success() && error.contains(said), "{error}");
    }
    // Removable only if nothing was left in it.
    std::fs::remove_dir(&place).unwrap();
    std::fs::remove_file(&file).unwrap();
}
