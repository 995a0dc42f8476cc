//! Lists a page at a time: what an answer holds is bounded, and says where to go on.

use haul_engine::{Command, List, Listing, Mark, Name, Reply};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::dialect::Texts;
use crate::dialect::json::Object;
use crate::http::caller::Caller;
use crate::http::problem::Problem;

/// Rows of a page, unless said otherwise.
pub(super) const LIMIT: usize = 100;
/// Rows of a page at most.
pub(super) const LIMIT_MAX: usize = 1000;

/// Which page.
#[derive(Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct PageQuery {
    /// Where the page before ended: its `next`.
    #[param(pattern = "^([0-9a-f]{2})+$")]
    pub(super) cursor: Option<String>,
    /// Rows of a page, at most 1000 [default: 100].
    #[param(minimum = 1, maximum = 1000)]
    pub(super) limit: Option<usize>,
}

/// One page of a list.
pub(super) struct Page {
    pub(super) rows: Reply,
    pub(super) texts: Texts,
    /// How many rows all pages have together.
    pub(super) total: usize,
    pub(super) next: Option<String>,
}

impl Page {
    /// The members that every list's answer has.
    pub(super) fn end(&self, mut object: Object<'_>) {
        object.count("total", self.total);
        match &self.next {
            Some(next) => object.string("next", next.as_bytes()),
            None => object.raw("next", b"null"),
        }
        object.end();
    }
}

pub(super) fn limit(wanted: Option<usize>, usual: usize) -> Result<usize, Problem> {
    let limit = wanted.unwrap_or(usual);
    if !(1..=LIMIT_MAX).contains(&limit) {
        return Err(Problem::bad(format!("limit is from 1 to {LIMIT_MAX} (page-rows-max)")));
    }
    Ok(limit)
}

/// Asks for a page.
pub(super) async fn page(caller: &Caller, what: Listing, query: &PageQuery) -> Result<Page, Problem> {
    let after = query.cursor.as_deref().map(|text| from_hex(text).and_then(|bytes| Mark::from_bytes(&bytes)));
    let after = match after {
        Some(None) => return Err(Problem::bad("cursor is not one that this list answered as next")),
        after => after.flatten(),
    };
    part(caller, List { what, after, skip: 0, count: limit(query.limit, LIMIT)? }).await
}

/// The first rows.
pub(super) async fn first(caller: &Caller, what: Listing, count: usize) -> Result<Page, Problem> {
    part(caller, List { what, after: None, skip: 0, count }).await
}

async fn part(caller: &Caller, list: List) -> Result<Page, Problem> {
    let answer = caller.ask(Command::List(Box::new(list))).await?;
    let Reply::Listed { rows, total, next } = answer.reply else { return Err(Problem::unexpected()) };
    let next = next.map(|mark| to_hex(&mark.to_bytes()));
    Ok(Page { rows: *rows, texts: answer.texts, total, next })
}

/// The page of a list of names that is at hand already, in order.
pub(super) fn of_names(names: &[Name], query: &PageQuery) -> Result<(Vec<Name>, Option<String>), Problem> {
    let count = limit(query.limit, LIMIT)?;
    let after = match query.cursor.as_deref().map(from_hex) {
        None => None,
        Some(Some(bytes)) => Some(Name::new(&bytes)),
        Some(None) => return Err(Problem::bad("cursor is not one that this list answered as next")),
    };
    let from = after.map_or(0, |after| names.partition_point(|name| *name <= after));
    let rows: Vec<Name> = names.iter().skip(from).take(count).cloned().collect();
    let is_last = from + rows.len() >= names.len();
    let next = rows.last().filter(|_| !is_last).map(|last| to_hex(last.bytes()));
    Ok((rows, next))
}

pub(super) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(super) fn from_hex(text: &str) -> Option<Vec<u8>> {
    if text.is_empty() || !text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    (0..text.len())
        .step_by(2)
        .map(|at| text.get(at..at + 2).and_then(|digits| u8::from_str_radix(digits, 16).ok()))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::config::Raw;
    use crate::http::rig::Rig;

    async fn rig() -> Rig {
        let rig = Rig::new(Raw::default()).await;
        for n in 0..7 {
            rig.say(&format!("PUT q{n} k {{}} JID t{n}")).await;
            rig.say(&format!("TRACK t{n}")).await;
            rig.say(&format!("PUT bad k {{}} JID b{n}")).await;
            rig.say(&format!("POP w{n} QUEUES bad")).await;
            rig.say(&format!("FAIL w{n} b{n} group-{n} message")).await;
            rig.say(&format!("RECUR q k {{}} INTERVAL {} JID r{n}", n + 1)).await;
            rig.say(&format!("THROTTLE SET th{n} 1")).await;
            rig.say(&format!("CONFIG SET o{n} 1")).await;
        }
        rig
    }

    fn count(value: &Value) -> usize {
        value.as_array().map_or_else(|| value.as_object().map_or(0, serde_json::Map::len), Vec::len)
    }

    #[tokio::test]
    async fn every_list_goes_on_where_the_page_before_ended() {
        let rig = rig().await;
        let lists: [(&str, &str, usize); 7] = [
            ("queues", "", 9),
            ("workers", "", 7),
            ("failures", "groups", 7),
            ("tracked", "jobs", 7),
            ("recurring", "", 7),
            ("throttles", "", 7),
            ("config?prefix=o", "options", 7),
        ];
        for (path, key, total) in lists {
            let key = if key.is_empty() { path } else { key };
            let sign = if path.contains('?') { '&' } else { '?' };
            let (mut seen, mut cursor, mut pages) = (0, String::new(), 0);
            loop {
                let text = rig.get(&format!("/api/v1/{path}{sign}limit=3{cursor}")).await.text;
                let page: Value = serde_json::from_str(&text).unwrap();
                assert!(count(&page[key]) <= 3, "{path}: {text}");
                assert_eq!(page["total"], total, "{path}: {text}");
                (seen, pages) = (seen + count(&page[key]), pages + 1);
                let Some(next) = page["next"].as_str() else { break };
                cursor = format!("&cursor={next}");
            }
            assert_eq!((seen, pages), (total, total.div_ceil(3)), "{path}");
        }
    }

    #[tokio::test]
    async fn a_page_is_bounded_and_a_cursor_is_one_of_ours() {
        let rig = rig().await;
        for path in ["queues", "workers", "failures", "tracked", "recurring", "throttles", "config"] {
            assert_eq!(rig.get(&format!("/api/v1/{path}?limit={LIMIT_MAX}")).await.status, 200, "{path}");
            for query in ["limit=1001", "limit=0", "cursor=zz", "cursor=00", "other=1"] {
                assert_eq!(rig.get(&format!("/api/v1/{path}?{query}")).await.status, 400, "{path} {query}");
            }
        }
    }
}
