//! Where the server is and how patient to be with it.

use super::tls::{Connector, Tls};
use crate::error::Error;
use crate::resp::Limits;
use std::fmt;
use std::time::Duration;

/// Haul's port for the Redis protocol.
const PORT: u16 = 4286;
/// Longer timeouts are cut to this, so that adding them to a moment cannot overflow.
const TIMEOUT_MAX: Duration = Duration::from_secs(30 * 24 * 3600);

/// How a [`crate::Client`] connects and waits.
#[derive(Clone)]
pub struct Options {
    /// The tenant, by the name or number that `SELECT` takes; the server's default tenant if none is given.
    pub database: Option<String>,
    /// The token, sent with `AUTH`.
    pub token: Option<String>,
    /// Talk TLS. Without it a token can be read by whoever is on the way to the server.
    pub tls: Option<Tls>,
    /// How long one attempt to connect may take, greeting included.
    pub connect_timeout: Duration,
    /// How long a call may take, reconnecting included. A waiting pop may take this long beyond its wait.
    pub request_timeout: Duration,
    /// The first pause after a failed attempt to connect; doubled each time.
    pub backoff_min: Duration,
    /// The longest pause.
    pub backoff_max: Duration,
    /// What the server may answer at most.
    pub limits: Limits,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            database: None,
            token: None,
            tls: None,
            connect_timeout: Duration::from_secs(5),
            request_timeout: Duration::from_secs(30),
            backoff_min: Duration::from_millis(50),
            backoff_max: Duration::from_secs(5),
            limits: Limits::for_replies(),
        }
    }
}

impl fmt::Debug for Options {
    /// Does not show the token.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Options")
            .field("database", &self.database)
            .field("token", &self.token.as_ref().map(|_| "…"))
            .field("tls", &self.tls)
            .field("connect_timeout", &self.connect_timeout)
            .field("request_timeout", &self.request_timeout)
            .finish_non_exhaustive()
    }
}

/// One server and how to talk to it.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    /// `host:port`, resolved anew for each connection.
    pub(crate) address: String,
    pub(crate) options: Options,
    pub(crate) tls: Option<Connector>,
}

impl Target {
    /// Reads `host`, `host:port`, or `haul://[token@]host[:port][/database]` (`redis://` is the same, `hauls://` and
    /// `rediss://` are with TLS). What the options name goes before what the address names.
    pub(crate) fn new(address: &str, mut options: Options) -> Result<Self, Error> {
        let rest = match address.split_once("://") {
            None => address,
            Some(("haul" | "redis", rest)) => rest,
            Some(("hauls" | "rediss", rest)) => {
                options.tls.get_or_insert_default();
                rest
            }
            Some((scheme, _)) => return Err(Error::Address(format!("unknown scheme {scheme}"))),
        };
        let (rest, database) = rest.split_once('/').unwrap_or((rest, ""));
        let (secret, host) = rest.rsplit_once('@').unwrap_or(("", rest));
        // `token@` and, as Redis addresses have it, `:token@` or `user:token@`.
        let token = secret.split_once(':').map_or(secret, |(_, token)| token);
        if host.is_empty() || host.starts_with(':') {
            return Err(Error::Address(format!("no host in {host:?}")));
        }
        options.request_timeout = options.request_timeout.min(TIMEOUT_MAX);
        options.backoff_max = options.backoff_max.min(TIMEOUT_MAX);
        options.token = options.token.or(percent_decoded(token)?);
        options.database = options.database.or(percent_decoded(database)?);
        let address = with_port(host)?;
        let tls = options.tls.as_ref().map(|tls| Connector::new(tls, &address)).transpose()?;
        Ok(Self { address, options, tls })
    }
}

fn with_port(host: &str) -> Result<String, Error> {
    let after_brackets = host.rsplit_once(']').map_or(host, |(_, after)| after);
    match after_brackets.rsplit_once(':') {
        None => Ok(format!("{host}:{PORT}")),
        Some((_, port)) if port.parse::<u16>().is_ok() => Ok(host.to_owned()),
        Some((_, port)) => Err(Error::Address(format!("not a port: {port:?}"))),
    }
}

/// `None` for an empty text.
fn percent_decoded(text: &str) -> Result<Option<String>, Error> {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let decoded = part.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(decoded.ok_or_else(|| Error::Address("a stray % in the address".to_owned()))?);
        bytes.extend_from_slice(part.get(2..).unwrap_or_default().as_bytes());
    }
    let text = String::from_utf8(bytes).map_err(|_| Error::Address("not UTF-8 in the address".to_owned()))?;
    Ok(Some(text).filter(|text| !text.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(address: &str) -> Result<(String, Option<String>, Option<String>), Error> {
        let target = Target::new(address, Options::default())?;
        Ok((target.address, target.options.token, target.options.database))
    }

    #[test]
    fn addresses_are_read_in_every_form() {
        let some = |text: &str| Some(text.to_owned());
        let cases = [
            ("box", ("box:4286", None, None)),
            ("box:1", ("box:1", None, None)),
            ("[::1]", ("[::1]:4286", None, None)),
            ("[::1]:7", ("[::1]:7", None, None)),
            ("haul://s3cret@box/acme", ("box:4286", some("s3cret"), some("acme"))),
            ("redis://:a%40b@box:1/2", ("box:1", some("a@b"), some("2"))),
            ("redis://user:t@box:1/", ("box:1", some("t"), None)),
        ];
        for (address, (host, token, database)) in cases {
            assert_eq!(read(address).unwrap(), (host.to_owned(), token, database), "{address}");
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for address in [
            "",
            ":1",
            "http://box",
            "box:x",
            "box:99999",
            "haul://%zz@box",
            "haul://%f@box",
            "haul://%ff@box",
        ] {
            assert!(matches!(read(address), Err(Error::Address(_))), "{address}");
        }
    }

    #[test]
    fn options_go_before_the_address_and_hide_the_token() {
        let options = Options { token: Some("mine".into()), ..Options::default() };
        let target = Target::new("haul://theirs@box", options).unwrap();
        assert_eq!(target.options.token.as_deref(), Some("mine"));
        assert!(!format!("{target:?}").contains("mine"));
    }
}
