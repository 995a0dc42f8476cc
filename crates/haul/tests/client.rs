//! The Rust client and its worker loop against the real server.

mod support;

#[expect(clippy::unwrap_used, reason = "a test may fail by panicking")]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use haul_client::{
        Client, Complete, Fail, HandlerError, Heartbeat, JobContext, Options, Outcome, Pop, Put, Retry,
        Worker,
    };
    use serde_json::json;

    use crate::support::Server;

    async fn server() -> (tempfile::TempDir, Server, Client) {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::start(&folder.path().join("data"), &[]);
        let client = Client::connect(&server.address.to_string(), Options::default()).await.unwrap();
        (folder, server, client)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_job_is_put_popped_renewed_and_completed() {
        let (_folder, _server, client) = server().await;
        let jid =
            client.put(&Put::new("mail", "email", &json!({"to": "x"})).priority(2).tag("a")).await.unwrap();
        let jobs = client.pop(&Pop::new("w", ["mail"])).await.unwrap();
        assert_eq!(jobs.len(), 1);
        let job = &jobs[0];
        assert_eq!((job.jid.as_str(), job.attempt), (jid.as_str(), 1));
        assert!(client.heartbeat(&Heartbeat::job("w", job)).await.unwrap() >= Duration::from_secs(59));
        client.complete(&Complete::job("w", job).result("sent")).await.unwrap();
        assert_eq!(client.result(&jid).await.unwrap().as_deref(), Some("sent"));
        let refused = client.complete(&Complete::job("w", job)).await.unwrap_err();
        assert!(format!("{refused}").contains("NOTRUNNING"), "{refused}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn failures_and_retries_are_counted() {
        let (_folder, _server, client) = server().await;
        let jid = client.put(&Put::new("q", "k", &json!({})).retries(1)).await.unwrap();
        let job = client.pop(&Pop::new("w", ["q"])).await.unwrap().remove(0);
        assert_eq!(client.retry(&Retry::job("w", &job)).await.unwrap(), Some(0));
        let job = client.pop(&Pop::new("w", ["q"])).await.unwrap().remove(0);
        assert_eq!(job.attempt, 2);
        client.fail(&Fail::job("w", &job, "bad", "it broke")).await.unwrap();
        assert_eq!(client.failed_groups().await.unwrap().get("bad"), Some(&1));
        assert_eq!(client.unfail("q", "bad", 25).await.unwrap(), 1);
        assert_eq!(client.cancel([&jid]).await.unwrap(), 1);
        assert!(client.get(&jid).await.unwrap().is_none());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn many_calls_share_one_connection_and_keep_their_answers() {
        let (_folder, _server, client) = server().await;
        let puts = (0..500).map(|number| {
            let client = client.clone();
            tokio::spawn(async move {
                let jid = format!("job-{number}");
                (client.put(&Put::new("q", "k", &json!(number)).jid(&jid)).await.unwrap(), jid)
            })
        });
        for put in puts.collect::<Vec<_>>() {
            let (answer, jid) = put.await.unwrap();
            assert_eq!(answer, jid);
        }
        assert_eq!(client.length("q").await.unwrap(), 500);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_waiting_pop_is_woken_by_a_put() {
        let (_folder, _server, client) = server().await;
        let waiting = {
            let client = client.clone();
            tokio::spawn(async move { client.pop(&Pop::new("w", ["q"]).wait(Duration::from_secs(30))).await })
        };
        let jid = client.put(&Put::new("q", "k", &json!(1))).await.unwrap();
        let jobs = waiting.await.unwrap().unwrap();
        assert_eq!(jobs[0].jid, jid);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_worker_runs_all_jobs_and_stops_when_told() {
        let (_folder, _server, client) = server().await;
        let puts: Vec<Put> = (0..200).map(|number| Put::new("q", "k", &json!(number))).collect();
        client.put_many(&puts).await.unwrap();
        let done = Arc::new(AtomicUsize::new(0));
        let (finished, all_done) = tokio::sync::oneshot::channel::<()>();
        let finished = Arc::new(std::sync::Mutex::new(Some(finished)));
        let handler = {
            let done = done.clone();
            move |_: JobContext| {
                let (done, finished) = (done.clone(), finished.clone());
                async move {
                    tokio::task::yield_now().await;
                    if done.fetch_add(1, Ordering::SeqCst) + 1 == 200
                        && let Some(finished) = finished.lock().unwrap().take()
                    {
                        let _ = finished.send(());
                    }
                    Ok::<_, HandlerError>(Outcome::result("ok"))
                }
            }
        };
        let shutdown = async {
            let _ = all_done.await;
        };
        let summary = Worker::new(client.clone(), "w")
            .queues(["q"])
            .concurrency(16)
            .run(handler, shutdown)
            .await
            .unwrap();
        assert_eq!((summary.completed, summary.lost), (200, 0));
        assert_eq!(client.length("q").await.unwrap(), 0);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_worker_renews_its_locks_and_tells_a_handler_whose_job_was_cancelled() {
        let (_folder, _server, client) = server().await;
        let jid = client.put(&Put::new("q", "k", &json!(1))).await.unwrap();
        let (started, has_started) = tokio::sync::oneshot::channel::<()>();
        let (told, was_told) = tokio::sync::oneshot::channel::<()>();
        let ends = Arc::new(std::sync::Mutex::new((Some(started), Some(told))));
        let handler = move |context: JobContext| {
            let ends = ends.clone();
            async move {
                let started = ends.lock().unwrap().0.take();
                let _ = started.map(|started| started.send(()));
                // Longer than the lock lasts: only renewal keeps the job.
                tokio::time::sleep(Duration::from_millis(2500)).await;
                assert!(!context.is_lost(), "the lock was not renewed");
                context.client().cancel([&context.job().jid]).await?;
                context.lost().await;
                let told = ends.lock().unwrap().1.take();
                let _ = told.map(|told| told.send(()));
                Ok::<_, HandlerError>(Outcome::done())
            }
        };
        let worker = Worker::new(client.clone(), "w").queues(["q"]).lock(Duration::from_secs(1));
        let shutdown = async {
            let _ = was_told.await;
        };
        let summary = worker.run(handler, shutdown).await.unwrap();
        has_started.await.unwrap();
        assert_eq!(summary.completed, 0);
        assert!(client.get(&jid).await.unwrap().is_none());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_client_finds_its_server_again_after_a_crash() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let first = Server::start(&data, &[]);
        let address = first.address;
        let client = Client::connect(&address.to_string(), Options::default()).await.unwrap();
        let jid = client.put(&Put::new("q", "k", &json!("kept"))).await.unwrap();
        first.kill();
        let mut again = std::process::Command::new(env!("CARGO_BIN_EXE_haul"));
        again.args(["serve", "--http", "off", "--redis", &address.to_string(), "--data"]).arg(&data);
        let _second = Server::spawn(again).unwrap();
        assert_eq!(client.get(&jid).await.unwrap().unwrap().jid, jid);
    }
}
