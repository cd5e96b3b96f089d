//! A server over one small model, and the short ways to ask it.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use firsttoken_engine::driver::Status;
use firsttoken_local::{Loaded, Local, Options};
use firsttoken_synth::{Mind, Recipe, TEMPLATE};
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};

/// What the model is called.
pub(crate) const NAME: &str = "nano";
/// Tokens of a prompt and its answer together.
pub(crate) const CONTEXT: u32 = 2048;
/// Ends a prompt with a character whose successor is known.
pub(crate) const PLAIN: &str = "{% for m in messages %}{{ m['content'] }};{% endfor %}:";
/// Thinks if it shall.
pub(crate) const THINKING: &str = "{{ messages[0]['content'] }}:{% if enable_thinking %}<think>{% endif %}";
/// Writes calls as Hermes does, and shows whether it has tools.
pub(crate) const HERMES: &str =
    "{#<tool_call>#}{{ messages[0]['content'] }}{% if tools %}with tools{% endif %}:";

/// Reads calls and texts as templates do that were written for Python.
pub(crate) const HISTORY: &str = "{% for m in messages %}{% for c in m.tool_calls or [] %}\
    {{ c.function.arguments.zone }}{% endfor %}{{ m.content or '' }}{% endfor %}:";

/// A model file that goes with its owner, and a server over it.
pub(crate) struct Rig {
    pub(crate) local: Arc<Local>,
    recipe: Recipe,
    pub(crate) file: PathBuf,
}

impl Drop for Rig {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.file);
    }
}

impl Rig {
    /// One ring of all tokens; prompts by `template`.
    pub(crate) fn new(template: &str) -> Self {
        Self::of(template, 0, 0)
    }

    /// Tokens in rings of so many, and so many guesses at once.
    pub(crate) fn of(template: &str, ring: u32, guesses_max: u32) -> Self {
        let recipe =
            Recipe { mind: Mind::Peaked { ring, astray: 0.0 }, context: CONTEXT, ..Recipe::default() };
        Self::run(recipe, template, |options| Options { guesses_max, ..options })
    }

    /// Any model, run as `how` says.
    pub(crate) fn run(recipe: Recipe, template: &str, how: impl FnOnce(Options) -> Options) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let file =
            std::env::temp_dir().join(format!("firsttoken-local-{}-{number}.gguf", std::process::id()));
        std::fs::write(&file, with_template(recipe.bytes().unwrap(), template)).unwrap();
        let usual = Options {
            cells: Some(CONTEXT * 2),
            threads: Some(NonZeroU32::MIN),
            guesses_max: 0,
            ..Options::new(&file, NAME)
        };
        let model = Loaded::start(how(usual)).unwrap();
        Self { local: Local::new(vec![model]), recipe, file }
    }

    /// How the engine is, where one is loaded.
    pub(crate) fn status(&self) -> Status {
        match &self.local.loaded()[..] {
            [Loaded::Writes(model)] => model.engine().status(),
            _ => Status::default(),
        }
    }

    /// The tokens that follow `last`.
    pub(crate) fn tokens_after(&self, last: char, count: usize) -> Vec<u32> {
        let successors = self.recipe.successors();
        let next = |token: &u32| successors[*token as usize];
        std::iter::successors(Some(u32::from(last)), next).skip(1).take(count).collect()
    }

    /// The text of `count` tokens that follow `last`.
    pub(crate) fn text_after(&self, last: char, count: usize) -> String {
        let word = |token: u32| match char::from_u32(token).filter(char::is_ascii) {
            Some(byte) => byte.to_string(),
            None => format!(" w{}", token - firsttoken_synth::FIRST_WORD),
        };
        self.tokens_after(last, count).into_iter().map(word).collect()
    }

    /// Sends a request on a connection of its own; the answer's head and its body as it comes.
    pub(crate) async fn send(&self, method: Method, path: &str, body: &Value) -> Response<Incoming> {
        self.send_as("", method, path, body).await
    }

    /// Sends a request that the gateway says is of this tenant.
    pub(crate) async fn send_as(
        &self,
        tenant: &str,
        method: Method,
        path: &str,
        body: &Value,
    ) -> Response<Incoming> {
        let (ours, theirs) = tokio::io::duplex(16 * 1024);
        tokio::spawn(Arc::clone(&self.local).serve_connection(theirs));
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(ours)).await.unwrap();
        tokio::spawn(connection);
        let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        let request = Request::builder().method(method).uri(path);
        let request = request.header("host", "local").header("x-firsttoken-tenant", tenant);
        sender.send_request(request.body(Full::new(body)).unwrap()).await.unwrap()
    }

    /// Asks, and waits for all of it.
    pub(crate) async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let reply = self.send(Method::POST, path, body).await;
        let status = reply.status().as_u16();
        let bytes = reply.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&bytes).unwrap())
    }

    /// A chat completion: greedy, and `more`.
    pub(crate) async fn chat(&self, more: Value) -> Value {
        let (status, answer) = self.post("/v1/chat/completions", &asking(more)).await;
        assert_eq!(status, 200, "{answer}");
        answer
    }

    /// The events of a stream; the last is the end.
    pub(crate) async fn stream(&self, path: &str, body: &Value) -> Vec<Value> {
        let reply = self.send(Method::POST, path, body).await;
        assert_eq!(reply.status(), 200);
        let bytes = reply.into_body().collect().await.unwrap().to_bytes();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        let mut events: Vec<&str> = text.split_terminator("\n\n").collect();
        assert_eq!(events.pop(), Some("data: [DONE]"));
        events.iter().map(|event| serde_json::from_str(&event["data: ".len()..]).unwrap()).collect()
    }

    /// The text of a page.
    pub(crate) async fn get(&self, path: &str) -> (u16, String) {
        let reply = self.send(Method::GET, path, &Value::Null).await;
        let status = reply.status().as_u16();
        let bytes = reply.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(bytes.to_vec()).unwrap())
    }
}

/// A greedy chat, and `more`.
pub(crate) fn asking(more: Value) -> Value {
    let mut body = json!({
        "model": NAME, "temperature": 0, "max_tokens": 40,
        "messages": [{"role": "user", "content": "Say something"}],
    });
    if let Value::Object(more) = more {
        body.as_object_mut().unwrap().extend(more);
    }
    body
}

/// The texts at `pointer`, of all events, joined.
pub(crate) fn joined(events: &[Value], pointer: &str) -> String {
    events.iter().filter_map(|event| event.pointer(pointer)?.as_str()).collect()
}

/// The file with another template, filled up to the length of its own.
fn with_template(mut file: Vec<u8>, template: &str) -> Vec<u8> {
    let at = file.windows(TEMPLATE.len()).position(|bytes| bytes == TEMPLATE.as_bytes()).unwrap();
    let filler = "-".repeat(TEMPLATE.len() - template.len() - "{##}".len());
    file[at..at + TEMPLATE.len()].copy_from_slice(format!("{template}{{#{filler}#}}").as_bytes());
    file
}
