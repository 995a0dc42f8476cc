//! Names: a tenant, a job type, and both joined by a hyphen. A tenant has no hyphen, so that the first one parts them.

use std::fmt;

/// The longest name of a tenant.
pub const TENANT_BYTES_MAX: usize = 64;
/// The longest name of a job type.
pub const JOBTYPE_BYTES_MAX: usize = 128;

/// Why a name is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadName(pub &'static str);

/// Complains about what is no tenant.
pub fn check_tenant(text: &str) -> Result<(), BadName> {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.');
    if text.is_empty() || text.len() > TENANT_BYTES_MAX || !text.bytes().all(fine) {
        return Err(BadName("a tenant has 1 to 64 letters, digits, _ or ."));
    }
    Ok(())
}

/// Complains about what is no job type.
pub fn check_jobtype(text: &str) -> Result<(), BadName> {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    if text.is_empty() || text.len() > JOBTYPE_BYTES_MAX || !text.bytes().all(fine) {
        return Err(BadName("a job type has 1 to 128 letters, digits, _ . or -"));
    }
    Ok(())
}

/// `<tenant>-<jobtype>`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FullType {
    text: String,
    hyphen: usize,
}

impl FullType {
    /// Joins the two.
    pub fn new(tenant: &str, jobtype: &str) -> Result<Self, BadName> {
        check_tenant(tenant)?;
        check_jobtype(jobtype)?;
        Ok(FullType { text: format!("{tenant}-{jobtype}"), hyphen: tenant.len() })
    }

    /// Parts a text at its first hyphen.
    pub fn parse(text: &str) -> Result<Self, BadName> {
        let (tenant, jobtype) = text.split_once('-').ok_or(BadName("a full type is TENANT-JOBTYPE"))?;
        FullType::new(tenant, jobtype)
    }

    /// Whose it is.
    pub fn tenant(&self) -> &str {
        self.text.get(..self.hyphen).unwrap_or_default()
    }

    /// Its name within the tenant.
    pub fn jobtype(&self) -> &str {
        self.text.get(self.hyphen + 1..).unwrap_or_default()
    }

    /// All of it.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for FullType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_type_is_parted_at_the_first_hyphen() {
        let full = FullType::parse("client-job-type").unwrap();
        assert_eq!((full.tenant(), full.jobtype()), ("client", "job-type"));
    }

    #[test]
    fn names_at_their_limits() {
        assert!(FullType::new(&"t".repeat(64), &"j".repeat(128)).is_ok());
        assert!(FullType::new(&"t".repeat(65), "j").is_err());
        assert!(FullType::new("t", &"j".repeat(129)).is_err());
        for (tenant, jobtype) in [
            ("", "j"),
            ("t", ""),
            ("a-b", "j"),
            ("a,b", "j"),
            ("t", "a|b"),
            ("t", "a,b"),
            ("t", "a b"),
            ("t", "a\nb"),
            ("é", "j"),
        ] {
            assert!(FullType::new(tenant, jobtype).is_err(), "{tenant:?} {jobtype:?}");
        }
        assert!(FullType::parse("queue.sysid").is_err());
    }
}
