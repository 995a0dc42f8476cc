//! The whole page is read as strictly as Prometheus reads it; and whatever the documents name is on it.

use std::collections::{BTreeMap, BTreeSet};

use crate::config::Raw;
use crate::http::rig::Rig;

/// A page, understood: type by metric, and every sample with its labels.
#[derive(Default)]
struct Read {
    kinds: BTreeMap<String, String>,
    samples: BTreeMap<String, f64>,
}

fn name_end(text: &str) -> usize {
    text.find(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_' || letter == ':'))
        .unwrap_or(text.len())
}

/// `{a="b",c="d"}` at the start of `text`: the labels and what follows.
fn labels(text: &str) -> (Vec<(String, String)>, &str) {
    let Some(mut rest) = text.strip_prefix('{') else { return (Vec::new(), text) };
    let mut list = Vec::new();
    loop {
        let (key, after) = rest.split_at(name_end(rest));
        assert!(!key.is_empty(), "{text}");
        let mut letters = after.strip_prefix("=\"").unwrap().chars();
        let mut value = String::new();
        loop {
            match letters.next().unwrap() {
                '"' => break,
                '\\' => value.push(match letters.next().unwrap() {
                    'n' => '\n',
                    letter @ ('\\' | '"') => letter,
                    other => panic!("no such escape: {other}"),
                }),
                letter => value.push(letter),
            }
        }
        list.push((key.to_owned(), value));
        rest = letters.as_str();
        match rest.strip_prefix(',') {
            Some(next) => rest = next,
            None => return (list, rest.strip_prefix('}').unwrap()),
        }
    }
}

fn read(text: &str) -> Read {
    let mut page = Read::default();
    let mut current = String::new();
    assert!(text.ends_with('\n'));
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            current = rest.split(' ').next().unwrap().to_owned();
            assert!(!page.kinds.contains_key(&current), "{current} twice");
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert_eq!(name, current, "TYPE follows HELP");
            assert!(["counter", "gauge", "histogram"].contains(&kind));
            page.kinds.insert(name.to_owned(), kind.to_owned());
        } else {
            let (name, rest) = line.split_at(name_end(line));
            let (labels, value) = labels(rest);
            let kind = &page.kinds[&current];
            let suffix =
                name.strip_prefix(current.as_str()).unwrap_or_else(|| panic!("{name} under {current}"));
            match kind.as_str() {
                "histogram" => assert!(["_bucket", "_sum", "_count"].contains(&suffix), "{line}"),
                _ => assert_eq!(suffix, "", "{line}"),
            }
            assert_eq!(kind == "counter", current.ends_with("_total"), "{current}");
            let value: f64 = value.strip_prefix(' ').unwrap().parse().unwrap();
            let labels: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
            let unique: BTreeSet<&String> = labels.iter().collect();
            assert_eq!(unique.len(), labels.len());
            let sample = format!("{name} {}", labels.join(" "));
            assert!(page.samples.insert(sample.trim().to_owned(), value).is_none(), "{line} twice");
        }
    }
    page
}

impl Read {
    fn of(&self, sample: &str) -> f64 {
        *self.samples.get(sample).unwrap_or_else(|| panic!("no {sample}"))
    }
}

/// Names that begin with `haul_` or `process_` in a document.
fn named(text: &str) -> BTreeSet<String> {
    let words = text.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'));
    let metrics = words.filter(|word| word.starts_with("haul_") || word.starts_with("process_"));
    metrics.map(str::to_owned).collect()
}

fn metric_of<'a>(page: &'a Read, name: &'a str) -> Option<&'a str> {
    let bases = ["", "_bucket", "_sum", "_count"].iter().filter_map(|suffix| name.strip_suffix(suffix));
    bases.into_iter().find(|base| page.kinds.contains_key(*base))
}

#[tokio::test]
async fn the_page_is_strictly_well_formed_and_says_what_is_so() {
    let rig = Rig::new(Raw::default()).await;
    rig.say("PUT q k {} JID a").await;
    rig.say("PUT q k {} JID b PRIORITY 5").await;
    rig.say("PUT q\"\\x k {} DELAY 100").await;
    rig.say_as("acme", "PUT q k {} JID a").await;
    rig.say("POP w QUEUES q").await;
    rig.say("COMPLETE w b").await;
    rig.say("COMPLETE w b").await;
    let answer = rig.get("/metrics").await;
    assert_eq!(answer.status, 200);
    assert!(answer.headers.contains("content-type: text/plain; version=0.0.4"), "{}", answer.headers);
    let page = read(&answer.text);
    assert_eq!(page.of("haul_queue_jobs tenant=default queue=q state=waiting"), 1.0);
    assert_eq!(page.of("haul_queue_jobs tenant=default queue=q\"\\x state=scheduled"), 1.0);
    assert_eq!(page.of("haul_queue_jobs tenant=acme queue=q state=waiting"), 1.0);
    assert_eq!(page.of("haul_queue_run_seconds_bucket tenant=default queue=q le=+Inf"), 1.0);
    assert_eq!(page.of("haul_queue_wait_seconds_count tenant=default queue=q"), 1.0);
    assert_eq!(page.of("haul_commands_total command=put outcome=ok"), 4.0);
    assert_eq!(page.of("haul_commands_total command=complete outcome=NOTRUNNING"), 1.0);
    assert_eq!(page.of("haul_jobs tenant=default"), 3.0);
    assert_eq!(page.of("haul_workers_alive tenant=default"), 1.0);
    assert_eq!((page.of("haul_ready"), page.of("haul_read_only"), page.of("haul_tenants")), (1.0, 0.0, 2.0));
    assert!(page.of("haul_round_commands_count") >= 7.0 && page.of("haul_commit_seconds_count") >= 6.0);
    assert_eq!(page.of("haul_round_commands_bucket le=+Inf"), page.of("haul_round_commands_count"));
    for (name, kind) in &page.kinds {
        if kind == "histogram" {
            let buckets: Vec<_> =
                page.samples.keys().filter(|key| key.starts_with(&format!("{name}_bucket"))).collect();
            assert!(buckets.is_empty() || buckets.iter().any(|key| key.ends_with("le=+Inf")), "{name}");
        }
    }
}

#[tokio::test]
async fn queues_beyond_the_limit_are_one() {
    let rig = Rig::new(Raw { metrics_queues_max: Some(2), ..Raw::default() }).await;
    for queue in ["a", "b", "c", "d", "(other)"] {
        rig.say(&format!("PUT {queue} k {{}}")).await;
    }
    let page = read(&rig.get("/metrics").await.text);
    assert_eq!(page.of("haul_queue_jobs tenant=default queue=a state=waiting"), 1.0);
    assert_eq!(page.of("haul_queue_jobs tenant=default queue=(other) state=waiting"), 3.0);
    assert!(!page.samples.keys().any(|sample| sample.contains("queue=c")));
}

#[tokio::test]
async fn a_tenant_sees_its_own() {
    let rig = Rig::new(Raw::default()).await;
    rig.say("PUT q k {}").await;
    rig.say_as("acme", "PUT mine k {}").await;
    let page = read(&rig.ask("GET /metrics\nconnection: close\nX-Haul-Tenant: acme").await.text);
    assert_eq!(page.of("haul_queue_jobs tenant=acme queue=mine state=waiting"), 1.0);
    assert!(!page.samples.keys().any(|sample| sample.contains("tenant=default")));
    assert!(!page.kinds.contains_key("haul_store_bytes"));
}

#[tokio::test]
async fn every_metric_is_documented_and_every_name_in_the_documents_is_a_metric() {
    let rig = Rig::new(Raw::default()).await;
    let page = read(&rig.get("/metrics").await.text);
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operate");
    let document = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let described = named(&document("metrics.md"));
    for name in page.kinds.keys() {
        assert!(described.contains(name), "docs/operate/metrics.md says nothing of {name}");
    }
    for file in ["metrics.md", "grafana-dashboard.json", "alerts.yml"] {
        for name in named(&document(file)) {
            assert!(metric_of(&page, &name).is_some(), "{file} names {name}, which is no metric");
        }
    }
    let dashboard: serde_json::Value = serde_json::from_str(&document("grafana-dashboard.json")).unwrap();
    assert!(dashboard["panels"].as_array().unwrap().len() > 10);
}

#[tokio::test]
async fn readiness_says_what_is_wrong() {
    let rig = Rig::new(Raw::default()).await;
    assert_eq!((rig.get("/healthz").await.status, rig.get("/readyz").await.status), (200, 200));
    let mut answer = rig.get("/readyz").await;
    // The shard may say in between how it really is: that happened once in many runs.
    for _ in 0..20 {
        if answer.status != 200 {
            break;
        }
        rig.server.shard.counters().full.store(true, std::sync::atomic::Ordering::Relaxed);
        answer = rig.get("/readyz").await;
    }
    assert_eq!(answer.status, 503);
    assert!(answer.text.contains("the disk is full"), "{}", answer.text);
    let page = read(&rig.get("/metrics").await.text);
    assert!(page.kinds.contains_key("haul_ready"));
    assert!(rig.get("/healthz").await.headers.contains("x-request-id: "));
}
