//! The page: every queue and what is in it.

use axum::response::{Html, IntoResponse, Response};
use haul_engine::{Command, Reply};

use super::caller::Caller;
use super::problem::Problem;

const HEAD: &str = "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Haul</title>\
<style>body{font:14px system-ui;margin:2rem;color-scheme:light dark}table{border-collapse:collapse}\
th,td{padding:.3rem .8rem;text-align:right;border-bottom:1px solid #8884}th:first-child,td:first-child{text-align:left}</style>\
<h1>Queues</h1><table><thead><tr><th>queue<th>waiting<th>running<th>stalled<th>scheduled<th>depends<th>throttled\
<th>recurring<th>paused</thead><tbody>";

/// All queues as a table.
pub(super) async fn page(caller: Caller) -> Result<Response, Problem> {
    let Reply::AllCounts(queues) = caller.ask(Command::AllQueueCounts).await?.reply else {
        return Err(Problem::unexpected());
    };
    let mut page = HEAD.to_owned();
    for queue in &queues {
        page.push_str("<tr><td>");
        escape(&mut page, &queue.name.display());
        let counts = [
            queue.waiting,
            queue.running,
            queue.stalled,
            queue.scheduled,
            queue.depends,
            queue.throttled,
            queue.recurring,
        ];
        for count in counts {
            page.push_str(&format!("<td>{count}"));
        }
        page.push_str(if queue.paused { "<td>paused" } else { "<td>" });
    }
    page.push_str("</tbody></table>");
    let policy = [("content-security-policy", "default-src 'none'; style-src 'unsafe-inline'")];
    Ok((policy, Html(page)).into_response())
}

fn escape(out: &mut String, text: &str) {
    for character in text.chars() {
        match character {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            other => out.push(other),
        }
    }
}
