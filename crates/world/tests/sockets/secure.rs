//! Upstreams over TLS: which protocol is spoken, through which proxy, and what a failure is called.
//!
//! Which roots are trusted is the process's own matter (`SSL_CERT_FILE`), so these run in one that
//! trusts a certificate made for them.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use firsttoken_gateway::server;
use firsttoken_sim::{Options, Sim};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::client::Answer;
use crate::rig::{self, Gate, body, error_of, eventually, toml};
use crate::upstream::Upstream;

const CHAT: &str = "/v1/chat/completions";
/// Says to the child where the certificate and its key are.
const PLACE: &str = "FIRSTTOKEN_TEST_CERTIFICATE";

#[test]
fn upstreams_over_tls() {
    let place = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("tls-{}", std::process::id()));
    std::fs::create_dir_all(&place).unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(place.join("root.pem"), made.cert.pem()).unwrap();
    std::fs::write(place.join("cert.der"), made.cert.der()).unwrap();
    std::fs::write(place.join("key.der"), made.signing_key.serialize_der()).unwrap();
    let root = place.join("root.pem");
    rig::in_a_process_of_its_own(
        "secure::alone",
        &[("SSL_CERT_FILE", root.to_str().unwrap()), (PLACE, place.to_str().unwrap())],
    );
    std::fs::remove_dir_all(&place).unwrap();
}

/// A scripted provider behind TLS, with the certificate that this process trusts or with another.
struct Tls {
    sim: Arc<Sim>,
    addr: SocketAddr,
    /// Dropped, it ends the serving.
    _shutdown: tokio::sync::oneshot::Sender<()>,
}

impl Tls {
    fn start(alpn: &[&[u8]], trusted: bool) -> Self {
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(server_config(alpn, trusted)));
        let sim = Sim::new(Options::default());
        let listener = server::listen(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let addr = listener.local_addr().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (shutdown, stopped) = tokio::sync::oneshot::channel::<()>();
        let serving = sim.clone();
        let accepting = async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let (acceptor, sim) = (acceptor.clone(), serving.clone());
                drop(tokio::spawn(async move {
                    if let Ok(stream) = acceptor.accept(socket).await {
                        sim.serve_connection(stream).await;
                    }
                }));
            }
        };
        drop(std::thread::spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = accepting => {}
                    _ = stopped => {}
                }
            });
        }));
        Self { sim, addr, _shutdown: shutdown }
    }

    fn url(&self) -> String {
        format!("https://localhost:{}", self.addr.port())
    }
}

fn server_config(alpn: &[&[u8]], trusted: bool) -> rustls::ServerConfig {
    let (cert, key) = if trusted {
        let place = PathBuf::from(std::env::var(PLACE).unwrap());
        let read = |name: &str| std::fs::read(Path::new(&place).join(name)).unwrap();
        (CertificateDer::from(read("cert.der")), read("key.der"))
    } else {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        (made.cert.der().clone(), made.signing_key.serialize_der())
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert], PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key)))
        .unwrap();
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    config
}

fn chat(gate: &Gate) -> Answer {
    gate.post(CHAT, &[], &body(CHAT, "sim-ttft1-itl1-n20"))
}

/// Two chats that must come out whole, the second over the connection of the first.
fn whole(gate: &Gate, tls: &Tls, version: &str) {
    for reused in [false, true] {
        let answer = chat(gate);
        assert!(answer.status == 200 && answer.text().ends_with("data: [DONE]\n\n"), "{}", answer.text());
        assert_eq!(tls.sim.last().unwrap().version, version);
        assert_eq!(gate.timeline(&answer.id(), &[])["connection_reused"], reused);
    }
}

/// What a chat fails with.
fn failure(gate: &Gate) -> (String, String) {
    let answer = chat(gate);
    assert_eq!(answer.status, 502, "{}", answer.text());
    error_of(CHAT, &answer)
}

mod alone {
    use super::*;

    #[test]
    #[ignore = "needs a root of its own: run by the test above"]
    fn without_alpn_http_1_is_spoken() {
        for alpn in [&[][..], &[b"http/1.1".as_slice()]] {
            let tls = Tls::start(alpn, true);
            whole(&Gate::start(&toml(&tls.url(), "", "")), &tls, "HTTP/1.1");
        }
    }

    #[test]
    #[ignore = "needs a root of its own: run by the test above"]
    fn http_2_is_spoken_where_the_upstream_offers_it() {
        let tls = Tls::start(&[b"h2", b"http/1.1"], true);
        whole(&Gate::start(&toml(&tls.url(), "", "")), &tls, "HTTP/2.0");
    }

    #[test]
    #[ignore = "needs a root of its own: run by the test above"]
    fn a_client_that_leaves_ends_its_stream_over_tls() {
        for alpn in [b"h2".as_slice(), b"http/1.1"] {
            let tls = Tls::start(&[alpn], true);
            let gate = Gate::start(&toml(&tls.url(), "", ""));
            let mut client = crate::client::Client::connect(gate.addr);
            let endless = body(CHAT, "sim-ttft1-itl5-n1000000").to_string();
            client.send(&crate::client::request("POST", CHAT, &[], endless.as_bytes()));
            let _ = client.read_to("data:");
            drop(client);
            eventually("the provider was let go", || (tls.sim.stats(0).aborted == 1).then_some(()));
            gate.is_quiet();
        }
    }

    #[test]
    #[ignore = "needs a root of its own: run by the test above"]
    fn a_tunnel_through_a_proxy_is_asked_for_with_its_credentials() {
        let tls = Tls::start(&[b"http/1.1"], true);
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let proxy = {
            let (asked, addr) = (asked.clone(), tls.addr);
            Upstream::start(move |peer| {
                peer.head_only();
                asked.lock().unwrap().push(peer.heard());
                peer.say("HTTP/1.1 200 Connection established\r\nvia: proxy\r\n\r\n");
                splice(&peer.socket, &TcpStream::connect(addr).unwrap());
            })
        };
        let through = format!("proxy = \"http://us%65r:pass@{}\"\napi_key", proxy.addr);
        let gate = Gate::start(&toml(&tls.url(), "", "").replace("api_key", &through));
        whole(&gate, &tls, "HTTP/1.1");
        let asked = asked.lock().unwrap().clone();
        let [asked] = asked.as_slice() else { panic!("{asked:?}") };
        let asked = asked.to_ascii_lowercase();
        assert!(asked.starts_with(&format!("connect localhost:{} http/1.1\r\n", tls.addr.port())), "{asked}");
        // user:pass
        assert!(asked.contains("proxy-authorization: basic dxnlcjpwyxnz\r\n"), "{asked}");
        assert!(!asked.contains("sk-theirs"), "{asked}");
    }

    #[test]
    #[ignore = "needs a root of its own: run by the test above"]
    fn a_proxy_that_refuses_is_named() {
        for (said, word) in [
            ("HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n", "authorization"),
            ("HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n", "unsuccessful"),
        ] {
            let proxy = Upstream::start(move |peer| {
                peer.head_only();
                peer.say(said);
            });
            let through = format!("proxy = \"http://{}\"\napi_key", proxy.addr);
            let gate = Gate::start(&toml("https://localhost:1", "", "").replace("api_key", &through));
            let (message, code) = failure(&gate);
            assert_eq!(code, "upstream_connect", "{message}");
            assert!(message.contains(word) && message.contains("proxy"), "{message}");
        }
    }

    #[test]
    #[ignore = "needs a root of its own: run by the test above"]
    fn tls_that_fails_is_named() {
        let untrusted = Tls::start(&[b"h2"], false);
        let trusted = Tls::start(&[b"h2"], true);
        let plain = Upstream::start(|peer| {
            peer.say("HTTP/1.1 400 Bad Request\r\n\r\n");
            peer.until_left();
        });
        let cases = [
            (untrusted.url(), "certificate"),
            (format!("https://127.0.0.1:{}", trusted.addr.port()), "certificate"),
            (format!("https://localhost:{}", plain.addr.port()), "TLS"),
        ];
        for (url, word) in cases {
            let (message, code) = failure(&Gate::start(&toml(&url, "", "")));
            assert_eq!(code, "upstream_tls", "{url}: {message}");
            assert!(message.contains(word) && message.contains("TLS with"), "{url}: {message}");
        }
        assert_eq!(trusted.sim.stats(0).started, 0);
    }
}

/// Passes bytes in both directions until both have ended.
fn splice(one: &TcpStream, other: &TcpStream) {
    std::thread::scope(|scope| {
        for (mut from, mut to) in [(one, other), (other, one)] {
            scope.spawn(move || {
                let mut buffer = [0; 16 * 1024];
                while let Ok(n @ 1..) = from.read(&mut buffer) {
                    if to.write_all(&buffer[..n]).is_err() {
                        break;
                    }
                }
                let _ = to.shutdown(std::net::Shutdown::Both);
            });
        }
    });
}
