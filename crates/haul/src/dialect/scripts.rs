//! Which script a client loaded, and so which dialect it speaks. Scripts are recognised, never run.

use hashbrown::HashMap;
use sha1::{Digest, Sha1};

use super::older::OldCommand;

/// A dialect that is called through a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Script {
    /// qless.
    Qless,
    /// qless as the released Python client carries it: a put names no worker.
    QlessEarly,
    /// qless's commands with throttles: what the reqless clients carried before reqless renamed the commands.
    QlessThrottles,
    /// reqless.
    Reqless,
}

/// What a loaded text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loaded {
    Script(Script),
    /// One command of the older API.
    Older(OldCommand),
    /// Lua of the user's own, which is not run.
    Unknown,
}

/// Scripts that clients assume to be there.
const KNOWN: [(&str, Script); 5] = [
    ("ed7cb6988e28750518b1c1f25c98d865dc370952", Script::Qless),
    ("165e137277dbf6fbb4b66c3fb2bdb10a471c1db1", Script::Qless),
    ("7f76c23b76e859b6f3f7b0ec7c0ea07bcb94a5fd", Script::Reqless),
    ("e22308e0c17253ff34e753088c8e9954c52a6dae", Script::QlessEarly),
    ("9c9147f2518c96647f55eb15f00b1ee40fa49cd0", Script::QlessThrottles),
];

/// Loaded scripts kept at most: each is 40 bytes and a tag, the bound is against abuse.
pub(crate) const SCRIPTS_MAX: usize = 10_000;

/// A SHA-1 in hexadecimal.
type Sha = [u8; 40];

/// The scripts loaded into this server.
#[derive(Debug)]
pub(crate) struct Scripts {
    loaded: HashMap<Sha, Loaded>,
}

impl Default for Scripts {
    fn default() -> Self {
        let known = KNOWN
            .iter()
            .filter_map(|(sha, script)| Some((Sha::try_from(sha.as_bytes()).ok()?, Loaded::Script(*script))));
        Scripts { loaded: known.collect() }
    }
}

impl Scripts {
    /// Remembers a text; answers its id.
    pub(crate) fn load(&mut self, text: &[u8]) -> (String, Loaded) {
        let sha = sha_of(text);
        let loaded = recognise(text);
        if let Ok(sha) = Sha::try_from(sha.as_bytes())
            && (self.loaded.len() < SCRIPTS_MAX || self.loaded.contains_key(&sha))
        {
            self.loaded.insert(sha, loaded);
        }
        (sha, loaded)
    }

    pub(crate) fn get(&self, sha: &[u8]) -> Option<Loaded> {
        let mut sha = Sha::try_from(sha).ok()?;
        sha.make_ascii_lowercase();
        self.loaded.get(&sha).copied()
    }

    /// Forgets all but the known ones, which cost nothing and spare clients a round trip.
    pub(crate) fn flush(&mut self) {
        *self = Scripts::default();
    }
}

fn sha_of(text: &[u8]) -> String {
    Sha1::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn recognise(text: &[u8]) -> Loaded {
    let text = String::from_utf8_lossy(text);
    if text.contains("ReqlessAPI") {
        Loaded::Script(Script::Reqless)
    } else if text.contains("QlessThrottle") {
        Loaded::Script(Script::QlessThrottles)
    } else if text.contains("QlessAPI.put = function(now, queue,") {
        Loaded::Script(Script::QlessEarly)
    } else if text.contains("QlessAPI") {
        Loaded::Script(Script::Qless)
    } else {
        OldCommand::recognise(&text).map_or(Loaded::Unknown, Loaded::Older)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_are_recognised_by_what_they_define() {
        let mut scripts = Scripts::default();
        let (sha, loaded) = scripts.load(b"QlessAPI = {}");
        assert_eq!((sha.len(), loaded), (40, Loaded::Script(Script::Qless)));
        assert_eq!(scripts.get(sha.to_uppercase().as_bytes()), Some(loaded));
        assert_eq!(scripts.load(b"local ReqlessAPI").1, Loaded::Script(Script::Reqless));
        assert_eq!(scripts.load(b"return 1").1, Loaded::Unknown);
        assert_eq!(scripts.get(b""), None);
        scripts.flush();
        assert_eq!(scripts.get(sha.as_bytes()), None);
    }
}
