//! Both binaries over loopback: the client measures the mock directly.

use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

type Outcome = Result<(), Box<dyn Error>>;

/// A mock that ends with its test.
struct Mock {
    child: Child,
    url: String,
}

impl Mock {
    fn start() -> Result<Self, Box<dyn Error>> {
        let mut child = Command::new(env!("CARGO_BIN_EXE_mock-upstream")).stdout(Stdio::piped()).spawn()?;
        let mut url = String::new();
        BufReader::new(child.stdout.take().ok_or("no stdout")?).read_line(&mut url)?;
        Ok(Self { child, url: url.trim().to_owned() })
    }

    fn client(&self, mode: &str, path: &str, more: &[&str]) -> Result<Vec<Value>, Box<dyn Error>> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_load-client"));
        command.args([mode, "--url", &format!("{}{path}", self.url)]).args(more).stdin(Stdio::null());
        let output = command.stderr(Stdio::inherit()).output()?;
        assert!(output.status.success(), "{mode} {more:?}");
        Ok(String::from_utf8(output.stdout)?.lines().map(serde_json::from_str).collect::<Result<_, _>>()?)
    }

    fn authority(&self) -> &str {
        self.url.trim_start_matches("http://")
    }
}

impl Drop for Mock {
    fn drop(&mut self) {
        // It serves until it is killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const CHAT: &str = "/v1/chat/completions";
const SHORT: [&str; 6] = ["--ramp", "0", "--warm-up", "0.2", "--window", "0.5"];

#[test]
fn every_token_of_a_stream_is_timed() -> Outcome {
    let mock = Mock::start()?;
    let pid = format!("mock={}", mock.child.id());
    for path in [CHAT, "/v1/messages"] {
        let more = [&["-c", "4", "--spec", "ttft5,itl5,n10", "--cpu-of", &pid], &SHORT[..]].concat();
        let report = &mock.client("load", path, &more)?[0];
        assert_eq!(report["failed"], 0, "{report}");
        let (requests, tokens) =
            (report["requests"].as_u64().ok_or("requests")?, report["tokens"].as_u64().ok_or("tokens")?);
        assert!(requests > 4 && tokens.abs_diff(requests * 10) <= 40, "{report}");
        for figure in ["added_ttft_us", "token_delay_us"] {
            assert!(report[figure]["p50"].as_f64().ok_or(figure)? > 0.0, "{figure}: {report}");
        }
        assert!(report["cpu_us_per_token"].as_f64().ok_or("cpu")? > 0.0, "{report}");
    }
    Ok(())
}

#[test]
fn a_whole_answer_is_timed() -> Outcome {
    let mock = Mock::start()?;
    let more = [&["--no-stream", "--spec", "n50", "--prompt-bytes", "200000"], &SHORT[..]].concat();
    let report = &mock.client("load", CHAT, &more)?[0];
    assert_eq!(report["failed"], 0, "{report}");
    assert!(report["added_answer_us"]["n"].as_u64().ok_or("n")? > 1, "{report}");
    assert_eq!(report["added_ttft_us"], Value::Null);
    Ok(())
}

#[test]
fn a_client_that_leaves_is_noticed_in_every_state() -> Outcome {
    let mock = Mock::start()?;
    for state in ["mid-stream", "silent", "before-first-byte", "non-stream"] {
        for http2 in [&[][..], &["--http2"]] {
            let more = [&["--mock", mock.authority(), "--state", state, "--count", "30", "-c", "15"], http2]
                .concat();
            let report = &mock.client("cancel", CHAT, &more)?[0];
            assert_eq!(report["aborted"], 30, "{state} {http2:?}: {report}");
            assert_eq!(report["left_running"], 0, "{report}");
        }
    }
    Ok(())
}

#[test]
fn streams_are_held_read_and_unread() -> Outcome {
    let mock = Mock::start()?;
    let stalled = ["--stalled-receive-buffer-bytes", "4096"];
    let own = format!("mock={}", mock.child.id());
    for (spec, more) in [("n0,itl500", &[][..]), ("n0", &stalled)] {
        let watch = ["--mock", mock.authority(), "--memory-of", &own];
        let args = [&["-c", "50", "--spec", spec, "--ramp", "0.1"], &watch[..], more].concat();
        let counts = mock.client("hold", CHAT, &args)?;
        assert_eq!(counts.len(), 1, "stdin ended at once");
        let count = &counts[0];
        assert_eq!((&count["open"], &count["lost"]), (&Value::from(50), &Value::from(0)), "{spec}: {count}");
        assert!(count["mock"]["running"].as_u64() >= Some(50), "{count}");
        assert!(count["pss_kb"]["mock"].as_u64() > Some(0), "{count}");
    }
    Ok(())
}

/// A relay that dials for every request; a careful one looks whether its client is still there.
fn relay(upstream: SocketAddr, careful: bool) -> Result<SocketAddr, Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let addr = listener.local_addr()?;
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            std::thread::spawn(move || relay_one(client, upstream, careful));
        }
    });
    Ok(addr)
}

fn relay_one(mut client: TcpStream, upstream: SocketAddr, careful: bool) -> std::io::Result<()> {
    let mut request = vec![0; 8192];
    let read = client.read(&mut request)?;
    let mut upstream = TcpStream::connect(upstream)?;
    client.set_nonblocking(true)?;
    let gone = client.read(&mut [0; 1]).is_ok();
    if !(careful && gone) {
        upstream.write_all(&request[..read])?;
        upstream.read_exact(&mut [0; 1])?;
    }
    Ok(())
}

#[test]
fn the_trap_tells_a_careful_relay_from_a_careless_one() -> Outcome {
    for (careful, late) in [(true, 0), (false, 10)] {
        let trap = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let gateway = relay(trap, careful)?;
        let output = Command::new(env!("CARGO_BIN_EXE_load-client"))
            .args(["connecting", "--trap", &trap.to_string(), "--count", "10"])
            .args(["--url", &format!("http://{gateway}/")])
            .output()?;
        let report: Value = serde_json::from_slice(&output.stdout)?;
        assert_eq!(report["late_requests"], late, "{report}");
        assert_eq!(report["control_arrived"], true, "{report}");
    }
    Ok(())
}
