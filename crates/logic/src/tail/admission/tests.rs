//! Lines of a few calls by hand, and of many by chance.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;

fn at(ms: u64) -> Instant {
    Instant::from_ns(ms * 1_000_000)
}

fn ask(id: u64, tenant: u64) -> Ask {
    Ask { id, tenant, key: id, priority: Priority::Interactive, wait_max: Duration::MAX }
}

/// A line before an upstream of two places, both taken.
fn full() -> Admission {
    let mut line = Admission::new(Bounds::fixed(2));
    for id in 0..2 {
        assert_eq!(line.on_arrive(ask(id, 0), &Policy::default(), at(0)), Verdict::Go);
    }
    line
}

fn told(line: &mut Admission, now: Instant) -> Vec<(u64, Verdict)> {
    core::iter::from_fn(|| line.poll(now)).collect()
}

#[test]
fn places_are_taken_in_turn() {
    let mut line = full();
    assert_eq!(line.on_arrive(ask(2, 0), &Policy::default(), at(1)), Verdict::Wait);
    assert_eq!(line.on_arrive(ask(3, 0), &Policy::default(), at(2)), Verdict::Wait);
    assert_eq!(told(&mut line, at(3)), vec![]);
    assert_eq!(line.place(3, at(3)).unwrap().ahead, 1);
    line.on_end(0, at(10));
    assert_eq!(told(&mut line, at(10)), vec![(2, Verdict::Go)]);
    assert_eq!(line.place(3, at(10)), Some(Place { ahead: 0, wait: Some(Duration::from_millis(10)) }));
    line.on_leave(3);
    line.on_end(0, at(20));
    assert_eq!(told(&mut line, at(20)), vec![]);
    assert_eq!(line.counts(), (1, 0));
}

#[test]
fn whose_tenant_has_least_at_work_goes_first_and_people_before_batches() {
    let mut line = full();
    let batch = Ask { priority: Priority::Batch, ..ask(2, 7) };
    for ask in [batch, ask(3, 0), ask(4, 0), ask(5, 9)] {
        assert_eq!(line.on_arrive(ask, &Policy::default(), at(1)), Verdict::Wait);
    }
    line.on_end(0, at(10));
    line.on_end(0, at(10));
    assert_eq!(told(&mut line, at(10)), vec![(3, Verdict::Go), (5, Verdict::Go)]);
    line.on_end(9, at(20));
    line.on_end(0, at(20));
    assert_eq!(told(&mut line, at(20)), vec![(4, Verdict::Go), (2, Verdict::Go)]);
}

#[test]
fn a_batch_does_not_wait_for_ever() {
    let policy = Policy { wait_max: Duration::from_secs(60), waiting_max: 10 };
    let mut line = full();
    let batch = Ask { priority: Priority::Batch, ..ask(2, 0) };
    line.on_arrive(batch, &policy, at(0));
    line.on_arrive(ask(3, 0), &policy, at(11_000));
    line.on_end(0, at(12_000));
    assert_eq!(told(&mut line, at(12_000)), vec![(2, Verdict::Go)]);
}

#[test]
fn who_would_wait_too_long_is_told_so_at_once_and_goes_first_when_it_comes_back() {
    let policy = Policy { wait_max: Duration::from_secs(2), waiting_max: 10 };
    let mut line = full();
    line.on_arrive(ask(2, 0), &policy, at(0));
    // One call ends each second: two in line are two seconds.
    for end in 1..=4 {
        line.on_end(0, at(end * 1000));
        told(&mut line, at(end * 1000));
        line.on_arrive(ask(10 + end, 0), &policy, at(end * 1000));
    }
    assert_eq!(line.on_arrive(ask(20, 0), &policy, at(4001)), Verdict::Wait);
    let Verdict::Shed(first) = line.on_arrive(ask(21, 0), &policy, at(4002)) else {
        panic!("it is too late")
    };
    let Verdict::Shed(second) = line.on_arrive(ask(22, 0), &policy, at(4003)) else {
        panic!("it is too late")
    };
    assert!(first >= Duration::from_secs(3) && second > first, "{first:?} {second:?}");
    let back = at(4002) + first;
    assert_eq!(line.on_arrive(Ask { id: 31, ..ask(21, 0) }, &policy, back), Verdict::Wait);
    line.on_end(0, back);
    assert_eq!(told(&mut line, back).first(), Some(&(31, Verdict::Go)), "before who waited longer");
}

#[test]
fn nobody_waits_longer_than_it_may_or_in_a_line_that_is_too_long() {
    let policy = Policy { wait_max: Duration::from_secs(2), waiting_max: 2 };
    let mut line = full();
    assert_eq!(line.on_arrive(ask(2, 0), &policy, at(0)), Verdict::Wait);
    let hasty = Ask { wait_max: Duration::from_millis(500), ..ask(3, 0) };
    assert_eq!(line.on_arrive(hasty, &policy, at(0)), Verdict::Wait);
    assert!(matches!(line.on_arrive(ask(4, 0), &policy, at(0)), Verdict::Shed(_)));
    assert_eq!(line.deadline(), Some(at(500)));
    assert_eq!(told(&mut line, at(500)), vec![(3, Verdict::Shed(RETRY_UNIT))]);
    assert_eq!(told(&mut line, at(1999)), vec![]);
    assert!(matches!(told(&mut line, at(2000))[..], [(2, Verdict::Shed(_))]));
    assert_eq!(line.deadline(), None);
}

#[test]
fn a_place_is_not_kept_free_for_a_promise() {
    let policy = Policy { wait_max: Duration::ZERO, waiting_max: 1 };
    let mut line = full();
    line.on_end(0, at(1000));
    line.on_arrive(ask(2, 0), &policy, at(1000));
    line.on_end(0, at(2000));
    line.on_arrive(ask(3, 0), &policy, at(2000));
    for id in 4..9 {
        assert!(matches!(line.on_arrive(ask(id, 0), &policy, at(2001)), Verdict::Shed(_)));
    }
    line.on_end(0, at(3000));
    assert_eq!(line.on_arrive(ask(10, 0), &policy, at(3000)), Verdict::Go);
}

/// Something that happens to a line.
#[derive(Clone, Debug)]
enum Event {
    Come { tenant: u64, batch: bool, wait_ms: u64, again: bool },
    End,
    Leave,
    Time(u64),
    Content(u64),
    Overloaded,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (0..3_u64, any::<bool>(), 0..5_000_u64, any::<bool>())
            .prop_map(|(tenant, batch, wait_ms, again)| Event::Come { tenant, batch, wait_ms, again }),
        3 => Just(Event::End),
        1 => Just(Event::Leave),
        2 => (0..3_000_u64).prop_map(Event::Time),
        2 => (1..2_000_u64).prop_map(Event::Content),
        1 => Just(Event::Overloaded),
    ]
}

proptest! {
    #[test]
    fn whatever_happens_everybody_is_told_once_and_the_limit_holds(
        events in prop::collection::vec(event(), 1..300),
    ) {
        let bounds = Bounds { min: 1, max: 8, start: 3 };
        let policy = Policy { wait_max: Duration::from_secs(4), waiting_max: 5 };
        let (mut line, mut now) = (Admission::new(bounds), at(0));
        let (mut waiting, mut at_work): (BTreeMap<u64, u64>, Vec<u64>) = Default::default();
        let (mut next, mut shed) = (0, None);
        for event in events {
            match event {
                Event::Come { tenant, batch, wait_ms, again } => {
                    let priority = if batch { Priority::Batch } else { Priority::Interactive };
                    let key = shed.filter(|_| again).unwrap_or(next);
                    let wait_max = Duration::from_millis(wait_ms);
                    match line.on_arrive(Ask { id: next, tenant, key, priority, wait_max }, &policy, now) {
                        Verdict::Go => {
                            at_work.push(tenant);
                            prop_assert!(at_work.len() <= line.limit().calls() as usize);
                        }
                        Verdict::Wait => prop_assert_eq!(waiting.insert(next, tenant), None),
                        Verdict::Shed(wait) => {
                            prop_assert!(wait >= RETRY_UNIT && wait.subsec_millis() == 0);
                            shed = Some(key);
                        }
                    }
                    next += 1;
                }
                Event::End => if let Some(tenant) = at_work.pop() {
                    line.on_end(tenant, now);
                },
                Event::Leave => if let Some((id, _)) = waiting.pop_first() {
                    line.on_leave(id);
                },
                Event::Time(ms) => now = now + Duration::from_millis(ms),
                Event::Content(ms) => {
                    let sent = Instant::from_ns(now.ns().saturating_sub(ms * 1_000_000));
                    let count = count(at_work.len());
                    line.limit().on_content(0, sent, Duration::from_millis(ms), count, now);
                }
                Event::Overloaded => line.limit().on_overloaded(now, count(at_work.len()), now),
            }
            while let Some((id, verdict)) = line.poll(now) {
                let tenant = waiting.remove(&id);
                prop_assert!(tenant.is_some(), "told twice, or never asked");
                if verdict == Verdict::Go {
                    at_work.extend(tenant);
                    prop_assert!(at_work.len() <= line.limit().calls() as usize);
                }
            }
            prop_assert_eq!(line.counts(), (count(at_work.len()), count(waiting.len())));
            prop_assert!(waiting.is_empty() || at_work.len() >= line.limit().calls() as usize);
            prop_assert!(line.deadline().is_none_or(|deadline| deadline > now));
            prop_assert!((1..=8).contains(&line.limit().calls()));
        }
    }
}
