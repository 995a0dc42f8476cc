//! A bucket, or a folder that machines share: how it is reached, whether it is fit, and the few small objects that nodes
//! keep there beside the databases.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::TryStreamExt;
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    ClientOptions, Error, ObjectStore as _, ObjectStoreExt as _, PutMode, PutPayload, RetryConfig,
};
use url::Url;

use super::requests::{Counted, Requests};
use crate::Fault;

/// Before each attempt after the first, in milliseconds.
const PAUSES_MS: [u64; 3] = [50, 200, 500];

/// The largest object that is read whole.
const SMALL_BYTES_MAX: u64 = 1 << 20;

/// How a bucket is reached. What is not set here comes from the variables that the store's own tools use
/// (`AWS_*`, `GOOGLE_*`, `AZURE_*`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// Where the service is, if not at its usual address.
    pub endpoint: Option<String>,
    /// Allow that address to be without TLS.
    pub allow_http: bool,
    /// How long one request may take.
    pub request_timeout: Duration,
    /// How often a request that failed is sent again.
    pub retries_max: usize,
}

impl Default for Access {
    fn default() -> Self {
        Access { endpoint: None, allow_http: false, request_timeout: Duration::from_secs(10), retries_max: 3 }
    }
}

/// One object of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its name in the folder.
    pub name: String,
    /// When it was last written, by the store's clock, in milliseconds since 1970.
    pub modified_ms: i64,
}

/// A bucket and a prefix in it.
#[derive(Debug)]
pub struct Place {
    url: String,
    objects: Arc<dyn object_store::ObjectStore>,
    prefix: Path,
    requests: Arc<Requests>,
}

impl Place {
    /// Knows how to reach `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix` or `file:///folder`; asks
    /// nothing of it yet.
    pub fn new(text: &str, access: &Access) -> Result<Self, Fault> {
        let refused = |what: String| Fault::Refused { url: text.to_owned(), what };
        let url = Url::parse(text).map_err(|error| {
            refused(format!("{error}; give a URL such as s3://bucket/prefix or file:///shared/folder"))
        })?;
        if let Some(endpoint) = access.endpoint.as_ref().filter(|_| !access.allow_http)
            && endpoint.starts_with("http://")
        {
            return Err(refused(format!("{endpoint} has no TLS: say --store-allow-http if that is meant")));
        }
        // Whichever comes first stays; all of them are this one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (objects, prefix) = build(&url, access).map_err(|error| refused(explain(&error)))?;
        let requests = Arc::new(Requests::default());
        let objects = Arc::new(Counted { inner: objects, requests: requests.clone() });
        Ok(Place { url: text.to_owned(), objects, prefix, requests })
    }

    /// As it was given.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// What was asked of it so far.
    pub fn requests(&self) -> &Requests {
        &self.requests
    }

    pub(super) fn objects(&self) -> Arc<dyn object_store::ObjectStore> {
        self.objects.clone()
    }

    pub(super) fn path(&self, name: &str) -> Path {
        name.split('/').fold(self.prefix.clone(), |path, part| path.join(part))
    }

    /// Whether it can be written to, and whether it refuses to create what exists: all safety rests on that.
    /// `name` must be new.
    pub async fn probe(&self, name: &str) -> Result<(), Fault> {
        let reached = |fault| match fault {
            Fault::Retry { what } => self.refused(&advised(&what)),
            fault => fault,
        };
        // Whether it was made now or by an attempt whose answer was lost: it is there.
        self.create(name, Bytes::from_static(b"probe")).await.map_err(reached)?;
        let again = self.create(name, Bytes::from_static(b"again")).await;
        let _ = self.remove(name).await;
        match again.map_err(reached)? {
            false => Ok(()),
            true => Err(self.refused(
                "it overwrites an object although it was asked to create it only if absent (conditional put); \
                 two nodes could then own one shard. Use a store that honours If-None-Match: *",
            )),
        }
    }

    /// Writes a small object unless there is one; false: there is one, which may be of an attempt of this very call
    /// whose answer was lost.
    pub async fn create(&self, name: &str, bytes: Bytes) -> Result<bool, Fault> {
        let mut tries = Tries::default();
        loop {
            let (mode, payload) = (PutMode::Create.into(), PutPayload::from_bytes(bytes.clone()));
            match self.objects.put_opts(&self.path(name), payload, mode).await {
                Ok(_) => return Ok(true),
                Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => return Ok(false),
                Err(error) => tries.again(self.fault(name, &error)).await?,
            }
        }
    }

    /// Writes a small object.
    pub async fn write(&self, name: &str, bytes: Bytes) -> Result<(), Fault> {
        let mut tries = Tries::default();
        loop {
            match self.objects.put(&self.path(name), PutPayload::from_bytes(bytes.clone())).await {
                Ok(_) => return Ok(()),
                Err(error) => tries.again(self.fault(name, &error)).await?,
            }
        }
    }

    /// Reads a small object.
    pub async fn read(&self, name: &str) -> Result<Option<Bytes>, Fault> {
        let mut tries = Tries::default();
        loop {
            match self.read_once(name).await {
                Err(fault) => tries.again(fault).await?,
                read => return read,
            }
        }
    }

    async fn read_once(&self, name: &str) -> Result<Option<Bytes>, Fault> {
        let got = match self.objects.get(&self.path(name)).await {
            Ok(got) => got,
            Err(Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(self.fault(name, &error)),
        };
        if got.meta.size > SMALL_BYTES_MAX {
            return Err(Fault::Corrupt { what: format!("{}/{name} has {} bytes", self.url, got.meta.size) });
        }
        got.bytes().await.map(Some).map_err(|error| self.fault(name, &error))
    }

    /// Removes an object; one that is not there is none the less gone.
    pub async fn remove(&self, name: &str) -> Result<(), Fault> {
        match self.objects.delete(&self.path(name)).await {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.fault(name, &error)),
        }
    }

    /// The objects of a folder.
    pub async fn list(&self, folder: &str) -> Result<Vec<Listed>, Fault> {
        let mut tries = Tries::default();
        loop {
            match self.list_once(folder).await {
                Err(fault) => tries.again(fault).await?,
                listed => return listed,
            }
        }
    }

    async fn list_once(&self, folder: &str) -> Result<Vec<Listed>, Fault> {
        let listed = self.objects.list(Some(&self.path(folder)));
        let listed = listed.map_ok(|meta| Listed {
            name: meta.location.filename().unwrap_or_default().to_owned(),
            modified_ms: meta.last_modified.timestamp_millis(),
        });
        listed.try_collect().await.map_err(|error| self.fault(folder, &error))
    }

    fn refused(&self, what: &str) -> Fault {
        Fault::Refused { url: self.url.clone(), what: what.to_owned() }
    }

    /// What a failed request means: trouble that passes, or something a person must see to.
    fn fault(&self, name: &str, error: &Error) -> Fault {
        let what = explain(error);
        match error {
            Error::PermissionDenied { .. }
            | Error::Unauthenticated { .. }
            | Error::NotFound { .. }
            | Error::NotImplemented { .. }
            | Error::NotSupported { .. } => Fault::Refused { url: self.url.clone(), what },
            _ => Fault::Retry { what: format!("{}/{name}: {what}", self.url) },
        }
    }
}

/// Attempts at one request: a line that loses connections must not keep a node from starting.
#[derive(Default)]
struct Tries(usize);

impl Tries {
    /// Waits a little before the next attempt; Err: there is none.
    async fn again(&mut self, fault: Fault) -> Result<(), Fault> {
        let (Fault::Retry { .. }, Some(pause)) = (&fault, PAUSES_MS.get(self.0)) else { return Err(fault) };
        self.0 += 1;
        tokio::time::sleep(Duration::from_millis(*pause)).await;
        Ok(())
    }
}

/// Where machines of a cloud ask for the credentials of their role.
const ROLE_ADDRESSES: [&str; 2] = ["169.254.169.254", "metadata.google.internal"];

/// What to do about a store that does not answer.
fn advised(what: &str) -> String {
    if ROLE_ADDRESSES.iter().any(|address| what.contains(address)) {
        return format!(
            "there are no credentials, and this machine has no role that gives some: set them as the store's own tools want them, \
             such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY ({what})"
        );
    }
    format!(
        "it does not answer: {what}. Look at the address (--store-endpoint) and whether it has TLS (--store-allow-http)"
    )
}

/// An error with what to do about it.
fn explain(error: &Error) -> String {
    let said = one_line(error);
    let unknown = ["SignatureDoesNotMatch", "InvalidAccessKeyId", "AuthenticationFailed"];
    match error {
        Error::PermissionDenied { .. } if unknown.iter().any(|code| said.contains(code)) => {
            format!("the credentials are wrong; set them as the store's own tools want them ({said})")
        }
        Error::Unauthenticated { .. } => {
            format!(
                "the credentials are wrong or missing; set them as the store's own tools want them ({said})"
            )
        }
        Error::PermissionDenied { .. } => {
            format!(
                "the credentials do not allow it: reading, writing, listing and deleting are needed ({said})"
            )
        }
        Error::NotFound { .. } => format!("there is no such bucket or container: make it first ({said})"),
        Error::NotImplemented { .. } | Error::NotSupported { .. } => {
            format!("it lacks something that is needed, such as conditional put ({said})")
        }
        _ => said,
    }
}

/// The error and what caused it.
fn one_line(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = error.source();
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

type Built = (Arc<dyn object_store::ObjectStore>, Path);

fn build(url: &Url, access: &Access) -> Result<Built, Error> {
    let retry = RetryConfig {
        max_retries: access.retries_max,
        retry_timeout: access.request_timeout * 3,
        ..RetryConfig::default()
    };
    let client = ClientOptions::new()
        .with_timeout(access.request_timeout)
        .with_connect_timeout(access.request_timeout.min(Duration::from_secs(5)))
        .with_allow_http(access.allow_http);
    let prefix = Path::from_url_path(url.path())?;
    Ok(match url.scheme() {
        "s3" => {
            let mut builder = AmazonS3Builder::from_env()
                .with_url(url.as_str())
                .with_client_options(client)
                .with_retry(retry);
            if let Some(endpoint) = &access.endpoint {
                builder = builder.with_endpoint(endpoint).with_virtual_hosted_style_request(false);
            }
            (Arc::new(builder.with_allow_http(access.allow_http).build()?), prefix)
        }
        "gs" => {
            let mut builder = GoogleCloudStorageBuilder::from_env()
                .with_url(url.as_str())
                .with_client_options(client)
                .with_retry(retry);
            if let Some(endpoint) = &access.endpoint {
                builder = builder.with_base_url(endpoint);
            }
            (Arc::new(builder.build()?), prefix)
        }
        "az" => {
            let mut builder = MicrosoftAzureBuilder::from_env()
                .with_url(url.as_str())
                .with_client_options(client)
                .with_retry(retry);
            if let Some(endpoint) = &access.endpoint {
                builder = builder.with_endpoint(endpoint.clone());
            }
            (Arc::new(builder.with_allow_http(access.allow_http).build()?), prefix)
        }
        "file" => {
            let folder = url.to_file_path().map_err(|()| not_known(url))?;
            std::fs::create_dir_all(&folder)
                .map_err(|source| Error::Generic { store: "folder", source: Box::new(source) })?;
            (Arc::new(LocalFileSystem::new_with_prefix(folder)?.with_fsync(true)), Path::default())
        }
        _ => return Err(not_known(url)),
    })
}

fn not_known(url: &Url) -> Error {
    let what = format!("{} is none of s3://bucket/prefix, gs://, az://, file:///folder", url);
    Error::Generic { store: "URL", source: what.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_credentials_and_a_silent_store_are_told_apart() {
        let none = advised("Error performing PUT http://169.254.169.254/latest/api/token: 403");
        assert!(none.contains("no credentials") && none.contains("AWS_ACCESS_KEY_ID"), "{none}");
        let silent = advised("tcp connect error: Connection refused");
        assert!(silent.contains("--store-endpoint") && !silent.contains("credentials"), "{silent}");
    }
}
