//! One who listens to `/api/events`.

use serde_json::Value;

use super::client::{Answer, Client};
use super::expect_soon;
use super::proxy::{BEARER, Proxy};

/// One who listens.
pub struct Listener {
    /// Its connection.
    pub client: Client,
    /// What it was answered, as far as it came.
    pub answer: Answer,
}

impl Listener {
    /// Asks to be told; the head of the answer has come then.
    #[track_caller]
    pub fn to(proxy: &Proxy) -> Self {
        let mut client = Client::connect(proxy.admin());
        let host = proxy.admin();
        let request =
            format!("GET /api/events HTTP/1.1\r\nhost: {host}\r\nauthorization: {BEARER}\r\n\r\n");
        client.send(request.as_bytes());
        let answer = client.head();
        Listener { client, answer }
    }

    /// The next picture; `None` when there is none any more.
    #[track_caller]
    pub fn next(&mut self) -> Option<Value> {
        let told = self.answer.body.len();
        if !self.client.chunk(&mut self.answer) {
            return None;
        }
        let event = std::str::from_utf8(&self.answer.body[told..]).unwrap();
        let data = event.strip_prefix("data: ").unwrap();
        Some(serde_json::from_str(data.strip_suffix("\n\n").unwrap()).unwrap())
    }

    /// Looks on until a picture is like that.
    #[track_caller]
    pub fn expect(&mut self, what: &str, mut is_so: impl FnMut(&Value) -> bool) {
        expect_soon(what, || is_so(&self.next().expect("the stream goes on")));
    }
}
