//! Rounds of guesses without kernels: what is computed for whom, in which room.

use alloc::vec;

use super::*;

const LIMITS: Limits = Limits { cells: 1000, ids: 8, rows_max: 256, vocabulary: 256, guesses_max: 4 };

/// Dear for the large model, cheap for the draft.
fn costs() -> (StepCost, StepCost) {
    let ms = Duration::from_millis;
    (StepCost::new(ms(50), ms(1), ms(1)), StepCost::new(ms(1), Duration::from_micros(10), ms(0)))
}

/// One whose costs are known.
fn seasoned(cost: StepCost) -> Drafter {
    let counters = Counters { steps: STEPS_MIN, ..Counters::default() };
    Drafter { counters, ..Drafter::new(LIMITS, cost) }
}

fn reader(request: u64, tokens: &[Token]) -> Reader<'_> {
    let (request, tenant) = (RequestId(request), Tenant(0));
    Reader { request, tenant, tokens, room: 100, rest: 100, has_guesses: false }
}

fn decoding<'a>(readers: &[Reader<'a>], cost: &'a StepCost) -> Decoding<'a> {
    Decoding { readers: readers.to_vec(), rows: 64, depth: 100, cost, pace: None }
}

/// A round: what is computed, each guess being the token after the last. The guesses.
fn round(drafter: &mut Drafter, decoding: &Decoding<'_>) -> (Vec<Step>, Vec<(RequestId, Vec<Token>)>) {
    drafter.begin(decoding);
    let mut steps = Vec::new();
    while let Some(step) = drafter.next_step() {
        for run in step.runs.iter().filter(|run| run.logits > 0) {
            drafter.on_guess(run.request, run.tokens[run.tokens.len() - 1] + 1);
        }
        drafter.on_computed(&step, Duration::from_millis(1));
        steps.push(step);
    }
    (steps, drafter.finish())
}

#[test]
fn one_decode_for_each_place_and_all_who_read() {
    let (cost, own) = costs();
    let mut drafter = seasoned(own);
    let readers = [reader(1, &[7, 8, 9]), reader(2, &[1, 2])];
    let (steps, guesses) = round(&mut drafter, &decoding(&readers, &cost));
    let expected = [(RequestId(1), [10, 11, 12, 13].into()), (RequestId(2), [3, 4, 5, 6].into())];
    assert_eq!(guesses, expected);
    assert_eq!(steps.iter().map(Step::rows).collect::<Vec<_>>(), [5, 2, 2, 2]);
    // Two were right, and the next token is another: what is wrong is cut, what is missing computed.
    let readers = [reader(1, &[7, 8, 9, 10, 11, 50])];
    let (steps, guesses) = round(&mut drafter, &decoding(&readers, &cost));
    let (one, two) = (drafter.known[&RequestId(1)].seq.unwrap(), SeqId(0));
    let cut = Operation::Truncate { seq: one, end: 5 };
    let gone = Operation::Drop { seq: if one == two { SeqId(1) } else { two } };
    assert_eq!(steps[0].operations, [gone, cut]);
    assert_eq!((steps[0].runs[0].start, &*steps[0].runs[0].tokens), (5, &[50][..]));
    assert_eq!(guesses[0].1[0], 51);
    let _ = round(&mut drafter, &decoding(&[], &cost));
    assert_eq!((drafter.pool().cells().used(), drafter.ids.len()), (0, 8), "nobody is left");
}

#[test]
fn who_finds_no_room_is_not_guessed_for() {
    let (cost, own) = costs();
    let (long, short) = ([1; 990], [2; 8]);
    let mut drafter = seasoned(own.clone());
    for _ in 0..8 {
        let readers = [reader(1, &long), reader(2, &[3; 900]), reader(3, &short)];
        let (_, guesses) = round(&mut drafter, &decoding(&readers, &cost));
        assert!(guesses.iter().all(|(id, _)| *id != RequestId(1)), "990 tokens and others in 1000 cells");
        assert!(guesses.iter().any(|(id, _)| *id == RequestId(3)));
    }
    // Nor is who says what the draft has no word for.
    let foreign = [1, 2, 300];
    let (steps, guesses) = round(&mut seasoned(own), &decoding(&[reader(1, &foreign)], &cost));
    assert!(steps.iter().all(|step| step.runs.is_empty()) && guesses.is_empty());
}

#[test]
fn a_common_beginning_is_computed_once() {
    let (cost, own) = costs();
    let mut drafter = seasoned(own);
    let texts: Vec<Vec<Token>> = (0..3).map(|last| [vec![5; 300], vec![last; 4]].concat()).collect();
    let readers: Vec<_> = (0..).zip(&texts).map(|(id, text)| reader(id, text)).collect();
    let mut rows = 0;
    for _ in 0..4 {
        let (steps, _) = round(&mut drafter, &decoding(&readers, &cost));
        rows += steps.iter().map(Step::rows).sum::<u32>();
    }
    assert!(drafter.known.values().all(|known| known.seq.is_some()), "all are guessed for");
    assert!(rows < 304 + 100, "{rows} rows");
    let stranger = Reader { tenant: Tenant(1), ..reader(9, &texts[0]) };
    let (steps, _) = round(&mut drafter, &decoding(&[readers[0], stranger], &cost));
    assert!(steps[0].rows() > 200, "another tenant's own");
}

#[test]
fn a_long_text_is_caught_up_with_at_the_pace_of_who_reads() {
    let (cost, own) = costs();
    let mut drafter = seasoned(own);
    let text = [4; 500];
    let paced = Decoding { pace: Some(Duration::from_millis(8)), ..decoding(&[reader(1, &text)], &cost) };
    let (steps, guesses) = round(&mut drafter, &paced);
    assert!(steps[0].rows() <= 100 && guesses.is_empty(), "{} rows in 2 ms", steps[0].rows());
    let rounds = (0..50).take_while(|_| round(&mut drafter, &paced).1.is_empty()).count();
    assert!(rounds < 20, "{rounds} rounds");
}

#[test]
fn where_a_prompt_is_computed_or_somebody_has_guessed_it_is_silent() {
    let (cost, own) = costs();
    let mut drafter = seasoned(own);
    let guessed = Reader { has_guesses: true, ..reader(1, &[1, 2]) };
    assert_eq!(round(&mut drafter, &decoding(&[guessed], &cost)).0, []);
    let prompt = Decoding { rows: 0, ..decoding(&[reader(1, &[1, 2])], &cost) };
    assert_eq!(round(&mut drafter, &prompt).0, []);
}
