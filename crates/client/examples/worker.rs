//! A worker: `cargo run -p haul-client --example worker -- haul://127.0.0.1:4286 mail`
//!
//! Put something for it with any Redis client: `redis-cli -p 4286 HAUL.PUT mail email '{"to":"a@b.c"}'`

use haul_client::{Client, HandlerError, JobContext, Options, Outcome, Worker};
use std::time::Duration;

#[derive(serde::Deserialize)]
struct Mail {
    to: String,
}

async fn send(context: JobContext) -> Result<Outcome, HandlerError> {
    // Data that cannot be read today cannot be read tomorrow.
    let mail: Mail = context.data().map_err(|error| HandlerError::fail("bad-data", error.to_string()))?;
    for step in 1..=3 {
        tokio::time::sleep(Duration::from_millis(300)).await;
        context.progress(step, 3).await?;
    }
    Ok(Outcome::result(format!("sent to {}", mail.to)))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let address = args.next().unwrap_or_else(|| "127.0.0.1:4286".to_owned());
    let queues: Vec<_> = args.collect();
    let client = Client::connect(&address, Options::default()).await?;
    let shutdown = async { tokio::signal::ctrl_c().await.unwrap_or_default() };
    let name = format!("example-{}", std::process::id());
    Worker::new(client, name).queues(queues).concurrency(10).run(send, shutdown).await?;
    Ok(())
}
