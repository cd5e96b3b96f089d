//! A mock LLM upstream on loopback, with stamped tokens and a ledger. See `firsttoken_harness::mock`.

use std::io::{self, Write as _};
use std::net::SocketAddr;

use clap::Parser;
use firsttoken_harness::{mock, proc};

/// A mock LLM upstream: what it answers is written in the prompt.
#[derive(Parser)]
struct Args {
    /// Where to listen; port 0 picks a free one.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Kernel send buffer of each connection, in bytes, instead of the system's own.
    #[arg(long)]
    send_buffer_bytes: Option<usize>,
}

fn main() -> io::Result<()> {
    let args = Args::parse();
    if !args.listen.ip().is_loopback() {
        return Err(io::Error::other(format!("--listen {}: loopback only", args.listen)));
    }
    proc::raise_open_files()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        let listener = mock::bind(args.listen)?;
        // The one line on stdout, for whoever asked for port 0.
        let mut out = io::stdout();
        writeln!(out, "http://{}", listener.local_addr()?)?;
        out.flush()?;
        mock::serve(listener, mock::Options { send_buffer_bytes: args.send_buffer_bytes }).await;
        Ok(())
    })
}
