//! What is asked of a model server, as phases that follow each other: so many requests, of such prompts,
//! together, one after the other, beside all that comes later, or as they happen to arrive.
//!
//! A phase is one word of a command line: `cold:together,count=8,shared=2048,own=64,out=32`. One letter of a
//! prompt is one token of the models that `synth` makes, so lengths are exact but for the template's own
//! tokens, which both sides add alike.
//!
//! Invariant: the same seed gives the same prompts.

use std::str::FromStr;
use std::time::Duration;

/// How the requests of a phase stand to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// All at once; the phase ends with the last.
    Together,
    /// Each when the one before has ended.
    InTurn,
    /// All at once; the phase ends when each is under way, and they go on beside the later phases.
    Beside,
    /// At times of their own, whoever waits (an open loop, with exponential gaps), beside the later phases
    /// too; the run ends when all have been answered.
    Arriving,
}

/// Requests of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Phase {
    /// What the report calls it.
    pub name: String,
    /// How they stand to each other.
    pub how: How,
    /// How many.
    pub count: usize,
    /// Letters that all requests of this seed begin with.
    pub shared: usize,
    /// Letters after these, by the place of a request in its phase: the same in every phase.
    pub each: usize,
    /// Letters after these that no other request has.
    pub own: usize,
    /// Tokens of an answer; it does not end before.
    pub out: usize,
    /// The likeliest token always, in place of a draw.
    pub greedy: bool,
    /// Nothing is read behind the first content.
    pub stall: bool,
    /// Whoever has no whole answer by then closes the connection, ms after coming.
    pub leave_ms: usize,
    /// How many arrive in a minute, on the average.
    pub rate: usize,
    /// For how long they arrive, s.
    pub seconds: usize,
    /// A good answer begins within so much, ms, …
    pub ttft_ms: usize,
    /// … and the 99th percentile of its gaps is within so much, ms.
    pub itl_ms: usize,
}

impl Default for Phase {
    fn default() -> Self {
        Self {
            name: String::new(),
            how: How::Together,
            count: 1,
            shared: 0,
            each: 0,
            own: 0,
            out: 1,
            greedy: false,
            stall: false,
            leave_ms: usize::MAX,
            rate: 60,
            seconds: 60,
            ttft_ms: usize::MAX,
            itl_ms: usize::MAX,
        }
    }
}

impl FromStr for Phase {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, rest) = text.split_once(':').ok_or("NAME:HOW,KEY=NUMBER,… is needed")?;
        let mut words = rest.split(',');
        let how = match words.next() {
            Some("together") => How::Together,
            Some("in-turn") => How::InTurn,
            Some("beside") => How::Beside,
            Some("arriving") => How::Arriving,
            how => return Err(format!("{how:?}: together, in-turn, beside or arriving")),
        };
        let mut phase = Self { name: name.to_owned(), how, ..Self::default() };
        for word in words {
            match word {
                "greedy" => phase.greedy = true,
                "stall" => phase.stall = true,
                word => phase.set(word)?,
            }
        }
        if phase.count * phase.out * phase.rate == 0 || phase.shared + phase.each + phase.own == 0 {
            return Err(format!("{text}: a request, a letter and a token at least"));
        }
        if phase.stall && phase.leave_ms == usize::MAX {
            return Err(format!("{text}: who stalls never ends, but by leave_ms"));
        }
        Ok(phase)
    }
}

impl Phase {
    /// Takes `KEY=NUMBER`.
    fn set(&mut self, word: &str) -> Result<(), String> {
        let (key, number) = word.split_once('=').ok_or_else(|| format!("{word}: KEY=NUMBER"))?;
        let place = match key {
            "count" => &mut self.count,
            "shared" => &mut self.shared,
            "each" => &mut self.each,
            "own" => &mut self.own,
            "out" => &mut self.out,
            "leave_ms" => &mut self.leave_ms,
            "rate" => &mut self.rate,
            "seconds" => &mut self.seconds,
            "ttft_ms" => &mut self.ttft_ms,
            "itl_ms" => &mut self.itl_ms,
            _ => {
                let known = "count, shared, each, own, out, leave_ms, rate, seconds, ttft_ms or itl_ms";
                return Err(format!("{key}: {known}"));
            }
        };
        *place = number.parse().map_err(|e| format!("{word}: {e}"))?;
        Ok(())
    }
}

/// Which letters: each kind of part draws from a stream of its own.
#[derive(Clone, Copy)]
enum Part {
    Shared,
    Each(usize),
    Own(u64),
}

impl Phase {
    /// The prompt of the request at `place` in this phase, the `nth` of the run.
    pub(crate) fn prompt(&self, seed: u64, place: usize, nth: u64) -> String {
        let mut text = String::with_capacity(self.shared + self.each + self.own);
        letters(seed, Part::Shared, self.shared, &mut text);
        letters(seed, Part::Each(place), self.each, &mut text);
        letters(seed, Part::Own(nth), self.own, &mut text);
        text
    }

    /// When each request comes, after the phase has begun.
    pub(crate) fn arrivals(&self, seed: u64) -> Vec<Duration> {
        if self.how != How::Arriving {
            return vec![Duration::ZERO; self.count];
        }
        // Each phase has times of its own, by its name.
        let own = self.name.bytes().fold(seed, |hash, byte| hash.wrapping_mul(31) ^ u64::from(byte));
        let mut random = fastrand::Rng::with_seed(own);
        let (mut at, mut arrivals) = (0.0, Vec::new());
        loop {
            at -= (1.0 - random.f64()).ln() * 60.0 / self.rate as f64;
            if at >= self.seconds as f64 {
                return arrivals;
            }
            arrivals.push(Duration::from_secs_f64(at));
        }
    }
}

fn letters(seed: u64, part: Part, count: usize, out: &mut String) {
    let stream = match part {
        Part::Shared => 0,
        Part::Each(place) => 2 * place as u64 + 1,
        Part::Own(nth) => 2 * nth + 2,
    };
    // The seed picks a generator, and the generator a stream: neighbours have nothing in common.
    let mut seeds = fastrand::Rng::with_seed(seed);
    let mut random = fastrand::Rng::with_seed(seeds.u64(..) ^ stream);
    out.extend((0..count).map(|_| random.lowercase()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_is_read_and_refused() {
        let phase: Phase = "cold:together,count=8,shared=2048,own=64,out=32".parse().unwrap();
        assert_eq!((phase.how, phase.count, phase.shared, phase.own), (How::Together, 8, 2048, 64));
        assert_eq!((phase.each, phase.out, phase.greedy), (0, 32, false));
        for wrong in [
            "x",
            "x:now,own=1",
            "x:beside,own",
            "x:beside,owm=1",
            "x:beside,own=1,count=0",
            "x:beside",
            "x:beside,own=1,stall",
        ] {
            assert!(wrong.parse::<Phase>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn arrivals_keep_their_rate_and_their_seed() {
        let phase: Phase = "x:arriving,own=1,rate=600,seconds=100".parse().unwrap();
        let arrivals = phase.arrivals(1);
        // Poisson: 1,000 give or take four times 32.
        assert!(arrivals.len().abs_diff(1_000) < 128, "{}", arrivals.len());
        assert!(arrivals.is_sorted() && arrivals.iter().all(|at| at.as_secs() < 100));
        assert_eq!(arrivals, phase.arrivals(1));
        assert_ne!(arrivals, phase.arrivals(2));
    }

    #[test]
    fn prompts_share_what_they_shall_and_nothing_else() {
        let phase: Phase = "x:together,count=2,shared=20,each=10,own=10".parse().unwrap();
        let (a, b) = (phase.prompt(1, 0, 0), phase.prompt(1, 1, 1));
        assert_eq!((a.len(), &a[..20]), (40, &b[..20]));
        assert_ne!(a[20..30], b[20..30]);
        let again = phase.prompt(1, 0, 2);
        assert_eq!(a[..30], again[..30]);
        assert_ne!(a[30..], again[30..]);
        assert_ne!(a[..20], phase.prompt(2, 0, 0)[..20]);
        assert!(a.bytes().all(|b| b.is_ascii_lowercase()));
    }
}
