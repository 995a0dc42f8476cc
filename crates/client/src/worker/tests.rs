//! The worker against a fake server: what each way of ending is reported as, keeping and losing locks, stopping.

use super::*;
use crate::client::Options;
use crate::fake::{Fake, Served, texts, within};
use crate::resp::Frame;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::{Notify, oneshot};

fn job_text(jid: &str) -> String {
    format!(
        r#"{{"jid":"{jid}","klass":"k","queue":"q","state":"running","data":"{jid}","attempt":3,"worker":"w"}}"#
    )
}

/// A server with these jobs in its queue; `answer` may answer first.
async fn server(
    jids: &[&str],
    mut answer: impl FnMut(&[String]) -> Option<Frame> + Send + 'static,
) -> Served {
    let mut waiting: VecDeque<String> = jids.iter().map(|jid| job_text(jid)).collect();
    Fake::start().await.serve(move |words| {
        if let Some(frame) = answer(words) {
            // The fake's way to say "close the connection".
            return Some(frame).filter(|frame| *frame != Frame::NilArray);
        }
        Some(match words[0].as_str() {
            "HAUL.POP" => {
                let count: usize = words[3].parse().unwrap();
                let taken: Vec<_> = waiting.drain(..count.min(waiting.len())).map(Frame::from).collect();
                Frame::Array(taken)
            }
            "HAUL.MHEARTBEAT" => texts(&vec!["1"; words.len() - 2]),
            "HAUL.HEARTBEAT" => Frame::Int(1),
            "HAUL.COMPLETE" => Frame::bulk("complete"),
            "HAUL.RETRY" => Frame::Int(2),
            _ => Frame::Int(1),
        })
    })
}

async fn worker(served: &Served) -> Worker {
    let options = Options {
        backoff_min: Duration::from_millis(1),
        backoff_max: Duration::from_millis(5),
        ..Options::default()
    };
    let client = Client::connect(&served.address, options).await.unwrap();
    Worker::new(client, "w").queues(["q"]).concurrency(4).wait(Duration::from_millis(100))
}

/// Runs a worker until told to stop.
fn run<H, F>(
    worker: Worker,
    handler: H,
) -> (oneshot::Sender<()>, tokio::task::JoinHandle<Result<Summary, Error>>)
where
    H: Fn(JobContext) -> F + Send + Sync + 'static,
    F: Future<Output = Result<Outcome, HandlerError>> + Send + 'static,
{
    let (stop, stopped) = oneshot::channel();
    let shutdown = async { stopped.await.unwrap_or_default() };
    (stop, tokio::spawn(worker.run(handler, shutdown)))
}

async fn finish(
    (stop, running): (oneshot::Sender<()>, tokio::task::JoinHandle<Result<Summary, Error>>),
) -> Summary {
    let _ = stop.send(());
    within(running).await.unwrap().unwrap()
}

#[tokio::test]
async fn every_way_to_end_is_reported_as_documented() {
    let jids = ["done", "result", "next", "retry", "release", "handled", "error", "fail", "panic"];
    let served = server(&jids, |_| None).await;
    let worker = worker(&served).await.retry_delay(Duration::from_secs(1), Duration::from_secs(60));
    let running = run(worker, |context: JobContext| async move {
        assert_eq!((context.worker(), context.job().attempt), ("w", 3));
        match context.data::<String>()?.as_str() {
            "done" => Ok(Outcome::done()),
            "result" => Ok(Outcome::result("42")),
            "next" => Ok(Outcome::next("q2")),
            "retry" => Ok(Outcome::Retry { delay: Some(Duration::from_secs(9)) }),
            "release" => Ok(Outcome::Release),
            "handled" => Ok(Outcome::Handled),
            "error" => Err("x".parse::<u8>().unwrap_err().into()),
            "fail" => Err(HandlerError::fail("group", "message")),
            other => panic!("no such job: {other}"),
        }
    });
    for expected in [
        "HAUL.COMPLETE w done ATTEMPT 3",
        "HAUL.COMPLETE w result RESULT 42 ATTEMPT 3",
        "HAUL.COMPLETE w next NEXT q2 ATTEMPT 3",
        "HAUL.RETRY w retry DELAY 9 ATTEMPT 3",
        "HAUL.RELEASE release",
        "HAUL.FAIL w fail group message ATTEMPT 3",
        "HAUL.FAIL w panic panic no such job: panic ATTEMPT 3",
    ] {
        assert_eq!(served.expect(expected).await, expected);
    }
    let retry = served.expect("HAUL.RETRY w error").await;
    assert!(
        retry.ends_with("GROUP ParseIntError MESSAGE invalid digit found in string ATTEMPT 3"),
        "{retry}"
    );
    // The third attempt: four seconds, shortened by up to half.
    let delay: f64 = retry.split(' ').nth(4).unwrap().parse().unwrap();
    assert!((2.0..=4.0).contains(&delay), "{delay}");
    let summary = finish(running).await;
    assert_eq!(summary, Summary { completed: 3, retried: 2, failed: 2, released: 1, lost: 0, handled: 1 });
}

#[tokio::test]
async fn no_more_handlers_run_than_there_are_slots() {
    static RUNNING: AtomicUsize = AtomicUsize::new(0);
    let jids: Vec<String> = (0..40).map(|number| format!("j{number}")).collect();
    let served = server(&jids.iter().map(String::as_str).collect::<Vec<_>>(), |_| None).await;
    let running = run(worker(&served).await, |_| async {
        assert!(RUNNING.fetch_add(1, Ordering::SeqCst) < 4);
        tokio::task::yield_now().await;
        RUNNING.fetch_sub(1, Ordering::SeqCst);
        Ok(Outcome::done())
    });
    for jid in &jids {
        served.expect(&format!("HAUL.COMPLETE w {jid} ATTEMPT")).await;
    }
    assert_eq!(finish(running).await.completed, 40);
    assert!(served.seen("HAUL.POP")[0].starts_with("HAUL.POP w COUNT 4 WAIT 0.1 LOCK 60 QUEUES q"));
}

#[tokio::test]
async fn locks_are_renewed_together_while_handlers_run() {
    let served = server(&["a", "b"], |_| None).await;
    let release = Arc::new(Notify::new());
    let waiting = release.clone();
    let running = run(worker(&served).await.lock(Duration::from_secs(1)), move |_| {
        let waiting = waiting.clone();
        async move {
            waiting.notified().await;
            Ok(Outcome::done())
        }
    });
    let renewed = served.expect("HAUL.MHEARTBEAT w").await;
    assert_eq!(renewed.split(' ').count(), 4, "{renewed}");
    release.notify_waiters();
    assert_eq!(finish(running).await.completed, 2);
}

/// A handler that reports that it was told and then does not stop by itself.
fn stubborn(
    told: Arc<Notify>,
) -> impl Fn(JobContext) -> Pin<Box<dyn Future<Output = Result<Outcome, HandlerError>> + Send>> {
    move |context| {
        let told = told.clone();
        Box::pin(async move {
            context.lost().await;
            assert!(context.is_lost());
            told.notify_one();
            std::future::pending().await
        })
    }
}

#[tokio::test]
async fn a_lock_refused_renewal_is_lost_and_the_handler_is_dropped() {
    let served = server(&["a"], |words| (words[0] == "HAUL.MHEARTBEAT").then(|| texts(&["NOTHELD"]))).await;
    let told = Arc::new(Notify::new());
    let worker = worker(&served).await.lock(Duration::from_secs(1)).lost_grace(Duration::from_millis(10));
    let running = run(worker, stubborn(told.clone()));
    within(told.notified()).await;
    let summary = finish(running).await;
    assert_eq!(summary, Summary { lost: 1, ..Summary::default() });
    for report in ["HAUL.COMPLETE", "HAUL.RETRY", "HAUL.FAIL", "HAUL.RELEASE"] {
        assert!(served.seen(report).is_empty(), "{report}");
    }
}

#[tokio::test]
async fn a_lock_that_cannot_be_renewed_in_time_is_lost() {
    let served =
        server(&["a"], |words| (words[0] == "HAUL.MHEARTBEAT").then(|| Frame::Error("FULL no room".into())))
            .await;
    let told = Arc::new(Notify::new());
    let worker = worker(&served).await.lock(Duration::from_secs(1)).lost_grace(Duration::ZERO);
    let running = run(worker, stubborn(told.clone()));
    within(told.notified()).await;
    // Refused without a word about the lock: asked again once a second, not all the time.
    assert!(served.seen("HAUL.MHEARTBEAT").len() <= 2);
    assert_eq!(finish(running).await.lost, 1);
}

#[tokio::test]
async fn a_notice_of_a_lost_lock_is_confirmed_and_then_told_at_once() {
    let served = server(&["a", "b"], |words| {
        let asked = words[0] == "HAUL.HEARTBEAT" && words[2] == "a";
        asked.then(|| Frame::Error("NOJOB there is no job a".into()))
    })
    .await;
    let told = Arc::new(Notify::new());
    // With a lock this long, only the notice can tell.
    let worker = worker(&served).await.lock(Duration::from_secs(3600)).lost_grace(Duration::ZERO);
    let handler = stubborn(told.clone());
    let started = Arc::new(tokio::sync::Semaphore::new(0));
    let starts = started.clone();
    let running = run(worker.stop_grace(Duration::from_millis(50)), move |context| {
        starts.add_permits(1);
        handler(context)
    });
    served.expect("SUBSCRIBE ql:w:w").await;
    within(started.acquire_many(2)).await.unwrap().forget();
    // About a job that is not here, and about one that is here after all: nothing happens.
    served.publish("ql:w:w", r#"{"jid":"x","event":"lock_lost","worker":"w"}"#);
    served.publish("ql:w:w", "not JSON");
    served.publish("ql:w:w", r#"{"jid":"b","event":"lock_lost","worker":"w"}"#);
    served.publish("ql:w:w", r#"{"jid":"a","event":"canceled","worker":"w","queue":"q"}"#);
    within(told.notified()).await;
    assert_eq!(
        served.seen("HAUL.HEARTBEAT"),
        ["HAUL.HEARTBEAT w b LOCK 3600 ATTEMPT 3", "HAUL.HEARTBEAT w a LOCK 3600 ATTEMPT 3"]
    );
    let summary = finish(running).await;
    assert_eq!(summary.lost + summary.released, 2);
    assert!(summary.lost >= 1);
}

#[tokio::test]
async fn stopping_lets_handlers_finish() {
    let served = server(&["a"], |_| None).await;
    let started = Arc::new(Notify::new());
    let notify = started.clone();
    let running = run(worker(&served).await, move |context: JobContext| {
        notify.notify_one();
        async move {
            context.stopping().await;
            assert!(context.is_stopping());
            context.checkpoint(&1).await?;
            Ok(Outcome::done())
        }
    });
    within(started.notified()).await;
    assert_eq!(finish(running).await.completed, 1);
    assert_eq!(served.seen("HAUL.HEARTBEAT"), ["HAUL.HEARTBEAT w a LOCK 60 DATA 1 ATTEMPT 3"]);
}

#[tokio::test]
async fn stopping_gives_back_what_does_not_finish() {
    let served = server(&["a"], |_| None).await;
    let started = Arc::new(Notify::new());
    let notify = started.clone();
    let worker = worker(&served).await.stop_grace(Duration::from_millis(10));
    let running = run(worker, move |_| {
        notify.notify_one();
        std::future::pending()
    });
    within(started.notified()).await;
    assert_eq!(finish(running).await.released, 1);
    assert_eq!(served.seen("HAUL.RELEASE"), ["HAUL.RELEASE a"]);
}

#[tokio::test]
async fn jobs_that_come_after_the_shutdown_are_given_back() {
    let fake = Fake::start().await;
    let options = Options::default();
    let (client, mut shared) = tokio::join!(Client::connect(&fake.address, options), fake.accept());
    let worker = Worker::new(client.unwrap(), "w").queues(["q"]);
    let (stop, running) = run(worker, |_| async { Ok(Outcome::done()) });
    // The subscription and the pop connect in any order.
    let (mut one, mut other) = (within(fake.accept()).await, within(fake.accept()).await);
    let mut own = if within(one.line()).await.starts_with("HAUL.POP") {
        one
    } else {
        within(other.line()).await;
        other
    };
    stop.send(()).unwrap();
    tokio::task::yield_now().await;
    own.reply(texts(&[&job_text("late")])).await;
    // Too late for the shutdown or just in time for the handler: in neither case is the job forgotten.
    let line = within(shared.line()).await;
    assert!(["HAUL.RELEASE late", "HAUL.COMPLETE w late ATTEMPT 3"].contains(&line.as_str()), "{line}");
    shared.reply(Frame::bulk("complete")).await;
    within(running).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_report_is_repeated_until_it_arrives() {
    let mut breaks = 3;
    let served = server(&["a"], move |words| {
        breaks -= i32::from(words[0] == "HAUL.COMPLETE");
        (words[0] == "HAUL.COMPLETE" && breaks >= 0).then_some(Frame::NilArray)
    })
    .await;
    let running = run(worker(&served).await, |_| async { Ok(Outcome::done()) });
    served.expect("HAUL.COMPLETE").await;
    assert_eq!(finish(running).await.completed, 1);
    assert_eq!(served.seen("HAUL.COMPLETE").len(), 4);
}

#[tokio::test]
async fn a_report_refused_for_its_content_becomes_a_failure() {
    let served = server(&["a"], |words| {
        (words[0] == "HAUL.COMPLETE").then(|| Frame::Error("BADARG result too long".into()))
    })
    .await;
    let running = run(worker(&served).await, |_| async { Ok(Outcome::result("long")) });
    let fail = served.expect("HAUL.FAIL").await;
    assert_eq!(fail, "HAUL.FAIL w a report BADARG result too long ATTEMPT 3");
    assert_eq!(finish(running).await.failed, 1);
}

#[tokio::test]
async fn a_pop_refused_for_good_ends_the_worker() {
    let served = server(&[], |words| {
        (words[0] == "HAUL.POP").then(|| Frame::Error("BADARG no such queue name".into()))
    })
    .await;
    let (_stop, running) = run(worker(&served).await, |_| async { Ok(Outcome::done()) });
    assert!(within(running).await.unwrap().unwrap_err().is_bad_argument());
}

#[tokio::test]
async fn progress_is_noted_sparingly_and_at_the_end() {
    let served = server(&["a"], |_| None).await;
    let running = run(worker(&served).await, |context: JobContext| async move {
        for done in 1..=100 {
            context.progress(done, 100).await?;
        }
        Ok(Outcome::done())
    });
    served.expect("HAUL.COMPLETE").await;
    let noted = served.seen("HAUL.LOG");
    assert_eq!(noted.first().unwrap(), r#"HAUL.LOG a progress {"done":1,"total":100}"#);
    assert_eq!(noted.last().unwrap(), r#"HAUL.LOG a progress {"done":100,"total":100}"#);
    assert!(noted.len() < 10);
    finish(running).await;
}
