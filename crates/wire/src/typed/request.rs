//! Requests of `/v1/chat`: the conversation of an OpenAI chat, or one question.

use crate::ApiError;
use crate::chat::{Message, Part, Request, Role};
use crate::fields::{Fields, invalid};
use crate::openai_chat::{common, messages};

/// Reads the body of a request: `messages` as in [`crate::openai_chat`] or one `question`, and what
/// else a chat needs. The model may be left to the gateway (then it is empty); `stream` is the default.
pub fn parse_request(body: &[u8]) -> Result<Request, ApiError> {
    let mut fields = Fields::read(body)?;
    let mut request = Request { model: fields.string("model")?.unwrap_or_default(), ..Request::default() };
    if let Some(system) = fields.string("system")? {
        request.system.push(Part::Text(system));
    }
    match (fields.array("messages")?, fields.string("question")?) {
        (Some(conversation), None) => messages(conversation, &mut request)?,
        (None, Some(question)) if !question.trim().is_empty() => {
            request.messages.push(Message { role: Role::User, parts: vec![Part::Text(question)] });
        }
        (None, Some(_)) => return Err(invalid("the question is empty").at("question")),
        (Some(_), Some(_)) => {
            return Err(invalid("give either `messages` or a `question`, not both").at("question"));
        }
        (None, None) => return Err(invalid("give `messages` or a `question`").at("messages")),
    }
    request.stream = fields.bool("stream")?.unwrap_or(true);
    common(&mut fields, &mut request)?;
    request.rest = fields.rest();
    Ok(request)
}
