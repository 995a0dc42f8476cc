//! What running jobs and workers say of themselves.

use haul_engine::{Name, Refusal, Report};

use super::{Cx, Outcome, Tenant};
use crate::answer::{Answer, ReportSeen};

impl Tenant {
    pub(super) fn report(&mut self, report: &Report) -> Outcome {
        let Report { jid, worker, attempt, .. } = report;
        if worker.is_empty() {
            return Err(Refusal::NotHeld { jid: jid.clone(), worker: worker.clone() });
        }
        let job = self.running(jid, Some(worker), *attempt)?;
        let old = job.report.unwrap_or_default();
        let checkpoint = report.checkpoint.clone().or(old.checkpoint.clone());
        // Of what an earlier attempt said, only the checkpoint is left.
        let mut new = if old.attempt == job.attempt { old } else { ReportSeen::default() };
        (new.attempt, new.checkpoint) = (job.attempt, checkpoint);
        new.percent = report.percent.or(new.percent);
        new.message = report.message.clone().or(new.message);
        if let Some(output) = &report.output {
            new.output_bytes = report.output_bytes.unwrap_or(output.len() as u64);
            new.output = Some(output.clone());
        }
        self.edit(jid, |job| job.report = Some(new));
        Ok(Answer::Done)
    }

    pub(super) fn register_worker(
        &mut self,
        cx: &Cx,
        worker: &Name,
        facts: &Name,
        (is_new, draining): (bool, bool),
    ) -> Answer {
        self.zadd(b"ql:workers", cx.now, worker);
        let asked = self.facts.get(worker).is_some_and(|(_, drain)| *drain);
        let drain = (asked && !is_new) || draining;
        self.facts.insert(worker.clone(), (Some(facts.clone()), drain));
        Answer::Bool(drain)
    }

    pub(super) fn drain(&mut self, worker: &Name, drain: bool) -> Answer {
        let is_known = self.zscore(b"ql:workers", worker).is_some();
        if is_known {
            self.facts.entry(worker.clone()).or_default().1 = drain;
        }
        Answer::Bool(is_known)
    }

    /// What the next attempt would have begun with is forgotten.
    pub(super) fn clear_checkpoint(&mut self, jid: &Name) {
        self.edit(jid, |job| {
            if let Some(report) = &mut job.report {
                report.checkpoint = None;
            }
        });
    }
}
