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

/// Requests since the start, by what they cost.
#[derive(Debug, Default)]
pub struct Requests {
    puts: AtomicU64,
    gets: AtomicU64,
    lists: AtomicU64,
    deletes: AtomicU64,
    errors: AtomicU64,
    bytes_sent: AtomicU64,
}

/// [`Requests`] as of now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
}

impl Requests {
    /// The figures.
    pub fn now(&self) -> RequestsNow {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        RequestsNow {
            puts: read(&self.puts),
            gets: read(&self.gets),
            lists: read(&self.lists),
            deletes: read(&self.deletes),
            errors: read(&self.errors),
            bytes_sent: read(&self.bytes_sent),
        }
    }

    fn result<T>(&self, result: Result<T>) -> Result<T> {
        use object_store::Error;
        if let Err(error) = &result
            && !matches!(
                error,
                Error::AlreadyExists { .. } | Error::NotFound { .. } | Error::Precondition { .. }
            )
        {
            count(&self.errors);
        }
        result
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
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
        count(&self.requests.puts);
        self.requests.bytes_sent.fetch_add(payload.content_length() as u64, Ordering::Relaxed);
        self.requests.result(self.inner.put_opts(at, payload, options).await)
    }

    async fn put_multipart_opts(
        &self,
        at: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        // One to begin, one to end; its parts are counted as they go.
        self.requests.puts.fetch_add(2, Ordering::Relaxed);
        let inner = self.requests.result(self.inner.put_multipart_opts(at, options).await)?;
        Ok(Box::new(CountedUpload { inner, requests: self.requests.clone() }))
    }

    async fn get_opts(&self, at: &Path, options: GetOptions) -> Result<GetResult> {
        count(&self.requests.gets);
        self.requests.result(self.inner.get_opts(at, options).await)
    }

    async fn get_ranges(&self, at: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        count(&self.requests.gets);
        self.requests.result(self.inner.get_ranges(at, ranges).await)
    }

    fn delete_stream(&self, places: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let requests = self.requests.clone();
        let deleted = self.inner.delete_stream(places);
        deleted.inspect(move |_| count(&requests.deletes)).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        count(&self.requests.lists);
        self.inner.list(prefix)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        count(&self.requests.lists);
        self.inner.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        count(&self.requests.lists);
        self.requests.result(self.inner.list_with_delimiter(prefix).await)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        count(&self.requests.puts);
        self.requests.result(self.inner.copy_opts(from, to, options).await)
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
        count(&self.requests.puts);
        self.requests.bytes_sent.fetch_add(part.content_length() as u64, Ordering::Relaxed);
        self.inner.put_part(part)
    }

    async fn complete(&mut self) -> Result<PutResult> {
        self.inner.complete().await
    }

    async fn abort(&mut self) -> Result<()> {
        self.inner.abort().await
    }
}
