//! How a bucket is reached by the subcommands that need no server.

use std::sync::Arc;

use haul_store::{Access, Place};

/// Options beside a store's URL.
#[derive(clap::Args, Clone)]
pub(super) struct Reach {
    /// Where the store's service is, if not at its usual address, such as http://127.0.0.1:9000
    #[arg(long, env = "HAUL_STORE_ENDPOINT", value_name = "URL")]
    store_endpoint: Option<String>,
    /// Let that address be without TLS
    #[arg(long, env = "HAUL_STORE_ALLOW_HTTP")]
    store_allow_http: bool,
}

impl Reach {
    pub(super) fn access(&self) -> Access {
        Access {
            endpoint: self.store_endpoint.clone(),
            allow_http: self.store_allow_http,
            ..Access::default()
        }
    }

    /// The bucket, found fit, and what runs requests to it.
    pub(super) fn open(&self, url: &str) -> anyhow::Result<(tokio::runtime::Runtime, Arc<Place>)> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let place = runtime.block_on(crate::serve::open_place(url, &self.access()))?;
        Ok((runtime, Arc::new(place)))
    }
}
