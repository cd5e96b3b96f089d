//! What is decided about a request before anything leaves: which upstream answers it, by which policy,
//! in which dialect.
//!
//! Where the upstream speaks the caller's dialect the body passes as it came, but for what has to be
//! spliced in; see [`super::inbound`]. Where it speaks another, the request is read into the one model
//! and written anew, and so is the answer. What cannot be said there is named to the caller.
//!
//! Invariant: a refusal here names the field, and nothing has left for an upstream.

use std::time::Duration;

use bytes::Bytes;
use firsttoken_wire::{ApiError, Dialect, ErrorKind, Identity, chat, openai_chat, typed};
use http::{header, request};

use crate::clock;
use crate::config::{Auth, Provider, Target};
use crate::evidence::Record;
use crate::front::headers::{self, KeyPlace};
use crate::front::inbound::{self, Fields};
use crate::front::models;
use crate::gateway::Setup;
use crate::stream::exchange::{Call, Translation};
use crate::upstream::Request;

/// A request as it came in, key checked.
pub(super) struct Inbound<'a> {
    pub(super) parts: &'a request::Parts,
    pub(super) place: KeyPlace,
    pub(super) dialect: Dialect,
    /// When the caller wants it ended, counted from its acceptance.
    pub(super) deadline: Option<Duration>,
}

impl Inbound<'_> {
    /// A request whose body names a model: the model decides the upstream.
    pub(super) fn plan(
        &self,
        setup: &Setup,
        record: &mut Record,
        body: &Bytes,
        dialect: Dialect,
    ) -> Result<Call, ApiError> {
        let config = setup.config();
        let fields = Fields::find(body, dialect)?;
        let family = if dialect == Dialect::Anthropic { Provider::Anthropic } else { Provider::OpenAi };
        let target = config
            .resolve(&fields.model, Some(family))
            .ok_or_else(|| models::unknown(config, &fields.model))?;
        let upstream = &config.upstreams[target.upstream];
        record.model_label = target.rule.into();
        if !upstream.speaks(dialect) {
            // Tokens are counted by who generates them; of an embedding there is no other form.
            let parsed = if record.operation == "chat" { dialect.parse_request(body) } else { None };
            let request = parsed.ok_or_else(|| models::other_family(&fields.model, upstream.provider))??;
            let include_usage = dialect == Dialect::OpenAiChat && openai_chat::wants_stream_usage(body);
            return self.translated(setup, record, request, target.clone(), include_usage);
        }
        let mut call = self.call(setup, record, target.upstream, Some(&fields.model));
        let wants_usage = call.policy.inject_usage && fields.stream && dialect == Dialect::OpenAiChat;
        call.request.body = fields.splice(body, Some(&target.model), wants_usage);
        call.strip_usage = wants_usage && !fields.asks_usage();
        call.stream = fields.stream;
        call.answers = Some(dialect);
        record.stream = fields.stream;
        record.model = Some(fields.model);
        Ok(call)
    }

    /// Our own dialect is nobody else's: it is always translated.
    pub(super) fn plan_typed(
        &self,
        setup: &Setup,
        record: &mut Record,
        body: &[u8],
    ) -> Result<Call, ApiError> {
        let config = setup.config();
        inbound::text(body)?;
        let (mut request, continues) = match self.dialect {
            Dialect::Ui => typed::parse_ui_request(body).map(|ui| (ui.request, ui.continues)),
            _ => typed::parse_request(body).map(|request| (request, None)),
        }
        .map_err(with_place)?;
        if !request.stream {
            let path = self.parts.uri.path();
            let message = format!(
                "{path} always streams; leave stream out, or use /v1/chat/completions or /v1/messages"
            );
            return Err(ApiError::new(ErrorKind::InvalidRequest, message).at("stream"));
        }
        if request.model.is_empty() {
            models::default(config)?.clone_into(&mut request.model);
        }
        let asked = request.model.clone();
        let target = config.resolve(&asked, None).ok_or_else(|| models::unknown(config, &asked))?;
        record.model_label = target.rule.into();
        let mut call = self.translated(setup, record, request, target, false)?;
        // Its head is out already.
        call.policy.head_commit = Duration::ZERO;
        // What goes on with a message is that message, or the caller would show two.
        if let (Some(translation), Some(message_id)) = (&mut call.translation, continues) {
            translation.identity.id = message_id;
        }
        Ok(call)
    }

    /// A request for an upstream that speaks another dialect than its caller.
    fn translated(
        &self,
        setup: &Setup,
        record: &mut Record,
        mut request: chat::Request,
        target: Target<'_>,
        include_usage: bool,
    ) -> Result<Call, ApiError> {
        let upstream = &setup.config().upstreams[target.upstream];
        let answers = upstream.provider.chat_dialect();
        let asked = std::mem::replace(&mut request.model, target.model.clone().into_owned());
        let mut call = self.call(setup, record, target.upstream, Some(&asked));
        let rendered = answers.render_request(&request)?;
        if call.policy.strict && !rendered.dropped.is_empty() {
            return Err(cannot_say(&rendered.dropped, &upstream.name));
        }
        call.request.path = chat_path(upstream.path_prefix(), upstream.provider);
        call.request.body = rendered.body.into();
        headers::translate(&mut call.request.headers, upstream.provider);
        call.stream = request.stream;
        call.answers = Some(answers);
        call.translation = Some(Box::new(Translation {
            identity: Identity {
                id: self.dialect.answer_id(&record.id),
                model: asked.clone(),
                created: clock::unix_ms() / 1000,
                include_usage,
            },
            dropped: headers::list(&rendered.dropped),
        }));
        record.stream = request.stream;
        record.model = Some(asked);
        Ok(call)
    }

    /// What is sent to `upstream` at the caller's own path, with no body yet.
    pub(super) fn call(
        &self,
        setup: &Setup,
        record: &mut Record,
        upstream: usize,
        model: Option<&str>,
    ) -> Call {
        let config = setup.config();
        let target = &config.upstreams[upstream];
        let (policy, route) = config.policy(model, self.parts.uri.path());
        record.route = route.into();
        record.upstream = Some(setup.upstream(upstream).0.clone());
        record.provider = target.provider.name();
        record.stall_threshold = policy.stall_threshold;
        let mut policy = policy.clone();
        if target.local {
            // It sends its head with the first token, and its own queue judges who waits too long.
            (policy.clocks.headers, policy.clocks.first_content) = (None, None);
        }
        policy.clocks.total = match (policy.clocks.total, self.deadline) {
            (Some(total), Some(deadline)) => Some(total.min(deadline)),
            (total, deadline) => total.or(deadline),
        };
        let path_and_query = self.parts.uri.path_and_query().map_or("/", |p| p.as_str());
        let mut headers =
            headers::upward(&self.parts.headers, target, self.place, !config.keys.is_empty(), &record.id);
        if target.local {
            headers::inside(&mut headers, &record.tenant, self.deadline);
        }
        Call {
            upstream,
            request: Request {
                method: self.parts.method.clone(),
                path: format!("{}{path_and_query}", target.path_prefix()),
                authority: target.base_url.authority().map_or_else(String::new, |a| a.as_str().to_owned()),
                headers,
                body: Bytes::new(),
            },
            dialect: self.dialect,
            answers: None,
            stream: false,
            strip_usage: false,
            translation: None,
            caller_auth: matches!(target.auth, Auth::Caller),
            policy,
        }
    }

    /// What goes to `upstream` as it came.
    pub(super) fn passed(&self, setup: &Setup, record: &mut Record, upstream: usize, body: Bytes) -> Call {
        let mut call = self.call(setup, record, upstream, None);
        call.request.body = body;
        if let Some(kind) = self.parts.headers.get(header::CONTENT_TYPE)
            && !call.request.headers.iter().any(|(n, _)| n == header::CONTENT_TYPE)
        {
            call.request.headers.push((header::CONTENT_TYPE, kind.clone()));
        }
        call
    }
}

fn chat_path(prefix: &str, provider: Provider) -> String {
    match provider {
        Provider::OpenAi => format!("{prefix}/v1/chat/completions"),
        Provider::Anthropic => format!("{prefix}/v1/messages"),
    }
}

/// What the caller asked for would be lost, and it does not want that.
fn cannot_say(dropped: &[String], upstream: &str) -> ApiError {
    let names = dropped.join(", ");
    let message = format!(
        "the upstream {upstream} cannot be told: {names}. Leave it out, or set strict = false to have it dropped"
    );
    let error = ApiError::new(ErrorKind::InvalidRequest, message).code("cannot_translate");
    match dropped {
        [only] => error.at(only.clone()),
        _ => error,
    }
}

/// Says in the message, too, which field is wrong.
fn with_place(mut error: ApiError) -> ApiError {
    if let Some(field) = error.param.as_ref().filter(|field| !error.message.contains(*field)) {
        error.message = format!("{field}: {}", error.message);
    }
    error
}
