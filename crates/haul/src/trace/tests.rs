//! From the put to the run, as a collector sees it: spans are decoded with the published definitions.

use std::sync::{Arc, Mutex};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::trace::v1::Span as Decoded;
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::config::Raw;
use crate::http::rig::Rig;

const GIVEN: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// A collector that keeps what it is sent, and the heads of the requests.
#[derive(Clone, Default)]
struct Collector {
    spans: Arc<Mutex<Vec<Decoded>>>,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Collector {
    async fn start(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let collector = self.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut bytes = Vec::new();
                let (head, body) = loop {
                    let mut part = [0; 4096];
                    let count = stream.read(&mut part).await.unwrap();
                    bytes.extend_from_slice(&part[..count]);
                    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
                    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
                    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap();
                    if bytes.len() >= end + 4 + length.parse::<usize>().unwrap() {
                        break (head, bytes[end + 4..].to_vec());
                    }
                };
                let request = ExportTraceServiceRequest::decode(body.as_slice()).unwrap();
                assert_eq!(request.resource_spans.len(), 1);
                let scopes = request.resource_spans.into_iter().flat_map(|of| of.scope_spans);
                collector.spans.lock().unwrap().extend(scopes.flat_map(|scope| scope.spans));
                collector.heads.lock().unwrap().push(head);
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.unwrap();
            }
        });
        format!("http://{address}")
    }

    fn named(&self, name: &str) -> Decoded {
        let spans = self.spans.lock().unwrap();
        let found: Vec<&Decoded> = spans.iter().filter(|span| span.name == name).collect();
        assert_eq!(found.len(), 1, "{name} in {:?}", spans.iter().map(|span| &span.name).collect::<Vec<_>>());
        found[0].clone()
    }
}

fn attribute(span: &Decoded, key: &str) -> Option<Any> {
    let found = span.attributes.iter().find(|attribute| attribute.key == key)?;
    found.value.clone()?.value
}

fn text(text: &str) -> Option<Any> {
    Some(Any::StringValue(text.to_owned()))
}

#[tokio::test]
async fn a_job_is_traced_from_its_put_to_the_end_of_its_run() {
    let collector = Collector::default();
    let endpoint = Endpoint::parse(&collector.start().await, "authorization=Bearer t").unwrap();
    let tracer = Tracer::start(endpoint);
    let rig = Rig::with(Raw::default(), |outlets| outlets.traced(tracer.clone())).await;
    rig.say(&format!("PUT q k {{}} JID j TRACE {GIVEN}")).await;
    rig.say("PUT q k {} JID untraced PRIORITY -1").await;
    let popped = format!("{:?}", rig.say("POP w QUEUES q").await).replace('\\', "");
    assert!(popped.contains(&format!("\"trace\":\"{GIVEN}\"")), "the worker is handed it: {popped}");
    rig.say("RETRY w j").await;
    rig.say("POP v QUEUES q").await;
    rig.say("FAIL v j broken because").await;
    tracer.finish().await;

    let given = Context::parse(GIVEN.as_bytes()).unwrap();
    let spans = collector.spans.lock().unwrap().clone();
    let names: Vec<&str> = spans.iter().map(|span| span.name.as_str()).collect();
    assert_eq!(names, ["put q", "wait q", "run q", "wait q", "run q"]);
    for span in &spans {
        assert_eq!(span.trace_id, given.trace, "{}", span.name);
        assert_eq!(span.parent_span_id, given.span, "{}", span.name);
        assert!(span.span_id != given.span && span.span_id.len() == 8);
        assert!(span.start_time_unix_nano <= span.end_time_unix_nano && span.start_time_unix_nano > 0);
        assert_eq!(attribute(span, "messaging.message.id"), text("j"));
    }
    let (first, last) = (&spans[2], &spans[4]);
    assert_eq!(attribute(first, "haul.outcome"), text("retried"));
    assert_eq!((attribute(first, "haul.worker"), attribute(last, "haul.worker")), (text("w"), text("v")));
    assert_eq!(attribute(last, "haul.attempt"), Some(Any::IntValue(2)));
    let status = last.status.clone().unwrap();
    assert_eq!((status.code, status.message.as_str()), (2, "broken"), "the group, not the message");
    // A wait ends where its run begins.
    let near = |a: u64, b: u64| a.abs_diff(b) < 1_000_000;
    assert!(near(spans[1].end_time_unix_nano, spans[2].start_time_unix_nano));
    assert!(near(spans[2].end_time_unix_nano, spans[3].start_time_unix_nano));
    assert!(collector.heads.lock().unwrap()[0].contains("authorization: Bearer t"));
    assert_eq!(tracer.figures().exported.load(Ordering::Relaxed), 5);
}

#[tokio::test]
async fn a_request_is_a_span_of_the_trace_it_comes_with() {
    let collector = Collector::default();
    let tracer = Tracer::start(Endpoint::parse(&collector.start().await, "").unwrap());
    let rig = Rig::with(Raw::default(), |outlets| outlets.traced(tracer.clone())).await;
    rig.ask(&format!("GET /healthz\nconnection: close\ntraceparent: {GIVEN}")).await;
    rig.get("/readyz").await;
    rig.ask("POST /nowhere\nconnection: close\ncontent-length: 0").await;
    tracer.finish().await;
    let span = collector.named("GET /healthz");
    let given = Context::parse(GIVEN.as_bytes()).unwrap();
    assert_eq!(
        (span.trace_id.as_slice(), span.parent_span_id.as_slice()),
        (&given.trace[..], &given.span[..])
    );
    assert_eq!(attribute(&span, "http.response.status_code"), Some(Any::IntValue(200)));
    assert_eq!(collector.named("POST none").parent_span_id, Vec::<u8>::new(), "a root");
    assert_eq!(collector.spans.lock().unwrap().len(), 2, "a look without a trace is not traced");
}

#[tokio::test]
async fn a_collector_that_is_away_is_not_felt() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let tracer = Tracer::start(Endpoint::parse(&url, "").unwrap());
    let rig = Rig::with(Raw::default(), |outlets| outlets.traced(tracer.clone())).await;
    rig.say(&format!("PUT q k {{}} JID j TRACE {GIVEN}")).await;
    rig.say(&format!("PUT q k {{}} JID quiet TRACE {}", GIVEN.replace("-01", "-00"))).await;
    tracer.finish().await;
    let figures = tracer.figures();
    assert_eq!((figures.exported.load(Ordering::Relaxed), figures.dropped.load(Ordering::Relaxed)), (0, 1));
}

#[tokio::test]
async fn spans_beyond_the_queue_are_counted_and_dropped() {
    let (queue, _kept) = mpsc::channel(1);
    let tracer = Tracer { queue: Some(queue), figures: Arc::default() };
    let span = Span {
        context: Context::root(),
        parent: None,
        name: "s".to_owned(),
        kind: Kind::Internal,
        began_at: 1.0,
        ended_at: 2.0,
        attributes: Vec::new(),
        error: None,
    };
    (0..3).for_each(|_| tracer.take(span.clone()));
    assert_eq!(tracer.figures().dropped.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn a_job_put_over_http_carries_the_request_on() {
    let collector = Collector::default();
    let tracer = Tracer::start(Endpoint::parse(&collector.start().await, "").unwrap());
    let rig = Rig::with(Raw::default(), |outlets| outlets.traced(tracer.clone())).await;
    let post = |jid: &str, headers: &str| {
        let body = format!("{{\"queue\":\"q\",\"klass\":\"k\",\"jid\":\"{jid}\"}}");
        let length = body.len();
        format!(
            "POST /api/v1/jobs\nconnection: close\ncontent-type: application/json\n{headers}content-length: {length}\n\n{body}"
        )
    };
    let answer = rig.ask(&post("j", &format!("traceparent: {GIVEN}\n"))).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    rig.say("POP w QUEUES q").await;
    rig.say("COMPLETE w j").await;
    tracer.finish().await;
    let given = Context::parse(GIVEN.as_bytes()).unwrap();
    let request = collector.named("POST /api/v1/jobs");
    assert_eq!(
        (request.trace_id.as_slice(), request.parent_span_id.as_slice()),
        (&given.trace[..], &given.span[..])
    );
    for name in ["put q", "wait q", "run q"] {
        let span = collector.named(name);
        assert_eq!((&span.trace_id, &span.parent_span_id), (&request.trace_id, &request.span_id), "{name}");
    }
    // Without a server that traces, the header itself is carried.
    let rig = Rig::new(Raw::default()).await;
    rig.ask(&post("j", &format!("traceparent: {GIVEN}\n"))).await;
    let job = format!("{:?}", rig.say("GET j").await).replace('\\', "");
    assert!(job.contains(&format!("\"trace\":\"{GIVEN}\"")), "{job}");
    rig.ask(&post("bare", "")).await;
    assert!(!format!("{:?}", rig.say("GET bare").await).contains("trace"));
}
