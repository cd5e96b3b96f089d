//! What remains of a run: raw figures per scenario, the last outcome of each bar, and the README's table.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::judge::{Arm, Judge, Outcome, Round, Verdict};
use super::table::{Bar, bars};
use crate::process;

/// Between these lines the README shows the bars.
const BEGIN: &str = "<!-- bars:begin -->";
const END: &str = "<!-- bars:end -->";

/// When and where a run took place.
#[derive(Clone, Debug)]
pub(super) struct Setting {
    /// UTC, RFC 3339.
    pub(super) when: String,
    /// Kind of machine, without its name.
    pub(super) machine: String,
    /// The peer and its version.
    pub(super) peer: String,
}

/// The last outcome of one bar, as recorded.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Row {
    /// Name of the bar.
    pub(super) name: String,
    /// A ratio to the peer, or our plain figure.
    pub(super) figure: Option<f64>,
    /// Unit of `figure`.
    pub(super) unit: String,
    /// What `figure` must not exceed.
    pub(super) bar: Option<f64>,
    /// What was said.
    pub(super) verdict: Verdict,
    /// Beside whom it was measured.
    peer: Option<String>,
    /// UTC.
    pub(super) when: String,
    machine: String,
    command: String,
    /// 95 % interval of a ratio.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) interval: Option<(f64, f64)>,
    /// The peer against itself, median and interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) again: Option<(f64, f64, f64)>,
    /// The ratio after the floor of the rig has been taken off both.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) net_of_direct: Option<f64>,
    /// Median figure of each arm, in the bar's own unit.
    pub(super) arms: BTreeMap<Arm, f64>,
    /// Why the verdict is not what the figure alone would say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) note: Option<String>,
}

impl Setting {
    /// Here and now.
    ///
    /// # Errors
    /// When the clock or the machine cannot be asked.
    pub(super) fn here(peer: String) -> Result<Self> {
        let when = process::output(&mut process::command("date", &["--utc", "+%FT%TZ"]))?.trim().to_owned();
        let cpus = std::fs::read_to_string("/proc/cpuinfo").context("cannot read /proc/cpuinfo")?;
        let model = cpus.lines().find_map(|l| l.strip_prefix("model name")).unwrap_or("unknown CPU");
        let count = cpus.lines().filter(|l| l.starts_with("processor")).count();
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let kernel = kernel.split('-').next().unwrap_or_default().trim();
        Ok(Self {
            when,
            machine: format!("{}, {count} CPUs, Linux {kernel}", model.trim_start_matches([' ', '\t', ':'])),
            peer,
        })
    }
}

/// nginx, by its own words.
///
/// # Errors
/// When it is not there.
pub(super) fn nginx() -> Result<String> {
    let nginx = process::find("nginx").context("nginx is missing\nhint: apt-get install nginx-light")?;
    let version = std::process::Command::new(nginx).arg("-v").output()?.stderr;
    Ok(String::from_utf8_lossy(&version).trim().trim_start_matches("nginx version: ").to_owned())
}

impl Row {
    /// The row of an outcome; `None` where we were not measured.
    pub(super) fn of(bar: &Bar, outcome: &Outcome, setting: &Setting) -> Option<Self> {
        let beside = || (format!("× {}", bar.peer.name()), Some(setting.peer.clone()));
        let (max, (unit, peer)) = match bar.judge {
            Judge::Ratio { max } => (max, beside()),
            Judge::Parity { max } => (Some(max), beside()),
            Judge::Plain { max, .. } => (Some(max), (bar.unit.to_owned(), None)),
        };
        Some(Self {
            name: bar.name.clone(),
            figure: outcome.figure.map(rounded),
            unit,
            bar: max,
            verdict: outcome.verdict?,
            peer,
            when: setting.when.clone(),
            machine: setting.machine.clone(),
            command: format!("cargo xtask bars {}", bar.name),
            interval: outcome.interval.map(|(a, b)| (rounded(a), rounded(b))),
            again: outcome.again.map(|p| (rounded(p.median), rounded(p.interval.0), rounded(p.interval.1))),
            net_of_direct: outcome.net.map(rounded),
            arms: outcome.arms.iter().map(|(arm, x)| (*arm, rounded(*x))).collect(),
            note: outcome.note.clone(),
        })
    }
}

/// Three decimals are more than any of these figures bears.
fn rounded(x: f64) -> f64 {
    (x * 1000.0).round() / 1000.0
}

fn folder() -> PathBuf {
    process::root().join("benchmarks")
}

/// The last outcome of every bar that was ever run.
///
/// # Errors
/// When the file is there and cannot be read.
pub(super) fn last() -> Result<Vec<Row>> {
    let path = folder().join("bars.json");
    if !path.exists() {
        return Ok(Vec::new());
    }
    let text = std::fs::read_to_string(&path)?;
    serde_json::from_str(&text).with_context(|| format!("cannot read {}", path.display()))
}

/// Files the raw figures of one scenario.
///
/// # Errors
/// When it cannot be written.
pub(super) fn raw(scenario: &str, rounds: &[Round], setting: &Setting) -> Result<()> {
    let mut rounds = rounds.to_vec();
    for report in rounds.iter_mut().flat_map(BTreeMap::values_mut) {
        // Their distribution stands beside them.
        if let Some(fields) = report.as_object_mut() {
            fields.remove("samples_us");
        }
    }
    let day = setting.when.split('T').next().unwrap_or_default();
    let Setting { when, machine, peer } = setting;
    let head = json!({ "scenario": scenario, "when": when, "machine": machine, "peer": peer });
    // One line per arm and round: compact, and still a readable diff.
    let mut text = format!("{{\"setting\":{head},\"rounds\":[");
    for (i, round) in rounds.iter().enumerate() {
        let arms: Vec<String> = round
            .iter()
            .map(|(arm, report)| Ok(format!("{}:{report}", serde_json::to_string(arm)?)))
            .collect::<Result<_>>()?;
        write!(text, "{}\n{{{}}}", if i > 0 { "," } else { "" }, arms.join(",\n"))?;
    }
    text.push_str("\n]}\n");
    serde_json::from_str::<Value>(&text).context("the raw figures are not JSON: a mistake here")?;
    std::fs::create_dir_all(folder())?;
    Ok(std::fs::write(folder().join(format!("{scenario}-{day}.json")), text)?)
}

/// Replaces the rows of these bars, keeps the others, and writes the README's table again.
///
/// # Errors
/// When a file cannot be read or written.
pub(super) fn keep(new: Vec<Row>) -> Result<()> {
    let names: Vec<String> = bars().into_iter().map(|b| b.name).collect();
    let mut rows: BTreeMap<String, Row> =
        last()?.into_iter().chain(new).map(|r| (r.name.clone(), r)).collect();
    // A bar that is no longer promised is no longer reported.
    rows.retain(|name, _| names.contains(name));
    let lines: Vec<String> = rows.values().map(serde_json::to_string).collect::<Result<_, _>>()?;
    std::fs::create_dir_all(folder())?;
    std::fs::write(folder().join("bars.json"), format!("[\n{}\n]\n", lines.join(",\n")))?;
    let readme = process::root().join("README.md");
    let Ok(text) = std::fs::read_to_string(&readme) else { return Ok(()) };
    match spliced(&text, &table(&rows)) {
        Some(new) => Ok(std::fs::write(readme, new)?),
        None => Ok(()),
    }
}

/// The README with this table between its markers; `None` if it has none.
fn spliced(text: &str, table: &str) -> Option<String> {
    let (head, rest) = text.split_once(BEGIN)?;
    let (_, tail) = rest.split_once(END)?;
    Some(format!("{head}{BEGIN}\n{table}{END}{tail}"))
}

fn table(rows: &BTreeMap<String, Row>) -> String {
    let mut text =
        String::from("| what | measured | bar | verdict | peer against itself |\n|---|---|---|---|---|\n");
    let mut machines: Vec<&str> = Vec::new();
    for bar in bars() {
        let Some(row) = rows.get(&bar.name) else { continue };
        let again = row.again.map_or_else(|| "–".to_owned(), |(m, ..)| format!("{m:.2}"));
        writeln!(
            text,
            "| {} | {} | {} | {} | {again} |",
            bar.what,
            row.measured(),
            row.promised(),
            row.verdict
        )
        .expect("a String takes every write");
        if !machines.contains(&row.machine.as_str()) {
            machines.push(&row.machine);
        }
    }
    writeln!(text, "\nMeasured on: {}.", machines.join("; ")).expect("a String takes every write");
    text
}

impl Row {
    /// The figure with its interval and unit.
    pub(super) fn measured(&self) -> String {
        let Some(figure) = self.figure else { return "–".into() };
        match self.interval {
            Some((low, high)) => format!("{figure:.2} ({low:.2}–{high:.2}) {}", self.unit),
            None => format!("{figure} {}", self.unit).trim_end().to_owned(),
        }
    }

    /// What it must not exceed.
    pub(super) fn promised(&self) -> String {
        self.bar.map_or_else(|| "–".into(), |bar| format!("≤ {bar} {}", self.unit).trim_end().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_goes_between_its_markers_and_nowhere_else() {
        let text = format!("a\n{BEGIN}\nold\n{END}\nb\n");
        assert_eq!(spliced(&text, "new\n"), Some(format!("a\n{BEGIN}\nnew\n{END}\nb\n")));
        assert_eq!(spliced("no markers", "new"), None);
    }
}
