//! Runs a scenario: rounds in which every arm has its turn, in an order that moves on by one each
//! round, so that no arm always comes after the same other.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::judge::{Arm, Round};
use super::rig::{Held, Launcher, Rig, Subject, free_port};
use super::table::{Closed, Load, MANY, Scenario};
use super::{Plan, demo, engine, quiet};
use crate::process;

/// Time after the ramp before anything counts.
const WARM_UP_S: f64 = 0.5;
/// Clients that leave, per arm and round.
const LEAVE: u32 = 300;
/// What a client of a stalled reader lets the kernel hold.
const STALLED_RECEIVE_BUFFER_BYTES: &str = "4096";
/// The mock's own send buffer there: what it has written is then what its peer has taken, or little more.
const MOCK_SEND_BUFFER_BYTES: &str = "16384";
/// How long streams are open before memory is read.
const OPEN: Duration = Duration::from_secs(60);
/// How long stalled readers are given to fill every buffer, and how often it is looked whether they have:
/// until then they do not stall, they are 5,000 streams at full speed.
const FILL_MAX: Duration = Duration::from_secs(60);
const FILL_LOOK: Duration = Duration::from_secs(2);

/// All rounds of one scenario.
///
/// # Errors
/// When a process does not come up or a client fails.
pub(super) fn rounds(scenario: &Scenario, plan: &Plan, launcher: &Launcher) -> Result<Vec<Round>> {
    match scenario.load {
        Load::Closed(closed) => {
            in_turns(scenario, plan, launcher, &|rig, s, _| closed_loop(rig, s, &closed, plan))
        }
        Load::Cancel { state, http2 } => {
            in_turns(scenario, plan, launcher, &|rig, s, round| cancel(rig, s, state, http2, round, plan))
        }
        Load::Memory => Ok(vec![memory(plan, launcher)?]),
        Load::Stalled => stalled(plan, launcher),
        Load::Connecting => connecting(plan, launcher).map(|round| vec![round]),
        Load::Command(args) => Ok(vec![command(args)?]),
        Load::Program(args) => in_rotation(scenario.name, plan, &[Arm::Ours], |_, _| program(args)),
        Load::Demo => demo::rounds(scenario.name, plan, launcher),
        Load::Engine(ref load) => engine::rounds(scenario.name, load, plan, launcher),
        Load::Disk => engine::disk::rounds(scenario.name, plan, launcher),
        Load::Overload => engine::overload::rounds(scenario.name, plan, launcher),
        Load::Relayed => engine::relayed::rounds(scenario.name, plan, launcher),
        Load::Pace => engine::pace::rounds(scenario.name, plan, launcher),
        Load::Leave => engine::leave::rounds(scenario.name, plan, launcher),
    }
}

/// What one arm does in one round.
type Turn<'a> = dyn Fn(&Rig, &Subject, usize) -> Result<Value> + 'a;

fn in_turns(scenario: &Scenario, plan: &Plan, launcher: &Launcher, turn: &Turn<'_>) -> Result<Vec<Round>> {
    let rig = launcher.rig(&plan.arms(), &[])?;
    in_rotation(scenario.name, plan, &plan.arms(), |arm, number| {
        let subject = rig.subjects.iter().find(|subject| subject.arm == arm);
        turn(&rig, subject.context("every arm has a subject")?, number)
    })
}

/// Rounds in which each of `arms` has its turn, by its name and the number of the round.
///
/// # Errors
/// When a turn fails.
pub(super) fn in_rotation(
    name: &str,
    plan: &Plan,
    arms: &[Arm],
    turn: impl Fn(Arm, usize) -> Result<Value>,
) -> Result<Vec<Round>> {
    let mut rounds = Vec::new();
    for number in 0..plan.rounds {
        wait_for_quiet(plan)?;
        let mut round = Round::new();
        for i in 0..arms.len() {
            let arm = arms[(number + i) % arms.len()];
            let report =
                turn(arm, number).with_context(|| format!("{name}, round {}, {arm:?}", number + 1))?;
            round.insert(arm, report);
        }
        println!("{name}: round {} of {}", number + 1, plan.rounds);
        rounds.push(round);
    }
    Ok(rounds)
}

/// Waits for others, as long as the plan's patience lasts.
///
/// # Errors
/// When the machine cannot be asked.
pub(super) fn wait_for_quiet(plan: &Plan) -> Result<()> {
    if !quiet::wait(plan.patience)? {
        println!("others keep this machine busy; measuring all the same");
    }
    Ok(())
}

fn closed_loop(rig: &Rig, subject: &Subject, closed: &Closed, plan: &Plan) -> Result<Value> {
    let seconds = |s: f64| format!("{s:.2}");
    let mut client = rig
        .client("load", subject)
        .with(&["--streams", &closed.streams.to_string(), "--spec", closed.spec])
        .with(&["--ramp", &seconds(closed.ramp_s), "--warm-up", &seconds(closed.ramp_s + WARM_UP_S)])
        .with(&["--window", &seconds(closed.window_s * plan.scale), "--mock", &rig.mock.to_string()])
        .with(closed.more);
    for tree in rig.trees(subject) {
        client = client.with(&["--cpu-of", &tree]);
    }
    let mut report = client.report()?;
    report["others_cpu"] = json!(others(&report["cpu_s"], closed.window_s * plan.scale));
    if subject.arm == Arm::Direct {
        // The first tree is the mock here: what it cost is no figure of a gateway.
        for figure in ["cpu_us_per_token", "cpu_us_per_request"] {
            report[figure] = Value::Null;
        }
    }
    Ok(report)
}

/// CPUs that neither we nor the subject used over the window: how disturbed this run was.
fn others(cpu_s: &Value, window_s: f64) -> Option<f64> {
    let seconds = |name: &str| cpu_s[name].as_f64();
    let known = seconds("subject").unwrap_or(0.0) + seconds("mock")? + seconds("client")?;
    Some((((seconds("machine")? - known) / window_s).max(0.0) * 100.0).round() / 100.0)
}

fn cancel(
    rig: &Rig,
    subject: &Subject,
    state: &str,
    http2: bool,
    round: usize,
    plan: &Plan,
) -> Result<Value> {
    let count = (f64::from(LEAVE) * plan.scale).round();
    let client = if http2 { rig.client_http2("cancel", subject) } else { rig.client("cancel", subject) };
    client
        .with(&["--mock", &rig.mock.to_string(), "--state", state])
        .with(&["--count", &count.to_string(), "--seed", &(round + 1).to_string()])
        .report()
}

/// Memory of fresh processes: idle, then with streams that tick every 3 s. All arms at the same
/// time, since memory takes nothing from anyone else's.
fn memory(plan: &Plan, launcher: &Launcher) -> Result<Round> {
    let rig = launcher.rig(&plan.arms_alone(), &[])?;
    let hold = |subject: &Subject, streams: u32| {
        let tree = rig.trees(subject).swap_remove(0);
        rig.client("hold", subject)
            .with(&["--streams", &streams.to_string(), "--spec", "ttft20,itl3000,n0"])
            .with(&["--ramp", &format!("{:.2}", f64::from(streams) / 1000.0), "--memory-of", &tree])
            .hold()
    };
    std::thread::sleep(Duration::from_secs(2));
    let mut round: Round = rig.subjects.iter().map(|s| (s.arm, json!({ "pss_mib": {} }))).collect();
    let mut holders: Vec<Vec<_>> = rig.subjects.iter().map(|_| Vec::new()).collect();
    for (key, more) in [("idle", 0), ("open_1000", 1_000), ("open_5000", MANY - 1_000)] {
        for (subject, held) in rig.subjects.iter().zip(&mut holders) {
            held.push(hold(subject, more)?);
        }
        if more > 0 {
            std::thread::sleep(OPEN.mul_f64(plan.scale));
        }
        for (subject, held) in rig.subjects.iter().zip(&mut holders) {
            let counts = held.iter_mut().map(Held::count).collect::<Result<Vec<_>>>()?;
            let report = round.entry(subject.arm).or_default();
            let last = counts.last().context("one holder was just pushed")?;
            report["pss_mib"][key] = json!(mib(&last["pss_kb"]["subject"]));
            report["failed"] = json!(counts.iter().filter_map(|c| c["lost"].as_u64()).sum::<u64>());
        }
        println!("memory: {key}");
    }
    Ok(round)
}

/// Healthy streams without, and beside, thousands that are never read.
fn stalled(plan: &Plan, launcher: &Launcher) -> Result<Vec<Round>> {
    let mut rounds = Vec::new();
    for number in 0..plan.rounds {
        wait_for_quiet(plan)?;
        // Fresh processes, since memory that an allocator keeps from the last round would count as idle.
        let rig = launcher.rig(&plan.arms_alone(), &["--send-buffer-bytes", MOCK_SEND_BUFFER_BYTES])?;
        let mut round = Round::new();
        for subject in &rig.subjects {
            // The peer is shown once: the bars are about us alone.
            if subject.arm == Arm::Ours || number == 0 {
                round.insert(subject.arm, stalled_once(&rig, subject, plan)?);
            }
        }
        println!("stalled-readers: round {} of {}", number + 1, plan.rounds);
        rounds.push(round);
    }
    Ok(rounds)
}

fn stalled_once(rig: &Rig, subject: &Subject, plan: &Plan) -> Result<Value> {
    let (tree, mock) = (rig.trees(subject).swap_remove(0), rig.mock.to_string());
    let hold = |streams: u32| {
        rig.client("hold", subject)
            .with(&["--streams", &streams.to_string(), "--spec", "n0,cs200,b20", "--ramp", "3"])
            .with(&["--stalled-receive-buffer-bytes", STALLED_RECEIVE_BUFFER_BYTES])
            .with(&["--memory-of", &tree, "--mock", &mock])
            .hold()
    };
    let healthy = || -> Result<f64> {
        let closed = Closed { streams: 64, spec: "ttft20,itl20,n50", ramp_s: 1.0, window_s: 3.0, more: &[] };
        let window_s = (closed.window_s * plan.scale).to_string();
        let report = rig
            .client("load", subject)
            .with(&["--streams", &closed.streams.to_string(), "--spec", closed.spec, "--ramp", "1"])
            .with(&["--warm-up", "1.5", "--window", &window_s])
            .report()?;
        report["itl_us"]["p99"].as_f64().context("no token was received")
    };
    let streams = (f64::from(MANY) * plan.scale).round();
    let idle = hold(0)?.opened["pss_kb"]["subject"].as_f64().context("no memory was read")?;
    let without = healthy()?;
    let mut held = hold(rounded(streams))?;
    fill(&mut held)?;
    let beside = healthy()?;
    let count = held.count()?;
    drop(held);
    let again = healthy()?;
    let number = |pointer: &str| {
        count.pointer(pointer).and_then(Value::as_f64).with_context(|| format!("no {pointer}"))
    };
    let kept = number("/mock/running")?;
    Ok(json!({
        "pss_kib_per_reader": (number("/pss_kb/subject")? - idle) / streams,
        "pulled_kib_max": number("/mock/bytes_running_max")? / 1024.0,
        "pulled_kib_mean": number("/mock/bytes_running")? / 1024.0 / kept.max(1.0),
        "lost": (streams - kept).max(0.0) + number("/lost")?,
        "itl_p99_ratio": beside / without,
        "itl_p99_ratio_again": again / without,
        "itl_p99_us": [without, beside, again],
    }))
}

/// Waits until nothing more is pulled from the mock.
fn fill(held: &mut Held) -> Result<()> {
    let mut before = 0.0;
    for _ in 0..FILL_MAX.as_secs() / FILL_LOOK.as_secs() {
        std::thread::sleep(FILL_LOOK);
        let bytes = held.count()?["mock"]["bytes_running"].as_f64().context("the mock counts no bytes")?;
        if bytes <= before {
            return Ok(());
        }
        before = bytes;
    }
    bail!("after {FILL_MAX:?} the readers that stall still take bytes");
}

fn rounded(x: f64) -> u32 {
    format!("{x:.0}").parse().unwrap_or(0)
}

/// Clients that leave while we dial an upstream that does not accept.
fn connecting(plan: &Plan, launcher: &Launcher) -> Result<Round> {
    let mut round = Round::new();
    for arm in plan.arms_alone() {
        let trap = free_port()?;
        let subject = launcher.subject(arm, trap)?;
        let client = launcher.client("connecting", &subject, &subject.url);
        let mut report = client.with(&["--trap", &trap.to_string()]).report()?;
        if report["control_arrived"] != json!(true) {
            report["problem"] = json!("the request of the client that stayed did not arrive either");
        }
        round.insert(arm, report);
    }
    Ok(round)
}

/// A test of our own as a measurement: 0 if it passes, 1 if it fails.
fn command(args: &[&str]) -> Result<Round> {
    /// What `cargo test` ends with when a test failed, or could not be built: then nothing is shown to hold.
    const TESTS_FAILED: i32 = 101;
    let status = process::watch(&mut process::cargo(args), |_| ())?;
    let report = match status.code() {
        Some(0) => json!({ "broken": 0 }),
        Some(TESTS_FAILED) => json!({ "broken": 1 }),
        _ => json!({ "problem": format!("cargo {}: {status}", args.join(" ")) }),
    };
    Ok(Round::from([(Arm::Ours, report)]))
}

/// What a program of ours reports on its only line.
fn program(args: &[&str]) -> Result<Value> {
    let report = process::output(&mut process::cargo(args))?;
    serde_json::from_str(&report).with_context(|| format!("cargo {}: {report:?}", args.join(" ")))
}

/// kB as MiB with one decimal.
fn mib(kb: &Value) -> Option<f64> {
    kb.as_f64().map(|kb| (kb / 102.4).round() / 10.0)
}
