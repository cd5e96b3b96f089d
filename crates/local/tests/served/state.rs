//! What remains of a request, and what is seen of the engine.

use firsttoken_engine::driver::Status;
use http::Method;
use http_body_util::BodyExt as _;
use serde_json::json;

use crate::rig::{NAME, PLAIN, Rig, asking};

/// Lets others work until nothing is at work: the last piece is heard a moment before its step is over.
async fn idle(rig: &Rig) -> Status {
    loop {
        let status = rig.status();
        if status.running == 0 && status.step.is_none() {
            return status;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn who_leaves_in_mid_stream_leaves_nothing_behind() {
    let rig = Rig::new(PLAIN);
    let asked = asking(json!({"stream": true, "max_tokens": 2000}));
    let reply = rig.send(Method::POST, "/v1/chat/completions", &asked).await;
    let mut body = reply.into_body();
    body.frame().await.unwrap().unwrap();
    assert_eq!(rig.status().running, 1);
    drop(body);
    let status = idle(&rig).await;
    assert_eq!(status.cells_used, status.cells_idle, "what is left is kept for who comes next");
    let line = format!("vllm:request_success_total{{model_name=\"{NAME}\",finished_reason=\"abort\"}} 1");
    let page = rig.get("/metrics").await.1;
    assert!(page.contains(&line), "{page}");
}

#[tokio::test]
async fn who_leaves_before_the_answer_is_whole_is_not_answered() {
    let rig = Rig::new(PLAIN);
    let asked = asking(json!({"max_tokens": 2000}));
    {
        let mut reply = std::pin::pin!(rig.post("/v1/chat/completions", &asked));
        let works = async {
            while rig.status().counters.steps < 3 {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            _ = &mut reply => panic!("an answer of 2000 tokens after three steps"),
            () = works => {}
        }
    }
    let status = idle(&rig).await;
    assert!(status.counters.steps < 2000, "{} steps", status.counters.steps);
    assert_eq!(status.cells_used, status.cells_idle);
}

#[tokio::test]
async fn what_was_done_is_counted() {
    let rig = Rig::new(PLAIN);
    rig.chat(json!({})).await;
    rig.chat(json!({"max_tokens": 2})).await;
    idle(&rig).await;
    let (status, page) = rig.get("/metrics").await;
    assert_eq!(status, 200);
    for line in [
        "vllm:prompt_tokens_total{model_name=\"nano\"} 30",
        "vllm:generation_tokens_total{model_name=\"nano\"} 42",
        "vllm:prefix_cache_queries_total{model_name=\"nano\"} 30",
        "vllm:request_success_total{model_name=\"nano\",finished_reason=\"length\"} 2",
        "vllm:time_to_first_token_seconds_count{model_name=\"nano\"} 2",
        "vllm:e2e_request_latency_seconds_count{model_name=\"nano\"} 2",
        "vllm:request_queue_time_seconds_count{model_name=\"nano\"} 2",
        "vllm:num_requests_running{model_name=\"nano\"} 0",
        "firsttoken_engine_cells{model_name=\"nano\",state=\"working\"} 0",
    ] {
        assert!(page.lines().any(|found| found.trim_end_matches(".0") == line), "{line} is not in\n{page}");
    }
    assert!(page.ends_with("# EOF\n"));
    for family in page.lines().filter(|line| line.starts_with("# TYPE")) {
        assert_eq!(page.matches(&format!("{family}\n")).count(), 1, "{family}");
    }
}

#[tokio::test]
async fn an_engine_that_works_is_green() {
    let rig = Rig::new(PLAIN);
    assert_eq!(rig.get("/health").await, (200, json!({"status": "ok"}).to_string()));
    let (status, list) = rig.get("/v1/models").await;
    assert!(status == 200 && list.contains("\"id\":\"nano\""), "{list}");
}
