//! The one request model, the one event model and the one answer model.
//!
//! A dialect is a set of functions over these: parse its bytes into them, render them into its bytes.
//! What only one dialect can say has its place here, too, if it matters to what comes out of the model;
//! what has no place stays in `rest` and is named where it is dropped.

mod answer;
mod event;
mod request;

pub use answer::{Answer, Facts};
pub use event::{Citation, Event, Meta, Status, StopReason, Usage};
pub use request::{
    Format, Media, MediaKind, Message, Part, Reasoning, Request, Role, Source, Thinking, Tool, ToolChoice,
};

pub(crate) use request::{ToolIds, arguments_json, check_arguments, note};
