//! Clients that do not read: they hold a bounded number of bytes, for a bounded time, and nobody else up.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use firsttoken_sim::Options;

use crate::client::{self, Client};
use crate::h2::H2;
use crate::rig::{Gate, PATIENCE, Provider, body, eventually, toml};

const KIB: u64 = 1024;
const CHAT: &str = "/v1/chat/completions";
/// As fast as it is taken, and without end.
const ENDLESS: &str = "sim-ttft1-itl0-bytes1000-faultendless";
/// What the client asks of its own kernel, which reserves twice that.
const CLIENT_BUFFER: u64 = 32 * KIB;
/// What the provider asks of its kernel.
const PROVIDER_BUFFER: u64 = 32 * KIB;

fn provider() -> Provider {
    let bytes = usize::try_from(PROVIDER_BUFFER).unwrap();
    Provider::with(Options { send_buffer_bytes: Some(bytes), ..Options::default() })
}

/// A client whose kernel takes little ahead of it.
fn narrow(addr: SocketAddr) -> Client {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(usize::try_from(CLIENT_BUFFER).unwrap()).unwrap();
    socket.connect(&addr.into()).unwrap();
    let socket = TcpStream::from(socket);
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    Client::over(socket)
}

/// Asks for a stream and reads its head alone; the gateway's id of the request.
fn ask_and_stall(gate: &Gate, path: &str) -> (Client, String) {
    let mut client = narrow(gate.addr);
    client.send(&client::request("POST", path, &[], body(path, ENDLESS).to_string().as_bytes()));
    let id = client.head().id();
    (client, id)
}

/// Bytes that the provider got rid of, once that no longer changes.
fn settled(provider: &Provider) -> u64 {
    let mut before = 0;
    eventually("the provider is held back", || {
        std::thread::sleep(Duration::from_millis(100));
        let now = provider.sim.stats(1).records.last()?.bytes_accepted;
        let same = now == before;
        before = now;
        (same && now > 0).then_some(now)
    })
}

#[test]
fn a_client_that_never_reads_holds_a_bounded_number_of_bytes() {
    for (h2c, stream_bytes_max) in [(false, 256 * KIB), (false, 64 * KIB), (true, 256 * KIB)] {
        let provider = provider();
        let limits = format!("[limits]\nstream_bytes_max = {stream_bytes_max}\nevent_bytes_max = 32768\n");
        let mut config = toml(&provider.url(), "", &limits);
        if h2c {
            config = config.replace("api_key", "h2c = true\napi_key");
        }
        let gate = Gate::start(&config);
        let (client, _) = ask_and_stall(&gate, CHAT);
        let pulled = settled(&provider);
        let bound = stream_bytes_max + 256 * KIB + 2 * CLIENT_BUFFER + 2 * PROVIDER_BUFFER;
        assert!(pulled <= bound, "{pulled} of at most {bound} bytes, h2c: {h2c}");
        drop(client);
        gate.is_quiet();
        provider.all_over();
    }
}

#[test]
fn a_client_that_never_reads_is_cut_and_the_timeline_says_so() {
    let provider = provider();
    let gate = Gate::start(&toml(&provider.url(), "", "[limits]\nclient_stall_ms = 1_000\n"));
    for path in [CHAT, "/v1/messages", "/v1/chat"] {
        let (mut client, id) = ask_and_stall(&gate, path);
        assert_eq!(gate.timeline(&id, &[])["outcome"], "client_stalled", "{path}");
        eventually("the provider was let go", || (provider.sim.stats(0).active == 0).then_some(()));
        let _ = client.end();
        gate.is_quiet();
    }
}

#[test]
fn a_slow_client_that_goes_on_reading_is_not_cut() {
    let provider = provider();
    let gate = Gate::start(&toml(&provider.url(), "", "[limits]\nclient_stall_ms = 2_000\n"));
    let (mut client, id) = ask_and_stall(&gate, CHAT);
    // Twice the time after which it would be cut, had it not read.
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(200));
        client.take(100_000);
    }
    drop(client);
    assert_eq!(gate.timeline(&id, &[])["outcome"], "cancelled");
}

#[test]
fn a_healthy_stream_flows_beside_stalled_ones() {
    let provider = provider();
    let gate = Gate::before(&provider);
    let stalled: Vec<_> = (0..20).map(|_| ask_and_stall(&gate, CHAT)).collect();
    let _ = settled(&provider);
    let answer = gate.post(CHAT, &[], &body(CHAT, "sim-ttft1-itl1-n500"));
    assert!(answer.whole && answer.text().ends_with("data: [DONE]\n\n"));
    let timeline = gate.timeline(&answer.id(), &[]);
    assert_eq!(
        (timeline["outcome"].clone(), timeline["content_events"].clone()),
        ("complete".into(), 500.into())
    );
    drop(stalled);
    gate.is_quiet();
}

#[test]
fn an_http2_stream_that_nobody_reads_is_cut_and_its_neighbours_flow() {
    let provider = provider();
    let gate = Gate::start(&toml(&provider.url(), "", "[limits]\nclient_stall_ms = 1_000\n"));
    let client = H2::connect(gate.addr, 65_535);
    let stalled = client.run(client.post(CHAT, &body(CHAT, ENDLESS))).unwrap();
    let id = stalled.headers()["x-firsttoken-request-id"].to_str().unwrap().to_owned();
    for _ in 0..3 {
        let answer = client.run(client.post(CHAT, &body(CHAT, "sim-ttft1-itl1-n50"))).unwrap();
        let text = client.run(async { crate::h2::read_to(&mut answer.into_body(), "[DONE]").await });
        assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
    }
    client.until(|| provider.sim.stats(0).active == 0);
    assert_eq!(gate.timeline(&id, &[])["outcome"], "client_stalled");
    let answer = client.run(client.post(CHAT, &body(CHAT, "sim-ttft1-itl1-n50"))).unwrap();
    assert_eq!(answer.status(), 200, "the connection lives on");
    drop(stalled);
}

/// Resident memory of this process in bytes.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap() * KIB
}

#[test]
fn two_hundred_stalled_readers_grow_the_process_by_a_bound() {
    crate::rig::in_a_process_of_its_own("pressure::stalled_readers_alone", &[]);
}

#[test]
#[ignore = "measures its whole process: run by the test above in one of its own"]
fn stalled_readers_alone() {
    let provider = provider();
    let gate = Gate::before(&provider);
    let (client, _) = ask_and_stall(&gate, CHAT);
    let _ = settled(&provider);
    drop(client);
    gate.is_quiet();
    let before = resident_bytes();
    let stalled: Vec<_> = (0..200).map(|_| ask_and_stall(&gate, CHAT)).collect();
    let _ = settled(&provider);
    let grown = resident_bytes().saturating_sub(before);
    // Gateway and provider together, each with its own buffers.
    let bound = 200 * (256 + 128) * KIB;
    assert!(grown <= bound, "{grown} of at most {bound} bytes");
    drop(stalled);
    gate.is_quiet();
}
