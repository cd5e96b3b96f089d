//! The load client: one thread, closed loop, with its own small HTTP/1.1 reader, because an
//! instrument must not share bugs with its subject and must be cheaper than it.
//!
//! | mode | what it does |
//! |---|---|
//! | [`load`] | keeps so many requests going and times every token |
//! | [`cancel`] | leaves at random times and asks the mock when it noticed |
//! | [`hold`] | opens streams and keeps them, read or unread |
//! | [`connecting`] | leaves while the gateway is still dialling |
//! | [`phases`] | asks a model server in phases and times what each request hears |
//!
//! Invariant: a time is taken when the read returns, before anything is parsed.

pub mod cancel;
pub mod connecting;
pub mod hold;
pub mod load;
pub mod mock_api;
pub mod phase;
pub mod phases;

mod http1;
mod said;

use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;

/// Where requests go and what they look like.
#[derive(Clone, Debug)]
pub struct Target {
    /// Whom to dial.
    pub addr: SocketAddr,
    /// Path of the URL.
    pub path: String,
    /// Header lines to send, `name: value`.
    pub headers: Vec<String>,
    /// Model to name.
    pub model: String,
    /// What the mock shall do.
    pub spec: String,
    /// Ask for a stream.
    pub stream: bool,
    /// Bytes of prompt beside the script.
    pub prompt_bytes: usize,
}

impl Target {
    /// Splits `http://127.0.0.1:8080/v1/chat/completions`.
    ///
    /// # Errors
    /// When it is not plain HTTP to a loopback address with a port.
    pub fn split_url(url: &str) -> io::Result<(SocketAddr, String)> {
        let problem = |what: &str| {
            io::Error::other(format!("{url}: {what}, as in http://127.0.0.1:8080/v1/chat/completions"))
        };
        let rest = url.strip_prefix("http://").ok_or_else(|| problem("http:// only"))?;
        let (addr, path) = rest.split_once('/').map_or((rest, ""), |(a, p)| (a, p));
        let addr: SocketAddr = addr.parse().map_err(|_| problem("an IP address and a port are needed"))?;
        if !addr.ip().is_loopback() {
            return Err(problem("loopback only"));
        }
        Ok((addr, format!("/{path}")))
    }

    /// The request body with this id in its prompt.
    pub(crate) fn body(&self, rid: u64) -> String {
        let Self { model, spec, stream, prompt_bytes, .. } = self;
        let mut body = String::with_capacity(prompt_bytes + 200);
        write!(
            body,
            r#"{{"model":"{model}","stream":{stream},"max_tokens":4096,"messages":[{{"role":"user","content":"rid={rid}; spec={spec}; "#
        )
        .expect("a String takes every write");
        body.extend("The quick brown fox jumps over the lazy dog. ".chars().cycle().take(*prompt_bytes));
        body.push_str(r#""}]}"#);
        body
    }

    /// The whole HTTP/1.1 request with this id in its prompt.
    pub(crate) fn request(&self, rid: u64) -> Vec<u8> {
        self.post(&self.body(rid))
    }

    /// The whole HTTP/1.1 request with this body.
    pub(crate) fn post(&self, body: &str) -> Vec<u8> {
        let mut head = format!(
            "POST {} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\n",
            self.path, self.addr
        );
        for line in &self.headers {
            head.push_str(line);
            head.push_str("\r\n");
        }
        write!(head, "content-length: {}\r\n\r\n", body.len()).expect("a String takes every write");
        let mut request = head.into_bytes();
        request.extend_from_slice(body.as_bytes());
        request
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_is_a_target() {
        let (addr, path) = Target::split_url("http://127.0.0.1:80/v1/x").unwrap();
        assert_eq!((addr.port(), path.as_str()), (80, "/v1/x"));
        assert!(Target::split_url("http://10.0.0.1:80/v1/x").is_err());
        assert!(Target::split_url("https://127.0.0.1:80/").is_err());
        assert!(Target::split_url("http://localhost/").is_err());
    }
}
