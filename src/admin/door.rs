//! Who may enter the admin side.
//!
//! Three checks, in this order. The `Host` must be a name of this machine: a page of somebody else's, whose name was
//! made to point at our address after it was loaded (DNS rebinding), runs in a browser that may well hold our cookie,
//! and only its `Host` gives it away. An address is always safe there, since nobody can rebind one. Then the token, as
//! a bearer token from programs, or a cookie from browsers, which is a random value of this process and not the token:
//! a browser's store then holds nothing that outlives the process. The cookie is `SameSite=Strict`, so no other page
//! can use it. To a browser, though, every port of `localhost` is the same site, so whoever holds the cookie also has
//! to send a header of ours to change something ([`Shown::may_change`]): no page of another port can without being
//! allowed to by a preflight, which we answer to nobody. Comparisons take the same time wherever the first difference
//! is; only the length could be told.

use std::net::{IpAddr, SocketAddr};

use http::HeaderMap;
use http::header::{AUTHORIZATION, COOKIE, HOST};
use http::request::Parts;
use http::uri::Authority;
use subtle::ConstantTimeEq as _;

use super::token::{Origin, TokenSource, random_text};
use crate::config::plan::Secret;
use crate::facts::percent_decoded;

/// The cookie's name.
const COOKIE_NAME: &str = "forebay_session";

/// The guard of one admin listener.
#[derive(Debug)]
pub(super) struct Door {
    token: Secret,
    pub(super) origin: Origin,
    session: Secret,
    listen: IpAddr,
}

/// Of a browser's changes.
pub(super) const CSRF_HEADER: &str = "x-forebay-csrf";

/// By what somebody showed that he may come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// The token itself, as programs do.
    Token,
    /// The cookie, as browsers do unasked.
    Cookie,
}

/// What the door makes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Come in.
    Enter(Shown),
    /// Right token in the address: take the cookie and come again without it.
    TakeCookie,
    /// No token, or a wrong one.
    Unauthorized,
    /// Not a name of this machine.
    ForeignHost,
}

impl Shown {
    /// Whether this request may change something.
    pub(super) fn may_change(self, headers: &HeaderMap) -> bool {
        self == Shown::Token || headers.contains_key(CSRF_HEADER)
    }

    /// Who that is, for the log.
    pub(super) const fn label(self) -> &'static str {
        match self {
            Shown::Token => "token",
            Shown::Cookie => "cookie",
        }
    }
}

impl Door {
    pub(super) fn new(source: TokenSource, listen: SocketAddr) -> Self {
        Door {
            token: source.token,
            origin: source.origin,
            session: Secret::new(&random_text()),
            listen: listen.ip(),
        }
    }

    pub(super) fn judge(&self, head: &Parts) -> Verdict {
        if !self.knows_host(head) {
            return Verdict::ForeignHost;
        }
        let uri = &head.uri;
        if uri.path() == "/"
            && let Some(token) = uri.query().and_then(token_in_query)
        {
            let right = is_same(&token, &self.token);
            return if right {
                Verdict::TakeCookie
            } else {
                Verdict::Unauthorized
            };
        }
        let headers = &head.headers;
        if self.is_bearer(headers) {
            Verdict::Enter(Shown::Token)
        } else if self.has_cookie(headers) {
            Verdict::Enter(Shown::Cookie)
        } else {
            Verdict::Unauthorized
        }
    }

    /// The value of `Set-Cookie` for a browser that showed the token.
    pub(super) fn cookie(&self) -> String {
        let session = self.session.expose();
        format!("{COOKIE_NAME}={session}; HttpOnly; SameSite=Strict; Path=/")
    }

    fn is_bearer(&self, headers: &HeaderMap) -> bool {
        let Some(value) = headers.get(AUTHORIZATION).map(|value| value.as_bytes()) else {
            return false;
        };
        value
            .split_at_checked(b"Bearer ".len())
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"Bearer "))
            .is_some_and(|(_, token)| is_same(token.trim_ascii(), &self.token))
    }

    fn has_cookie(&self, headers: &HeaderMap) -> bool {
        let fields = headers.get_all(COOKIE).into_iter();
        fields
            .flat_map(|field| field.as_bytes().split(|&byte| byte == b';'))
            .filter_map(|pair| pair.trim_ascii().strip_prefix(COOKIE_NAME.as_bytes()))
            .filter_map(|rest| rest.strip_prefix(b"="))
            .any(|value| is_same(value, &self.session))
    }

    fn knows_host(&self, head: &Parts) -> bool {
        let named = match head.uri.authority() {
            Some(authority) => Some(authority.clone()),
            None => head
                .headers
                .get(HOST)
                .and_then(|host| Authority::try_from(host.as_bytes()).ok()),
        };
        named.is_some_and(|named| !named.as_str().contains('@') && self.is_ours(named.host()))
    }

    /// Loopback by name or address; the address we listen on; any address if we listen on all.
    fn is_ours(&self, host: &str) -> bool {
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        if let Ok(ip) = bare.parse::<IpAddr>() {
            let ip = ip.to_canonical();
            return ip.is_loopback() || self.listen.is_unspecified() || ip == self.listen;
        }
        let name = host.trim_end_matches('.').to_ascii_lowercase();
        name == "localhost" || name.ends_with(".localhost")
    }
}

fn is_same(given: &[u8], secret: &Secret) -> bool {
    given.ct_eq(secret.expose().as_bytes()).into()
}

/// The `token` of a query, decoded.
fn token_in_query(query: &str) -> Option<Vec<u8>> {
    let value = query
        .split('&')
        .find_map(|pair| pair.strip_prefix("token="))?;
    Some(percent_decoded(value))
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn door(listen: &str) -> Door {
        let source = TokenSource {
            token: Secret::new("tok/en +1"),
            origin: Origin::Environment,
        };
        Door::new(source, listen.parse().unwrap())
    }

    fn local() -> Door {
        door("127.0.0.1:7071")
    }

    fn asked(uri: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::get(uri);
        if !headers.iter().any(|(name, _)| *name == "host") {
            request = request.header("host", "127.0.0.1:7071");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn the_right_bearer_enters_and_no_other() {
        let judged = |value| local().judge(&asked("/api/workers", &[("authorization", value)]));
        assert_eq!(judged("Bearer tok/en +1"), Verdict::Enter(Shown::Token));
        assert_eq!(judged("bearer  tok/en +1"), Verdict::Enter(Shown::Token));
        for wrong in [
            "Bearer tok/en +2",
            "Bearer tok/en +",
            "Bearer tok/en +11",
            "Bearer ",
            "Bearer",
            "Basic tok/en +1",
            "tok/en +1",
            "",
        ] {
            assert_eq!(judged(wrong), Verdict::Unauthorized, "{wrong}");
        }
        assert_eq!(local().judge(&asked("/", &[])), Verdict::Unauthorized);
    }

    #[test]
    fn the_token_in_the_address_is_for_the_first_page_only() {
        let judged = |uri| local().judge(&asked(uri, &[]));
        assert_eq!(judged("/?token=tok%2Fen%20%2b1"), Verdict::TakeCookie);
        assert_eq!(judged("/?x=1&token=tok/en%20+1"), Verdict::TakeCookie);
        assert_eq!(judged("/?token=wrong"), Verdict::Unauthorized);
        assert_eq!(judged("/?token="), Verdict::Unauthorized);
        assert_eq!(judged("/?token=%"), Verdict::Unauthorized);
        assert_eq!(
            judged("/api/workers?token=tok%2Fen%20%2B1"),
            Verdict::Unauthorized
        );
    }

    #[test]
    fn the_cookie_is_of_this_process_and_is_not_the_token() {
        let door = local();
        let cookie = door.cookie();
        assert!(cookie.ends_with("; HttpOnly; SameSite=Strict; Path=/"));
        assert!(!cookie.contains("tok"));
        let pair = cookie.split(';').next().unwrap();
        let judged = |door: &Door, cookie: &str| door.judge(&asked("/", &[("cookie", cookie)]));
        assert_eq!(judged(&door, pair), Verdict::Enter(Shown::Cookie));
        let among = format!("a=b; {pair};c=d");
        assert_eq!(judged(&door, &among), Verdict::Enter(Shown::Cookie));
        let crumbs = asked("/", &[("cookie", "a=b"), ("cookie", pair)]);
        assert_eq!(door.judge(&crumbs), Verdict::Enter(Shown::Cookie));
        let old = "forebay_session=0000; forebay_session=";
        assert_eq!(judged(&door, old), Verdict::Unauthorized);
        assert_eq!(
            judged(&local(), pair),
            Verdict::Unauthorized,
            "another process"
        );
        let token = "forebay_session=tok/en +1";
        assert_eq!(judged(&door, token), Verdict::Unauthorized);
    }

    #[test]
    fn only_names_of_this_machine_are_answered() {
        let judged = |door: &Door, host| {
            let good = ("authorization", "Bearer tok/en +1");
            door.judge(&asked("/api/workers", &[("host", host), good]))
        };
        let local = local();
        for ours in [
            "localhost",
            "LocalHost:9000",
            "forebay.localhost:1",
            "localhost.",
            "127.0.0.1:7071",
            "127.8.8.8",
            "[::1]:8080",
            "[::ffff:127.0.0.1]",
        ] {
            assert_eq!(judged(&local, ours), Verdict::Enter(Shown::Token), "{ours}");
        }
        for foreign in [
            "evil.example",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "notlocalhost",
            "localhost@evil.example",
            "evil@localhost",
            "192.168.1.5:7071",
            "",
            "[",
        ] {
            assert_eq!(judged(&local, foreign), Verdict::ForeignHost, "{foreign}");
        }
        let lan = door("192.168.1.5:7071");
        assert_eq!(
            judged(&lan, "192.168.1.5:7071"),
            Verdict::Enter(Shown::Token)
        );
        assert_eq!(judged(&lan, "192.168.1.6:7071"), Verdict::ForeignHost);
        let everywhere = door("0.0.0.0:7071");
        assert_eq!(
            judged(&everywhere, "192.168.1.6:7071"),
            Verdict::Enter(Shown::Token)
        );
        assert_eq!(judged(&everywhere, "evil.example"), Verdict::ForeignHost);
    }

    #[test]
    fn a_host_must_be_named_and_the_requests_own_authority_goes_first() {
        let nameless = Request::get("/api/workers").body(()).unwrap();
        let (nameless, ()) = nameless.into_parts();
        assert_eq!(local().judge(&nameless), Verdict::ForeignHost);
        let absolute = asked("http://evil.example/api/workers", &[]);
        assert_eq!(local().judge(&absolute), Verdict::ForeignHost);
    }
}
