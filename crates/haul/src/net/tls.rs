//! TLS by rustls: certificate and key from files, read again when they change. What is wrong with new files is logged
//! and the old ones stay in force.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};
use tokio_rustls::server::TlsStream;

use crate::auth::tokens::Stamp;

/// How often the files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// PEM files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TlsFiles {
    /// The certificate, those between it and the authority after it.
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
    /// Who signs clients' certificates; given, every client must have one.
    pub(crate) client_ca: Option<PathBuf>,
}

impl TlsFiles {
    fn stamps(&self) -> Vec<Option<Stamp>> {
        let paths = [Some(&self.cert), Some(&self.key), self.client_ca.as_ref()];
        paths.into_iter().flatten().map(|path| Stamp::of(path)).collect()
    }

    fn load(&self) -> anyhow::Result<ServerConfig> {
        let chain = certificates(&self.cert)?;
        let key = PrivateKeyDer::from_pem_file(&self.key)
            .with_context(|| format!("{} has no private key in PEM form", self.key.display()))?;
        let provider = Arc::new(ring::default_provider());
        let builder =
            ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
        let builder = match &self.client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let mut roots = RootCertStore::empty();
                for authority in certificates(path)? {
                    roots.add(authority).with_context(|| format!("{} is no authority", path.display()))?;
                }
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build()?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        builder.with_single_cert(chain, key).with_context(|| {
            format!("{} and {} do not belong together", self.cert.display(), self.key.display())
        })
    }
}

fn certificates(path: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let read = || CertificateDer::pem_file_iter(path)?.collect::<Result<Vec<_>, _>>();
    let list = read().with_context(|| format!("{} is no PEM file of certificates", path.display()))?;
    if list.is_empty() {
        bail!("{} has no certificate in PEM form", path.display());
    }
    Ok(list)
}

/// The certificate in force.
pub(crate) struct Tls {
    files: TlsFiles,
    stamps: Vec<Option<Stamp>>,
    config: RwLock<Arc<ServerConfig>>,
}

impl Tls {
    pub(crate) fn new(files: TlsFiles) -> anyhow::Result<Self> {
        let stamps = files.stamps();
        let config = RwLock::new(Arc::new(files.load().context("TLS cannot be set up")?));
        Ok(Tls { files, stamps, config })
    }

    /// Shakes hands.
    pub(crate) async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
    ) -> std::io::Result<TlsStream<S>> {
        let config = self.config.read().unwrap_or_else(PoisonError::into_inner).clone();
        TlsAcceptor::from(config).accept(stream).await
    }

    fn look(&self, last: &mut Vec<Option<Stamp>>) {
        let stamps = self.files.stamps();
        if stamps == *last {
            return;
        }
        match self.files.load() {
            Ok(config) => {
                *self.config.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
                tracing::info!(certificate = %self.files.cert.display(), "the TLS certificate was read again");
            }
            // A certificate and its key are rarely replaced in one instant: the second change is a new look.
            Err(error) => tracing::error!(
                error = format!("{error:#}"),
                "the TLS files have changed and cannot be used: the certificate read last stays in force"
            ),
        }
        *last = stamps;
    }

    /// Looks at the files for ever.
    pub(crate) async fn watch(self: Arc<Self>) {
        let mut last = self.stamps.clone();
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            self.look(&mut last);
        }
    }
}
