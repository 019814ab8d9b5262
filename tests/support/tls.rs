//! TLS at both ends: an authority of the test's own, a client that speaks bytes within TLS, and a front before a worker.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, StreamOwned, SupportedCipherSuite,
    SupportedProtocolVersion,
};
use tokio_rustls::TlsAcceptor;

use super::PATIENCE;

/// Somebody who vouches for names.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: tempfile::TempDir,
}

/// The files of a certificate and of its key.
pub struct Files {
    pub cert: PathBuf,
    pub key: PathBuf,
}

impl Files {
    /// As a table of a configuration, without its braces.
    pub fn table(&self) -> String {
        format!(
            "cert = \"{}\", key = \"{}\"",
            self.cert.display(),
            self.key.display()
        )
    }
}

impl Authority {
    pub fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params
            .distinguished_name
            .push(DnType::CommonName, "those who vouch");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("ca.pem"), issuer.pem()).unwrap();
        Authority { issuer, folder }
    }

    /// The file of its own certificate.
    pub fn ca(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// A certificate for a name or address; a second one takes the place of the first.
    pub fn issue(&self, name: &str) -> Files {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let cert = params.signed_by(&key, &self.issuer).unwrap();
        let write = |ending: &str, text: String| {
            let path = self.folder.path().join(format!("{name}.{ending}"));
            std::fs::write(&path, text).unwrap();
            path
        };
        Files {
            cert: write("pem", cert.pem()),
            key: write("key", key.serialize_pem()),
        }
    }
}

fn chain(path: &Path) -> Vec<CertificateDer<'static>> {
    let found = CertificateDer::pem_file_iter(path).unwrap();
    found.map(Result::unwrap).collect()
}

fn roots(ca: &Path) -> Arc<RootCertStore> {
    let mut roots = RootCertStore::empty();
    chain(ca)
        .into_iter()
        .for_each(|one| roots.add(one).unwrap());
    Arc::new(roots)
}

/// Who a client trusts, what it speaks and what it shows.
pub struct Caller<'a> {
    pub ca: PathBuf,
    pub versions: &'a [&'static SupportedProtocolVersion],
    pub alpn: &'a [&'a [u8]],
    pub shows: Option<&'a Files>,
    /// Ciphers, the one it likes best first.
    pub suites: Vec<SupportedCipherSuite>,
}

impl Caller<'_> {
    pub fn new(authority: &Authority) -> Self {
        Caller {
            ca: authority.ca(),
            versions: rustls::ALL_VERSIONS,
            alpn: &[],
            shows: None,
            suites: rustls::crypto::ring::ALL_CIPHER_SUITES.to_vec(),
        }
    }

    pub fn config(&self) -> ClientConfig {
        let provider = Arc::new(CryptoProvider {
            cipher_suites: self.suites.clone(),
            ..rustls::crypto::ring::default_provider()
        });
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(self.versions)
            .unwrap()
            .with_root_certificates(roots(&self.ca));
        let mut config = match self.shows {
            None => config.with_no_client_auth(),
            Some(files) => {
                let key = PrivateKeyDer::from_pem_file(&files.key).unwrap();
                config
                    .with_client_auth_cert(chain(&files.cert), key)
                    .unwrap()
            }
        };
        config.alpn_protocols = self.alpn.iter().map(|word| word.to_vec()).collect();
        config
    }

    /// Shakes hands with whoever is there under this name.
    pub fn call(
        &self,
        address: SocketAddr,
        name: &str,
    ) -> std::io::Result<StreamOwned<ClientConnection, TcpStream>> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let mut session = ClientConnection::new(Arc::new(self.config()), name).unwrap();
        while session.is_handshaking() {
            session.complete_io(&mut stream)?;
        }
        Ok(StreamOwned::new(session, stream))
    }

    /// Sends a request that closes the connection, and returns all that comes back.
    pub fn ask(&self, address: SocketAddr, name: &str, request: &[u8]) -> std::io::Result<String> {
        let mut stream = self.call(address, name)?;
        stream.write_all(request)?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        Ok(String::from_utf8(answer).unwrap())
    }
}

/// Speaks TLS for a worker that does not; ends with the test's process.
pub fn front(files: &Files, client_ca: Option<&Path>, worker: SocketAddr) -> SocketAddr {
    front_for(files, client_ca, worker, &[])
}

/// The same, and agrees to what a worker of these protocols speaks.
pub fn front_for(
    files: &Files,
    client_ca: Option<&Path>,
    worker: SocketAddr,
    alpn: &[&[u8]],
) -> SocketAddr {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .unwrap();
    let config = match client_ca {
        None => config.with_no_client_auth(),
        Some(ca) => {
            let verifier = WebPkiClientVerifier::builder_with_provider(roots(ca), provider);
            config.with_client_cert_verifier(verifier.build().unwrap())
        }
    };
    let key = PrivateKeyDer::from_pem_file(&files.key).unwrap();
    let mut config = config.with_single_cert(chain(&files.cert), key).unwrap();
    config.alpn_protocols = alpn.iter().map(|word| word.to_vec()).collect();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    listener.set_nonblocking(true).unwrap();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_all().build().unwrap();
        runtime.block_on(accept(listener, acceptor, worker));
    });
    address
}

async fn accept(listener: std::net::TcpListener, acceptor: TlsAcceptor, worker: SocketAddr) {
    let listener = tokio::net::TcpListener::from_std(listener).unwrap();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let acceptor = acceptor.clone();
        #[expect(
            clippy::disallowed_methods,
            reason = "ends with the runtime, which the thread owns"
        )]
        tokio::spawn(async move {
            let Ok(mut outside) = acceptor.accept(stream).await else {
                return;
            };
            let mut inside = tokio::net::TcpStream::connect(worker).await.unwrap();
            let _ = tokio::io::copy_bidirectional(&mut outside, &mut inside).await;
        });
    }
}
