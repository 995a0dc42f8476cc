//! Streams and waits without a shard: what is told is fed by hand.

use haul_engine::{Call, Command, Engine, Kind, Put, PutWhen, Rules};

use super::*;

fn notices(jid: &str, queue: &str) -> Vec<Notice> {
    let mut engine = Engine::default();
    engine.listen(true);
    let put = Put {
        jid: jid.into(),
        queue: queue.into(),
        worker: None,
        klass: Some("k".into()),
        data: Some("{}".into()),
        delay: 0.0,
        priority: None,
        tags: None,
        retries: None,
        depends: Vec::new(),
        throttles: Vec::new(),
        when: PutWhen::Always,
        trace: None,
    };
    let command = Command::Put(Box::new(put));
    engine.apply(Call { tenant: "t".into(), now: 12.5, clock: 12.5, rules: Rules::NATIVE, command }).unwrap();
    engine.take_notices()
}

fn tell(bus: &Bus, tenant: &str, jid: &str, queue: &str) {
    bus.notice(&tenant.into(), &notices(jid, queue));
}

fn jids(read: Read) -> Vec<String> {
    match read {
        Read::Events(list) => list.iter().map(|told| told.notice.jid.to_string()).collect(),
        Read::Lost => vec!["lost".to_owned()],
    }
}

#[tokio::test]
async fn a_stream_hears_its_own_tenant_from_when_it_began() {
    let bus = Bus::new(1.0);
    assert!(!bus.listeners().any());
    let mut stream = bus.subscribe(&"t".into(), None).unwrap();
    assert!(bus.listeners().any() && matches!(stream.start(), Start::Now(_)));
    tell(&bus, "other", "x", "q");
    tell(&bus, "t", "a", "q");
    tell(&bus, "t", "b", "q");
    assert_eq!(jids(stream.next(&Filter::default()).await), ["a", "b"]);
    tell(&bus, "t", "c", "q");
    assert_eq!(jids(stream.next(&Filter::default()).await), ["c"]);
}

#[tokio::test]
async fn a_stream_that_comes_back_goes_on_where_it_was() {
    let bus = Bus::new(1.0);
    let mut stream = bus.subscribe(&"t".into(), None).unwrap();
    tell(&bus, "t", "a", "q");
    let _ = stream.next(&Filter::default()).await;
    let position = stream.position().to_string();
    drop(stream);
    tell(&bus, "t", "b", "q");
    let mut stream = bus.subscribe(&"t".into(), Some(&position)).unwrap();
    assert!(matches!(stream.start(), Start::After(_)));
    assert_eq!(jids(stream.next(&Filter::default()).await), ["b"]);
    // Of another run, of none, and of one whose followers were never kept.
    let start = |last: &str| bus.subscribe(&"t".into(), Some(last)).unwrap().start();
    assert!(matches!(start("ffff-1"), Start::Reset(_)));
    assert!(matches!(start("nonsense"), Start::Reset(_)));
    assert!(matches!(start("3e8-999"), Start::Lost(_)));
    tell(&bus, "u", "x", "q");
    let before = bus.subscribe(&"u".into(), Some("3e8-0")).unwrap();
    assert!(matches!(before.start(), Start::Lost(_)), "{:?}", before.start());
}

#[tokio::test]
async fn a_slow_stream_loses_events_and_nobody_else_does() {
    let bus = Bus::new(1.0);
    let mut slow = bus.subscribe(&"t".into(), None).unwrap();
    let mut quick = bus.subscribe(&"t".into(), None).unwrap();
    let many: Vec<Notice> = (0..100).flat_map(|number| notices(&format!("j{number}"), "q")).collect();
    let mut heard = 0;
    for _ in 0..=ring::EVENTS_MAX / 100 {
        bus.notice(&"t".into(), &many);
        heard += jids(quick.next(&Filter::default()).await).len();
    }
    assert_eq!(heard, (ring::EVENTS_MAX / 100 + 1) * 100);
    assert_eq!(jids(slow.next(&Filter::default()).await), ["lost"]);
    tell(&bus, "t", "next", "q");
    assert_eq!(jids(slow.next(&Filter::default()).await), ["next"]);
}

#[tokio::test]
async fn events_are_bounded_by_bytes_too() {
    let bus = Bus::new(1.0);
    let mut slow = bus.subscribe(&"t".into(), None).unwrap();
    let long = "j".repeat(1000);
    (0..ring::BYTES_MAX / 2000).for_each(|_| tell(&bus, "t", &long, "q"));
    assert_eq!(jids(slow.next(&Filter::default()).await), ["lost"]);
}

#[tokio::test]
async fn filters_choose_by_queue_job_worker_and_kind() {
    let bus = Bus::new(1.0);
    let mut stream = bus.subscribe(&"t".into(), None).unwrap();
    tell(&bus, "t", "a", "q");
    tell(&bus, "t", "b", "r");
    tell(&bus, "t", "a", "r");
    let filter = |queues: &[&str], jids: &[&str], kinds: &[Kind]| Filter {
        queues: queues.iter().map(|name| Name::from(*name)).collect(),
        jids: jids.iter().map(|name| Name::from(*name)).collect(),
        workers: Vec::new(),
        kinds: kinds.to_vec(),
    };
    let start = stream.at;
    for (filter, found) in [
        (filter(&["r"], &[], &[]), vec!["b", "a"]),
        (filter(&["r", "q"], &["a"], &[]), vec!["a", "a"]),
        (filter(&[], &[], &[Kind::Put, Kind::Popped]), vec!["a", "b", "a"]),
    ] {
        stream.at = start;
        assert_eq!(jids(stream.next(&filter).await), found);
    }
    let nobody = Filter { workers: vec!["w".into()], ..Filter::default() };
    assert!(!notices("a", "q").iter().any(|notice| nobody.passes(notice)));
}

#[test]
fn an_event_is_json_with_what_there_is() {
    let notice = notices("j\"\u{e9}", "q").remove(0);
    let told = Told::new(Position { run: 1, id: 2 }, notice);
    assert_eq!(
        told.json(),
        "{\"kind\":\"put\",\"jid\":\"j\\\"é\",\"queue\":\"q\",\"klass\":\"k\",\"state\":\"waiting\",\"at\":12.5}"
    );
    assert_eq!(Position::parse(&told.position.to_string()), Some(told.position));
}

#[tokio::test]
async fn a_watch_wakes_for_its_own_job_only_and_leaves_nothing_behind() {
    let bus = Bus::new(1.0);
    let mut first = bus.changed(&"t".into(), &"a".into());
    let mut second = bus.changed(&"t".into(), &"a".into());
    let mut other = bus.changed(&"t".into(), &"b".into());
    assert_eq!(bus.watches(), 3);
    tell(&bus, "t", "a", "q");
    first.next().await;
    second.next().await;
    let patience = std::time::Duration::from_millis(20);
    assert!(tokio::time::timeout(patience, first.next()).await.is_err(), "once for each change");
    assert!(tokio::time::timeout(patience, other.next()).await.is_err());
    drop((first, second, other));
    assert_eq!(bus.watches(), 0);
    assert!(!bus.listeners().any());
}

#[tokio::test]
async fn there_are_only_so_many_streams() {
    let bus = Bus::new(1.0);
    let mut streams: Vec<Stream> =
        (0..STREAMS_MAX).map(|_| bus.subscribe(&"t".into(), None).unwrap()).collect();
    assert!(bus.subscribe(&"t".into(), None).is_err());
    streams.pop();
    assert!(bus.subscribe(&"t".into(), None).is_ok());
}
