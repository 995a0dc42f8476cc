//! Counts what is asked of the object storage: requests are what it charges for.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, PutMultipartOptions,
    PutOptions, PutPayload, PutResult, Result,
};
use tokio::time::Instant;

/// What is asked, by what it costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Put,
    Get,
    List,
    Delete,
}

/// Requests since the start.
#[derive(Debug, Default)]
pub struct Requests {
    counts: [AtomicU64; 4],
    micros: [AtomicU64; 4],
    errors: AtomicU64,
    bytes_sent: AtomicU64,
    bytes_received: AtomicU64,
}

/// [`Requests`] as of now.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RequestsNow {
    /// Objects and parts of objects written.
    pub puts: u64,
    /// Objects and parts of objects read.
    pub gets: u64,
    /// Folders listed; a long one may cost more than one request.
    pub lists: u64,
    /// Objects removed; on most stores this is free.
    pub deletes: u64,
    /// Requests that failed, each attempt counted; a create of what exists and a read of what does not are none.
    pub errors: u64,
    /// Bytes in the objects written.
    pub bytes_sent: u64,
    /// Bytes of objects that were asked for.
    pub bytes_received: u64,
    /// What all puts took together, in seconds.
    pub put_seconds: f64,
    /// What all gets took to begin to answer.
    pub get_seconds: f64,
}

impl Requests {
    /// The figures.
    pub fn now(&self) -> RequestsNow {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let [puts, gets, lists, deletes] = self.counts.each_ref().map(read);
        let [put_seconds, get_seconds, ..] = self.micros.each_ref().map(|sum| read(sum) as f64 / 1e6);
        RequestsNow {
            puts,
            gets,
            lists,
            deletes,
            errors: read(&self.errors),
            bytes_sent: read(&self.bytes_sent),
            bytes_received: read(&self.bytes_received),
            put_seconds,
            get_seconds,
        }
    }

    fn count(&self, kind: Kind, requests: u64) {
        self.counts.iter().skip(kind as usize).take(1).for_each(|counter| add(counter, requests));
    }

    /// Counts one and what it takes.
    async fn timed<T>(&self, kind: Kind, asked: impl Future<Output = Result<T>>) -> Result<T> {
        use object_store::Error;
        self.count(kind, 1);
        let began = Instant::now();
        let result = asked.await;
        let micros = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.micros.iter().skip(kind as usize).take(1).for_each(|sum| add(sum, micros));
        if let Err(error) = &result
            && !matches!(
                error,
                Error::AlreadyExists { .. }
                    | Error::NotFound { .. }
                    | Error::Precondition { .. }
                    | Error::NotModified { .. }
                    // A folder has no attributes; SlateDB then leaves them out.
                    | Error::NotImplemented { .. }
            )
        {
            add(&self.errors, 1);
        }
        result
    }
}

fn add(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

/// A store whose requests are counted.
#[derive(Debug)]
pub(super) struct Counted {
    pub(super) inner: Arc<dyn object_store::ObjectStore>,
    pub(super) requests: Arc<Requests>,
}

impl fmt::Display for Counted {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(out)
    }
}

#[async_trait]
impl object_store::ObjectStore for Counted {
    async fn put_opts(&self, at: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        add(&self.requests.bytes_sent, payload.content_length() as u64);
        self.requests.timed(Kind::Put, self.inner.put_opts(at, payload, options)).await
    }

    async fn put_multipart_opts(
        &self,
        at: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        // One to begin, one to end; its parts are counted as they go.
        self.requests.count(Kind::Put, 1);
        let inner = self.requests.timed(Kind::Put, self.inner.put_multipart_opts(at, options)).await?;
        Ok(Box::new(CountedUpload { inner, requests: self.requests.clone() }))
    }

    async fn get_opts(&self, at: &Path, options: GetOptions) -> Result<GetResult> {
        let is_head = options.head;
        let got = self.requests.timed(Kind::Get, self.inner.get_opts(at, options)).await?;
        if !is_head {
            add(&self.requests.bytes_received, got.range.end - got.range.start);
        }
        Ok(got)
    }

    async fn get_ranges(&self, at: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let got = self.requests.timed(Kind::Get, self.inner.get_ranges(at, ranges)).await?;
        add(&self.requests.bytes_received, got.iter().map(|part| part.len() as u64).sum());
        Ok(got)
    }

    fn delete_stream(&self, places: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let requests = self.requests.clone();
        let deleted = self.inner.delete_stream(places);
        deleted.inspect(move |_| requests.count(Kind::Delete, 1)).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.requests.count(Kind::List, 1);
        self.inner.list(prefix)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.requests.count(Kind::List, 1);
        self.inner.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.requests.timed(Kind::List, self.inner.list_with_delimiter(prefix)).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.requests.timed(Kind::Put, self.inner.copy_opts(from, to, options)).await
    }
}

#[derive(Debug)]
struct CountedUpload {
    inner: Box<dyn MultipartUpload>,
    requests: Arc<Requests>,
}

#[async_trait]
impl MultipartUpload for CountedUpload {
    fn put_part(&mut self, part: PutPayload) -> object_store::UploadPart {
        self.requests.count(Kind::Put, 1);
        add(&self.requests.bytes_sent, part.content_length() as u64);
        self.inner.put_part(part)
    }

    async fn complete(&mut self) -> Result<PutResult> {
        self.inner.complete().await
    }

    async fn abort(&mut self) -> Result<()> {
        self.inner.abort().await
    }
}
