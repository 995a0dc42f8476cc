//! Events as qless's clients hear them: channel and payload, key orders and all.

use bytes::Bytes;
use haul_engine::{Event, Name};

use super::json::Object;

/// One message on one channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) channel: Bytes,
    pub(crate) payload: Bytes,
}

/// The messages of an event, in order.
pub(crate) fn messages(event: &Event) -> Vec<Message> {
    match event {
        Event::Track { jid } => vec![bare("track", jid)],
        Event::Untrack { jid } => vec![bare("untrack", jid)],
        Event::Tracked { what, jid } => vec![bare(what.word(), jid)],
        Event::LockLost { jid, worker } => {
            let payload =
                object(&[("jid", jid.bytes()), ("event", b"lock_lost"), ("worker", worker.bytes())]);
            vec![to_worker(worker, &payload), log(payload)]
        }
        Event::Canceled { jid, queue, worker } => {
            let payload = canceled(jid, queue.as_ref(), worker.as_ref());
            let mut messages = vec![log(payload.clone())];
            let told = worker.iter().filter(|worker| !worker.is_empty());
            messages.extend(told.map(|worker| to_worker(worker, &payload)));
            messages
        }
        Event::Put { jid, queue } => {
            vec![log(object(&[("jid", jid.bytes()), ("event", b"put"), ("queue", queue.bytes())]))]
        }
        Event::Completed { jid, queue } => {
            vec![log(object(&[("jid", jid.bytes()), ("event", b"completed"), ("queue", queue.bytes())]))]
        }
        Event::Advanced { jid, queue, to } => {
            let members: [(&str, &[u8]); 4] =
                [("jid", jid.bytes()), ("to", to.bytes()), ("event", b"advanced"), ("queue", queue.bytes())];
            vec![log(object(&members))]
        }
        Event::Failed { jid, group, worker, message } => {
            let members: [(&str, &[u8]); 5] = [
                ("message", message),
                ("jid", jid.bytes()),
                ("group", group.bytes()),
                ("event", b"failed"),
                ("worker", worker.bytes()),
            ];
            vec![log(object(&members))]
        }
        Event::ConfigSet { option, value } => {
            vec![log(object(&[
                ("option", option.bytes()),
                ("event", b"config_set"),
                ("value", value.bytes()),
            ]))]
        }
        Event::ConfigUnset { option } => {
            vec![log(object(&[("event", b"config_unset"), ("option", option.bytes())]))]
        }
    }
}

fn object(members: &[(&'static str, &[u8])]) -> Bytes {
    let mut out = Vec::with_capacity(128);
    let mut object = Object::lua(&mut out);
    for (key, value) in members {
        object.string(key, value);
    }
    object.end();
    out.into()
}

/// `false` where there is no such job.
fn canceled(jid: &Name, queue: Option<&Name>, worker: Option<&Name>) -> Bytes {
    let mut out = Vec::with_capacity(128);
    let mut object = Object::lua(&mut out);
    object.string("jid", jid.bytes());
    match queue {
        Some(queue) => object.string("queue", queue.bytes()),
        None => object.raw("queue", b"false"),
    }
    object.string("event", b"canceled");
    match worker {
        Some(worker) => object.string("worker", worker.bytes()),
        None => object.raw("worker", b"false"),
    }
    object.end();
    out.into()
}

fn bare(channel: &str, jid: &Name) -> Message {
    Message { channel: format!("ql:{channel}").into(), payload: Bytes::copy_from_slice(jid.bytes()) }
}

fn log(payload: Bytes) -> Message {
    Message { channel: Bytes::from_static(b"ql:log"), payload }
}

fn to_worker(worker: &Name, payload: &Bytes) -> Message {
    Message { channel: [b"ql:w:", worker.bytes()].concat().into(), payload: payload.clone() }
}
