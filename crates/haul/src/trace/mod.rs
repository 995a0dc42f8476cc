//! Traces over OTLP: a job's put, its waits and its runs as spans of the trace it was put in, and HTTP requests.
//!
//! The shard and the requests only drop spans into a bounded queue; one task sends them. A collector that is slow or
//! away costs spans, which are counted, and nothing else.

mod context;
mod export;
mod otlp;
mod span;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use haul_engine::{Name, Notice};
use tokio::sync::{mpsc, oneshot};

pub(crate) use context::Context;
pub(crate) use export::Endpoint;
pub(crate) use span::{Kind, Span, Value};

/// Spans that wait to be sent.
const QUEUE_MAX: usize = 8192;

/// What is handed to the task that sends.
enum Sent {
    Span(Box<Span>),
    /// Everything before this is to be sent now; the answer says it was tried.
    Finish(oneshot::Sender<()>),
}

/// Takes spans. Cheap to clone; without an endpoint it takes none.
#[derive(Clone, Default)]
pub(crate) struct Tracer {
    queue: Option<mpsc::Sender<Sent>>,
    figures: Arc<Figures>,
}

/// What became of the spans.
#[derive(Default)]
pub(crate) struct Figures {
    pub(crate) exported: AtomicU64,
    pub(crate) dropped: AtomicU64,
}

impl Tracer {
    /// Sends spans to a collector, from a task of this runtime.
    pub(crate) fn start(endpoint: Endpoint) -> Tracer {
        let (queue, spans) = mpsc::channel(QUEUE_MAX);
        let figures = Arc::<Figures>::default();
        tokio::spawn(export::run(endpoint, spans, figures.clone()));
        Tracer { queue: Some(queue), figures }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.queue.is_some()
    }

    pub(crate) fn figures(&self) -> &Figures {
        &self.figures
    }

    /// Takes a span, or counts it as dropped.
    pub(crate) fn take(&self, span: Span) {
        let Some(queue) = &self.queue else { return };
        if queue.try_send(Sent::Span(Box::new(span))).is_err() {
            self.figures.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Takes what a round told of jobs that carry a trace context.
    pub(crate) fn notice(&self, tenant: &Name, notices: &[Notice], clock: f64) {
        if self.queue.is_none() {
            return;
        }
        for notice in notices {
            if let Some(span) = span::of_notice(tenant, notice, clock) {
                self.take(span);
            }
        }
    }

    /// Sends what is left; returns when that was tried.
    pub(crate) async fn finish(&self) {
        let Some(queue) = &self.queue else { return };
        let (done, finished) = oneshot::channel();
        if queue.send(Sent::Finish(done)).await.is_ok() {
            let _ = finished.await;
        }
    }
}

#[cfg(test)]
mod tests;
