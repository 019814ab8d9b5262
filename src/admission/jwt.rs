//! JSON Web Tokens in the place of keys: whoever the issuer says it is.
//!
//! A token is taken when a key of the set signed it, with that key's own algorithm; when it is from the issuer, for
//! this audience, and within its time, with a minute for clocks that differ (RFC 7519, and RFC 8725 for what goes wrong
//! with it). The keys lie in a file, which is followed as files of clients' keys are: nothing is ever fetched, so no
//! request waits for an issuer and none can be made to ask one. What is wrong with a token is said; nothing of it is
//! repeated.
//!
//! A token that is good and names no tenant of ours is 403: who sent it is known, and may not come in. A bad one is
//! 401.
//!
//! Checking a signature takes some tens of microseconds, and is done for each request: a memory of good tokens would
//! save them, and could keep a token alive that its set has dropped.

use std::sync::Arc;

use arc_swap::ArcSwap;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use sonic_rs::{JsonContainerTrait as _, JsonValueTrait as _, Value};

use super::watched::Watched;
use crate::config::plan::{Jwks, JwtPlan};
use crate::facts::nesting;
use crate::units::Seconds;

/// A longer token is none.
const LONGEST: usize = 16 << 10;
/// By how much clocks may differ.
const LEEWAY: Seconds = Seconds(60.0);

/// Who issues tokens.
pub(super) struct Issuer {
    issuer: String,
    audience: String,
    claim: String,
    keys: ArcSwap<Jwks>,
    /// Not to be locked by a request: who looks at it may wait for a disk.
    pub(super) file: Watched<Arc<Jwks>>,
}

/// What is wrong with a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Flaw(pub(super) String);

impl Flaw {
    fn new(what: &str) -> Self {
        Flaw(what.to_owned())
    }
}

/// The head of a token (RFC 7515 §4.1).
#[derive(Deserialize)]
struct Head {
    alg: String,
    kid: Option<String>,
    crit: Option<Value>,
}

/// Whether something could be a token rather than a key.
pub(super) fn looks_like_one(text: &[u8]) -> bool {
    text.iter().filter(|byte| **byte == b'.').count() == 2
}

impl Issuer {
    pub(super) fn new(plan: &JwtPlan) -> Self {
        let keys = Arc::clone(&plan.keys);
        Issuer {
            issuer: plan.issuer.clone(),
            audience: plan.audience.clone(),
            claim: plan.claim.clone(),
            keys: ArcSwap::new(Arc::clone(&keys)),
            file: Watched::new(&plan.path, keys, Jwks::read),
        }
    }

    /// Whether another plan means the same issuer; its keys are what the file holds, whenever it was read.
    pub(super) fn is_of(&self, plan: &JwtPlan) -> bool {
        let JwtPlan {
            path,
            keys: _,
            issuer,
            audience,
            claim,
        } = plan;
        let same_words = (&self.issuer, &self.audience, &self.claim) == (issuer, audience, claim);
        same_words && self.file.path() == path
    }

    /// Takes the keys over that stand in the file now.
    pub(super) fn look(&self) {
        if self.file.look() {
            let keys = self.file.held();
            if keys.count() == 0 {
                tracing::warn!("jwt.jwks has no key any more: every token is refused");
            }
            self.keys.store(keys);
        }
    }

    /// The tenant that a token names.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn tenant(&self, token: &[u8], wall: Seconds) -> Result<String, Flaw> {
        let claims = self.signed_claims(token)?;
        let claims: Value = parsed(&claims)?;
        let number = |name: &str| match claims.get(name) {
            None => Ok(None),
            Some(value) => value
                .as_f64()
                .map(|number| Some(Seconds(number)))
                .ok_or_else(|| Flaw(format!("its {name} is no number"))),
        };
        match number("exp")? {
            None => return Err(Flaw::new("it has no exp: it would never end")),
            Some(end) if wall >= end + LEEWAY => return Err(Flaw::new("it has expired (exp)")),
            Some(_) => {}
        }
        if number("nbf")?.is_some_and(|begin| wall + LEEWAY < begin) {
            return Err(Flaw::new("it does not hold yet (nbf)"));
        }
        if claims.get("iss").as_str() != Some(self.issuer.as_str()) {
            return Err(Flaw::new("it is from another issuer (iss)"));
        }
        if !claims.get("aud").is_some_and(|aud| self.is_for_us(aud)) {
            return Err(Flaw::new("it is for another audience (aud)"));
        }
        let tenant = claims.get(&self.claim).as_str().map(str::to_owned);
        tenant.ok_or_else(|| Flaw(format!("it has no {} that names a tenant", self.claim)))
    }

    /// One audience or a list of them (RFC 7519 §4.1.3).
    fn is_for_us(&self, aud: &Value) -> bool {
        let is_ours = |name: &Value| name.as_str() == Some(self.audience.as_str());
        match aud.as_array() {
            Some(names) => names.iter().any(is_ours),
            None => is_ours(aud),
        }
    }

    /// What the token says, once a key of ours is known to have signed it.
    fn signed_claims(&self, token: &[u8]) -> Result<Vec<u8>, Flaw> {
        let no_token = || Flaw::new("it is no JWT: three parts in base64url with points between");
        let text = std::str::from_utf8(token).ok();
        let text = text.filter(|text| text.len() <= LONGEST);
        let (message, signature) = text.and_then(|t| t.rsplit_once('.')).ok_or_else(no_token)?;
        let (head, claims) = message.split_once('.').ok_or_else(no_token)?;
        let decoded = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| no_token());
        let (head, claims, signature) = (decoded(head)?, decoded(claims)?, decoded(signature)?);
        let head: Head = parsed(&head)?;
        if head.crit.is_some() {
            return Err(Flaw::new(
                "it asks for extensions that are not known here (crit)",
            ));
        }
        let keys = self.keys.load();
        let mut candidates = keys.candidates(head.kid.as_deref()).peekable();
        if candidates.peek().is_none() {
            return Err(Flaw::new("the key that it names is not in the set (kid)"));
        }
        // The key says how it is checked; a token that says otherwise is not what its issuer meant.
        let signed = candidates.any(|key| {
            key.algorithm() == head.alg && key.has_signed(message.as_bytes(), &signature)
        });
        if signed {
            Ok(claims)
        } else {
            Err(Flaw::new(
                "no key of the set has signed it with its algorithm",
            ))
        }
    }
}

/// A part of a token as JSON.
fn parsed<T: for<'de> Deserialize<'de>>(part: &[u8]) -> Result<T, Flaw> {
    let no_json = || Flaw::new("a part of it is not the JSON of a token");
    if nesting::is_too_deep(part) {
        return Err(no_json());
    }
    sonic_rs::from_slice(part).map_err(|_| no_json())
}
