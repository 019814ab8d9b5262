//! `[jwt]`: whose tokens are taken in the place of keys.

use crate::config::plan::{Jwks, JwtPlan};
use crate::config::typed::{Section, Value};

/// The issuer, if there is one: nothing at all, or what could be made of the section.
pub fn given(root: &Section<'_>) -> Option<Option<JwtPlan>> {
    root.given("jwt")?;
    Some(jwt(&root.section("jwt")))
}

fn jwt(section: &Section<'_>) -> Option<JwtPlan> {
    let file = section.value("jwks").and_then(|value| file(&value));
    let text = |key| section.value(key).and_then(|value| words(&value));
    let (issuer, audience, claim) = (text("issuer"), text("audience"), text("claim"));
    let (path, keys) = file?;
    Some(JwtPlan {
        path,
        keys,
        issuer: issuer?,
        audience: audience?,
        claim: claim?,
    })
}

/// A text with something in it.
fn words(value: &Value<'_>) -> Option<String> {
    let text = value.text()?;
    if text.is_empty() {
        value.refuse("this is empty");
    }
    Some(text)
}

fn file(value: &Value<'_>) -> Option<(std::path::PathBuf, std::sync::Arc<Jwks>)> {
    let entries = value.entries()?;
    let [(source, path)] = entries.as_slice() else {
        value.refuse("keys have one source, a file");
        return None;
    };
    if source != "file" {
        value.refuse("keys come from a file and from nowhere else: nothing is fetched");
        return None;
    }
    let found = path.path()?;
    match Jwks::read(&found) {
        Ok(keys) => Some((found, keys)),
        Err(error) => {
            let message = format!("the file named here can't be used: {error}");
            path.refuse_for(
                message,
                "put the issuer's JWK set there, as its jwks_uri has it",
            );
            None
        }
    }
}
