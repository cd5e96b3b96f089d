//! The load client: one mode per question, one JSON object on stdout. See `firsttoken_harness::client`.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use firsttoken_harness::client::phase::Phase;
use firsttoken_harness::client::{Target, cancel, connecting, hold, load, phases};
use firsttoken_harness::proc;
use tokio::io::AsyncBufReadExt;

/// Loads an OpenAI- or Anthropic-compatible endpoint on loopback and times every token.
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    mode: Mode,
}

#[derive(Subcommand)]
enum Mode {
    /// Keep so many requests going and time them.
    Load {
        #[command(flatten)]
        target: TargetArgs,
        /// Requests in flight.
        #[arg(long, short = 'c', default_value_t = 1)]
        streams: usize,
        /// Seconds over which the first requests are spread.
        #[arg(long, default_value_t = 0.5)]
        ramp: f64,
        /// Seconds before the window, the ramp included.
        #[arg(long, default_value_t = 1.0)]
        warm_up: f64,
        /// Seconds that count.
        #[arg(long, default_value_t = 5.0)]
        window: f64,
        /// Report the CPU time of a process tree over the window: `NAME=PID`; per token of the first one.
        #[arg(long, value_parser = named_pid)]
        cpu_of: Vec<(String, i32)>,
        /// The mock behind the target: say how many requests it still has after all clients have left.
        #[arg(long)]
        mock: Option<SocketAddr>,
    },
    /// Leave requests at random times and ask the mock when it noticed.
    Cancel {
        #[command(flatten)]
        target: TargetArgs,
        /// The mock behind the target.
        #[arg(long)]
        mock: SocketAddr,
        /// When they leave.
        #[arg(long)]
        state: StateArg,
        /// Speak HTTP/2 with prior knowledge and reset the stream.
        #[arg(long)]
        http2: bool,
        /// How many leave.
        #[arg(long, default_value_t = 300)]
        count: u64,
        /// How many are there at a time.
        #[arg(long, short = 'c', default_value_t = 50)]
        streams: usize,
        /// Seed of the random times.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Open streams and keep them until stdin ends; say how it stands at first and for each line there.
    Hold {
        #[command(flatten)]
        target: TargetArgs,
        /// How many.
        #[arg(long, short = 'c')]
        streams: usize,
        /// Seconds over which they are opened.
        #[arg(long, default_value_t = 1.0)]
        ramp: f64,
        /// Never read, behind a receive buffer of so many bytes.
        #[arg(long)]
        stalled_receive_buffer_bytes: Option<usize>,
        /// Report the memory of a process tree: `NAME=PID`.
        #[arg(long, value_parser = named_pid)]
        memory_of: Vec<(String, i32)>,
        /// Report what the mock behind the target has written.
        #[arg(long)]
        mock: Option<SocketAddr>,
    },
    /// Leave while the gateway dials an upstream whose backlog is full.
    Connecting {
        #[command(flatten)]
        target: TargetArgs,
        /// Where the gateway believes its upstream.
        #[arg(long)]
        trap: SocketAddr,
        /// How many leave.
        #[arg(long, default_value_t = 200)]
        count: u64,
        /// Seed of the random times.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Ask a model server in phases and time what each request hears.
    Phases {
        #[command(flatten)]
        target: TargetArgs,
        /// A phase, such as `cold:together,count=8,shared=2048,own=64,out=32`; as often as there are phases.
        #[arg(long = "phase", required = true)]
        phases: Vec<Phase>,
        /// Seed of the prompts.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
}

#[derive(Args)]
struct TargetArgs {
    /// Whom to ask, such as `http://127.0.0.1:8080/v1/chat/completions`.
    #[arg(long)]
    url: String,
    /// A header line to send, such as `authorization: Bearer KEY`.
    #[arg(long, short = 'H')]
    header: Vec<String>,
    /// Model to name.
    #[arg(long, default_value = "mock")]
    model: String,
    /// What the mock shall do.
    #[arg(long, default_value = "ttft20,itl20,n50")]
    spec: String,
    /// Ask for a whole answer.
    #[arg(long)]
    no_stream: bool,
    /// Bytes of prompt beside the script.
    #[arg(long, default_value_t = 1000)]
    prompt_bytes: usize,
}

impl TargetArgs {
    fn target(self) -> io::Result<Target> {
        let (addr, path) = Target::split_url(&self.url)?;
        Ok(Target {
            addr,
            path,
            headers: self.header,
            model: self.model,
            spec: self.spec,
            stream: !self.no_stream,
            prompt_bytes: self.prompt_bytes,
        })
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum StateArg {
    MidStream,
    Silent,
    BeforeFirstByte,
    NonStream,
}

impl From<StateArg> for cancel::State {
    fn from(arg: StateArg) -> Self {
        match arg {
            StateArg::MidStream => Self::MidStream,
            StateArg::Silent => Self::Silent,
            StateArg::BeforeFirstByte => Self::BeforeFirstByte,
            StateArg::NonStream => Self::NonStream,
        }
    }
}

fn named_pid(text: &str) -> Result<(String, i32), String> {
    let (name, pid) = text.split_once('=').ok_or("NAME=PID is needed")?;
    Ok((name.to_owned(), pid.parse().map_err(|e| format!("{pid}: {e}"))?))
}

fn main() -> io::Result<()> {
    let cli = Cli::parse();
    proc::raise_open_files()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    tokio::task::LocalSet::new().block_on(&runtime, run(cli.mode))
}

async fn run(mode: Mode) -> io::Result<()> {
    let seconds = Duration::from_secs_f64;
    match mode {
        Mode::Load { target, streams, ramp, warm_up, window, cpu_of, mock } => {
            let (ramp, warm_up, window) = (seconds(ramp), seconds(warm_up), seconds(window));
            print(
                &load::run(load::Plan {
                    target: target.target()?,
                    streams,
                    ramp,
                    warm_up,
                    window,
                    cpu_of,
                    mock,
                })
                .await?,
            )
        }
        Mode::Cancel { target, mock, state, http2, count, streams, seed } => {
            let plan = cancel::Plan {
                target: target.target()?,
                mock,
                state: state.into(),
                http2,
                count,
                streams,
                seed,
            };
            print(&cancel::run(plan).await?)
        }
        Mode::Hold { target, streams, ramp, stalled_receive_buffer_bytes, memory_of, mock } => {
            let plan = hold::Plan {
                target: target.target()?,
                streams,
                ramp: seconds(ramp),
                stalled_receive_buffer_bytes,
            };
            hold(plan, &hold::Watch { memory_of, mock }).await
        }
        Mode::Connecting { target, trap, count, seed } => {
            print(&connecting::run(connecting::Plan { target: target.target()?, trap, count, seed }).await?)
        }
        Mode::Phases { target, phases, seed } => {
            print(&phases::run(phases::Plan { target: target.target()?, phases, seed }).await?)
        }
    }
}

async fn hold(plan: hold::Plan, watch: &hold::Watch) -> io::Result<()> {
    let held = hold::open(plan, Duration::from_secs(10)).await;
    print(&held.count(watch).await?)?;
    let mut lines = tokio::io::BufReader::new(tokio::io::stdin()).lines();
    while lines.next_line().await?.is_some() {
        print(&held.count(watch).await?)?;
    }
    held.close().await;
    Ok(())
}

fn print(value: &impl serde::Serialize) -> io::Result<()> {
    let mut out = io::stdout();
    writeln!(out, "{}", serde_json::to_string(value)?)?;
    out.flush()
}
