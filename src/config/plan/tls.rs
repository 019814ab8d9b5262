//! TLS: what the proxy shows its clients, and whom it believes to be a worker.
//!
//! Certificates and keys are PEM files, read whole when the configuration is, so that a wrong one is told before it is
//! needed. TLS 1.3 and 1.2 are spoken and nothing older; rustls knows no renegotiation, no compression and no cipher
//! without forward secrecy. Tickets let a client resume for as long as the configuration lives. What is sent in the first
//! flight of a resumption (0-RTT, RFC 8446 §8) may be a repetition by an attacker, and is not taken.

use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use rustls::client::verify_server_name;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use sha2::{Digest as _, Sha256};

/// A file of certificates. What it holds is part of the plan, so that another certificate in the same file is news.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertFile {
    /// Where it is.
    pub path: PathBuf,
    /// The SHA-256 of what it holds, in hexadecimal digits.
    pub sha256: String,
}

impl CertFile {
    /// Looks at what a file holds.
    ///
    /// # Errors
    /// Why it can't be read, in words.
    pub fn read(path: PathBuf) -> Result<Self, String> {
        let held = std::fs::read(&path).map_err(of(&path))?;
        let sha256 = Sha256::digest(&held);
        let sha256 = sha256.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(CertFile { path, sha256 })
    }
}

/// The files of a certificate, with the chain behind it, and of its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The chain, the certificate itself first.
    pub cert: CertFile,
    /// The private key.
    pub key: PathBuf,
}

/// What clients are shown.
#[derive(Clone, Debug)]
pub struct ServerTls {
    /// One for each name, the first for whoever asks for none of them.
    pub identities: Vec<Identity>,
    /// Who vouches for clients; without it they need no certificate.
    pub client_ca: Option<CertFile>,
    /// Made of these.
    pub config: Arc<ServerConfig>,
}

impl ServerTls {
    /// Reads the files.
    ///
    /// # Errors
    /// Which file can't be used and why, in words.
    pub fn read(identities: Vec<Identity>, client_ca: Option<CertFile>) -> Result<Self, String> {
        let provider = Arc::new(ring::default_provider());
        let shown = identities
            .iter()
            .map(|identity| certified(identity, &provider))
            .collect::<Result<_, _>>()?;
        let versions = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        let asked = match &client_ca {
            None => versions.with_no_client_auth(),
            Some(CertFile { path, .. }) => {
                let vouching = Arc::new(roots(path)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(vouching, provider);
                versions.with_client_cert_verifier(verifier.build().map_err(of(path))?)
            }
        };
        let mut config = asked.with_cert_resolver(Arc::new(ByName(shown)));
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        // The strongest that both have, whatever a client puts first.
        config.ignore_client_order = true;
        config.ticketer = ring::Ticketer::new().map_err(|error| error.to_string())?;
        Ok(ServerTls {
            identities,
            client_ca,
            config: Arc::new(config),
        })
    }
}

/// Plans are alike when they name the same certificates.
impl PartialEq for ServerTls {
    fn eq(&self, other: &Self) -> bool {
        self.identities == other.identities && self.client_ca == other.client_ca
    }
}

/// Whom a worker's certificate must come from, and what it is shown.
#[derive(Clone, Debug)]
pub struct ClientTls {
    /// Who vouches for the worker; without it those whom the system trusts.
    pub ca: Option<CertFile>,
    /// What the worker is shown when it asks.
    pub identity: Option<Identity>,
    /// Made of these.
    pub config: Arc<ClientConfig>,
}

impl ClientTls {
    /// Reads the files.
    ///
    /// # Errors
    /// Which file can't be used and why, in words.
    pub fn read(ca: Option<CertFile>, identity: Option<Identity>) -> Result<Self, String> {
        let provider = Arc::new(ring::default_provider());
        let trusted = match &ca {
            Some(CertFile { path, .. }) => Arc::new(roots(path)?),
            None => SYSTEM.clone(),
        };
        let asking = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(trusted);
        let mut config = match &identity {
            None => asking.with_no_client_auth(),
            Some(identity) => asking
                .with_client_auth_cert(certificates(&identity.cert.path)?, key(&identity.key)?)
                .map_err(of(&identity.cert.path))?,
        };
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(ClientTls {
            ca,
            identity,
            config: Arc::new(config),
        })
    }
}

impl ClientTls {
    /// The same for HTTP/2: which one is spoken is agreed on by ALPN.
    #[must_use]
    pub fn for_http2(&self) -> Arc<ClientConfig> {
        let mut config = ClientConfig::clone(&self.config);
        config.alpn_protocols = vec![b"h2".to_vec()];
        Arc::new(config)
    }
}

/// As for clients: the same certificates.
impl PartialEq for ClientTls {
    fn eq(&self, other: &Self) -> bool {
        self.ca == other.ca && self.identity == other.identity
    }
}

impl Eq for ClientTls {}

/// The authorities that the system trusts; what of them can't be read is not trusted.
static SYSTEM: LazyLock<Arc<RootCertStore>> = LazyLock::new(|| {
    let mut trusted = RootCertStore::empty();
    trusted.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    Arc::new(trusted)
});

/// The certificate of the name that a client asks for, else the first.
#[derive(Debug)]
struct ByName(Vec<Arc<CertifiedKey>>);

impl ResolvesServerCert for ByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name().map(ServerName::try_from);
        let named = name.and_then(Result::ok).and_then(|name| {
            let mut shown = self.0.iter();
            shown.find(|identity| is_for(identity, &name))
        });
        named.or(self.0.first()).cloned()
    }
}

fn is_for(identity: &CertifiedKey, name: &ServerName<'_>) -> bool {
    let own = identity.cert.first().map(ParsedCertificate::try_from);
    own.is_some_and(|own| own.is_ok_and(|own| verify_server_name(&own, name).is_ok()))
}

fn certified(identity: &Identity, provider: &CryptoProvider) -> Result<Arc<CertifiedKey>, String> {
    let chain = certificates(&identity.cert.path)?;
    let certified = CertifiedKey::from_der(chain, key(&identity.key)?, provider);
    certified.map(Arc::new).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => format!(
            "{} is not the key of {}",
            identity.key.display(),
            identity.cert.path.display()
        ),
        error => of(&identity.key)(error),
    })
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let found = CertificateDer::pem_file_iter(path).map_err(of(path))?;
    let found: Vec<_> = found.collect::<Result<_, _>>().map_err(of(path))?;
    if found.is_empty() {
        return Err(of(path)("there is no certificate in it"));
    }
    Ok(found)
}

fn key(path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_file(path).map_err(of(path))
}

fn roots(path: &Path) -> Result<RootCertStore, String> {
    let mut trusted = RootCertStore::empty();
    for authority in certificates(path)? {
        trusted.add(authority).map_err(of(path))?;
    }
    Ok(trusted)
}

/// What is wrong with a file.
fn of<E: std::fmt::Display>(path: &Path) -> impl Fn(E) -> String {
    move |error| format!("{}: {error}", path.display())
}
