//! Reading arguments: names, numbers, JSON. Errors are in the scripts' words, where they have any.

use bytes::Bytes;
use haul_engine::{Name, parse_number};

use super::json::{self, Fault, Kind};
use super::{DataLimits, Env};

/// A message for the client.
pub(crate) type Bad = String;

/// The arguments of one command, with the limits they are held to.
#[derive(Clone, Copy)]
pub(crate) struct Args<'a> {
    pub(crate) list: &'a [&'a [u8]],
    pub(crate) limits: DataLimits,
}

impl<'a> Args<'a> {
    pub(crate) fn new(list: &'a [&'a [u8]], env: &Env) -> Self {
        Args { list, limits: env.limits }
    }

    pub(crate) fn get(&self, index: usize) -> Option<&'a [u8]> {
        self.list.get(index).copied()
    }

    pub(crate) fn from(&self, index: usize) -> Args<'a> {
        Args { list: self.list.get(index..).unwrap_or_default(), limits: self.limits }
    }

    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// An argument as a name; `missing` is the error without it.
    pub(crate) fn name(&self, index: usize, missing: &str) -> Result<Name, Bad> {
        let bytes = self.get(index).ok_or_else(|| missing.to_owned())?;
        self.to_name(bytes)
    }

    pub(crate) fn to_name(self, bytes: &[u8]) -> Result<Name, Bad> {
        if bytes.len() > self.limits.name_bytes_max {
            return Err(format!(
                "a name of {} bytes is longer than the limit name-bytes-max, {}",
                bytes.len(),
                self.limits.name_bytes_max
            ));
        }
        Ok(Name::new(bytes))
    }

    /// All arguments as names.
    pub(crate) fn names(&self) -> Result<Vec<Name>, Bad> {
        self.list.iter().map(|bytes| self.to_name(bytes)).collect()
    }

    /// A text to keep, whatever it is.
    pub(crate) fn text(&self, bytes: &[u8]) -> Result<Bytes, Bad> {
        if bytes.len() > self.limits.data_bytes_max {
            return Err(format!(
                "data of {} bytes is longer than the limit data-bytes-max, {}",
                bytes.len(),
                self.limits.data_bytes_max
            ));
        }
        Ok(Bytes::copy_from_slice(bytes))
    }

    /// A required JSON document, as it was written. `refused` is the error's start for `false`.
    pub(crate) fn document(&self, index: usize, refused: &str) -> Result<Bytes, Bad> {
        let bytes = required(self.get(index))?;
        match kind(bytes)? {
            Kind::False => Err(format!("{refused}false")),
            _ => self.text(bytes),
        }
    }

    /// An optional JSON document; `false` means none.
    pub(crate) fn update(&self, index: usize, lua_data: bool) -> Result<Option<Bytes>, Bad> {
        let Some(bytes) = self.get(index) else { return Ok(None) };
        match kind(bytes)? {
            Kind::False => Ok(None),
            _ if lua_data => Ok(Some(reencode(bytes).into())),
            _ => self.text(bytes).map(Some),
        }
    }

    /// A number; `wrong` is the error's start, the argument its end.
    pub(crate) fn number(&self, index: usize, wrong: &str) -> Result<f64, Bad> {
        number(self.get(index), wrong)
    }

    /// A number, or `default` if absent.
    pub(crate) fn number_or(&self, index: usize, default: f64, wrong: &str) -> Result<f64, Bad> {
        match self.get(index) {
            None => Ok(default),
            present => number(present, wrong),
        }
    }

    /// The rest as keys and values, in order. Odd: the last key has none.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)> + use<'a> {
        self.list.chunks(2).filter_map(|pair| Some((*pair.first()?, pair.get(1).copied())))
    }

    /// The last value given for a key.
    pub(crate) fn option(&self, key: &str) -> Option<&'a [u8]> {
        self.pairs().filter(|(name, _)| *name == key.as_bytes()).last().and_then(|(_, value)| value)
    }

    /// A JSON array of names; an empty object is an empty list, as the scripts cannot tell them apart.
    pub(crate) fn list_of_names(&self, bytes: &[u8], wrong: &str) -> Result<Vec<Name>, Bad> {
        kind(bytes)?;
        let refuse = || wrong.to_owned();
        let value: serde_json::Value = serde_json::from_slice(bytes).map_err(|_| refuse())?;
        match value {
            serde_json::Value::Array(items) => items
                .into_iter()
                .map(|item| match item {
                    serde_json::Value::String(text) => self.to_name(text.as_bytes()),
                    serde_json::Value::Number(number) => {
                        let mut text = Vec::new();
                        super::number::push_g14(&mut text, number.as_f64().unwrap_or(0.0));
                        self.to_name(&text)
                    }
                    _ => Err(refuse()),
                })
                .collect(),
            serde_json::Value::Object(members) if members.is_empty() => Ok(Vec::new()),
            _ => Err(refuse()),
        }
    }
}

/// A number; `wrong` is the error's start, the argument its end.
pub(crate) fn number(argument: Option<&[u8]>, wrong: &str) -> Result<f64, Bad> {
    argument.and_then(parse_number).ok_or_else(|| format!("{wrong}{}", shown(argument)))
}

/// An argument as the scripts print it.
pub(crate) fn shown(argument: Option<&[u8]>) -> String {
    argument.map_or_else(|| "nil".to_owned(), |bytes| String::from_utf8_lossy(bytes).into_owned())
}

/// A whole number from one that was read.
pub(crate) fn whole(value: f64) -> Result<i64, Bad> {
    if value.fract() == 0.0 && value.abs() < 9.0e18 {
        return Ok(value as i64);
    }
    Err("value is not an integer or out of range".to_owned())
}

/// A count: whole, and negative means none.
pub(crate) fn count(value: f64) -> Result<usize, Bad> {
    whole(value).map(|value| usize::try_from(value).unwrap_or(0))
}

/// What a JSON text is, or the scripts' parser's complaint.
pub(crate) fn kind(bytes: &[u8]) -> Result<Kind, Bad> {
    json::check(bytes).map_err(|fault| match fault {
        Fault::Token(at) => format!("Expected value but found invalid token at character {at}"),
        Fault::Depth(at) => format!("Found too many nested data structures ({at}) at character {at}"),
    })
}

/// A JSON argument that must be there.
pub(crate) fn required(argument: Option<&[u8]>) -> Result<&[u8], Bad> {
    argument.ok_or_else(|| "bad argument #1 to 'decode' (string expected, got nil)".to_owned())
}

/// A document as Lua's decoder and encoder leave it: empty arrays become objects, numbers lose digits.
fn reencode(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    match serde_json::from_slice::<serde_json::Value>(bytes) {
        Ok(value) => push_lua(&mut out, &value),
        Err(_) => out.extend_from_slice(bytes),
    }
    out
}

fn push_lua(out: &mut Vec<u8>, value: &serde_json::Value) {
    match value {
        serde_json::Value::Null => out.extend_from_slice(b"null"),
        serde_json::Value::Bool(flag) => out.extend_from_slice(if *flag { b"true" } else { b"false" }),
        serde_json::Value::Number(number) => super::number::push_g14(out, number.as_f64().unwrap_or(0.0)),
        serde_json::Value::String(text) => json::push_lua_string(out, text.as_bytes()),
        serde_json::Value::Array(items) => json::push_list(out, items, "{}", push_lua),
        serde_json::Value::Object(members) => {
            let mut object = json::Object::lua(out);
            for (key, value) in members {
                push_lua(object.key_bytes(key.as_bytes()), value);
            }
            object.end();
        }
    }
}
