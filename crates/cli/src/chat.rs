//! `firsttoken chat`: one question, its phases as they happen, its answer as it comes, and a line of
//! evidence at the end.
//!
//! Text goes to standard output, everything else to standard error, so that the answer can be piped.
//!
//! Invariant: Ctrl-C cancels at the provider: the connection is dropped, not only the display.

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use firsttoken_wire::chat::{Event, Status, StopReason};
use firsttoken_wire::{Dialect, sse};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::time::Instant;

/// A gap between two pieces of content above this is a stall.
const STALL: Duration = Duration::from_secs(1);
/// Largest single event.
const EVENT_BYTES_MAX: usize = 1 << 20;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The question.
    question: String,
    /// The gateway.
    #[arg(long, default_value = "http://127.0.0.1:8080", env = "FIRSTTOKEN_URL")]
    url: String,
    /// The model; the gateway's default otherwise.
    #[arg(long)]
    model: Option<String>,
    /// The gateway's key.
    #[arg(long, env = "FIRSTTOKEN_KEY", hide_env_values = true)]
    key: Option<String>,
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let asked = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Into::into);
    match asked.and_then(|runtime| runtime.block_on(ask(arguments))) {
        Ok(code) => code,
        Err(error) => {
            crate::complain(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

async fn ask(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let mut transcript = Transcript::new();
    let asking = async {
        let mut body = send(arguments, &mut transcript.sent).await?;
        let mut decoder = sse::Decoder::new(EVENT_BYTES_MAX);
        let mut parser = Dialect::Typed.parser();
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.context("the stream broke off")?.into_data() else { continue };
            transcript.on_bytes();
            decoder.push(&data);
            while let Some(event) = decoder.poll() {
                parser.parse(&event.as_event(), &mut |event| transcript.on_event(event));
            }
            if transcript.nobody_reads {
                break;
            }
        }
        anyhow::Ok(())
    };
    let cancelled = tokio::select! {
        done = asking => { done?; false }
        _ = tokio::signal::ctrl_c() => true,
    };
    transcript.finish(cancelled)
}

async fn send(arguments: &Arguments, sent: &mut Instant) -> anyhow::Result<Incoming> {
    let url = format!("{}/v1/chat", arguments.url.trim_end_matches('/'));
    let connector = hyper_rustls::HttpsConnectorBuilder::new()
        .with_provider_and_native_roots(rustls::crypto::ring::default_provider())
        .context("no root certificates on this system")?
        .https_or_http()
        .enable_http1()
        .build();
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build(connector);
    let mut question = serde_json::json!({ "question": arguments.question });
    if let Some(model) = &arguments.model {
        question["model"] = model.as_str().into();
    }
    let mut request = http::Request::post(&url).header("content-type", "application/json");
    if let Some(key) = &arguments.key {
        request = request.header("x-firsttoken-key", key);
    }
    let request = request.body(Full::from(question.to_string())).with_context(|| format!("--url {url}"))?;
    *sent = Instant::now();
    let response = client.request(request).await.map_err(|e| unreachable_gateway(&arguments.url, &e))?;
    let status = response.status();
    if status.is_success() {
        return Ok(response.into_body());
    }
    let body =
        response.into_body().collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let error = Dialect::Typed.parse_error_body(status.as_u16(), &body);
    bail!("{} ({status})", error.message)
}

fn unreachable_gateway(url: &str, error: &hyper_util::client::legacy::Error) -> anyhow::Error {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    anyhow::anyhow!(
        "no gateway answers at {url}: {cause}\nhint: start one with `firsttoken serve`, or name it with --url"
    )
}

/// What has been seen, and when.
struct Transcript {
    sent: Instant,
    first_byte: Option<Instant>,
    first_content: Option<Instant>,
    last_content: Option<Instant>,
    events: u64,
    stalls: u32,
    output_tokens: Option<u64>,
    overhead_ms: Option<f64>,
    model: String,
    stop: Option<StopReason>,
    ended: bool,
    error: Option<String>,
    /// A status line is on the terminal and has to go before text comes.
    status_shown: bool,
    in_text: bool,
    /// Where the answer comes from, a line each.
    sources: Vec<String>,
    terminal: bool,
    /// Standard output is closed, as behind `| head`: nobody wants the rest.
    nobody_reads: bool,
}

impl Transcript {
    fn new() -> Self {
        Self {
            sent: Instant::now(),
            first_byte: None,
            first_content: None,
            last_content: None,
            events: 0,
            stalls: 0,
            output_tokens: None,
            overhead_ms: None,
            model: String::new(),
            stop: None,
            ended: false,
            error: None,
            status_shown: false,
            in_text: false,
            sources: Vec::new(),
            terminal: std::io::stderr().is_terminal(),
            nobody_reads: false,
        }
    }

    fn on_bytes(&mut self) {
        self.first_byte.get_or_insert_with(Instant::now);
    }

    fn on_event(&mut self, event: Event<'_>) {
        if event.is_content() {
            self.on_content();
        }
        match event {
            Event::Status(status) => self.show_status(&status),
            Event::Text(text) => self.show(&text, false),
            Event::Reasoning(text) => self.show(&text, true),
            Event::Citation(citation) => self.sources.push(format!("{} · {}", citation.title, citation.url)),
            Event::ToolStart { name, .. } => self.show(&format!("[tool {name}] "), false),
            Event::ToolArguments { json, .. } => self.show(&json, false),
            Event::Meta(meta) => {
                self.overhead_ms = meta.overhead_ms;
                self.output_tokens = meta.usage.and_then(|u| u.output_tokens);
                self.model = meta.model.unwrap_or_default().to_owned();
            }
            Event::Stop(reason) => self.stop = Some(reason),
            Event::Error(error) => self.error = Some(error.message),
            Event::End => self.ended = true,
            _ => {}
        }
    }

    fn on_content(&mut self) {
        let now = Instant::now();
        self.events += 1;
        self.first_content.get_or_insert(now);
        if let Some(last) = self.last_content.replace(now) {
            self.stalls += u32::from(now - last > STALL);
        }
    }

    /// On a terminal one line that changes; elsewhere a line each.
    fn show_status(&mut self, status: &Status<'_>) {
        let (open, close) = if self.terminal { ("\r\x1b[2K\x1b[2m", "\x1b[0m") } else { ("", "\n") };
        self.status_shown = self.terminal;
        // Standard error is where a person looks; if nobody does, nothing is lost.
        let _ = write!(std::io::stderr(), "{open}{} ({} ms){close}", status.phase, status.elapsed_ms);
    }

    fn show(&mut self, text: &str, dim: bool) {
        if std::mem::take(&mut self.status_shown) {
            let _ = write!(std::io::stderr(), "\r\x1b[2K");
        }
        if dim {
            let _ = if self.terminal {
                write!(std::io::stderr(), "\x1b[2m{text}\x1b[0m")
            } else {
                write!(std::io::stderr(), "{text}")
            };
            return;
        }
        self.in_text = true;
        let mut out = std::io::stdout();
        let written = if out.is_terminal() {
            // What a model writes is text, not commands to a terminal.
            let plain: String =
                text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect();
            out.write_all(plain.as_bytes())
        } else {
            out.write_all(text.as_bytes())
        };
        self.nobody_reads |= written.and_then(|()| out.flush()).is_err();
    }

    fn finish(mut self, cancelled: bool) -> anyhow::Result<ExitCode> {
        if std::mem::take(&mut self.status_shown) {
            let _ = write!(std::io::stderr(), "\r\x1b[2K");
        }
        if self.nobody_reads {
            return Ok(ExitCode::SUCCESS);
        }
        if self.in_text {
            crate::say("");
        }
        for source in &self.sources {
            let _ = writeln!(std::io::stderr(), "source: {source}");
        }
        let _ = writeln!(std::io::stderr(), "{}", self.evidence(cancelled));
        if cancelled {
            return Ok(ExitCode::from(130));
        }
        if let Some(error) = self.error {
            bail!("{error}");
        }
        if !self.ended {
            bail!("the stream ended without its last event: the answer may be incomplete");
        }
        Ok(ExitCode::SUCCESS)
    }

    fn evidence(&self, cancelled: bool) -> String {
        let since = |at: Option<Instant>| {
            at.map_or_else(|| "–".to_owned(), |at| format!("{:.1} ms", (at - self.sent).as_secs_f64() * 1e3))
        };
        let span = self.first_content.zip(self.last_content).map_or(0.0, |(f, l)| (l - f).as_secs_f64());
        let rate = |n: u64| n.saturating_sub(1) as f64 / span;
        let pace = match (self.output_tokens, span > 0.0) {
            (_, false) => "–".to_owned(),
            (Some(tokens), true) => format!("{:.1} tokens/s", rate(tokens)),
            (None, true) => format!("{:.1} events/s (no usage reported)", rate(self.events)),
        };
        let overhead = self.overhead_ms.map_or(String::new(), |ms| format!(" · overhead {ms:.2} ms"));
        let end = match (&self.stop, cancelled) {
            (_, true) => " · cancelled".to_owned(),
            (Some(StopReason::Stop) | None, false) => String::new(),
            (Some(reason), false) => format!(" · ended by {reason:?}").to_lowercase(),
        };
        format!(
            "TTFB {} · TTFT {} · {pace} · {} stalls{overhead}{end}{}",
            since(self.first_byte),
            since(self.first_content),
            self.stalls,
            if self.model.is_empty() { String::new() } else { format!(" · {}", self.model) },
        )
    }
}
