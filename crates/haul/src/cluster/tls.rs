//! TLS between nodes: always, with nothing to set up. Each node makes itself a key when it starts. Who the other one is, is not
//! told by its certificate, which anybody can make, but by the proof that follows ([`wire::greet`]): both sides show that
//! they know the data set's secret, mixed with a number that only the two ends of this very connection have. Somebody in
//! the middle shares another number with each of them, and so proves nothing to either.

use std::io;
use std::sync::Arc;

use anyhow::Context;
use tokio::net::TcpStream;
use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    ClientConfig, DigitallySignedStruct, Error, ServerConfig, SignatureScheme, version,
};
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

use super::wire;

/// A connection between two nodes that know each other.
pub(super) type Line = TlsStream<TcpStream>;

/// The name in every node's certificate; it says nothing.
const NAME: &str = "haul-node";
/// What the number is for.
const BINDING: &[u8] = b"EXPORTER-haul-node";

/// This node's key, and the secret of the data set. Cheap to clone.
#[derive(Clone)]
pub(super) struct Seal {
    secret: Arc<str>,
    connector: TlsConnector,
    acceptor: TlsAcceptor,
}

impl Seal {
    pub(super) fn new(secret: &str) -> anyhow::Result<Self> {
        let made = rcgen::generate_simple_self_signed([NAME.to_owned()]).context("no key for this node")?;
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).map_err(anyhow::Error::msg)?;
        let provider = Arc::new(ring::default_provider());
        let server = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&version::TLS13])?
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.into()], key)?;
        let mut client = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&version::TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyNode(provider)))
            .with_no_client_auth();
        client.resumption = Resumption::disabled();
        Ok(Seal {
            secret: secret.into(),
            connector: Arc::new(client).into(),
            acceptor: Arc::new(server).into(),
        })
    }

    /// Both halves without the proof.
    #[cfg(test)]
    pub(super) fn for_the_middle(self) -> (TlsAcceptor, TlsConnector) {
        (self.acceptor, self.connector)
    }

    /// To a node that was connected to.
    pub(super) async fn connect(&self, stream: TcpStream) -> io::Result<Line> {
        stream.set_nodelay(true)?;
        let name = ServerName::try_from(NAME).map_err(io::Error::other)?;
        let mut stream = self.connector.connect(name, stream).await?;
        let bound = stream.get_ref().1.export_keying_material([0; 32], BINDING, None);
        wire::greet(&mut stream, &self.secret, &bound.map_err(io::Error::other)?, true).await?;
        Ok(stream.into())
    }

    /// From a node that has connected.
    pub(super) async fn accept(&self, stream: TcpStream) -> io::Result<Line> {
        stream.set_nodelay(true)?;
        let mut stream = self.acceptor.accept(stream).await?;
        let bound = stream.get_ref().1.export_keying_material([0; 32], BINDING, None);
        wire::greet(&mut stream, &self.secret, &bound.map_err(io::Error::other)?, false).await?;
        Ok(stream.into())
    }
}

/// Any certificate, if whoever shows it has its key.
#[derive(Debug)]
struct AnyNode(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyNode {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
