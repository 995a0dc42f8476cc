//! `haul demo`: a server with a few handlers and a stream of jobs, to see Haul alive.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use super::output::{Output, complain};
use super::serverless::{Address, Asked};
use super::session::Global;
use crate::clock;
use crate::config::Raw;

/// Between posts of the stream.
const POST_EVERY: Duration = Duration::from_millis(500);
/// How often the server is looked for while it starts.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const LOOKS_MAX: usize = 100;

/// The handlers: type, language, code, options.
const HANDLERS: [(&str, &str, &str, &str); 5] = [
    ("greet", "sh", "read name; echo hello $name; echo \"J: count|$name\"", "{\"keepResult\":true}"),
    (
        "count",
        "python",
        "def handle(payload):\n    return len(payload)\n",
        "{\"keepResult\":true,\"chain\":\"square\"}",
    ),
    ("square", "node", "module.exports = (payload) => payload ** 2;", "{\"keepResult\":true}"),
    (
        "moody",
        "sh",
        "read n; test $(( n % 3 )) != 0 && exit 0; echo \"$n is not to my liking\" >&2; exit 65",
        "{}",
    ),
    ("report", "sh", "read text; echo \"$(date): $text\"", "{\"keepResult\":true}"),
];

/// What recurs: type, payload, seconds from one to the next.
const SCHEDULES: [(&str, &str, u32); 2] = [("greet", "from the schedule", 10), ("report", "all is well", 15)];

/// Run a server with a few handlers, schedules and a stream of jobs, on a folder that goes when it stops
#[derive(clap::Args)]
#[command(after_help = "Examples:
  haul demo
  haul demo --http 127.0.0.1:8080

Stop it with Ctrl-C; its data goes with it.")]
pub(super) struct Demo {
    /// Address of the HTTP side
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:4285")]
    http: String,
    /// Address of the Redis-protocol side
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:4286")]
    redis: String,
}

impl Demo {
    pub(super) fn run(self, global: Global) -> ExitCode {
        let folder = std::env::temp_dir().join(format!("haul-demo-{}", clock::new_jid()));
        let outcome = self.serve(global, folder.clone());
        drop(std::fs::remove_dir_all(folder));
        match outcome {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                complain(&format!("haul: {error:#}"));
                ExitCode::from(2)
            }
        }
    }

    fn serve(self, global: Global, folder: PathBuf) -> anyhow::Result<()> {
        let raw = Raw {
            data: Some(folder),
            http: Some(self.http.clone()),
            redis: Some(self.redis),
            ..Raw::default()
        };
        let config = raw.resolve(Raw::default())?;
        let address = Address { http: self.http };
        // Ends with the process: it only posts.
        std::thread::spawn(move || stream(&global, &address));
        let runtime =
            tokio::runtime::Builder::new_multi_thread().enable_all().thread_name("haul-io").build()?;
        runtime.block_on(crate::serve::run(config))
    }
}

fn stream(global: &Global, address: &Address) {
    let alive = (0..LOOKS_MAX).any(|_| {
        std::thread::sleep(LOOK_EVERY);
        address.ask(global, "GET", "/demo/handler", b"").is_ok()
    });
    if !alive {
        return complain("haul demo: the server did not start");
    }
    for (jobtype, lang, body, options) in HANDLERS {
        let document = serde_json::json!({"lang": lang, "body": body, "options": options}).to_string();
        drop(address.ask(global, "POST", &format!("/demo/handler/{jobtype}/add"), document.as_bytes()));
    }
    for (jobtype, payload, interval) in SCHEDULES {
        let document = serde_json::json!({"jid": format!("every-{interval}-seconds"), "queue": jobtype, "klass": jobtype,
            "data": payload, "interval": interval})
        .to_string();
        let asked = Asked::new("POST", "/api/v1/recurring", document.as_bytes());
        drop(address.send(global, &asked.of_tenant("demo")));
    }
    let page = format!(
        "Haul is running. Look at http://{0}/ui/?tenant=demo or run `haul --tenant demo top`.\n\
         Try: haul invoke demo greet you --wait\n     haul handler list demo\n\
         Ctrl-C stops it and removes its data.",
        address.http
    );
    drop(Output { json: false }.text(&page));
    for number in 0_u64.. {
        let path = if number % 2 == 0 { "/demo/job/greet/add" } else { "/demo/job/moody/add" };
        drop(address.ask(global, "POST", path, number.to_string().as_bytes()));
        std::thread::sleep(POST_EVERY);
    }
}
