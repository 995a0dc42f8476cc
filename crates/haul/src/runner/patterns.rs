//! Which queues a worker takes jobs from: names, `*` patterns, `!pattern` to leave some out, `@name` for the list that
//! `ql:qp:identifiers` keeps under that name (as reqless's workers know it).
//!
//! `mail` is asked whether it exists or not; a pattern stands for the queues there are, in the order of their names, where
//! it stands. A queue appears once. `!x` takes out what stands before and after it.

use std::collections::BTreeMap;

use haul_client::resp::Frame;
use haul_client::{Client, Error};

use crate::dialect::glob;

/// Lists may name lists, so deep.
const DEPTH_MAX: usize = 5;
/// Queues asked in one pop, at most.
const QUEUES_MAX: usize = 1000;

/// Whether the words must be looked up at all.
pub(super) fn is_plain(words: &[String]) -> bool {
    words.iter().all(|word| !word.starts_with(['@', '!']) && !word.contains('*'))
}

/// The queues that words stand for now.
pub(super) async fn resolve(client: &Client, words: &[String]) -> Result<Vec<String>, Error> {
    if is_plain(words) {
        return Ok(words.to_vec());
    }
    let known: Vec<String> = client.queues().await?.into_iter().map(|queue| queue.name).collect();
    let mut lists = BTreeMap::new();
    if words.iter().any(|word| word.contains('@')) {
        let frame = client.call_idempotent(&["HGETALL", "ql:qp:identifiers"]).await?;
        lists = read_lists(frame);
    }
    Ok(chosen(words, &known, &lists))
}

fn read_lists(frame: Frame) -> BTreeMap<String, Vec<String>> {
    let pairs: Vec<Frame> = match frame {
        Frame::Array(items) => items,
        Frame::Map(pairs) => pairs.into_iter().flat_map(|(name, list)| [name, list]).collect(),
        _ => Vec::new(),
    };
    let text = |frame: &Frame| match frame {
        Frame::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        _ => String::new(),
    };
    let pair = |pair: &[Frame]| match pair {
        [name, list] => Some((text(name), serde_json::from_str(&text(list)).ok()?)),
        _ => None,
    };
    pairs.chunks(2).filter_map(pair).collect()
}

/// The same, of what is known.
fn chosen(words: &[String], known: &[String], lists: &BTreeMap<String, Vec<String>>) -> Vec<String> {
    let words = expanded(words, lists, 0);
    let mut sorted: Vec<&String> = known.iter().collect();
    sorted.sort_unstable();
    let mut queues: Vec<String> = Vec::new();
    for word in words.iter().filter(|word| !word.starts_with('!')) {
        let found: Vec<&String> = match word.contains('*') {
            true => sorted
                .iter()
                .copied()
                .filter(|name| glob::matches(word.as_bytes(), name.as_bytes()))
                .collect(),
            false => vec![word],
        };
        for name in found {
            if !queues.contains(name) && queues.len() < QUEUES_MAX {
                queues.push(name.clone());
            }
        }
    }
    let left_out: Vec<&str> = words.iter().filter_map(|word| word.strip_prefix('!')).collect();
    queues.retain(|name| !left_out.iter().any(|pattern| glob::matches(pattern.as_bytes(), name.as_bytes())));
    queues
}

fn expanded(words: &[String], lists: &BTreeMap<String, Vec<String>>, depth: usize) -> Vec<String> {
    let mut flat = Vec::new();
    for word in words {
        let (sign, rest) = word.strip_prefix('!').map_or(("", word.as_str()), |rest| ("!", rest));
        match rest.strip_prefix('@') {
            None => flat.push(word.clone()),
            Some(name) if depth < DEPTH_MAX => {
                let list = lists.get(name).map_or(&[] as &[String], Vec::as_slice);
                flat.extend(expanded(list, lists, depth + 1).into_iter().map(|word| format!("{sign}{word}")));
            }
            Some(_) => {}
        }
    }
    flat
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stand_for_queues() {
        let text = |words: &str| words.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let known = text("mail-b mail-a news bulk other");
        let lists = BTreeMap::from([
            ("slow".to_owned(), text("bulk @more")),
            ("more".to_owned(), text("news @slow")),
        ]);
        for (words, wanted) in [
            ("mail", "mail"),
            ("mail-*", "mail-a mail-b"),
            ("news * !mail-*", "news bulk other"),
            ("other @slow", "other bulk news"),
            ("* !@slow", "mail-a mail-b other"),
            ("@nobody x", "x"),
        ] {
            assert_eq!(chosen(&text(words), &known, &lists), text(wanted), "{words}");
        }
    }
}
