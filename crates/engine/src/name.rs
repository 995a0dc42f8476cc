//! Names: jids, queues, klasses, workers, tags, groups. Any bytes; one thin pointer, shared, ordered by bytes.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use triomphe::ThinArc;

/// An immutable byte string behind one thin pointer; cloning shares it.
#[derive(Clone, Eq)]
pub struct Name(ThinArc<(), u8>);

impl Name {
    /// A name of these bytes.
    pub fn new(bytes: &[u8]) -> Self {
        Name(ThinArc::from_header_and_slice((), bytes))
    }

    /// Its bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.0.slice
    }

    /// Whether it has no bytes: how "none" is written for workers and queues.
    pub fn is_empty(&self) -> bool {
        self.bytes().is_empty()
    }

    /// For people: invalid UTF-8 is replaced.
    pub fn display(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(self.bytes())
    }

    /// Whether both are one allocation, as shared names are: they need not be compared byte by byte.
    #[inline]
    fn is_same(&self, other: &Self) -> bool {
        std::ptr::eq(self.0.ptr(), other.0.ptr())
    }

    /// How many hold this very allocation; lets the name pool drop what nobody else uses.
    pub(crate) fn holders(&self) -> usize {
        ThinArc::strong_count(&self.0)
    }
}

impl PartialEq for Name {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.is_same(other) || self.bytes() == other.bytes()
    }
}

impl PartialOrd for Name {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Name {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        if self.is_same(other) { Ordering::Equal } else { self.bytes().cmp(other.bytes()) }
    }
}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.bytes().hash(state);
    }
}

impl Borrow<[u8]> for Name {
    fn borrow(&self) -> &[u8] {
        self.bytes()
    }
}

impl From<&str> for Name {
    fn from(text: &str) -> Self {
        Name::new(text.as_bytes())
    }
}

impl From<&[u8]> for Name {
    fn from(bytes: &[u8]) -> Self {
        Name::new(bytes)
    }
}

impl From<String> for Name {
    fn from(text: String) -> Self {
        Name::new(text.as_bytes())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.display())
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.display())
    }
}

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.bytes())
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Name;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes")
            }
            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Name, E> {
                Ok(Name::new(bytes))
            }
        }
        deserializer.deserialize_bytes(Visitor)
    }
}

/// One allocation per distinct name that many jobs share (klass, queue, worker, tag).
pub(crate) struct NamePool {
    /// The name without bytes.
    none: Name,
    names: hashbrown::HashSet<Name>,
    swept_at: usize,
}

impl Default for NamePool {
    fn default() -> Self {
        NamePool { none: Name::new(b""), names: hashbrown::HashSet::default(), swept_at: 0 }
    }
}

impl NamePool {
    /// The name that stands for none.
    pub(crate) fn none(&self) -> Name {
        self.none.clone()
    }

    /// The shared name of these bytes.
    pub(crate) fn shared(&mut self, bytes: &[u8]) -> Name {
        if bytes.is_empty() {
            return self.none();
        }
        if let Some(name) = self.names.get(bytes) {
            return name.clone();
        }
        if self.names.len() >= self.swept_at.max(1024) {
            self.names.retain(|name| name.holders() > 1);
            self.swept_at = self.names.len() * 2;
        }
        let name = Name::new(bytes);
        self.names.insert(name.clone());
        name
    }

    /// The pool's copy of `name`, so that equal names share memory.
    pub(crate) fn adopt(&mut self, name: &mut Name) {
        *name = self.shared(name.bytes());
    }
}
