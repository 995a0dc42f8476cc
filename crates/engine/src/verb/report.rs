//! Report: what a running job says of itself. Register and drain: what a worker says of itself and is asked.

use super::{Answer, Claim, held};
use crate::job::Job;
use crate::record::Key;
use crate::tenant::{Cx, Tenant};
use crate::{Name, Refusal, Reply, Report, Reported};

impl Tenant {
    pub(super) fn report(&mut self, cx: &mut Cx<'_>, report: Report) -> Answer {
        let Report { jid, worker, attempt, .. } = &report;
        if worker.is_empty() {
            return Err(Refusal::NotHeld { jid: jid.clone(), worker: worker.clone() });
        }
        let job = held(&mut self.jobs, &Claim { jid, worker: Some(worker), attempt: *attempt })?;
        let attempt = job.attempt();
        let mut reported = job.more().report.take().unwrap_or_default();
        if reported.attempt != attempt {
            reported.output.take().iter().for_each(|text| cx.forget(text));
            let checkpoint = reported.checkpoint.take();
            *reported = Reported { attempt, checkpoint, ..Reported::default() };
        }
        reported.percent = report.percent.or(reported.percent);
        reported.message = report.message.or(reported.message.take());
        if let Some(output) = report.output {
            reported.output_bytes = report.output_bytes.unwrap_or(output.len() as u64);
            let old = reported.output.replace(cx.keep(output));
            old.iter().for_each(|text| cx.forget(text));
        }
        if let Some(checkpoint) = report.checkpoint {
            let old = reported.checkpoint.replace(cx.keep(checkpoint));
            old.iter().for_each(|text| cx.forget(text));
        }
        job.more().report = Some(reported);
        self.indexes.mark(job);
        Ok(Reply::Done)
    }

    pub(super) fn register_worker(
        &mut self,
        cx: &mut Cx<'_>,
        name: &Name,
        facts: Name,
        (is_new, draining): (bool, bool),
    ) -> Reply {
        self.indexes.saw_worker(name, cx.now);
        let worker = self.indexes.worker(name);
        let drain = (worker.drain && !is_new) || draining;
        let changed = worker.facts.as_ref() != Some(&facts) || worker.drain != drain;
        worker.facts = Some(facts);
        worker.drain = drain;
        if changed {
            self.indexes.dirty.insert(Key::Worker(name.clone()));
        }
        Reply::Bool(drain)
    }

    pub(super) fn drain(&mut self, name: &Name, drain: bool) -> Reply {
        let Some(worker) = self.indexes.workers.get_mut(name).filter(|worker| worker.seen_at.is_some())
        else {
            return Reply::Bool(false);
        };
        worker.drain = drain;
        self.indexes.dirty.insert(Key::Worker(name.clone()));
        Reply::Bool(true)
    }
}

/// Forgets what the next attempt would begin with: this job is done, or begins anew.
pub(super) fn clear_checkpoint(cx: &mut Cx<'_>, job: &mut Job) {
    let report = job.more.as_deref_mut().and_then(|more| more.report.as_deref_mut());
    if let Some(text) = report.and_then(|report| report.checkpoint.take()) {
        cx.forget(&text);
    }
}
