//! `haul doctor`: checks every invariant of a data folder or of a shard in a store, and repairs what can be repaired without
//! guessing.

use hashbrown::HashSet;
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

/// Looks at everything: first at all headers, then at the keys of all bodies.
#[derive(Default)]
pub(crate) struct Exam {
    report: Report,
    loader: Loader,
    /// Bodies that a job refers to and that have not been seen; none: there may be more headers.
    wanted: Option<HashSet<BodyId>>,
}

impl Exam {
    pub(crate) fn header(&mut self, key: &[u8], value: &[u8]) {
        if let Err(error) = self.loader.header(key, value) {
            self.report.damaged.push((key.to_vec(), error.to_string()));
        }
    }

    /// No more headers.
    fn wanted(&mut self) -> &mut HashSet<BodyId> {
        let (report, loader) = (&mut self.report, &mut self.loader);
        self.wanted.get_or_insert_with(|| {
            let engine: Engine = std::mem::take(loader).finish();
            report.jobs = engine.jobs();
            report.findings = engine
                .audit()
                .into_iter()
                .map(|finding| match finding.tenant.is_empty() {
                    true => finding.what,
                    false => format!("tenant {}: {}", finding.tenant, finding.what),
                })
                .collect();
            engine.bodies()
        })
    }

    pub(crate) fn body(&mut self, key: &[u8]) {
        let found = BodyId::from_key(key).map(|id| (id, self.wanted().remove(&id)));
        self.report.bodies += 1;
        match found {
            Some((_, true)) => {}
            Some((id, false)) => self.report.orphans.push(id),
            None => self.report.damaged.push((key.to_vec(), "not the key of a body".to_owned())),
        }
    }

    pub(crate) fn finish(mut self) -> Report {
        let mut missing: Vec<BodyId> = self.wanted().drain().collect();
        missing.sort_unstable();
        Report { missing, ..self.report }
    }
}

/// Looks at all of a store.
pub(crate) fn examine(store: &mut dyn Store) -> Result<Report, Fault> {
    let mut exam = Exam::default();
    store.load(&mut |key, value| {
        exam.header(key, value);
        Ok(())
    })?;
    store.bodies().keys(&mut |key| {
        exam.body(key);
        Ok(())
    })?;
    Ok(exam.finish())
}

/// Removes what can only do harm: records that cannot be read and bodies of no job. What a job lacks cannot be made up;
/// such a job is left for a person to cancel. Answers how many records went.
pub(crate) fn repair(store: &mut dyn Store, report: &Report) -> Result<usize, Fault> {
    let mut batch = Batch::default();
    for (key, _) in &report.damaged {
        batch.delete(Space::Header, key.clone());
    }
    for id in &report.orphans {
        batch.delete(Space::Body, id.key());
    }
    let removed = batch.len();
    if removed > 0 {
        store.commit(batch)?;
    }
    Ok(removed)
}
