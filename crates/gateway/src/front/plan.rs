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
use firsttoken_logic::tail::admission::Priority;
use firsttoken_wire::{ApiError, Dialect, ErrorKind, Identity, chat, openai_chat, typed};
use http::{header, request};

use crate::clock;
use crate::config::{Auth, Policy, Provider, Target};
use crate::evidence::Record;
use crate::front::headers::{self, KeyPlace};
use crate::front::inbound::{self, Fields};
use crate::front::models;
use crate::gateway::Setup;
use crate::stream::exchange::{Call, Leg, Translation};
use crate::upstream::Request;

/// A request as it came in, key checked.
pub(super) struct Inbound<'a> {
    pub(super) parts: &'a request::Parts,
    pub(super) place: KeyPlace,
    pub(super) dialect: Dialect,
    /// When the caller wants it ended, counted from its acceptance.
    pub(super) deadline: Option<Duration>,
    /// Whether the caller has nothing against two copies of it.
    pub(super) may_hedge: bool,
    /// Whether somebody looks on, as the caller says.
    pub(super) priority: Priority,
}

/// What the caller has said: as it came, and read into the one model where an upstream needs that.
struct Said<'a> {
    passing: Option<(&'a Bytes, &'a Fields, Dialect)>,
    /// Why there is no reading of it, if there is none.
    read: Option<Result<chat::Request, ApiError>>,
    /// How the model is called.
    model: &'a str,
    include_usage: bool,
}

impl Said<'_> {
    /// The request in the one model; read once, and only if somebody needs it.
    fn request(&mut self, operation: &str) -> Option<Result<&mut chat::Request, ApiError>> {
        if self.read.is_none()
            && let Some((body, _, dialect)) = self.passing
            // Tokens are counted by who generates them; of an embedding there is no other form.
            && operation == "chat"
        {
            self.read = dialect.parse_request(body);
            self.include_usage = dialect == Dialect::OpenAiChat && openai_chat::wants_stream_usage(body);
        }
        self.read.as_mut().map(|read| read.as_mut().map_err(|error| error.clone()))
    }
}

impl<'a> Inbound<'a> {
    /// What the head says.
    ///
    /// # Errors
    /// When a header of ours says nothing that we know.
    pub(super) fn new(
        parts: &'a request::Parts,
        place: KeyPlace,
        dialect: Dialect,
    ) -> Result<Self, ApiError> {
        Ok(Self {
            parts,
            place,
            dialect,
            deadline: headers::deadline(&parts.headers)?,
            may_hedge: headers::may_hedge(&parts.headers)?,
            priority: headers::priority(&parts.headers)?,
        })
    }
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
        let (model, stream) = (fields.model.as_str(), fields.stream);
        let passing = Some((body, &fields, dialect));
        let mut said = Said { passing, read: None, model, include_usage: false };
        let mut call = self.call(setup, record, Some(&fields.model));
        call.stream = stream;
        let hedges = stream && self.may_hedge && call.policy.hedge.share_per_mille > 0;
        call.hedgeable = hedges && fields.is_repeatable(body);
        self.add_legs(setup, record, &target, &mut said, &mut call)?;
        record.stream = stream;
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
        let mut call = self.call(setup, record, Some(&asked));
        (call.stream, call.hedgeable) = (true, self.may_hedge);
        let mut said = Said { passing: None, read: Some(Ok(request)), model: &asked, include_usage: false };
        self.add_legs(setup, record, &target, &mut said, &mut call)?;
        // Its head is out already.
        call.policy.head_commit = Duration::ZERO;
        // What goes on with a message is that message, or the caller would show two.
        if let Some(message_id) = continues {
            for translation in call.legs.iter_mut().filter_map(|leg| leg.translation.as_mut()) {
                translation.identity.id.clone_from(&message_id);
            }
        }
        record.stream = true;
        record.model = Some(asked);
        Ok(call)
    }

    /// Everyone who may answer. A fallback that cannot be told what the first one can is none.
    fn add_legs(
        &self,
        setup: &Setup,
        record: &mut Record,
        target: &Target<'_>,
        said: &mut Said<'_>,
        call: &mut Call,
    ) -> Result<(), ApiError> {
        record.model_label = target.rule.into();
        call.legs.push(self.leg_for(setup, record, target.upstream, &target.model, said, &call.policy)?);
        for fallback in target.fallbacks {
            let model = fallback.rename.as_deref().unwrap_or(said.model);
            call.legs.extend(self.leg_for(setup, record, fallback.upstream, model, said, &call.policy));
        }
        Ok(())
    }

    /// The request as `upstream` gets it: as it came where it speaks the caller's dialect, else translated.
    fn leg_for(
        &self,
        setup: &Setup,
        record: &Record,
        upstream: usize,
        model: &str,
        said: &mut Said<'_>,
        policy: &Policy,
    ) -> Result<Leg, ApiError> {
        let config = &setup.config().upstreams[upstream];
        if let Some((body, fields, dialect)) = said.passing.filter(|(_, _, dialect)| config.speaks(*dialect))
        {
            let mut leg = self.leg(setup, record, upstream);
            let wants_usage = policy.inject_usage && fields.stream && dialect == Dialect::OpenAiChat;
            leg.request.body = fields.splice(body, Some(model), wants_usage);
            leg.strip_usage = wants_usage && !fields.asks_usage();
            leg.answers = Some(dialect);
            return Ok(leg);
        }
        let asked = said.model;
        let request = said.request(record.operation);
        let request = request.ok_or_else(|| models::other_family(asked, config.provider))??;
        model.clone_into(&mut request.model);
        let answers = config.provider.chat_dialect();
        let rendered = answers.render_request(request)?;
        if policy.strict && !rendered.dropped.is_empty() {
            return Err(cannot_say(&rendered.dropped, &config.name));
        }
        let mut leg = self.leg(setup, record, upstream);
        leg.request.path = chat_path(config.path_prefix(), config.provider);
        leg.request.body = rendered.body.into();
        headers::translate(&mut leg.request.headers, config.provider);
        leg.answers = Some(answers);
        leg.translation = Some(Box::new(Translation {
            identity: Identity {
                id: self.dialect.answer_id(&record.id),
                model: asked.to_owned(),
                created: clock::unix_ms() / 1000,
                include_usage: said.include_usage,
            },
            dropped: headers::list(&rendered.dropped),
        }));
        Ok(leg)
    }

    /// What holds for a request for `model` (if it names one), with nobody to answer yet.
    fn call(&self, setup: &Setup, record: &mut Record, model: Option<&str>) -> Call {
        let (policy, route) = setup.config().policy(model, self.parts.uri.path());
        record.route = route.into();
        record.heard.stall_threshold = policy.stall_threshold;
        let mut policy = policy.clone();
        // Nobody can push in where the route is for batches.
        policy.priority = policy.priority.max(self.priority);
        policy.clocks.total = match (policy.clocks.total, self.deadline) {
            (Some(total), Some(deadline)) => Some(total.min(deadline)),
            (total, deadline) => total.or(deadline),
        };
        Call { legs: Vec::with_capacity(1), dialect: self.dialect, stream: false, hedgeable: false, policy }
    }

    /// What is sent to `upstream` at the caller's own path, with no body yet.
    fn leg(&self, setup: &Setup, record: &Record, upstream: usize) -> Leg {
        let config = setup.config();
        let target = &config.upstreams[upstream];
        let path_and_query = self.parts.uri.path_and_query().map_or("/", |p| p.as_str());
        let mut headers =
            headers::upward(&self.parts.headers, target, self.place, !config.keys.is_empty(), &record.id);
        if target.local {
            headers::inside(&mut headers, &record.tenant, self.deadline);
        }
        Leg {
            upstream,
            request: Request {
                method: self.parts.method.clone(),
                path: format!("{}{path_and_query}", target.path_prefix()),
                authority: target.base_url.authority().map_or_else(String::new, |a| a.as_str().to_owned()),
                headers,
                body: Bytes::new(),
            },
            answers: None,
            strip_usage: false,
            translation: None,
            caller_auth: matches!(target.auth, Auth::Caller),
            local: target.local,
        }
    }

    /// What goes to `upstream` as it came.
    pub(super) fn passed(&self, setup: &Setup, record: &mut Record, upstream: usize, body: Bytes) -> Call {
        let mut call = self.call(setup, record, None);
        let mut leg = self.leg(setup, record, upstream);
        leg.request.body = body;
        if let Some(kind) = self.parts.headers.get(header::CONTENT_TYPE)
            && !leg.request.headers.iter().any(|(n, _)| n == header::CONTENT_TYPE)
        {
            leg.request.headers.push((header::CONTENT_TYPE, kind.clone()));
        }
        call.legs.push(leg);
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
