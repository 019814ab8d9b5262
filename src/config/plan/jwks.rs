//! Public keys by which JSON Web Tokens are checked: a JWK set (RFC 7517) in a file.
//!
//! A key fixes its algorithm, RS256, ES256 or EdDSA with Ed25519 (RFC 7518, RFC 8037), so that no token can talk its way
//! to a weaker one: `none`, or HMAC with a public key for its secret, are nothing that a key here could mean. Signatures
//! are checked by ring. jsonwebtoken would bring its own choice of libraries beside the one that is here for TLS, one of
//! them with an open advisory, for what is a hundred lines without it. Keys for other uses and of other kinds are left
//! aside, as RFC 7517 §5 asks, but a set in which nothing is of use is an error: it is a mistake more likely than a wish. A set
//! without any key is no mistake: who empties it wants no token to be good any more.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents,
    UnparsedPublicKey,
};
use serde::Deserialize;

use crate::facts::nesting;

/// A longer file is a wrong path.
const LARGEST: u64 = 1 << 20;
/// Bytes of the shortest RSA modulus that is taken: 2048 bits (RFC 7518 §3.3).
const LEAST_MODULUS: usize = 256;
/// Bytes of a coordinate on P-256, and of a point of Ed25519.
const COORDINATE: usize = 32;
/// What a point that is not compressed begins with (SEC 1 §2.3.3).
const UNCOMPRESSED: u8 = 4;

/// Who issues tokens, and for whom.
#[derive(Clone, Debug, PartialEq)]
pub struct JwtPlan {
    /// Where the issuer's keys are.
    pub path: PathBuf,
    /// The keys when the file was read.
    pub keys: Arc<Jwks>,
    /// What `iss` must say.
    pub issuer: String,
    /// What `aud` must name.
    pub audience: String,
    /// The claim that names the tenant.
    pub claim: String,
}

/// A set of keys; without any, no token is good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Jwks(Vec<Jwk>);

/// One public key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Jwk {
    id: Option<String>,
    material: Material,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Material {
    Rs256 { modulus: Vec<u8>, exponent: Vec<u8> },
    Es256 { point: Vec<u8> },
    EdDsa { point: Vec<u8> },
}

#[derive(Deserialize)]
struct TypedSet {
    keys: Vec<Typed>,
}

/// The members that are read (RFC 7517 §4, RFC 7518 §6).
#[derive(Deserialize)]
struct Typed {
    kty: String,
    kid: Option<String>,
    r#use: Option<String>,
    alg: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl Jwks {
    /// Reads a file.
    ///
    /// # Errors
    /// When it can't be read, is no JWK set, or has no key that is of use here.
    pub fn read(path: &Path) -> io::Result<Arc<Self>> {
        let mut text = String::new();
        let length = File::open(path)?
            .take(LARGEST + 1)
            .read_to_string(&mut text)?;
        if length as u64 > LARGEST {
            return Err(io::Error::other("it is longer than 1 MiB"));
        }
        Self::parse(&text).map(Arc::new).map_err(io::Error::other)
    }

    fn parse(text: &str) -> Result<Self, &'static str> {
        let no_set = "it is no JWK set: {\"keys\": [{\"kty\": …}, …]}";
        if nesting::is_too_deep(text.as_bytes()) {
            return Err(no_set);
        }
        let set: TypedSet = sonic_rs::from_str(text).map_err(|_| no_set)?;
        let is_emptied = set.keys.is_empty();
        let keys: Vec<Jwk> = set.keys.into_iter().filter_map(Typed::key).collect();
        if keys.is_empty() && !is_emptied {
            return Err(
                "it has no key for RS256 of 2048 bits or more, for ES256 or for EdDSA with Ed25519",
            );
        }
        Ok(Jwks(keys))
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The keys that may have signed something: those of this id, if one is named.
    pub fn candidates<'a>(&'a self, id: Option<&'a str>) -> impl Iterator<Item = &'a Jwk> {
        let is_meant = move |key: &&Jwk| id.is_none() || key.id.as_deref() == id;
        self.0.iter().filter(is_meant)
    }
}

impl Jwk {
    /// The algorithm that it is for, as tokens name it.
    #[must_use]
    pub fn algorithm(&self) -> &'static str {
        match self.material {
            Material::Rs256 { .. } => "RS256",
            Material::Es256 { .. } => "ES256",
            Material::EdDsa { .. } => "EdDSA",
        }
    }

    /// Whether its owner signed this.
    #[must_use]
    pub fn has_signed(&self, message: &[u8], signature: &[u8]) -> bool {
        let checked = match &self.material {
            Material::Rs256 { modulus, exponent } => {
                let key = RsaPublicKeyComponents {
                    n: modulus,
                    e: exponent,
                };
                key.verify(&RSA_PKCS1_2048_8192_SHA256, message, signature)
            }
            Material::Es256 { point } => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(message, signature)
            }
            Material::EdDsa { point } => {
                UnparsedPublicKey::new(&ED25519, point).verify(message, signature)
            }
        };
        checked.is_ok()
    }
}

impl Typed {
    /// The key, if it is one for signatures of a kind that is taken.
    fn key(self) -> Option<Jwk> {
        if self
            .r#use
            .as_deref()
            .is_some_and(|purpose| purpose != "sig")
        {
            return None;
        }
        let key = Jwk {
            material: self.material()?,
            id: self.kid,
        };
        let is_meant = self.alg.is_none_or(|alg| alg == key.algorithm());
        is_meant.then_some(key)
    }

    fn material(&self) -> Option<Material> {
        let bytes = |text: &Option<String>| URL_SAFE_NO_PAD.decode(text.as_ref()?).ok();
        let of_length = |bytes: Vec<u8>| Some(bytes).filter(|bytes| bytes.len() == COORDINATE);
        match (self.kty.as_str(), self.crv.as_deref()) {
            ("RSA", _) => {
                let modulus = without_zeros(bytes(&self.n)?);
                let exponent = without_zeros(bytes(&self.e)?);
                let is_long = modulus.len() >= LEAST_MODULUS;
                is_long.then_some(Material::Rs256 { modulus, exponent })
            }
            ("EC", Some("P-256")) => {
                let mut point = vec![UNCOMPRESSED];
                point.extend(of_length(bytes(&self.x)?)?);
                point.extend(of_length(bytes(&self.y)?)?);
                Some(Material::Es256 { point })
            }
            ("OKP", Some("Ed25519")) => {
                let point = of_length(bytes(&self.x)?)?;
                Some(Material::EdDsa { point })
            }
            _ => None,
        }
    }
}

/// Some issuers write a number with a zero before it, which ring does not take.
fn without_zeros(mut number: Vec<u8>) -> Vec<u8> {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    number.drain(..zeros);
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8037, appendix A.2 and A.4.
    const ED_KEY: &str =
        r#"{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}"#;
    const ED_MESSAGE: &str = "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc";
    const ED_SIGNATURE: &str =
        "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg";
    /// RFC 7515, appendix A.3.
    const EC_KEY: &str = r#"{"kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}"#;
    const EC_MESSAGE: &str = "eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
    const EC_SIGNATURE: &str =
        "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q";

    /// Made with OpenSSL for this test; nobody has the private half any more.
    const RSA_KEY: &str = r#"{"kty":"RSA","e":"AQAB","n":"oZfEZlPDv7ywRlRpicisj5cnRT0sc2s7qxfpv0osgqVCVM-Y-KHSI2-lknvjgk_oJefW5y7iB4TyHsMqqxzFBFDzcKPGZNx3Myup8zW1qbsBselwB3mHD2wt7LuZHmOdUZ5lyfUtQtBvDdDluCOHlq4swyvO_87kiZrZTd-cI_-c7PjugRtkutyRcygL-XCrdsLtSxnP5Ads_E0HeYb_1oZtTEfu8m0NYWlrvX56oJnSpLSmgZ0MH-paqrgvnBb8aocqLwNDlZSYzoE1snf1ExrGBWDMjni39BpEuv_5tgunjSWBbseCF0ulmmuP5yWsuE85zzt0RP7XaNlFujbw4w"}"#;
    const RSA_MESSAGE: &str = "eyJhbGciOiJSUzI1NiJ9.e30";
    const RSA_SIGNATURE: &str = "N1wKlv_laezIVdXVttIPgYzOd4Z77ww8Nidt6jCzHdjZZ6qgopCUJfF0OQCsEFd4rbbevPGJlINbWRs5lLBXjxX9WCI8zYQWo9gTJnEjUs843H-Q_Ael8fuWZIBNeHsylFdQBeiZ4mgNkaALmv5AOwTK9L-t7eiqgUCVnX-Y1ThiDnxG5Sut2XEAjkNpo51EyW9-6lDHCwFn9FdHsGSozMTHldHl3sBJCEM2M2jmjfhL-LcdamFM7-VqNzbNK9Hy7GCrHggEoS9oL9acEqM45fJxmj89oUkuw7T1lHysAJLtNIZ9SVk95biSXUwZ5j5gmi8nJCGraiXa08IZi2HqUA";

    fn set(keys: &[&str]) -> Result<Jwks, &'static str> {
        Jwks::parse(&format!("{{\"keys\":[{}]}}", keys.join(",")))
    }

    #[test]
    fn signatures_of_the_standards_are_good_and_no_others() {
        for (key, algorithm, message, signature) in [
            (ED_KEY, "EdDSA", ED_MESSAGE, ED_SIGNATURE),
            (EC_KEY, "ES256", EC_MESSAGE, EC_SIGNATURE),
            (RSA_KEY, "RS256", RSA_MESSAGE, RSA_SIGNATURE),
        ] {
            let set = set(&[key]).unwrap();
            let key = set.candidates(None).next().unwrap();
            assert_eq!(key.algorithm(), algorithm);
            let mut signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
            assert!(key.has_signed(message.as_bytes(), &signature));
            assert!(!key.has_signed(&message.as_bytes()[1..], &signature));
            signature[7] ^= 1;
            assert!(!key.has_signed(message.as_bytes(), &signature));
            assert!(!key.has_signed(message.as_bytes(), b""));
        }
    }

    #[test]
    fn what_is_of_no_use_is_left_aside_and_a_set_of_nothing_else_refused() {
        let secret = r#"{"kty":"oct","k":"c2VjcmV0"}"#;
        let short = r#"{"kty":"RSA","n":"sXch","e":"AQAB"}"#;
        let for_secrecy = EC_KEY.replacen('{', "{\"use\":\"enc\",", 1);
        let for_another = EC_KEY.replacen('{', "{\"alg\":\"RS256\",", 1);
        let useless = [secret, short, &for_secrecy, &for_another];
        for key in useless {
            assert!(set(&[key]).is_err(), "{key}");
        }
        assert_eq!(set(&[secret, short, ED_KEY]).unwrap().count(), 1);
        for text in ["", "[]", "{}", "{\"keys\":[3]}", &"[".repeat(200_000)] {
            assert!(Jwks::parse(text).is_err());
        }
        assert_eq!(set(&[]).map(|set| set.count()), Ok(0));
    }
}
