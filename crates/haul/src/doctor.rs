//! `haul doctor`: checks every invariant of a data folder, and repairs what can be repaired without guessing.

use haul_engine::{BodyId, Engine, Loader, describe_key};
use haul_store::{Batch, Fault, Space, Store};

/// What the doctor found.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) jobs: usize,
    pub(crate) bodies: usize,
    /// Records that cannot be read: (key, why).
    pub(crate) damaged: Vec<(Vec<u8>, String)>,
    /// Invariants that do not hold.
    pub(crate) findings: Vec<String>,
    /// Bodies that no job refers to.
    pub(crate) orphans: Vec<BodyId>,
    /// Bodies that a job refers to and that are not there.
    pub(crate) missing: Vec<BodyId>,
}

impl Report {
    pub(crate) fn is_healthy(&self) -> bool {
        self.damaged.is_empty()
            && self.findings.is_empty()
            && self.orphans.is_empty()
            && self.missing.is_empty()
    }

    /// One line for each thing that is wrong.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> =
            self.damaged.iter().map(|(key, why)| format!("damaged: {}: {why}", describe_key(key))).collect();
        lines.extend(self.findings.iter().map(|what| format!("wrong: {what}")));
        lines.extend(self.orphans.iter().map(|id| format!("orphan: body {} belongs to no job", id.0)));
        lines.extend(self.missing.iter().map(|id| format!("missing: body {} of a job", id.0)));
        lines
    }
}

/// Looks at everything.
pub(crate) fn examine(store: &mut dyn Store) -> Result<Report, Fault> {
    let mut report = Report::default();
    let mut loader = Loader::default();
    store.load(&mut |key, value| {
        if let Err(error) = loader.header(key, value) {
            report.damaged.push((key.to_vec(), error.to_string()));
        }
        Ok(())
    })?;
    let engine: Engine = loader.finish();
    report.jobs = engine.jobs();
    report.findings = engine
        .audit()
        .into_iter()
        .map(|finding| match finding.tenant.is_empty() {
            true => finding.what,
            false => format!("tenant {}: {}", finding.tenant, finding.what),
        })
        .collect();
    let mut wanted = engine.bodies();
    store.bodies().keys(&mut |key| {
        report.bodies += 1;
        match BodyId::from_key(key) {
            Some(id) if wanted.remove(&id) => {}
            Some(id) => report.orphans.push(id),
            None => report.damaged.push((key.to_vec(), "not the key of a body".to_owned())),
        }
        Ok(())
    })?;
    report.missing = wanted.into_iter().collect();
    report.missing.sort_unstable();
    Ok(report)
}

/// Removes what can only do harm: records that cannot be read and bodies of no job. What a job lacks cannot be made up;
/// such a job is left for a person to cancel. Answers how many records went.
pub(crate) fn repair(store: &mut dyn Store, report: &Report) -> Result<usize, Fault> {
    let mut batch = Batch::default();
    for (key, _) in &report.damaged {
        batch.delete(Space::Header, key.clone());
    }
    for id in &report.orphans {
        batch.delete(Space::Body, id.key().to_vec());
    }
    let removed = batch.len();
    if removed > 0 {
        store.commit(batch)?;
    }
    Ok(removed)
}
