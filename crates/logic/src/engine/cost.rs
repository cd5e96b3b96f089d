//! What a step costs, and what reading from disk does, learnt while it runs.
//!
//! A step of `rows` rows over `depth` cells each takes `base(rows) + slope × rows × depth`. The base is a
//! broken line over knots, since rows are not equally dear: one row reads all weights. There are two
//! slopes, since the kernels attend in tiles of 64 rows where a step has so many, and row by row where it
//! has not, which takes three times as long for a row: over many cells 64 rows are cheaper than 30. Each
//! measured step moves the two knots around it and its slope towards what was seen (normalised least mean
//! squares), so that the model follows the machine: a warm cache, a busy neighbour, another clock. How far
//! the forecasts are off is learnt too: who promises a pace promises it with that margin.
//!
//! Invariant: the base never falls with more rows, and nothing is ever below zero; so a forecast
//! never says that more work takes less time, but where more rows are a tile.

use core::time::Duration;

/// Rows at which the base is known; between them it is a line.
const KNOTS: [u32; 11] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];
/// Depth in which slopes are counted, in cells: rows × depth is then near the rows in size.
const DEPTH_UNIT: f64 = 4096.0;
/// Rows from which on the kernels attend in tiles.
pub const TILE: u32 = 64;
/// What attention takes for a row on its own, as a multiple of what it takes in a tile, before it is known.
const ALONE: f64 = 3.0;
/// How far one step moves the model towards what it took, once a knot has been seen a few times.
const RATE: f64 = 0.1;
/// Margin of a promise, in mean deviations: for a normal spread one in a hundred is above.
const MARGIN: f64 = 2.9;
/// How far forecasts are off before there were any.
const DEVIATION: f64 = 0.05;
/// A step that takes more than this many times its forecast teaches no more than one that takes so
/// many times: the machine was away, and will be back.
const SURPRISE_MAX: f64 = 3.0;

/// The cost of steps, in seconds.
#[derive(Clone, Debug)]
pub struct StepCost {
    base: [f64; KNOTS.len()],
    /// Seconds for a row over [`DEPTH_UNIT`] cells: on its own, and in a tile.
    slopes: [Slope; 2],
    /// Steps that have taught each knot.
    seen: [u32; KNOTS.len()],
    /// How far forecasts have been off, as a share of them.
    deviation: f64,
}

/// What attention takes.
#[derive(Clone, Copy, Debug)]
struct Slope {
    seconds: f64,
    /// Steps that have taught it, each counted by the part of it that was attention.
    seen: f64,
}

impl Default for StepCost {
    fn default() -> Self {
        Self::new(Duration::from_millis(4), Duration::from_micros(1400), Duration::from_micros(3000))
    }
}

impl StepCost {
    /// A first guess, forgotten with the first steps: what a step costs, and each row more, and each
    /// row of a tile over 4096 cells more.
    #[must_use]
    pub fn new(step: Duration, row: Duration, row_over_4096_cells: Duration) -> Self {
        let base = KNOTS.map(|rows| step.as_secs_f64() + row.as_secs_f64() * f64::from(rows));
        let tiled = row_over_4096_cells.as_secs_f64();
        let slopes = [tiled * ALONE, tiled].map(|seconds| Slope { seconds, seen: 0.0 });
        Self { base, slopes, seen: [0; KNOTS.len()], deviation: DEVIATION }
    }

    /// From what steps over nothing took: (rows, time), fewest rows first. Beyond the last one each row
    /// costs what it costs there, and attention is dear as it usually is beside that.
    #[must_use]
    pub fn measured(steps: &[(u32, Duration)]) -> Self {
        let mut cost = Self::default();
        let Some((most, took)) = steps.last().filter(|(rows, _)| *rows > 0) else { return cost };
        let row = took.as_secs_f64() / f64::from(*most);
        cost.steepen(row / (cost.base[KNOTS.len() - 1] / f64::from(KNOTS[KNOTS.len() - 1])));
        for (at, rows) in KNOTS.into_iter().enumerate() {
            let next = steps.partition_point(|(measured, _)| *measured < rows);
            cost.base[at] = match (next.checked_sub(1).map(|before| steps[before]), steps.get(next)) {
                (_, Some((measured, took))) if *measured == rows => took.as_secs_f64(),
                (Some((low, before)), Some((high, after))) => {
                    let way = f64::from(rows - low) / f64::from(high - low);
                    before.as_secs_f64() * (1.0 - way) + after.as_secs_f64() * way
                }
                (None, Some((_, took))) => took.as_secs_f64(),
                (_, None) => row * f64::from(rows),
            };
            cost.seen[at] = u32::from(next < steps.len());
        }
        cost.straighten(0, false);
        cost
    }

    /// How long a step is expected to take.
    #[must_use]
    pub fn forecast(&self, rows: u32, depth: u32) -> Duration {
        Duration::from_secs_f64(self.seconds(rows, depth))
    }

    /// What a step took.
    pub fn on_step(&mut self, rows: u32, depth: u32, took: Duration) {
        if rows == 0 {
            return;
        }
        let expected = self.seconds(rows, depth).max(1e-9);
        let took = took.as_secs_f64();
        let (low, weight) = knot(rows);
        if self.seen.iter().all(|seen| *seen == 0) {
            let ratio = took / expected;
            self.base = self.base.map(|base| base * ratio);
            self.steepen(ratio);
            self.seen[low] = 1;
            return;
        }
        let error = took.min(expected * SURPRISE_MAX) - expected;
        self.deviation += RATE * ((error / expected).max(-error / expected) - self.deviation);
        let attended = f64::from(rows) * f64::from(depth) / DEPTH_UNIT;
        // Each parameter moves by its share of the forecast, so that a shallow step teaches the base
        // and a deep one the slope as well.
        let slope = &mut self.slopes[way(rows)];
        let deep = (slope.seconds * attended / expected).clamp(0.0, 1.0);
        if attended > 0.0 {
            slope.seen += deep;
            // And no further than attention was a part of it: a hiccup of a shallow step says nothing of it.
            let rate = RATE.max(1.0 / (slope.seen + 1.0)) * deep;
            slope.seconds = (slope.seconds + rate * error * deep / attended).max(0.0);
        }
        let shallow = 1.0 - deep;
        let lines = (1.0 - weight) * (1.0 - weight) + weight * weight;
        self.teach(low, error * shallow * (1.0 - weight) / lines, weight < 0.5);
        if weight > 0.0 {
            self.teach(low + 1, error * shallow * weight / lines, weight >= 0.5);
        }
        self.straighten(low, weight > 0.0);
    }

    /// Moves a knot towards what was seen: far at first, then by [`RATE`].
    fn teach(&mut self, knot: usize, error: f64, near: bool) {
        self.seen[knot] = self.seen[knot].saturating_add(u32::from(near));
        self.base[knot] += error * RATE.max(1.0 / f64::from(self.seen[knot] + 1));
    }

    fn steepen(&mut self, ratio: f64) {
        for slope in &mut self.slopes {
            slope.seconds *= ratio;
        }
    }

    /// The most rows, of `max`, with which a step over `depth` cells stays within `target`, with the
    /// margin that the last forecasts ask for.
    #[must_use]
    pub fn rows_within(&self, target: Duration, depth: u32, max: u32) -> u32 {
        let target = target.as_secs_f64() / (1.0 + MARGIN * self.deviation);
        if max >= TILE && self.seconds(TILE, depth) <= target {
            self.most(target, depth, TILE, max)
        } else {
            self.most(target, depth, 0, max.min(TILE - 1))
        }
    }

    /// The most rows up to `max` that take no more than `target` seconds, of which `fits` do.
    fn most(&self, target: f64, depth: u32, mut fits: u32, max: u32) -> u32 {
        let mut exceeds = max + 1;
        while exceeds - fits > 1 {
            let middle = fits.midpoint(exceeds);
            if self.seconds(middle, depth) <= target {
                fits = middle;
            } else {
                exceeds = middle;
            }
        }
        fits
    }

    /// Cells that may lie idle before they slow a step of `rows` rows by `share` of what it takes.
    #[must_use]
    pub fn idle_cells(&self, rows: u32, depth: u32, share: f64) -> u32 {
        let allowed = self.seconds(rows, depth) * share;
        let cells =
            allowed * DEPTH_UNIT / (self.slopes[way(rows)].seconds * f64::from(rows.max(1))).max(1e-12);
        // Saturates where attention is free.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
        let cells = cells as u32;
        cells
    }

    fn seconds(&self, rows: u32, depth: u32) -> f64 {
        if rows == 0 {
            return 0.0;
        }
        let (low, weight) = knot(rows);
        let high = self.base[(low + 1).min(KNOTS.len() - 1)];
        let mut base = self.base[low] * (1.0 - weight) + high * weight;
        let last = KNOTS[KNOTS.len() - 1];
        if rows > last {
            base *= f64::from(rows) / f64::from(last);
        }
        base + self.slopes[way(rows)].seconds * f64::from(rows) * f64::from(depth) / DEPTH_UNIT
    }

    /// Keeps the base from falling, on both sides of the knots that moved.
    fn straighten(&mut self, low: usize, both: bool) {
        let high = if both { low + 1 } else { low };
        self.base[low] = self.base[low].max(1e-6);
        self.base[high] = self.base[high].max(self.base[low]);
        for knot in high + 1..KNOTS.len() {
            self.base[knot] = self.base[knot].max(self.base[knot - 1]);
        }
        for knot in (0..low).rev() {
            self.base[knot] = self.base[knot].min(self.base[knot + 1]);
        }
    }
}

/// Bytes that a disk gives in a second before it has been asked: what a single spinning one does, so that
/// nobody waits for a slow one who could have computed meanwhile.
const DISK_BYTES_PER_S: f64 = 100e6;
/// What the first byte of a file takes, in seconds.
const DISK_SEEK_S: f64 = 0.01;
/// How far one file moves what is believed of the disk.
const DISK_RATE: f64 = 0.25;

/// The cost of reading from disk: a seek, and seconds for each byte.
#[derive(Clone, Debug)]
pub struct ReadCost {
    byte: f64,
}

impl Default for ReadCost {
    fn default() -> Self {
        Self { byte: 1.0 / DISK_BYTES_PER_S }
    }
}

impl ReadCost {
    /// How long a file of so many bytes is expected to take.
    #[must_use]
    pub fn forecast(&self, bytes: u64) -> Duration {
        #[expect(clippy::cast_precision_loss, reason = "a forecast")]
        let seconds = DISK_SEEK_S + bytes as f64 * self.byte;
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }

    /// What one took, the seek included: many small files make a disk slow, and so it is believed.
    pub fn on_read(&mut self, bytes: u64, took: Duration) {
        if bytes > 0 {
            #[expect(clippy::cast_precision_loss, reason = "a forecast")]
            let byte = took.as_secs_f64() / bytes as f64;
            self.byte += DISK_RATE * (byte - self.byte);
        }
    }
}

/// How a step of so many rows attends: row by row, or in tiles.
fn way(rows: u32) -> usize {
    usize::from(rows >= TILE)
}

/// The knot at or below `rows`, and how far `rows` is on the way to the next one.
fn knot(rows: u32) -> (usize, f64) {
    let low = KNOTS.partition_point(|knot| *knot <= rows).saturating_sub(1);
    match KNOTS.get(low + 1) {
        Some(high) => (low, f64::from(rows - KNOTS[low]) / f64::from(high - KNOTS[low])),
        None => (low, 0.0),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A machine as measured: dear single rows, tiles from 64 on, attention by depth, dear outside of tiles.
    fn machine(rows: u32, depth: u32) -> Duration {
        let base = [(1, 6.0), (2, 9.0), (4, 15.7), (8, 27.0), (64, 95.0), (512, 703.0)];
        let at = base.partition_point(|(knot, _)| *knot <= rows).clamp(1, base.len() - 1);
        let ((x0, y0), (x1, y1)) = (base[at - 1], base[at]);
        let ms = y0 + (y1 - y0) * (f64::from(rows) - f64::from(x0)) / (f64::from(x1) - f64::from(x0));
        let cell = if rows < TILE { 0.0021 } else { 0.00077 };
        Duration::from_secs_f64((ms + cell * f64::from(rows) * f64::from(depth)) / 1000.0)
    }

    #[test]
    fn it_learns_the_machine() {
        let mut cost = StepCost::default();
        for round in 0..400_u32 {
            for rows in [1, 4, 8, 68, 132, 260] {
                let depth = (round * 97) % 16_000;
                cost.on_step(rows, depth, machine(rows, depth));
            }
        }
        for (rows, depth) in [(1, 500), (4, 4000), (8, 15_000), (68, 2000), (132, 12_000), (260, 8000)] {
            let ratio = cost.forecast(rows, depth).as_secs_f64() / machine(rows, depth).as_secs_f64();
            assert!(
                (0.85..1.15).contains(&ratio),
                "{rows} rows over {depth} cells: {ratio:.2} of what it takes"
            );
        }
    }

    #[test]
    fn what_was_measured_is_what_is_forecast() {
        let steps = [1, 4, 16, 64].map(|rows| (rows, machine(rows, 0)));
        let cost = StepCost::measured(&steps);
        for (rows, took) in steps {
            assert_eq!(cost.forecast(rows, 0), took, "{rows} rows");
        }
        for (rows, depth) in [(2, 0), (8, 0), (32, 0), (128, 0), (512, 0), (64, 4096)] {
            let ratio = cost.forecast(rows, depth).as_secs_f64() / machine(rows, depth).as_secs_f64();
            assert!(
                (0.7..1.3).contains(&ratio),
                "{rows} rows over {depth} cells: {ratio:.2} of what it takes"
            );
        }
        assert_eq!(StepCost::measured(&[]).forecast(8, 0), StepCost::default().forecast(8, 0));
        let noisy = [(1, Duration::from_millis(9)), (2, Duration::from_millis(4))];
        assert!(StepCost::measured(&noisy).forecast(1, 0) <= StepCost::measured(&noisy).forecast(2, 0));
    }

    #[test]
    fn rows_are_as_many_as_fit() {
        let ms = Duration::from_millis;
        let cost = StepCost::new(ms(4), ms(1), ms(1));
        // What a step may take, and the margin that nobody has given a reason for yet.
        let within = |took: f64, depth, max| {
            let target = Duration::from_secs_f64(took * (1.0 + MARGIN * DEVIATION) / 1000.0);
            cost.rows_within(target, depth, max)
        };
        assert_eq!(within(104.5, 0, 512), 100);
        assert_eq!(within(132.5, 4096, 512), 64);
        assert_eq!(within(104.5, 4096, 512), 25, "three times as dear");
        assert_eq!(within(104.5, 4096, 20), 20);
        assert_eq!(within(1.0, 0, 512), 0);
        assert_eq!(within(9000.0, 0, 512), 512);
    }

    #[test]
    fn one_pause_of_the_machine_is_not_believed() {
        let mut cost = StepCost::default();
        for _ in 0..200 {
            cost.on_step(8, 100, Duration::from_millis(20));
        }
        cost.on_step(8, 100, Duration::from_secs(30));
        assert!(cost.forecast(8, 100) < Duration::from_millis(25));
    }

    #[test]
    fn a_disk_is_believed_slow_until_it_has_been_fast() {
        let (mut disk, bytes) = (ReadCost::default(), 100_000_000);
        assert_eq!(disk.forecast(bytes), Duration::from_millis(1010));
        for _ in 0..20 {
            disk.on_read(bytes, Duration::from_millis(50));
        }
        assert!(disk.forecast(bytes) < Duration::from_millis(70));
        disk.on_read(bytes, Duration::from_secs(4));
        assert!(disk.forecast(bytes) > Duration::from_secs(1), "one slow file is a warning");
    }

    proptest! {
        #[test]
        fn more_work_never_takes_less(
            steps in prop::collection::vec((1..600_u32, 0..40_000_u32, 0..2_000_000_u64), 0..200),
            rows in 1..600_u32,
            depth in 0..40_000_u32,
        ) {
            let mut cost = StepCost::default();
            for (rows, depth, took_us) in steps {
                cost.on_step(rows, depth, Duration::from_micros(took_us));
            }
            prop_assert!(rows + 1 == TILE || cost.forecast(rows, depth) <= cost.forecast(rows + 1, depth));
            prop_assert!(cost.forecast(rows, depth) <= cost.forecast(rows, depth + 1));
        }
    }
}
