//! Prompt lookup on the answers of the demo model: they stand in their prompts, so it should be right.

use crate::rig::{Demo, asking};

#[tokio::test]
#[expect(clippy::print_stdout, reason = "the figures, for who asks for them with --nocapture")]
async fn most_guesses_are_right() {
    let demo = Demo::new();
    let questions = include_str!("../../../../samples/billing/questions.jsonl").lines().step_by(6);
    let mut tokens = 0;
    for line in questions {
        let (status, answer) = demo.ask(asking(line.split('"').nth(3).unwrap())).await;
        assert_eq!(status, 200, "{answer}");
        tokens += answer["usage"]["completion_tokens"].as_u64().unwrap();
    }
    let (drafted, accepted) = demo.guesses();
    println!("{tokens} tokens; of {drafted} guesses {accepted} were right");
    // Greedy, so the same each time, whatever else the machine does.
    assert!(accepted * 2 > drafted && accepted * 4 > tokens, "{accepted} of {drafted}, {tokens} tokens");
}
