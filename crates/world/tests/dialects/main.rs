//! Every caller's dialect before every upstream's, for everything that an answer can bring: what the
//! caller reads is what the upstream said, streamed and whole.

mod docs;
mod fields;
mod rows;

use bytes::Bytes;
use firsttoken_gateway::config::Config;
use firsttoken_world::{Caller, Client, End, Got, Said, World};
use http::Request;
use http_body_util::Full;
use serde_json::{Value, json};

/// An upstream's dialect, and the model that it answers for. An `old` one has no `/v1/responses`.
const UPSTREAMS: [(Caller, &str); 3] =
    [(Caller::Chat, "old"), (Caller::Chat, "open"), (Caller::Messages, "claude")];
const CALLERS: [Caller; 4] = [Caller::Chat, Caller::Messages, Caller::Responses, Caller::Typed];
/// Why no answer at all is no case of its own.
const ANSWERS: &str = "there is always an answer";
/// One transparent pixel.
const PIXEL: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==";

/// What an answer can bring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Feature {
    Text,
    Reasoning,
    Tool,
    ParallelTools,
    Image,
    ErrorMidStream,
    Cancelled,
}

impl Feature {
    const ALL: [Self; 7] = [
        Self::Text,
        Self::Reasoning,
        Self::Tool,
        Self::ParallelTools,
        Self::Image,
        Self::ErrorMidStream,
        Self::Cancelled,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Reasoning => "reasoning",
            Self::Tool => "tool",
            Self::ParallelTools => "parallel tools",
            Self::Image => "image",
            Self::ErrorMidStream => "error mid-stream",
            Self::Cancelled => "cancelled",
        }
    }

    /// How the provider is told to bring it.
    const fn knobs(self) -> &'static str {
        match self {
            Self::Text | Self::Image => "ttft=5 itl=5 n=6",
            Self::Reasoning => "ttft=5 itl=5 n=4 reasoning=3",
            Self::Tool => "ttft=5 itl=5 n=2 tools=1",
            Self::ParallelTools => "ttft=5 itl=5 n=2 tools=2",
            Self::ErrorMidStream => "ttft=5 itl=5 n=6 fault=errorevent@3",
            Self::Cancelled => "ttft=5 itl=1000 n=100",
        }
    }

    /// What the caller asks: an image where it is about that, tools where it is about these.
    fn body(self, caller: Caller, model: &str, stream: bool) -> Value {
        let mut body = caller.body(model, stream);
        if caller == Caller::Chat && stream {
            body["stream_options"] = json!({ "include_usage": true });
        }
        if matches!(self, Self::Tool | Self::ParallelTools) {
            body["tools"] = ["weather", "time"].iter().map(|name| tool(caller, name)).collect();
        }
        if self == Self::Image {
            let data = format!("data:image/png;base64,{PIXEL}");
            let (key, part) = match caller {
                Caller::Messages => (
                    "messages",
                    json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}),
                ),
                Caller::Responses => ("input", json!({"type": "input_image", "image_url": data})),
                _ => ("messages", json!({"type": "image_url", "image_url": {"url": data}})),
            };
            body[key] = json!([{"role": "user", "content": [part]}]);
        }
        body
    }
}

fn tool(caller: Caller, name: &str) -> Value {
    let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
    match caller {
        Caller::Messages => json!({"name": name, "input_schema": schema}),
        Caller::Responses => json!({"type": "function", "name": name, "parameters": schema}),
        _ => json!({"type": "function", "function": {"name": name, "parameters": schema}}),
    }
}

/// A provider of each family, which both take images.
fn world() -> World {
    let upstream = |name: &str, provider: &str| {
        format!(
            "[[upstreams]]\nname = \"{name}\"\nprovider = \"{provider}\"\nbase_url = \"http://sim\"\nauth = \"none\"\n"
        )
    };
    let old = upstream("old", "openai") + "responses = false\n";
    let model = |name: &str, real: &str| {
        format!("[[models]]\nname = \"{name}\"\nupstream = \"{name}\"\nupstream_model = \"{real}\"\n")
    };
    let toml = old
        + &upstream("open", "openai")
        + &upstream("claude", "anthropic")
        + &model("old", "gpt-4o")
        + &model("open", "gpt-4o")
        + &model("claude", "claude-sonnet-4-5");
    World::new(Config::from_toml(&toml, "test.toml", &|_| None).expect("the configuration is valid"))
}

fn request(caller: Caller, knobs: &str, body: &Value) -> Request<Full<Bytes>> {
    Request::post(format!("http://localhost{}", caller.path()))
        .header("host", "localhost")
        .header("content-type", "application/json")
        .header("x-sim", knobs)
        .body(Full::new(body.to_string().into()))
        .expect("the knobs are ASCII")
}

async fn ask(world: &World, caller: Caller, knobs: &str, body: &Value) -> Got {
    let mut client = world.client().await;
    client.send(request(caller, knobs, body)).await.expect(ANSWERS).rest().await
}

/// What the provider itself says to what it was sent last, in its own dialect.
async fn original(world: &World, upstream: Caller, knobs: &str, stream: bool) -> Said {
    let last = world.sim().last().expect("a request arrived");
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    drop(tokio::spawn(firsttoken_sim::Sim::new(firsttoken_sim::Options::default()).serve_connection(theirs)));
    let mut client = Client::new(ours, false).await;
    let body: Value = serde_json::from_str(&last.body).expect("the gateway sends JSON");
    let got = client.send(request(upstream, knobs, &body)).await.expect(ANSWERS).rest().await;
    let bytes = got.body();
    if stream { Said::of_stream(upstream, &bytes) } else { Said::of_body(upstream, &bytes) }
}

/// What only one of the two dialects can say is not compared.
fn comparable(mut said: Said, feature: Feature) -> Said {
    // Ids of calls stay; the wording of an error is the upstream's, its end is not an end.
    if feature == Feature::ErrorMidStream {
        said.stop = String::new();
        said.usage = None;
    }
    said
}

async fn agrees(
    feature: Feature,
    caller: Caller,
    upstream: (Caller, &str),
    stream: bool,
) -> Result<(), String> {
    let world = world();
    let body = feature.body(caller, upstream.1, stream);
    let got = ask(&world, caller, feature.knobs(), &body).await;
    if got.status != 200 || got.end != End::Proper {
        return Err(format!("status {}, {:?}: {}", got.status, got.end, got.text()));
    }
    let bytes = got.body();
    let read = if stream { Said::of_stream(caller, &bytes) } else { Said::of_body(caller, &bytes) };
    let expected = comparable(original(&world, upstream.0, feature.knobs(), stream).await, feature);
    if feature == Feature::Image && !world.sim().last().is_some_and(|last| last.body.contains(PIXEL)) {
        return Err("the image did not reach the upstream".to_owned());
    }
    let read = comparable(read, feature);
    if read != expected {
        return Err(format!("read {read:#?}\nexpected {expected:#?}\n{}", got.text()));
    }
    Ok(())
}

/// Who leaves in the middle of a stream has left the upstream, too.
async fn leaves(caller: Caller, upstream: (Caller, &str)) -> Result<(), String> {
    let world = world();
    let mut client = world.client().await;
    let body = Feature::Cancelled.body(caller, upstream.1, true);
    let mut answer = client.send(request(caller, Feature::Cancelled.knobs(), &body)).await.expect(ANSWERS);
    answer.next().await.ok_or("nothing came")?;
    drop(answer);
    client.leave().await;
    for _ in 0..1000 {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        let stats = world.sim().stats(0);
        if stats.aborted == 1 && stats.active == 0 {
            return Ok(());
        }
    }
    Err("the upstream was not told".to_owned())
}

async fn one(feature: Feature, caller: Caller, upstream: (Caller, &str)) -> Result<(), String> {
    match feature {
        Feature::Cancelled => leaves(caller, upstream).await,
        Feature::ErrorMidStream => agrees(feature, caller, upstream, true).await,
        _ => {
            agrees(feature, caller, upstream, true).await.map_err(|wrong| format!("streamed: {wrong}"))?;
            if caller == Caller::Typed {
                return Ok(());
            }
            agrees(feature, caller, upstream, false).await.map_err(|wrong| format!("whole: {wrong}"))
        }
    }
}

/// What one cell of the matrix showed.
struct Found {
    caller: Caller,
    upstream: (Caller, &'static str),
    feature: Feature,
    wrong: Option<String>,
}

/// Every cell that there is.
async fn matrix() -> Vec<Found> {
    let mut found = Vec::new();
    for caller in CALLERS {
        for upstream in UPSTREAMS {
            // Where there are Responses they pass; an upstream without them is another for their callers alone.
            if upstream.0 == Caller::Chat && (upstream.1 == "old") != (caller == Caller::Responses) {
                continue;
            }
            for feature in Feature::ALL {
                let wrong = one(feature, caller, upstream).await.err();
                found.push(Found { caller, upstream, feature, wrong });
            }
        }
    }
    found
}

#[tokio::test(start_paused = true)]
async fn every_dialect_before_every_upstream() {
    let found = matrix().await;
    let page = docs::page(&found);
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/dialects.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, &page).unwrap();
    }
    let wrong: Vec<String> = found
        .iter()
        .filter_map(|cell| {
            let why = cell.wrong.as_ref()?;
            Some(format!("{:?} before {:?}, {:?}: {why}", cell.caller, cell.upstream, cell.feature))
        })
        .collect();
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n\n"));
    assert!(std::fs::read_to_string(path).unwrap() == page, "docs/dialects.md is not what the matrix says");
}
