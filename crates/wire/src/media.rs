//! Images and documents between dialects: `data:` URLs, and whether a model takes them at all.

use crate::ApiError;
use crate::capabilities::Capabilities;
use crate::chat::{Media, MediaKind, Source};
use crate::fields::{invalid, unsupported};

/// What a URL in a request points to. The error names no field.
pub(crate) fn source(url: String) -> Result<Source, ApiError> {
    if is_remote(&url) {
        return Ok(Source::Url(url));
    }
    let wrong = || invalid("expected an http(s) URL, or a data URL of the form `data:image/png;base64,…`");
    let (head, data) = url.strip_prefix("data:").and_then(|url| url.split_once(',')).ok_or_else(wrong)?;
    let kind = head.strip_suffix(";base64").ok_or_else(wrong)?;
    // What else stands there, a charset, no other dialect can say.
    let media_type = kind.split(';').next().unwrap_or_default();
    if !is_media_type(media_type) || data.is_empty() {
        return Err(wrong());
    }
    Ok(Source::Base64 { media_type: media_type.to_owned(), data: data.to_owned() })
}

/// The `data:` URL of what is here.
pub(crate) fn data_url(media_type: &str, data: &str) -> String {
    format!("data:{media_type};base64,{data}")
}

fn is_remote(url: &str) -> bool {
    url.starts_with("https://") || url.starts_with("http://")
}

/// Whether this can stand in a `data:` URL.
fn is_media_type(word: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_graphic() && !b";,".contains(&byte);
    word.contains('/') && word.bytes().all(plain)
}

/// Whether `model` takes `media`. No model can be asked about a file that another provider keeps.
pub(crate) fn check(media: &Media, model: &str) -> Result<(), ApiError> {
    if matches!(media.source, Source::File(_)) {
        let message = "only the provider that keeps a file knows its id; send the file itself";
        return Err(unsupported(message).at(&media.path));
    }
    match &media.source {
        Source::Base64 { media_type, .. } if !is_media_type(media_type) => {
            return Err(invalid("expected a media type of the form `image/png`").at(&media.path));
        }
        Source::Url(url) if !is_remote(url) => {
            return Err(invalid("expected an http(s) URL").at(&media.path));
        }
        _ => {}
    }
    let can = Capabilities::of(model);
    let (takes, what) = match media.kind {
        MediaKind::Image => (can.images, "images"),
        // A text needs no model that reads documents.
        MediaKind::Document if matches!(media.source, Source::Text(_)) => (true, "documents"),
        MediaKind::Document => (can.documents, "documents"),
    };
    if takes {
        return Ok(());
    }
    Err(unsupported(format!("the model {model} is not known to take {what}")).at(&media.path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        assert_eq!(source("https://a/b".to_owned()), Ok(Source::Url("https://a/b".to_owned())));
        let here = Source::Base64 { media_type: "image/png".to_owned(), data: "AA==".to_owned() };
        for url in ["data:image/png;base64,AA==", "data:image/png;charset=x;base64,AA=="] {
            assert_eq!(source(url.to_owned()), Ok(here.clone()));
        }
        for url in [
            "",
            "x",
            "ftp://a",
            "data:",
            "data:,",
            "data:image/png,AA",
            "data:;base64,AA",
            "data:image/png;base64,",
        ] {
            assert!(source(url.to_owned()).is_err(), "{url}");
        }
        assert_eq!(data_url("image/png", "AA=="), "data:image/png;base64,AA==");
    }
}
