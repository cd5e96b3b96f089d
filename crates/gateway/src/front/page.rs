//! What a browser sees: the first page, with a box for a question, and the sample documents that the demo
//! model cites. Anyone may read them: they say nothing about this gateway that its address does not.
//!
//! A page is one file that asks for nothing else. Its policy names the hashes of its own style and script, so
//! that nothing else runs in it (Content Security Policy Level 3, §6.7.3.3).
//!
//! Invariant: what is written into a page is ours, or escaped.

use std::fmt::Write as _;
use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use firsttoken_samples::{PAGES, Page};
use http::{HeaderValue, Response, header};
use sha2::{Digest as _, Sha256};

use crate::front::body::Body;

const STYLE: &str = include_str!("page/style.css");
const INDEX: &str = include_str!("page/index.html");
const SAMPLE: &str = include_str!("page/sample.html");

/// A page, and what may run in it.
struct Written {
    html: Bytes,
    policy: HeaderValue,
}

/// The page at `/`.
pub(crate) fn index() -> Response<Body> {
    static WRITTEN: LazyLock<Written> = LazyLock::new(|| Written::new(INDEX.replace("{{style}}", STYLE)));
    WRITTEN.response()
}

/// The page at `/samples` and those below; `None` where there is none.
pub(crate) fn sample(path: &str) -> Option<Response<Body>> {
    let (title, body) = match path {
        "/samples" => ("Sample documents", contents()),
        path => Page::at(path).map(|page| (page.title(), page.html()))?,
    };
    let html = SAMPLE.replace("{{style}}", STYLE).replace("{{title}}", title).replace("{{body}}", &body);
    Some(Written::new(html).response())
}

/// All sample documents.
fn contents() -> String {
    let mut html = "<h1>Sample documents</h1>\n<ul class=\"pages\">\n".to_owned();
    for page in PAGES {
        // Writing to a String cannot fail. Titles have no mark-up in them: a test reads them all.
        let _ = writeln!(html, "<li><a href=\"{}\">{}</a></li>", page.path(), page.title());
    }
    html + "</ul>\n"
}

impl Written {
    fn new(html: String) -> Self {
        let hash = |tag: &str| {
            let inside = between(&html, &format!("<{tag}>"), &format!("</{tag}>"));
            inside.map_or_else(
                || "'none'".to_owned(),
                |text| format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text))),
            )
        };
        let policy = format!(
            "default-src 'none'; style-src {}; script-src {}; connect-src 'self'; img-src data:; base-uri 'none'; \
             form-action 'none'; frame-ancestors 'none'",
            hash("style"),
            hash("script"),
        );
        let policy = HeaderValue::try_from(policy).unwrap_or(HeaderValue::from_static("default-src 'none'"));
        Self { html: html.into(), policy }
    }

    fn response(&self) -> Response<Body> {
        let mut response = Response::new(Body::full(self.html.clone()));
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
        headers.insert(header::CONTENT_SECURITY_POLICY, self.policy.clone());
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
        // Another version of the gateway has another page.
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        response
    }
}

fn between<'a>(text: &'a str, begin: &str, end: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(begin)?;
    rest.split_once(end).map(|(inside, _)| inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_asks_for_nothing_else_and_its_policy_is_for_what_is_in_it() {
        let page = Written::new(INDEX.replace("{{style}}", STYLE));
        let html = std::str::from_utf8(&page.html).unwrap();
        for outside in ["src=", "<link rel=\"stylesheet\"", "@import", "url(", "{{", " style=\"", " onclick"]
        {
            assert!(!html.contains(outside), "{outside}");
        }
        assert_eq!((html.matches("<style>").count(), html.matches("<script>").count()), (1, 1));
        let script = between(html, "<script>", "</script>").unwrap();
        let hash = STANDARD.encode(Sha256::digest(script));
        let policy = page.policy.to_str().unwrap();
        assert!(
            policy.contains(&format!("script-src 'sha256-{hash}'")) && !policy.contains("unsafe"),
            "{policy}"
        );
    }

    #[test]
    fn every_sample_is_shown() {
        let contents = contents();
        for page in PAGES {
            assert!(contents.contains(&format!("href=\"{}\"", page.path())));
            assert!(!page.title().contains(['<', '>', '&', '"']), "{}", page.title());
            assert!(sample(&page.path()).is_some());
        }
        assert!(sample("/samples").is_some());
        for path in ["/samples/billing", "/samples/billing/README", "/samples/x/y"] {
            assert!(sample(path).is_none(), "{path}");
        }
    }
}
