//! The command line: a file for each group of subcommands, each holding its arguments, its help and what it does.
//! Everything but `serve`, `doctor`, `token`, `audit` and `completions` talks to a server through `haul_client`, as anybody could.
//!
//! `session` is what a subcommand is given, `output` how it speaks, `failure` how it ends, `value` and `moment` how
//! arguments are read and times are told.

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

mod audit;
mod change;
mod cluster;
mod completions;
mod config;
mod copy;
mod demo;
mod doctor;
mod events;
mod failure;
mod job;
mod list;
mod moment;
mod output;
mod ping;
mod put;
mod queue;
mod reach;
mod recur;
mod retry;
mod running;
mod serve;
mod serverless;
mod session;
mod tag;
mod throttle;
mod token;
mod top;
mod value;
mod work;
mod worker;

use failure::Done;
use session::{Global, Session};

/// A durable job queue: nothing acknowledged is ever lost, nothing runs twice at once.
#[derive(Parser)]
#[command(name = "haul", version, about, long_about = None, arg_required_else_help = true)]
#[command(after_help = failure::EXIT_CODES)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Serve(serve::Serve),
    Demo(demo::Demo),
    Doctor(doctor::Doctor),
    Copy(copy::Copy),
    Backup(copy::Backup),
    Restore(copy::Restore),
    Token(token::Token),
    Audit(audit::Audit),
    Handler(serverless::Handler),
    Invoke(serverless::Invoke),
    Journal(serverless::Journal),
    Bench(Box<crate::bench::Bench>),
    Completions(completions::Completions),
    #[command(flatten)]
    Client(Box<ClientVerb>),
}

/// What needs a server.
#[derive(Subcommand)]
enum ClientVerb {
    Ping(ping::Ping),
    Cluster(cluster::Cluster),
    Top(top::Top),
    Events(events::Events),
    Put(put::Put),
    Recur(recur::Recur),
    Work(Box<running::Work>),
    Run(running::Run),
    Tail(running::Tail),
    Wait(running::Wait),
    Drain(running::Drain),
    Pop(work::Pop),
    Heartbeat(work::Heartbeat),
    Complete(work::Complete),
    Fail(work::Fail),
    Release(work::Release),
    Retry(retry::Retry),
    Unfail(retry::Unfail),
    Job(job::Job),
    Result(job::Outcome),
    Jobs(list::Jobs),
    Failed(list::Failed),
    Peek(list::Peek),
    Queues(queue::Queues),
    Length(queue::Length),
    Stats(queue::Stats),
    Pause(queue::Pause),
    Unpause(queue::Unpause),
    Forget(queue::Forget),
    Workers(worker::Workers),
    Deregister(worker::Deregister),
    Cancel(change::Cancel),
    Move(change::Move),
    Priority(change::Priority),
    Log(change::Log),
    Depends(change::Depends),
    Tag(tag::Tag),
    Untag(tag::Untag),
    Tags(tag::Tags),
    Track(tag::Track),
    Untrack(tag::Untrack),
    Tracked(tag::Tracked),
    Config(config::Config),
    Throttle(throttle::Throttle),
}

/// How `haul --help` groups the subcommands. A test sees to it that none is missing.
const GROUPS: &[(&str, &[&str])] = &[
    (
        "Server",
        &[
            "serve",
            "demo",
            "doctor",
            "copy",
            "backup",
            "restore",
            "token",
            "audit",
            "journal",
            "ping",
            "cluster",
            "bench",
            "completions",
        ],
    ),
    ("Putting", &["put", "recur", "move", "retry", "unfail", "cancel"]),
    ("Running", &["work", "run", "tail", "wait", "drain", "workers"]),
    ("Serverless", &["handler", "invoke"]),
    ("Working", &["pop", "heartbeat", "complete", "fail", "release"]),
    ("Looking", &["job", "jobs", "failed", "peek", "result", "queues", "length", "stats", "events", "top"]),
    ("Jobs", &["priority", "log", "depends", "tag", "untag", "tags", "track", "untrack", "tracked"]),
    ("Settings", &["pause", "unpause", "throttle", "config", "forget", "deregister"]),
];

/// Runs the command line.
pub fn main() -> ExitCode {
    if let Some(code) = crate::serverless::confine::main() {
        return code;
    }
    let args: Vec<std::ffi::OsString> = std::env::args_os().collect();
    if args.get(1).is_some_and(|word| word == haul_guard::WORD) {
        return haul_guard::main();
    }
    let matches = command().get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let outcome = match cli.verb {
        Verb::Serve(serve) => return serve.run(),
        Verb::Demo(demo) => return demo.run(cli.global),
        Verb::Doctor(doctor) => return doctor::run(&doctor, cli.global.json),
        Verb::Copy(copy) => return copy.run(&cli.global),
        Verb::Backup(backup) => return backup.run(&cli.global),
        Verb::Restore(restore) => return restore.run(&cli.global),
        Verb::Bench(bench) => match cli.global.secret() {
            Ok(token) => return crate::bench::run(&bench, token.as_deref(), cli.global.json),
            Err(failure) => Err(failure),
        },
        Verb::Token(token) => token.run(&cli.global),
        Verb::Audit(audit) => audit.run(&cli.global),
        Verb::Handler(handler) => handler.run(&cli.global),
        Verb::Invoke(invoke) => invoke.run(&cli.global),
        Verb::Journal(journal) => journal.run(&cli.global),
        Verb::Completions(completions) => completions.run(command()),
        Verb::Client(verb) => run_client(*verb, &cli.global),
    };
    match outcome.err().and_then(|failure| failure.told(&cli.global.server)) {
        None => ExitCode::SUCCESS,
        Some(told) => {
            output::complain(&told.text(cli.global.json));
            ExitCode::from(told.exit)
        }
    }
}

/// The whole command line, its help grouped.
fn command() -> clap::Command {
    let command = Cli::command();
    let width = command.get_subcommands().map(|verb| verb.get_name().len()).max().unwrap_or(0);
    let mut list = String::new();
    for (heading, names) in GROUPS {
        list.push_str(&format!("{heading}:\n"));
        for verb in names.iter().filter_map(|name| command.find_subcommand(name)) {
            let about = verb.get_about().map(ToString::to_string).unwrap_or_default();
            list.push_str(&format!("  {:width$}  {about}\n", verb.get_name()));
        }
        list.push('\n');
    }
    let command = UNUSED.iter().fold(command, |command, (name, unneeded)| {
        let unneeded = FOR_SERVER.iter().chain(unneeded.iter()).copied();
        command.mut_subcommand(name, |verb| verb.args(unneeded.map(unused)))
    });
    command.help_template(format!(
        "{{about}}\n\n{{usage-heading}} {{usage}}\n\n{list}`haul help SUBCOMMAND` tells more, with examples.\n\nOptions:\n{{options}}{{after-help}}"
    ))
}

/// What is only for talking to a server: the id and the flag of each.
const FOR_SERVER: [(&str, &str); 7] = [
    ("server", "server"),
    ("token", "token"),
    ("token_file", "token-file"),
    ("tls", "tls"),
    ("tls_ca", "tls-ca"),
    ("client_cert", "client-cert"),
    ("client_key", "client-key"),
];
const TENANT: (&str, &str) = ("tenant", "tenant");
const JSON: (&str, &str) = ("json", "json");

/// Which other global options mean nothing to those that talk to no server.
const UNUSED: &[(&str, &[(&str, &str)])] =
    &[("serve", &[TENANT, JSON]), ("doctor", &[TENANT]), ("completions", &[TENANT, JSON]), ("audit", &[])];

/// A global option where it means nothing: taken, but not in the help.
fn unused((id, flag): (&'static str, &'static str)) -> clap::Arg {
    let arg = clap::Arg::new(id).long(flag).hide(true);
    if matches!(id, "json" | "tls") { arg.action(clap::ArgAction::SetTrue) } else { arg }
}

/// One more thread than the one that may block on standard input: the connection stays attended.
fn run_client(verb: ClientVerb, global: &Global) -> Done {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let outcome = runtime.block_on(async {
        let is_patient = matches!(verb, ClientVerb::Work(_));
        let session = Session::open(global, is_patient).await?;
        verb.run(&session).await
    });
    // A read of standard input that nobody waits for any more must not hold up the end.
    runtime.shutdown_background();
    outcome
}

impl ClientVerb {
    async fn run(self, session: &Session) -> Done {
        match self {
            ClientVerb::Ping(verb) => verb.run(session).await,
            ClientVerb::Cluster(verb) => verb.run(session).await,
            ClientVerb::Top(verb) => verb.run(session).await,
            ClientVerb::Events(verb) => verb.run(session).await,
            ClientVerb::Put(verb) => verb.run(session).await,
            ClientVerb::Recur(verb) => verb.run(session).await,
            ClientVerb::Work(verb) => verb.run(session).await,
            ClientVerb::Run(verb) => verb.run(session).await,
            ClientVerb::Tail(verb) => verb.run(session).await,
            ClientVerb::Wait(verb) => verb.run(session).await,
            ClientVerb::Drain(verb) => verb.run(session).await,
            ClientVerb::Pop(verb) => verb.run(session).await,
            ClientVerb::Heartbeat(verb) => verb.run(session).await,
            ClientVerb::Complete(verb) => verb.run(session).await,
            ClientVerb::Fail(verb) => verb.run(session).await,
            ClientVerb::Release(verb) => verb.run(session).await,
            ClientVerb::Retry(verb) => verb.run(session).await,
            ClientVerb::Unfail(verb) => verb.run(session).await,
            ClientVerb::Job(verb) => verb.run(session).await,
            ClientVerb::Result(verb) => verb.run(session).await,
            ClientVerb::Jobs(verb) => verb.run(session).await,
            ClientVerb::Failed(verb) => verb.run(session).await,
            ClientVerb::Peek(verb) => verb.run(session).await,
            ClientVerb::Queues(verb) => verb.run(session).await,
            ClientVerb::Length(verb) => verb.run(session).await,
            ClientVerb::Stats(verb) => verb.run(session).await,
            ClientVerb::Pause(verb) => verb.run(session).await,
            ClientVerb::Unpause(verb) => verb.run(session).await,
            ClientVerb::Forget(verb) => verb.run(session).await,
            ClientVerb::Workers(verb) => verb.run(session).await,
            ClientVerb::Deregister(verb) => verb.run(session).await,
            ClientVerb::Cancel(verb) => verb.run(session).await,
            ClientVerb::Move(verb) => verb.run(session).await,
            ClientVerb::Priority(verb) => verb.run(session).await,
            ClientVerb::Log(verb) => verb.run(session).await,
            ClientVerb::Depends(verb) => verb.run(session).await,
            ClientVerb::Tag(verb) => verb.run(session).await,
            ClientVerb::Untag(verb) => verb.run(session).await,
            ClientVerb::Tags(verb) => verb.run(session).await,
            ClientVerb::Track(verb) => verb.run(session).await,
            ClientVerb::Untrack(verb) => verb.run(session).await,
            ClientVerb::Tracked(verb) => verb.run(session).await,
            ClientVerb::Config(verb) => verb.run(session).await,
            ClientVerb::Throttle(verb) => verb.run(session).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_holds_together() {
        command().debug_assert();
    }

    #[test]
    fn every_subcommand_is_in_one_group_of_the_help() {
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        grouped.sort_unstable();
        let command = Cli::command();
        let mut names: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
        names.sort_unstable();
        assert_eq!(grouped, names);
    }

    /// Subcommands of subcommands too.
    #[test]
    fn every_subcommand_has_examples_and_says_what_it_does() {
        fn check(verb: &clap::Command) {
            let help = verb.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.starts_with("Examples:\n  haul "), "{} has no examples", verb.get_name());
            assert!(verb.get_about().is_some(), "{} does not say what it does", verb.get_name());
            verb.get_subcommands().for_each(check);
        }
        Cli::command().get_subcommands().for_each(check);
    }
}
