//! From frames to the types the commands answer with.

use crate::error::Error;
use crate::resp::Frame;
use serde::de::DeserializeOwned;

/// Turns an error reply into an error.
pub(crate) fn checked(frame: Frame) -> Result<Frame, Error> {
    match frame {
        Frame::Error(text) => Err(Error::refused(&text)),
        other => Ok(other),
    }
}

pub(crate) fn text(frame: Frame) -> Result<String, Error> {
    optional_text(frame)?.ok_or_else(|| Error::Decode("nil in place of text".to_owned()))
}

pub(crate) fn optional_text(frame: Frame) -> Result<Option<String>, Error> {
    match frame {
        Frame::Nil | Frame::NilArray => Ok(None),
        Frame::Simple(text) => Ok(Some(text.into_owned())),
        Frame::Bulk(bytes) => match String::from_utf8(bytes.into()) {
            Ok(text) => Ok(Some(text)),
            Err(_) => Err(Error::Decode("text that is not UTF-8".to_owned())),
        },
        Frame::Int(value) => Ok(Some(value.to_string())),
        other => Err(unexpected("text", &other)),
    }
}

pub(crate) fn int(frame: Frame) -> Result<i64, Error> {
    match frame {
        Frame::Int(value) => Ok(value),
        Frame::Bool(value) => Ok(i64::from(value)),
        other => Err(unexpected("an integer", &other)),
    }
}

pub(crate) fn count(frame: Frame) -> Result<u64, Error> {
    let value = int(frame)?;
    u64::try_from(value).map_err(|_| Error::Decode(format!("{value} in place of a count")))
}

pub(crate) fn unit(frame: Frame) -> Result<(), Error> {
    checked(frame).map(|_| ())
}

pub(crate) fn array(frame: Frame) -> Result<Vec<Frame>, Error> {
    match frame {
        Frame::Array(items) | Frame::Set(items) => Ok(items),
        Frame::Nil | Frame::NilArray => Ok(Vec::new()),
        other => Err(unexpected("an array", &other)),
    }
}

pub(crate) fn texts(frame: Frame) -> Result<Vec<String>, Error> {
    array(frame)?.into_iter().map(text).collect()
}

pub(crate) fn json<T: DeserializeOwned>(frame: Frame) -> Result<T, Error> {
    optional_json(frame)?.ok_or_else(|| Error::Decode("nil in place of JSON".to_owned()))
}

pub(crate) fn optional_json<T: DeserializeOwned>(frame: Frame) -> Result<Option<T>, Error> {
    match frame {
        Frame::Nil | Frame::NilArray => Ok(None),
        Frame::Bulk(bytes) => parse(&bytes).map(Some),
        Frame::Simple(text) => parse(text.as_bytes()).map(Some),
        other => Err(unexpected("JSON", &other)),
    }
}

pub(crate) fn jsons<T: DeserializeOwned>(frame: Frame) -> Result<Vec<T>, Error> {
    array(frame)?.into_iter().map(json).collect()
}

/// For the commands on many jobs: each answer is a text, or a refusal's code in capitals.
pub(crate) fn each<T>(
    frame: Frame,
    read: impl Fn(&str) -> Option<T>,
) -> Result<Vec<Result<T, Error>>, Error> {
    let items = texts(frame)?;
    Ok(items.iter().map(|item| read(item).ok_or_else(|| Error::refused(item))).collect())
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(bytes).map_err(|error| Error::Decode(error.to_string()))
}

fn unexpected(wanted: &str, frame: &Frame) -> Error {
    let kind = match frame {
        Frame::Nil | Frame::NilArray => "nil",
        Frame::Int(_) => "an integer",
        Frame::Double(_) => "a double",
        Frame::Bool(_) => "a boolean",
        Frame::Simple(_) | Frame::Bulk(_) => "text",
        Frame::Error(_) => "an error",
        Frame::Array(_) | Frame::Set(_) | Frame::Push(_) => "an array",
        Frame::Map(_) | Frame::Pairs(_) => "a map",
    };
    Error::Decode(format!("{kind} in place of {wanted}"))
}
