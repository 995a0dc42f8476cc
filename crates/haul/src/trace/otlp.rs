//! OTLP's protobuf for spans. Seven messages, written by hand: the crates that do it bring a gRPC stack along.
//! A test decodes what is written with the published definitions.

use super::span::{Span, Value};

/// An `ExportTraceServiceRequest` of these spans.
pub(super) fn encode(spans: &[Span]) -> Vec<u8> {
    let mut scope_spans = Vec::with_capacity(spans.len() * 256);
    let mut scope = Vec::new();
    bytes(&mut scope, 1, b"haul");
    bytes(&mut scope, 2, env!("CARGO_PKG_VERSION").as_bytes());
    bytes(&mut scope_spans, 1, &scope);
    for span in spans {
        bytes(&mut scope_spans, 2, &encode_span(span));
    }
    let mut resource = Vec::new();
    attribute(&mut resource, 1, "service.name", &Value::Text("haul".to_owned()));
    attribute(&mut resource, 1, "service.version", &Value::Text(env!("CARGO_PKG_VERSION").to_owned()));
    let mut resource_spans = Vec::with_capacity(scope_spans.len() + 128);
    bytes(&mut resource_spans, 1, &resource);
    bytes(&mut resource_spans, 2, &scope_spans);
    let mut request = Vec::with_capacity(resource_spans.len() + 8);
    bytes(&mut request, 1, &resource_spans);
    request
}

fn encode_span(span: &Span) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    bytes(&mut out, 1, &span.context.trace);
    bytes(&mut out, 2, &span.context.span);
    if let Some(parent) = &span.parent {
        bytes(&mut out, 4, parent);
    }
    bytes(&mut out, 5, span.name.as_bytes());
    number(&mut out, 6, span.kind as u64);
    fixed64(&mut out, 7, nanoseconds(span.began_at));
    fixed64(&mut out, 8, nanoseconds(span.ended_at));
    for (key, value) in &span.attributes {
        attribute(&mut out, 9, key, value);
    }
    if let Some(error) = &span.error {
        let mut status = Vec::new();
        bytes(&mut status, 2, error.as_bytes());
        number(&mut status, 3, 2);
        bytes(&mut out, 15, &status);
    }
    out
}

fn attribute(out: &mut Vec<u8>, field: u32, key: &str, value: &Value) {
    let mut any = Vec::new();
    match value {
        Value::Text(text) => bytes(&mut any, 1, text.as_bytes()),
        Value::Int(value) => number(&mut any, 3, value.cast_unsigned()),
    }
    let mut pair = Vec::new();
    bytes(&mut pair, 1, key.as_bytes());
    bytes(&mut pair, 2, &any);
    bytes(out, field, &pair);
}

fn nanoseconds(seconds: f64) -> u64 {
    (seconds * 1e9).max(0.0) as u64
}

/// A length-delimited field.
fn bytes(out: &mut Vec<u8>, field: u32, value: &[u8]) {
    varint(out, u64::from(field << 3 | 2));
    varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

fn number(out: &mut Vec<u8>, field: u32, value: u64) {
    varint(out, u64::from(field << 3));
    varint(out, value);
}

fn fixed64(out: &mut Vec<u8>, field: u32, value: u64) {
    varint(out, u64::from(field << 3 | 1));
    out.extend_from_slice(&value.to_le_bytes());
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
