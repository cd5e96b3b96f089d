//! Under a paused clock times are exact: what a script says is when it happens.

use std::sync::Arc;
use std::time::Duration;

use firsttoken_sim::Sim;
use tokio::time::Instant;

use crate::client::{Answer, Failure, ask, body, sim};

const CHAT: &str = "/v1/chat/completions";
const PATIENCE: Duration = Duration::from_secs(3600);

/// Milliseconds at which the pieces with text came.
fn content_ms(answer: &Answer) -> Vec<u128> {
    let has_text = |piece: &[u8]| {
        let piece = String::from_utf8_lossy(piece);
        piece.contains("\"content\":\"") && !piece.contains("\"content\":\"\"")
    };
    answer.pieces.iter().filter(|(_, piece)| has_text(piece)).map(|(at, _)| at.as_millis()).collect()
}

async fn stream(sim: &Arc<Sim>, knobs: &str) -> Result<Answer, Failure> {
    let answer = ask(sim, CHAT, knobs, &body(CHAT, true), PATIENCE).await?;
    assert_eq!((answer.status.as_u16(), answer.whole), (200, true), "{knobs}: {}", answer.text());
    Ok(answer)
}

#[tokio::test(start_paused = true)]
async fn constant_times_are_exact() -> Result<(), Failure> {
    let answer = stream(&sim(), "ttft=200 itl=20 n=5").await?;
    assert_eq!(content_ms(&answer), [200, 220, 240, 260, 280]);
    assert_eq!(answer.head.as_millis(), 200);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn the_head_can_come_before_the_content() -> Result<(), Failure> {
    let answer = stream(&sim(), "ttft=200 head=30 n=2").await?;
    assert_eq!((answer.head.as_millis(), content_ms(&answer)), (30, vec![200, 210]));
    assert_eq!(answer.pieces[0].0.as_millis(), 30, "the opening frame comes with the head");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_longer_prompt_takes_longer() -> Result<(), Failure> {
    let mut request = body(CHAT, true);
    // 8,000 tokens of four bytes, less the role's one.
    request["messages"][0]["content"] = "x".repeat(4 * 7_999).into();
    let answer = ask(&sim(), CHAT, "ttft=50 prefill=25 n=1", &request, PATIENCE).await?;
    assert_eq!(content_ms(&answer), [50 + 8 * 25]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn chunks_hold_tokens_and_writes_hold_chunks() -> Result<(), Failure> {
    let chunks = stream(&sim(), "n=6 chunk=3").await?;
    assert_eq!(content_ms(&chunks), [100, 110]);
    // Three chunks leave together when the third is due.
    let writes = stream(&sim(), "n=6 write=3").await?;
    assert_eq!(content_ms(&writes), [120, 150]);
    assert_eq!(writes.text().matches("\"content\":\"").count(), 1 + 6, "the role's frame and six chunks");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn gaps_follow_their_distribution() -> Result<(), Failure> {
    let answer = stream(&sim(), "n=4001 itl=50~0.5x10p0.02").await?;
    let at = content_ms(&answer);
    let mut gaps: Vec<_> = at.windows(2).map(|pair| pair[1] - pair[0]).collect();
    gaps.sort_unstable();
    assert!((47..=53).contains(&gaps[2000]), "median {}", gaps[2000]);
    let tail = gaps.iter().filter(|gap| **gap > 250).count();
    assert!((50..=120).contains(&tail), "{tail} of 4,000 in the tail");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_gives_the_same_run() -> Result<(), Failure> {
    let knobs = "n=50 ttft=100~0.5 itl=20~0.5";
    let (one, two) = (stream(&sim(), knobs).await?, stream(&sim(), knobs).await?);
    assert_eq!(content_ms(&one), content_ms(&two));
    let again = sim();
    stream(&again, knobs).await?;
    let other = stream(&again, knobs).await?;
    assert_ne!(content_ms(&one), content_ms(&other), "another request draws other numbers");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn slots_make_a_queue() -> Result<(), Failure> {
    let (sim, start) = (sim(), Instant::now());
    let run = |_| {
        let sim = Arc::clone(&sim);
        // 100 ms and nine times 10 ms each.
        tokio::spawn(async move { stream(&sim, "slots=2").await.map(|_| start.elapsed().as_millis()) })
    };
    let mut ends = Vec::new();
    for run in (0..6).map(run).collect::<Vec<_>>() {
        ends.push(run.await??);
    }
    ends.sort_unstable();
    assert_eq!(ends, [190, 190, 380, 380, 570, 570]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_refuses() -> Result<(), Failure> {
    let sim = sim();
    let run = |_| {
        let sim = Arc::clone(&sim);
        tokio::spawn(async move { ask(&sim, CHAT, "slots=1 queue=1", &body(CHAT, true), PATIENCE).await })
    };
    let mut statuses = Vec::new();
    for run in (0..4).map(run).collect::<Vec<_>>() {
        statuses.push(run.await??.status.as_u16());
    }
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 200, 503, 503]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_rate_limit_says_when_to_come_back() -> Result<(), Failure> {
    let sim = sim();
    let knobs = "rate=2 ttft=0 itl=0";
    for status in [200, 200, 429, 429] {
        let answer = ask(&sim, CHAT, knobs, &body(CHAT, true), PATIENCE).await?;
        assert_eq!(answer.status.as_u16(), status);
        assert_eq!(answer.headers.get("retry-after").is_some(), status == 429);
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(ask(&sim, CHAT, knobs, &body(CHAT, true), PATIENCE).await?.status.as_u16(), 200);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_fault_can_strike_so_many_times_and_no_more() -> Result<(), Failure> {
    let sim = sim();
    for status in [500, 500, 200, 200] {
        let answer = ask(&sim, CHAT, "fault=status:500 times=2", &body(CHAT, true), PATIENCE).await?;
        assert_eq!(answer.status.as_u16(), status);
    }
    Ok(())
}
