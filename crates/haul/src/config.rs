//! The one table of settings: each can be a flag, a `HAUL_*` variable or a line of the configuration file, in that order
//! of precedence. Parsed first, resolved once.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use serde::Deserialize;

use crate::dialect::{DataLimits, ErrorFormat};
use crate::resp::Limits;

/// A smaller log would be folded into the base at every turn.
const LOG_BYTES_LEAST: u64 = 64 << 10;

/// What can be set; none: as the next source says.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Raw {
    /// Folder for the data; made if missing [default: ./haul-data]
    #[arg(long, env = "HAUL_DATA", value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Address of the HTTP side, or "off" [default: 127.0.0.1:4285]
    #[arg(long, env = "HAUL_HTTP", value_name = "ADDR")]
    pub(crate) http: Option<String>,
    /// Address of the Redis-protocol side [default: 127.0.0.1:4286]
    #[arg(long, env = "HAUL_REDIS", value_name = "ADDR")]
    pub(crate) redis: Option<String>,
    /// When a command counts as done: "always" (after an fsync) or an interval between fsyncs such as 100ms; with an
    /// interval, a power cut may lose what was acknowledged in it [default: always]
    #[arg(long, env = "HAUL_DURABILITY", value_name = "WHEN")]
    pub(crate) durability: Option<String>,
    /// Listen on an address that is not loopback although there is no authentication
    #[arg(long, env = "HAUL_ALLOW_PUBLIC", num_args = 0..=1, default_missing_value = "true")]
    pub(crate) allow_public: Option<bool>,
    /// Most connections at once [default: 10000]
    #[arg(long, env = "HAUL_CONNECTIONS_MAX", value_name = "N")]
    pub(crate) connections_max: Option<usize>,
    /// Longest name (jid, queue, klass, worker, tag, group, option) in bytes [default: 1024]
    #[arg(long, env = "HAUL_NAME_BYTES_MAX", value_name = "BYTES")]
    pub(crate) name_bytes_max: Option<usize>,
    /// Longest data, result or failure message in bytes [default: 16777216]
    #[arg(long, env = "HAUL_DATA_BYTES_MAX", value_name = "BYTES")]
    pub(crate) data_bytes_max: Option<usize>,
    /// Most arguments of one command [default: 1048576]
    #[arg(long, env = "HAUL_ARGUMENTS_MAX", value_name = "N")]
    pub(crate) arguments_max: Option<usize>,
    /// Most bytes waiting for a subscriber that reads too slowly; beyond, it is disconnected [default: 33554432]
    #[arg(long, env = "HAUL_SUBSCRIBER_BYTES_MAX", value_name = "BYTES")]
    pub(crate) subscriber_bytes_max: Option<usize>,
    /// Most bytes of the round log before writers wait for it to be folded into the base [default: 402653184]
    #[arg(long, env = "HAUL_LOG_BYTES_MAX", value_name = "BYTES")]
    pub(crate) log_bytes_max: Option<u64>,
    /// How script errors are worded: clean, redis6 or redis7 [default: clean]
    #[arg(long, env = "HAUL_ERROR_FORMAT", value_name = "FORMAT")]
    pub(crate) error_format: Option<ErrorFormat>,
    /// Store data given to heartbeat and fail as the Lua scripts would re-encode it
    #[arg(long, env = "HAUL_LUA_DATA", num_args = 0..=1, default_missing_value = "true")]
    pub(crate) lua_data: Option<bool>,
    /// Refuse the calls of Blueque's first description that Redis refuses too: LREM without a count, lists for sets
    #[arg(long, env = "HAUL_BLUEQUE_STRICT", num_args = 0..=1, default_missing_value = "true")]
    pub(crate) blueque_strict: Option<bool>,
    /// How log lines are written: text or json [default: text]
    #[arg(long, env = "HAUL_LOG_FORMAT", value_name = "FORMAT")]
    pub(crate) log_format: Option<String>,
}

/// When a command counts as done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durability {
    Always,
    Interval(Duration),
}

impl std::fmt::Display for Durability {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Durability::Always => f.write_str("always"),
            Durability::Interval(every) => write!(f, "every {every:?}"),
        }
    }
}

/// The settings in force.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) data: PathBuf,
    pub(crate) http: Option<SocketAddr>,
    pub(crate) redis: SocketAddr,
    pub(crate) durability: Durability,
    pub(crate) limits: Limits,
    pub(crate) log_bytes_max: Option<u64>,
    pub(crate) error_format: ErrorFormat,
    pub(crate) lua_data: bool,
    pub(crate) blueque_strict: bool,
    pub(crate) json_logs: bool,
}

/// Reads the configuration file.
pub(crate) fn read_file(path: &Path) -> anyhow::Result<Raw> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("the configuration file {} could not be read", path.display()))?;
    toml::from_str(&text).with_context(|| {
        format!("the configuration file {} is not as docs/reference/settings.md describes", path.display())
    })
}

impl Raw {
    /// The limits, flags before the file before the defaults.
    fn limits(&self, file: &Raw) -> anyhow::Result<Limits> {
        let wire = haul_client::resp::Limits::default();
        let defaults = Limits::default();
        let data_bytes_max =
            self.data_bytes_max.or(file.data_bytes_max).unwrap_or(defaults.data.data_bytes_max);
        Ok(Limits {
            data: DataLimits {
                name_bytes_max: in_range(
                    "name-bytes-max",
                    self.name_bytes_max.or(file.name_bytes_max).unwrap_or(defaults.data.name_bytes_max),
                    1..=16_384,
                )?,
                data_bytes_max: in_range("data-bytes-max", data_bytes_max, 64..=200 << 20)?,
            },
            connections_max: in_range(
                "connections-max",
                self.connections_max.or(file.connections_max).unwrap_or(defaults.connections_max),
                1..=1_000_000,
            )?,
            subscriber_bytes_max: in_range(
                "subscriber-bytes-max",
                self.subscriber_bytes_max
                    .or(file.subscriber_bytes_max)
                    .unwrap_or(defaults.subscriber_bytes_max),
                1024..=1 << 40,
            )?,
            wire: haul_client::resp::Limits {
                arguments_max: in_range(
                    "arguments-max",
                    self.arguments_max.or(file.arguments_max).unwrap_or(wire.arguments_max),
                    16..=16 << 20,
                )?,
                argument_bytes_max: data_bytes_max + 1024,
                request_bytes_max: wire.request_bytes_max.max(2 * data_bytes_max),
                ..wire
            },
            ..defaults
        })
    }

    /// Flags and variables, completed from the file and the defaults, and checked.
    pub(crate) fn resolve(self, file: Raw) -> anyhow::Result<Config> {
        let limits = self.limits(&file)?;
        let redis =
            address("redis", &self.redis.or(file.redis).unwrap_or_else(|| "127.0.0.1:4286".to_owned()))?;
        let http = match self.http.or(file.http).as_deref() {
            Some("off") => None,
            Some(text) => Some(address("http", text)?),
            None => Some(address("http", "127.0.0.1:4285")?),
        };
        let allow_public = self.allow_public.or(file.allow_public).unwrap_or(false);
        for bound in std::iter::once(redis).chain(http) {
            if !bound.ip().is_loopback() && !allow_public {
                bail!(
                    "{bound} can be reached from other machines and there is no authentication: listen on 127.0.0.1, or insist with --allow-public"
                );
            }
        }
        let log_bytes_max = self.log_bytes_max.or(file.log_bytes_max);
        if log_bytes_max.is_some_and(|bytes| bytes < LOG_BYTES_LEAST) {
            bail!("log-bytes-max must be at least {LOG_BYTES_LEAST}");
        }
        let log_format = self.log_format.or(file.log_format).unwrap_or_else(|| "text".to_owned());
        if !matches!(log_format.as_str(), "text" | "json") {
            bail!("log-format is text or json, not {log_format}");
        }
        Ok(Config {
            data: self.data.or(file.data).unwrap_or_else(|| PathBuf::from("haul-data")),
            http,
            redis,
            durability: durability(
                &self.durability.or(file.durability).unwrap_or_else(|| "always".to_owned()),
            )?,
            limits,
            log_bytes_max,
            error_format: self.error_format.or(file.error_format).unwrap_or_default(),
            lua_data: self.lua_data.or(file.lua_data).unwrap_or(false),
            blueque_strict: self.blueque_strict.or(file.blueque_strict).unwrap_or(false),
            json_logs: log_format == "json",
        })
    }
}

fn in_range(name: &str, value: usize, range: std::ops::RangeInclusive<usize>) -> anyhow::Result<usize> {
    if !range.contains(&value) {
        bail!("{name} must be from {} to {}, not {value}", range.start(), range.end());
    }
    Ok(value)
}

fn address(what: &str, text: &str) -> anyhow::Result<SocketAddr> {
    let full = match text {
        port if port.bytes().all(|byte| byte.is_ascii_digit()) => format!("127.0.0.1:{port}"),
        other => other.replace("localhost:", "127.0.0.1:"),
    };
    full.parse().with_context(|| format!("--{what} takes an address such as 127.0.0.1:4286, not {text}"))
}

fn durability(text: &str) -> anyhow::Result<Durability> {
    if text == "always" {
        return Ok(Durability::Always);
    }
    let (digits, scale) = match text {
        _ if text.ends_with("ms") => (text.trim_end_matches("ms"), 1),
        _ => (text.trim_end_matches('s'), 1000),
    };
    match digits.parse::<u64>() {
        Ok(number) if text.ends_with('s') && (1..=60_000).contains(&number.saturating_mul(scale)) => {
            Ok(Durability::Interval(Duration::from_millis(number * scale)))
        }
        _ => bail!("--durability takes always, or an interval from 1ms to 60s such as 100ms, not {text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_win_over_the_file_and_the_file_over_defaults() {
        let flags = Raw { redis: Some("127.0.0.1:1".into()), ..Raw::default() };
        let file: Raw = toml::from_str("redis = \"127.0.0.1:2\"\ndurability = \"100ms\"").unwrap();
        let config = flags.resolve(file).unwrap();
        assert_eq!(config.redis.port(), 1);
        assert_eq!(config.durability, Durability::Interval(Duration::from_millis(100)));
        assert_eq!(config.data, PathBuf::from("haul-data"));
    }

    #[test]
    fn a_public_address_needs_to_be_insisted_on() {
        let raw = |allow| Raw { redis: Some("0.0.0.0:4286".into()), allow_public: allow, ..Raw::default() };
        assert!(raw(None).resolve(Raw::default()).is_err());
        assert!(raw(Some(true)).resolve(Raw::default()).is_ok());
    }

    #[test]
    fn wrong_settings_are_named() {
        assert!(toml::from_str::<Raw>("redi = \"x\"").is_err());
        for raw in [
            Raw { durability: Some("sometimes".into()), ..Raw::default() },
            Raw { durability: Some("0ms".into()), ..Raw::default() },
            Raw { durability: Some(format!("{}s", u64::MAX)), ..Raw::default() },
            Raw { name_bytes_max: Some(16_385), ..Raw::default() },
            Raw { data_bytes_max: Some(63), ..Raw::default() },
            Raw { connections_max: Some(0), ..Raw::default() },
            Raw { arguments_max: Some(15), ..Raw::default() },
            Raw { subscriber_bytes_max: Some(1023), ..Raw::default() },
            Raw { log_bytes_max: Some(LOG_BYTES_LEAST - 1), ..Raw::default() },
            Raw { redis: Some("nowhere".into()), ..Raw::default() },
            Raw { log_format: Some("xml".into()), ..Raw::default() },
        ] {
            assert!(raw.resolve(Raw::default()).is_err());
        }
        let at_limit = Raw { name_bytes_max: Some(16_384), durability: Some("60s".into()), ..Raw::default() };
        assert!(at_limit.resolve(Raw::default()).is_ok());
    }
}
