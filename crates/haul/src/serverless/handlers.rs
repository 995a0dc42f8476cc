//! Handlers: stored code for one job type of a tenant. Each version is an option of the tenant, so that handlers are
//! where jobs are and go where they go; what is in memory is a copy.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, RwLock};

use haul_engine::Name;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Options of this prefix are versions of handlers: `handler:<jobtype>:<id>`.
const HANDLER: &str = "handler:";
/// Options of this prefix name types that jobs were posted for: `jobtype:<jobtype>`.
pub(crate) const JOBTYPE: &str = "jobtype:";
/// A tenant's share of the server: 1 unless set.
const WEIGHT: &str = "serverless-weight";
/// Jobs of a tenant that run at once; without end unless set.
const CONCURRENCY: &str = "serverless-concurrency";
/// Bytes of a handler's document at most.
pub(crate) const HANDLER_BYTES_MAX: usize = 4 << 20;

/// The option that holds a version.
pub(crate) fn option(jobtype: &str, id: &str) -> Name {
    Name::from(format!("{HANDLER}{jobtype}:{id}"))
}

/// What runs a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Lang {
    Node,
    Python,
    Php,
    Sh,
    Exec,
    Http,
}

impl Lang {
    pub(crate) const ALL: [Lang; 6] = [Lang::Node, Lang::Python, Lang::Php, Lang::Sh, Lang::Exec, Lang::Http];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Lang::Node => "node",
            Lang::Python => "python",
            Lang::Php => "php",
            Lang::Sh => "sh",
            Lang::Exec => "exec",
            Lang::Http => "http",
        }
    }

    pub(crate) fn from_word(word: &str) -> Option<Self> {
        Lang::ALL.into_iter().find(|lang| lang.word() == word)
    }
}

/// What a handler's `options` say.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct HandlerOptions {
    /// http: one request for all jobs of a batch.
    pub(crate) batch: bool,
    pub(crate) batch_size: Option<usize>,
    pub(crate) timeout_ms: Option<u64>,
    pub(crate) cpu_ms: Option<u64>,
    /// After ok, a job of this type with the result as payload.
    pub(crate) chain: Option<String>,
    pub(crate) keep_result: bool,
    pub(crate) network: bool,
    pub(crate) memory_mb: Option<u64>,
    pub(crate) max_retries: Option<u32>,
}

/// One version of a handler.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Handler {
    pub(crate) id: String,
    pub(crate) jobtype: String,
    pub(crate) lang: Lang,
    pub(crate) parts: Parts,
    pub(crate) options: HandlerOptions,
}

/// The strings of a handler's document.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Parts {
    pub(crate) lang: String,
    pub(crate) body: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) eid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) before: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) before_each: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) after_each: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) options: Option<String>,
}

impl Parts {
    /// Reads a document: an object of strings; `options` may be an object. Unknown members are dropped.
    pub(crate) fn read(text: &[u8]) -> Result<Self, String> {
        let mut object: Map<String, Value> = serde_json::from_slice(text)
            .map_err(|error| format!("the handler is not a JSON object: {error}"))?;
        if let Some(options) = object.get_mut("options")
            && options.is_object()
        {
            *options = Value::String(options.to_string());
        }
        serde_json::from_value(Value::Object(object))
            .map_err(|error| format!("a handler is made of strings: {error}"))
    }

    /// The handler it is; complains about what cannot be run.
    pub(crate) fn check(self, jobtype: &str, id: &str) -> Result<Handler, String> {
        if self.lang.is_empty() || self.body.is_empty() {
            return Err("lang and body required".to_owned());
        }
        let langs = Lang::ALL.map(Lang::word).join(", ");
        let lang = Lang::from_word(&self.lang)
            .ok_or_else(|| format!("lang is one of {langs}, not {}", self.lang))?;
        let options = match self.options.as_deref() {
            None | Some("") => HandlerOptions::default(),
            Some(text) => serde_json::from_str(text).map_err(|error| format!("options: {error}"))?,
        };
        check_options(&options)?;
        if lang == Lang::Http {
            let urls =
                [&self.before, &self.before_each, &self.after_each].into_iter().flatten().chain([&self.body]);
            for url in urls {
                let fine = url.trim().parse::<axum::http::Uri>().is_ok_and(|uri| {
                    uri.scheme_str() == Some("http") && uri.host().is_some_and(|host| !host.is_empty())
                });
                if !fine {
                    return Err(format!(
                        "an http handler's scripts are addresses such as http://host/path, not {url}"
                    ));
                }
            }
        }
        Ok(Handler { id: id.to_owned(), jobtype: jobtype.to_owned(), lang, parts: self, options })
    }
}

fn check_options(options: &HandlerOptions) -> Result<(), String> {
    if options.batch_size.is_some_and(|size| !(1..=1000).contains(&size)) {
        return Err("options: batchSize is from 1 to 1000".to_owned());
    }
    if options.timeout_ms.is_some_and(|ms| !(1..=3_600_000).contains(&ms)) {
        return Err("options: timeoutMs is from 1 to 3600000".to_owned());
    }
    if options.cpu_ms.is_some_and(|ms| !(1..=3_600_000).contains(&ms)) {
        return Err("options: cpuMs is from 1 to 3600000".to_owned());
    }
    if options.memory_mb.is_some_and(|mb| !(16..=65_536).contains(&mb)) {
        return Err("options: memoryMb is from 16 to 65536".to_owned());
    }
    match &options.chain {
        Some(chain) => haul_journal::check_jobtype(chain).map_err(|error| format!("options: chain: {error}")),
        None => Ok(()),
    }
}

impl Handler {
    /// How many jobs are taken at once.
    pub(crate) fn batch_size(&self) -> usize {
        self.options.batch_size.unwrap_or(if self.lang == Lang::Http { 10 } else { 5 })
    }
}

/// What is known of one tenant.
#[derive(Debug, Default)]
struct Known {
    /// The versions of each type, oldest first.
    handlers: BTreeMap<String, Vec<Arc<Handler>>>,
    /// Types that jobs are expected of.
    types: BTreeSet<String>,
    weight: f64,
    concurrency: Option<usize>,
    /// What this was made of.
    options: Vec<(Name, Name)>,
}

/// All handlers of all tenants.
#[derive(Debug, Default)]
pub(crate) struct Handlers {
    tenants: RwLock<BTreeMap<Name, Known>>,
}

impl Handlers {
    fn read<T>(&self, look: impl FnOnce(&BTreeMap<Name, Known>) -> T) -> T {
        look(&self.tenants.read().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    /// Takes in what a tenant's options say now.
    pub(crate) fn load(&self, tenant: &Name, options: &[(Name, Name)]) {
        if self.read(|tenants| tenants.get(tenant).is_some_and(|known| known.options == options)) {
            return;
        }
        let mut known = Known { weight: 1.0, options: options.to_vec(), ..Known::default() };
        for (option, value) in options {
            let (option, value) = (option.display(), value.bytes());
            let number =
                || std::str::from_utf8(value).ok()?.parse::<f64>().ok().filter(|number| *number >= 0.0);
            if let Some((jobtype, id)) = option.strip_prefix(HANDLER).and_then(|rest| rest.rsplit_once(':')) {
                match Parts::read(value).and_then(|parts| parts.check(jobtype, id)) {
                    Ok(handler) => {
                        known.handlers.entry(jobtype.to_owned()).or_default().push(Arc::new(handler))
                    }
                    Err(why) => {
                        tracing::warn!(tenant = %tenant, jobtype, id, why, "a handler cannot be read")
                    }
                }
            } else if let Some(jobtype) = option.strip_prefix(JOBTYPE) {
                known.types.insert(jobtype.to_owned());
            } else if option == WEIGHT {
                known.weight = number().unwrap_or(1.0);
            } else if option == CONCURRENCY {
                known.concurrency = number().map(|number| number as usize);
            }
        }
        for versions in known.handlers.values_mut() {
            versions.sort_by(|one, other| one.id.cmp(&other.id));
        }
        known.types.extend(known.handlers.keys().cloned());
        let mut tenants = self.tenants.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        if known.types.is_empty() {
            tenants.remove(tenant);
        } else {
            tenants.insert(tenant.clone(), known);
        }
    }

    /// The newest version.
    pub(crate) fn newest(&self, tenant: &Name, jobtype: &str) -> Option<Arc<Handler>> {
        self.read(|tenants| tenants.get(tenant)?.handlers.get(jobtype)?.last().cloned())
    }

    /// The newest version of each type of a tenant.
    pub(crate) fn list(&self, tenant: &Name) -> Vec<Arc<Handler>> {
        self.read(|tenants| {
            let known = tenants.get(tenant).map(|known| known.handlers.values());
            known.into_iter().flatten().filter_map(|versions| versions.last().cloned()).collect()
        })
    }

    /// All versions of a type, the oldest first.
    pub(crate) fn all_versions(&self, tenant: &Name, jobtype: &str) -> Vec<Arc<Handler>> {
        self.read(|tenants| {
            let versions = tenants.get(tenant).and_then(|known| known.handlers.get(jobtype));
            versions.cloned().unwrap_or_default()
        })
    }

    /// Whether a version is stored, whatever its type.
    pub(crate) fn has_version(&self, tenant: &Name, id: &str) -> bool {
        self.read(|tenants| {
            let all = tenants.get(tenant).map(|known| known.handlers.values());
            all.into_iter().flatten().flatten().any(|handler| handler.id == id)
        })
    }

    /// The ids of all versions of a type.
    pub(crate) fn versions(&self, tenant: &Name, jobtype: &str) -> Vec<String> {
        self.read(|tenants| {
            let versions = tenants.get(tenant).and_then(|known| known.handlers.get(jobtype));
            versions.into_iter().flatten().map(|handler| handler.id.clone()).collect()
        })
    }

    /// The versions that a newer one took the place of before a moment: tenant, type and id.
    pub(crate) fn superseded(&self, before_ms: u64) -> Vec<(Name, String, String)> {
        let is_old = |newer: &Handler| haul_journal::Id::parse(&newer.id).is_some_and(|id| id.ms < before_ms);
        self.read(|tenants| {
            let mut found = Vec::new();
            for (tenant, known) in tenants {
                for (jobtype, versions) in &known.handlers {
                    for pair in versions.windows(2) {
                        if let [version, newer] = pair
                            && is_old(newer)
                        {
                            found.push((tenant.clone(), jobtype.clone(), version.id.clone()));
                        }
                    }
                }
            }
            found
        })
    }

    /// Whether jobs of a type are ours to run.
    pub(crate) fn knows(&self, tenant: &Name, jobtype: &str) -> bool {
        self.read(|tenants| tenants.get(tenant).is_some_and(|known| known.types.contains(jobtype)))
    }

    /// Every type of every tenant.
    pub(crate) fn types(&self) -> Vec<(Name, Vec<String>)> {
        self.read(|tenants| {
            tenants
                .iter()
                .map(|(tenant, known)| (tenant.clone(), known.types.iter().cloned().collect()))
                .collect()
        })
    }

    /// A tenant's weight, and how many of its jobs may run at once.
    pub(crate) fn share(&self, tenant: &Name) -> (f64, usize) {
        self.read(|tenants| {
            tenants
                .get(tenant)
                .map_or((1.0, usize::MAX), |known| (known.weight, known.concurrency.unwrap_or(usize::MAX)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> Result<Handler, String> {
        Parts::read(text.as_bytes()).and_then(|parts| parts.check("t", "id"))
    }

    #[test]
    fn a_handler_needs_lang_and_body() {
        for text in ["{}", r#"{"lang":"sh"}"#, r#"{"body":"x"}"#, r#"{"lang":"","body":""}"#] {
            assert_eq!(parts(text).unwrap_err(), "lang and body required");
        }
        for text in [
            "[]",
            r#"{"lang":"cobol","body":"x"}"#,
            r#"{"lang":"sh","body":1}"#,
            r#"{"lang":"http","body":"ftp://x"}"#,
            r#"{"lang":"http","body":"https://x"}"#,
            r#"{"lang":"sh","body":"x","options":"{"}"#,
            r#"{"lang":"sh","body":"x","options":{"batchSize":0}}"#,
            r#"{"lang":"sh","body":"x","options":{"batchSize":1001}}"#,
            r#"{"lang":"sh","body":"x","options":{"timeoutMs":0}}"#,
            r#"{"lang":"sh","body":"x","options":{"memoryMb":15}}"#,
            r#"{"lang":"sh","body":"x","options":{"chain":"a b"}}"#,
        ] {
            assert!(parts(text).is_err(), "{text}");
        }
    }

    #[test]
    fn options_are_text_or_an_object_and_unknown_keys_are_dropped() {
        let one = parts(r#"{"lang":"sh","body":"x","options":"{\"batchSize\":1000,\"new\":1}","more":"y"}"#)
            .unwrap();
        let other = parts(r#"{"lang":"sh","body":"x","options":{"batchSize":1000,"new":1}}"#).unwrap();
        assert_eq!(one.options, other.options);
        assert_eq!(one.batch_size(), 1000);
        assert_eq!(parts(r#"{"lang":"sh","body":"x"}"#).unwrap().batch_size(), 5);
        assert_eq!(parts(r#"{"lang":"http","body":"http://h/"}"#).unwrap().batch_size(), 10);
    }

    #[test]
    fn the_newest_version_is_the_one_with_the_largest_id() {
        let handlers = Handlers::default();
        let tenant = Name::from("c");
        let option = |id: &str, body: &str| {
            (
                Name::from(format!("handler:t:{id}")),
                Name::from(format!("{{\"lang\":\"sh\",\"body\":\"{body}\"}}")),
            )
        };
        let options = [option("NC2oBN3-lt-0aZ~-001", "new"), option("NC2oBN3-lt-0aZ~-000", "old")];
        handlers.load(&tenant, &options);
        assert_eq!(handlers.newest(&tenant, "t").unwrap().parts.body, "new");
        assert_eq!(handlers.versions(&tenant, "t").len(), 2);
        // The older one may go some time after the newer one came.
        let came = haul_journal::Id::parse("NC2oBN3-lt-0aZ~-001").unwrap().ms;
        assert_eq!(handlers.superseded(came), []);
        let old = (tenant.clone(), "t".to_owned(), "NC2oBN3-lt-0aZ~-000".to_owned());
        assert_eq!(handlers.superseded(came + 1), [old]);
        assert!(handlers.knows(&tenant, "t") && !handlers.knows(&tenant, "u"));
        handlers.load(&tenant, &[]);
        assert!(handlers.types().is_empty());
    }
}
