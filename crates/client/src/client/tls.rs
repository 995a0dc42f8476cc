//! TLS to the server: whom to trust, and who we are.

use crate::error::Error;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// Where systems keep the authorities they trust.
const SYSTEM_AUTHORITIES: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
    "/opt/homebrew/etc/ca-certificates/cert.pem",
];

/// How to talk TLS. All files are PEM and read when the client is made.
#[derive(Debug, Clone, Default)]
pub struct Tls {
    /// Who may have signed the server's certificate; the system's authorities if none is given.
    pub ca: Option<PathBuf>,
    /// Our certificate and its private key, for servers that ask for one.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The name the server's certificate must be for; the host of the address if none is given.
    pub server_name: Option<String>,
}

impl Tls {
    /// Talks TLS over a connection to `host:port`, for programs without a runtime.
    pub fn over(&self, address: &str, stream: TcpStream) -> Result<impl Read + Write + use<>, Error> {
        let Connector { connector, name } = Connector::new(self, address)?;
        let session = ClientConnection::new(connector.config().clone(), name)
            .map_err(|error| Error::Tls(error.to_string()))?;
        Ok(StreamOwned::new(session, stream))
    }
}

/// TLS, ready to use.
#[derive(Clone)]
pub(crate) struct Connector {
    pub(crate) connector: TlsConnector,
    pub(crate) name: ServerName<'static>,
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Connector").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Connector {
    /// For the server at `host:port`.
    pub(crate) fn new(tls: &Tls, address: &str) -> Result<Self, Error> {
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let host = tls.server_name.as_deref().unwrap_or(host).trim_matches(['[', ']']);
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| Error::Tls(format!("{host} is no name a certificate can be for")))?;
        let mut roots = RootCertStore::empty();
        let path = tls.ca.clone().or_else(system_authorities);
        let path = path.ok_or_else(|| {
            Error::Tls("the system has no list of trusted authorities; name a file of them".to_owned())
        })?;
        roots.add_parsable_certificates(certificates(&path)?);
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::Tls(error.to_string()))?
            .with_root_certificates(roots);
        let config = match &tls.identity {
            None => builder.with_no_client_auth(),
            Some((cert, key)) => {
                let private = PrivateKeyDer::from_pem_file(key).map_err(|error| unusable(key, &error))?;
                builder
                    .with_client_auth_cert(certificates(cert)?, private)
                    .map_err(|error| unusable(cert, &error))?
            }
        };
        Ok(Self { connector: TlsConnector::from(Arc::new(config)), name })
    }
}

fn system_authorities() -> Option<PathBuf> {
    let named = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    named.or_else(|| SYSTEM_AUTHORITIES.iter().map(PathBuf::from).find(|path| path.exists()))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let read = || CertificateDer::pem_file_iter(path)?.collect::<Result<Vec<_>, _>>();
    match read() {
        Ok(list) if list.is_empty() => Err(unusable(path, &"it has no certificate in PEM form")),
        Ok(list) => Ok(list),
        Err(error) => Err(unusable(path, &error)),
    }
}

fn unusable(path: &Path, error: &dyn std::fmt::Display) -> Error {
    Error::Tls(format!("{}: {error}", path.display()))
}
