//! Finding jobs.

use axum::http::StatusCode;
use axum::response::Response;
use haul_engine::{Command, JobView, Position, Reply, Search, SearchState};
use serde::Deserialize;
use utoipa::IntoParams;

use super::finite;
use super::page::{self, from_hex, to_hex};
use crate::clock;
use crate::dialect::Texts;
use crate::dialect::json::push_json_string;
use crate::dialect::native_shape::push_job;
use crate::dialect::plain::to_text;
use crate::http::body::Query;
use crate::http::caller::{Caller, json};
use crate::http::problem::Problem;
use crate::http::schema::{PageDoc, Problems};

/// Jobs on a page, unless said otherwise.
const LIMIT: usize = 25;
/// Jobs looked at in one step: the shard does other work between steps.
const STEP_JOBS: usize = 2000;
/// Steps of one request.
const STEPS_MAX: usize = 20;
/// No step of a request begins later than this after it: what has been found by then is answered.
const STEPPING: std::time::Duration = std::time::Duration::from_millis(40);
/// Jobs of a step of a walk over all that match.
pub(super) const WALK_JOBS: usize = 500;
/// Jobs whose data is read in one step of a search for text.
const STEP_TEXTS: usize = 250;

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct SearchQuery {
    /// waiting, running, stalled, scheduled, depends, throttled, failed or complete.
    #[param(inline, value_type = Option<crate::http::schema::StateDoc>)]
    pub(super) state: Option<String>,
    pub(super) queue: Option<String>,
    pub(super) klass: Option<String>,
    pub(super) tag: Option<String>,
    /// Held by this worker.
    pub(super) worker: Option<String>,
    /// Failed in this group.
    pub(super) group: Option<String>,
    /// In its jid, klass, tags, data or failure, whatever the case of letters.
    #[param(min_length = 1)]
    pub(super) text: Option<String>,
    /// Seconds since 1970: the last thing in its history happened then or later.
    pub(super) since: Option<f64>,
    /// It happened then or earlier.
    pub(super) until: Option<f64>,
    /// Where the page before ended: its `next`.
    #[param(pattern = "^([0-9a-f]{2})+$")]
    pub(super) cursor: Option<String>,
    /// Jobs on a page, at most 1000 [default: 25].
    #[param(minimum = 1, maximum = 1000)]
    pub(super) limit: Option<usize>,
}

impl SearchQuery {
    fn search(&self, caller: &Caller) -> Result<Search, Problem> {
        let name =
            |what: &str, text: &Option<String>| text.as_ref().map(|text| caller.name(what, text)).transpose();
        let limit = page::limit(self.limit, LIMIT)?;
        let state = self.state.as_deref().map(|word| {
            SearchState::from_word(word).ok_or_else(|| {
                Problem::bad(
                    "state is waiting, running, stalled, scheduled, depends, throttled, failed or complete",
                )
            })
        });
        Ok(Search {
            queue: name("queue", &self.queue)?,
            state: state.transpose()?,
            klass: name("klass", &self.klass)?,
            tag: name("tag", &self.tag)?,
            worker: name("worker", &self.worker)?,
            group: name("group", &self.group)?,
            since: finite("since", self.since)?,
            until: finite("until", self.until)?,
            from: self.cursor.as_deref().map(from_cursor).transpose()?,
            count: limit,
            examine_max: STEP_JOBS,
        })
    }
}

fn from_cursor(text: &str) -> Result<Position, Problem> {
    let position = from_hex(text).as_deref().and_then(Position::from_bytes);
    position.ok_or_else(|| Problem::bad("cursor is not one that a search answered as next"))
}

fn to_cursor(position: &Position) -> String {
    to_hex(&position.to_bytes())
}

/// Find jobs. All that is asked for must hold. Answers a page; a search of very many jobs may answer pages with few jobs
/// or none before the last.
#[utoipa::path(get, path = "/api/v1/jobs", operation_id = "search", tag = "jobs", params(SearchQuery),
    responses((status = 200, body = PageDoc), Problems))]
pub(super) async fn search(caller: Caller, Query(query): Query<SearchQuery>) -> Result<Response, Problem> {
    let mut search = query.search(&caller)?;
    let wanted = search.count;
    let needle = needle(&query)?;
    if needle.is_some() {
        (search.count, search.examine_max) = (STEP_TEXTS, STEP_TEXTS);
    }
    let (mut out, mut found) = (b"{\"jobs\":[".to_vec(), 0);
    let began = clock::instant();
    for step in 0..STEPS_MAX {
        if step > 0 && began.elapsed() > STEPPING {
            break;
        }
        if needle.is_none() {
            search.count = wanted - found;
        }
        let answer = caller.ask(Command::Search(Box::new(search.clone()))).await?;
        let Reply::Found { jobs, positions, next } = &answer.reply else { return Err(Problem::unexpected()) };
        search.from = next.clone();
        for (at, job) in jobs.iter().enumerate() {
            if needle.as_ref().is_some_and(|needle| !has_text(job, &answer.texts, needle)) {
                continue;
            }
            if found > 0 {
                out.push(b',');
            }
            push_job(&mut out, job, &answer.texts);
            found += 1;
            if found == wanted {
                // A page that is full before the step's last job goes on behind the job it ended with.
                if at + 1 < jobs.len() {
                    search.from = positions.get(at).cloned();
                }
                break;
            }
        }
        if found == wanted || search.from.is_none() {
            break;
        }
    }
    out.extend_from_slice(b"],\"next\":");
    match &search.from {
        Some(position) => push_json_string(&mut out, to_cursor(position).as_bytes()),
        None => out.extend_from_slice(b"null"),
    }
    out.push(b'}');
    Ok(json(StatusCode::OK, out))
}

/// The text looked for, in small letters.
fn needle(query: &SearchQuery) -> Result<Option<String>, Problem> {
    let needle = query.text.as_ref().map(|text| text.to_lowercase());
    if needle.as_ref().is_some_and(String::is_empty) {
        return Err(Problem::bad("text is empty"));
    }
    Ok(needle)
}

/// A walk over all jobs that match, some at a time: others get their turn between steps.
pub(super) struct Walk {
    search: Search,
    needle: Option<String>,
    ended: bool,
}

impl Walk {
    pub(super) fn new(query: &SearchQuery, caller: &Caller) -> Result<Self, Problem> {
        let (mut search, needle) = (query.search(caller)?, needle(query)?);
        if needle.is_some() {
            (search.count, search.examine_max) = (STEP_TEXTS, STEP_TEXTS);
        }
        Ok(Walk { search, needle, ended: false })
    }

    /// Only jobs to which nothing has happened after this moment.
    pub(super) fn until(&mut self, at: f64) {
        self.search.until = Some(at);
    }

    /// The next jobs, possibly none; `None`: that was all.
    pub(super) async fn step(&mut self, caller: &Caller) -> Result<Option<Vec<JobView>>, Problem> {
        if self.ended {
            return Ok(None);
        }
        let answer = caller.ask(Command::Search(Box::new(self.search.clone()))).await?;
        let Reply::Found { jobs, next, .. } = answer.reply else { return Err(Problem::unexpected()) };
        self.ended = next.is_none();
        self.search.from = next;
        let fits =
            |job: &JobView| self.needle.as_ref().is_none_or(|needle| has_text(job, &answer.texts, needle));
        Ok(Some(jobs.into_iter().filter(fits).collect()))
    }
}

fn has_text(job: &JobView, texts: &Texts, needle: &str) -> bool {
    let has = |bytes: &[u8]| {
        let text = to_text(bytes);
        text.to_lowercase().contains(needle)
    };
    let failure = job.failure.as_ref();
    has(job.jid.bytes())
        || has(job.klass.bytes())
        || job.tags.iter().any(|tag| has(tag.bytes()))
        || has(texts.bytes(&job.data))
        || failure.is_some_and(|failure| has(failure.group.bytes()) || has(texts.bytes(&failure.message)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_comes_back_as_it_was_and_nonsense_is_refused() {
        let position =
            Position { name: "q".into(), place: haul_engine::Place::Work, score: -1.25, jid: "a job".into() };
        assert_eq!(from_cursor(&to_cursor(&position)).unwrap(), position);
        for text in ["0", "zz", "00", "é", "ffffffffffffffffffff"] {
            assert!(from_cursor(text).is_err(), "{text}");
        }
    }
}
