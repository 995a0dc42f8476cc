//! `haul handler`, `haul invoke`, `haul journal`: stored handlers and their jobs, over the server's HTTP side.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::Duration;

use haul_client::Tls;
use serde_json::{Value, json};

use super::failure::{Done, Failure};
use super::output::{Output, Table};
use super::session::Global;

/// How long an answer may take, beyond what it is told to wait.
const PATIENCE: Duration = Duration::from_secs(60);
/// Store the code that runs a tenant's jobs of a type
#[derive(clap::Args)]
#[command(after_help = "Examples:
  haul handler add acme resize --lang python @resize.py
  haul handler add acme notify --lang http http://127.0.0.1:8000/notify --options '{\"batch\":true}'
  haul handler get acme resize
  haul handler list acme
  haul handler delete acme resize")]
pub(super) struct Handler {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Args)]
pub(super) struct Address {
    /// The server's HTTP address; with https:// in front, or --tls, over TLS
    #[arg(long, env = "HAUL_HTTP", value_name = "ADDR", default_value = "127.0.0.1:4285")]
    pub(super) http: String,
}

#[derive(clap::Subcommand)]
enum Verb {
    /// Add a version; it is used from the next batch on
    #[command(after_help = "Examples:
  haul handler add acme resize --lang python @resize.py
  haul handler add acme hello --lang sh 'read name; echo hello $name' --options '{\"keepResult\":true}'")]
    Add(Box<Add>),
    /// Show the newest version
    #[command(after_help = "Examples:\n  haul handler get acme resize")]
    Get(Named),
    /// List a tenant's handlers
    #[command(after_help = "Examples:\n  haul handler list acme\n  haul handler list acme --json")]
    List {
        /// Whose
        client: String,
        #[command(flatten)]
        address: Address,
    },
    /// Delete all versions; jobs stay
    #[command(after_help = "Examples:\n  haul handler delete acme resize")]
    Delete(Named),
}

#[derive(clap::Args)]
struct Named {
    /// Whose
    client: String,
    /// Of which job type
    jobtype: String,
    #[command(flatten)]
    address: Address,
}

#[derive(clap::Args)]
struct Add {
    #[command(flatten)]
    named: Named,
    /// The code, or for http the address; - reads standard input, @FILE a file
    body: String,
    /// node, python, php, sh, exec or http
    #[arg(long)]
    lang: String,
    /// Run once in each context
    #[arg(long, value_name = "CODE")]
    before: Option<String>,
    /// Run before each batch
    #[arg(long, value_name = "CODE")]
    before_each: Option<String>,
    /// Run after each batch
    #[arg(long, value_name = "CODE")]
    after_each: Option<String>,
    /// Types of the tenant with the same one may share contexts
    #[arg(long)]
    eid: Option<String>,
    /// JSON: batch, batchSize, timeoutMs, cpuMs, chain, keepResult, network, memoryMb, maxRetries
    #[arg(long, value_name = "JSON")]
    options: Option<String>,
}

/// Post a payload for a stored handler; prints the job's id, or with --wait what it came to
#[derive(clap::Args)]
#[command(after_help = "Examples:
  haul invoke acme resize '{\"image\":7}'
  haul invoke acme hello world --wait
  cat lines.txt | haul invoke acme resize -

Each line is a job; --bytes posts the whole as one. With --wait the exit code is 0 when all have succeeded, 1 when one
has failed, 4 when one has not ended yet.")]
pub(super) struct Invoke {
    /// Whose
    client: String,
    /// Of which job type
    jobtype: String,
    /// The payload; - reads standard input, @FILE a file
    payload: String,
    /// Wait for the end, 60 seconds or as many as given
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "60", require_equals = true)]
    wait: Option<u32>,
    /// The payload is one, whatever is in it
    #[arg(long)]
    bytes: bool,
    #[command(flatten)]
    address: Address,
}

/// Look at the journal: jobs that were accepted and are not in the store yet
#[derive(clap::Args)]
#[command(after_help = "Examples:
  haul journal
  haul journal --data /var/lib/haul --json
  less haul-data/journal/journal.000001")]
pub(super) struct Journal {
    /// The server's data folder
    #[arg(long, env = "HAUL_DATA", value_name = "DIR", default_value = "haul-data")]
    data: PathBuf,
}

impl Journal {
    pub(super) fn run(&self, global: &Global) -> Done {
        let folder = self.data.join("journal");
        let seen = haul_journal::inspect(&folder)
            .map_err(|error| Failure::Usage(format!("{} cannot be read: {error}", folder.display())))?;
        let mut table = Table::new(&["FILE", "BYTES", "JOBS", "NOT JOBS", "TORN BYTES"]);
        let mut files = Vec::new();
        for (name, bytes, jobs, junk, torn) in &seen.files {
            table.row([
                name.clone(),
                bytes.to_string(),
                jobs.to_string(),
                junk.to_string(),
                torn.to_string(),
            ]);
            files.push(
                json!({"file": name, "bytes": bytes, "jobs": jobs, "not_jobs": junk, "torn_bytes": torn}),
            );
        }
        let (file, offset) = seen.read_to;
        let text = format!(
            "{}\n{} jobs are not known to be in the store; read up to byte {offset} of file {file}",
            table.text_or("the journal has no files"),
            seen.unread
        );
        let value = json!({"files": files, "read_file": file, "read_offset": offset, "unread": seen.unread});
        Output { json: global.json }.say(&value, &text)
    }
}

impl Handler {
    pub(super) fn run(&self, global: &Global) -> Done {
        let out = Output { json: global.json };
        match &self.verb {
            Verb::Add(add) => {
                let document = json!({
                    "lang": add.lang,
                    "body": String::from_utf8_lossy(&read(&add.body)?),
                    "before": add.before,
                    "beforeEach": add.before_each,
                    "afterEach": add.after_each,
                    "eid": add.eid,
                    "options": add.options,
                });
                let path = add.named.path("/add");
                let answer = add.named.address.ask(global, "POST", &path, document.to_string().as_bytes())?;
                out.say(&answer, member(&answer, "id").as_str().unwrap_or_default())
            }
            Verb::Get(named) => {
                let answer = named.address.ask(global, "GET", &named.path(""), b"")?;
                let text = format!(
                    "# {} {}\n{}",
                    text_of(&answer, "lang"),
                    text_of(&answer, "id"),
                    text_of(&answer, "body")
                );
                out.say(&answer, &text)
            }
            Verb::List { client, address } => {
                let answer = address.ask(global, "GET", &format!("/{client}/handler"), b"")?;
                let mut table = Table::new(&["TYPE", "LANG", "SINCE", "ID"]);
                for handler in member(&answer, "handlers").as_array().into_iter().flatten() {
                    table.row(["type", "lang", "dt", "id"].map(|key| text_of(handler, key).to_owned()));
                }
                out.say(&answer, &table.text_or("there are no handlers"))
            }
            Verb::Delete(named) => {
                let answer = named.address.ask(global, "POST", &named.path("/delete"), b"")?;
                out.say(&answer, &format!("{} versions deleted", member(&answer, "count")))
            }
        }
    }
}

impl Named {
    fn path(&self, rest: &str) -> String {
        format!("/{}/handler/{}{rest}", self.client, self.jobtype)
    }
}

impl Invoke {
    pub(super) fn run(&self, global: &Global) -> Done {
        let out = Output { json: global.json };
        let payload = read(&self.payload)?;
        let path = format!("/{}/job/{}/add", self.client, self.jobtype);
        let kind = if self.bytes { "application/octet-stream" } else { "text/plain" };
        let request = Asked { kind, ..Asked::new("POST", &path, &payload) };
        let answer = self.address.send(global, &request)?;
        let mut worst = Ok(());
        for id in member(&answer, "ids").as_array().into_iter().flatten().filter_map(Value::as_str) {
            let Some(wait) = self.wait else {
                out.say(&json!({"id": id}), id)?;
                continue;
            };
            let path = format!("/{}/job/{id}?wait={wait}", self.client);
            let request = Asked { wait, ..Asked::new("GET", &path, b"") };
            let result = self.address.send(global, &request)?;
            if global.json || text_of(&result, "state") == "complete" {
                out.say(&result, &told(id, &result))?;
            }
            if let Err(failure) = ended(id, &result) {
                worst = Err(failure);
            }
        }
        worst
    }
}

/// What a finished job has to say.
fn told(id: &str, result: &Value) -> String {
    match member(result, "result") {
        Value::Null => format!("{id} {}", text_of(result, "state")),
        Value::String(text) => text.trim_end().to_owned(),
        other => other.to_string(),
    }
}

/// How a job that was waited for ended.
fn ended(id: &str, result: &Value) -> Done {
    match text_of(result, "state") {
        "complete" => Ok(()),
        "failed" => {
            let (code, exitcode) = (text_of(result, "code"), member(result, "exitcode"));
            let message = format!("{id} {code} {exitcode}: {}", text_of(result, "reason"));
            Err(Failure::Ended { exit: 1, message })
        }
        state => {
            let reason = text_of(result, "reason");
            let why = if reason.is_empty() { String::new() } else { format!(" (last: {reason})") };
            Err(Failure::Nothing(format!("{id} is {state}{why}; look again with `haul job {id}`")))
        }
    }
}

/// A member, or null.
fn member<'a>(value: &'a Value, key: &str) -> &'a Value {
    value.get(key).unwrap_or(&Value::Null)
}

fn text_of<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// An argument, standard input, or a file.
fn read(argument: &str) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let outcome = match argument.strip_prefix('@') {
        Some(path) => std::fs::read(path).map(|read| bytes = read),
        None if argument == "-" => std::io::stdin().lock().read_to_end(&mut bytes).map(|_| ()),
        None => return Ok(argument.as_bytes().to_vec()),
    };
    outcome.map_err(|error| Failure::Usage(format!("{argument} cannot be read: {error}")))?;
    Ok(bytes)
}

/// A connection, plain or over TLS.
pub(super) trait Talk: Read + Write {}

impl<T: Read + Write> Talk for T {}

/// Sends a request and reads until the server closes.
fn talk(mut stream: impl Read + Write, head: &[u8], body: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut answer = Vec::new();
    stream.write_all(head)?;
    stream.write_all(body)?;
    stream.flush()?;
    stream.read_to_end(&mut answer)?;
    Ok(answer)
}

pub(super) struct Asked<'a> {
    method: &'a str,
    path: &'a str,
    kind: &'a str,
    /// Whose, where the path does not say.
    tenant: Option<&'a str>,
    body: &'a [u8],
    wait: u32,
}

impl<'a> Asked<'a> {
    /// A request with a JSON document, or none.
    pub(super) fn new(method: &'a str, path: &'a str, body: &'a [u8]) -> Self {
        Asked { method, path, kind: "application/json", tenant: None, body, wait: 0 }
    }

    pub(super) fn of_tenant(self, tenant: &'a str) -> Self {
        Asked { tenant: Some(tenant), ..self }
    }
}

impl Address {
    pub(super) fn ask(
        &self,
        global: &Global,
        method: &str,
        path: &str,
        body: &[u8],
    ) -> Result<Value, Failure> {
        self.send(global, &Asked::new(method, path, body))
    }

    pub(super) fn send(&self, global: &Global, asked: &Asked<'_>) -> Result<Value, Failure> {
        let (status, text) = self.exchange(global, asked)?;
        let answer: Value = serde_json::from_slice(&text).unwrap_or(Value::Null);
        if (200..300).contains(&status) {
            return Ok(answer);
        }
        let message = member(&answer, "error")
            .as_str()
            .or_else(|| member(member(&answer, "error"), "message").as_str());
        let message = message.map_or_else(|| format!("the server answered {status}"), str::to_owned);
        Err(Failure::Refused { code: "REFUSED", message, next: String::new() })
    }

    fn unreachable(&self, error: &std::io::Error) -> Failure {
        Failure::Unreachable {
            message: format!("the server's HTTP side at {} cannot be reached: {error}", self.http),
            next: "start it with `haul serve`, or say where it is with --http or HAUL_HTTP".to_owned(),
        }
    }

    /// The host and the port, and whether they are to be reached over TLS.
    pub(super) fn parts(&self) -> (&str, bool) {
        let (address, is_secure) = match self.http.strip_prefix("https://") {
            Some(address) => (address, true),
            None => (self.http.strip_prefix("http://").unwrap_or(&self.http), false),
        };
        (address.trim_end_matches('/'), is_secure)
    }

    /// A connection, over TLS if that was asked for.
    pub(super) fn connect(&self, global: &Global, patience: Duration) -> Result<Box<dyn Talk>, Failure> {
        let (address, is_secure) = self.parts();
        let open = || {
            let stream = TcpStream::connect(address)?;
            stream.set_read_timeout(Some(patience))?;
            Ok(stream)
        };
        let stream = open().map_err(|error| self.unreachable(&error))?;
        let tls = global.options()?.tls.or_else(|| is_secure.then(Tls::default));
        Ok(match tls {
            Some(tls) => Box::new(tls.over(address, stream)?),
            None => Box::new(stream),
        })
    }

    fn exchange(&self, global: &Global, asked: &Asked<'_>) -> Result<(u16, Vec<u8>), Failure> {
        let stream = self.connect(global, PATIENCE + Duration::from_secs(u64::from(asked.wait)))?;
        let token =
            global.secret()?.map_or_else(String::new, |token| format!("authorization: Bearer {token}\r\n"));
        let tenant = asked.tenant.map_or_else(String::new, |tenant| format!("x-haul-tenant: {tenant}\r\n"));
        let head = format!(
            "{} {} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n{token}{tenant}content-type: {}\r\ncontent-length: {}\r\n\r\n",
            asked.method,
            asked.path,
            self.parts().0,
            asked.kind,
            asked.body.len()
        );
        let answer = talk(stream, head.as_bytes(), asked.body).map_err(|error| self.unreachable(&error))?;
        let split = memchr::memmem::find(&answer, b"\r\n\r\n").unwrap_or(answer.len());
        let head = String::from_utf8_lossy(answer.get(..split).unwrap_or_default()).into_owned();
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
        Ok((status, answer.get(split + 4..).unwrap_or_default().to_vec()))
    }
}
