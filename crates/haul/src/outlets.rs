//! Where the shard lets out what happened: to subscribers, to event streams and waits, to traces, to other nodes.

use haul_engine::{Event, Name, Notice};

use crate::bus::{Bus, Listeners};
use crate::clock;
use crate::cluster::Outward;
use crate::resp::Hub;
use crate::shard::Publish;
use crate::trace::Tracer;

/// All of them. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Outlets {
    pub(crate) hub: Hub,
    pub(crate) bus: Bus,
    pub(crate) tracer: Tracer,
    pub(crate) outward: Outward,
}

impl Outlets {
    pub(crate) fn new(subscriber_bytes_max: usize) -> Self {
        Outlets {
            hub: Hub::new(subscriber_bytes_max),
            bus: Bus::new(clock::now()),
            tracer: Tracer::default(),
            outward: Outward::default(),
        }
    }

    /// Jobs that carry a trace context are traced.
    pub(crate) fn traced(mut self, tracer: Tracer) -> Self {
        if tracer.is_on() {
            self.bus.listeners().add();
        }
        self.tracer = tracer;
        self
    }
}

impl Publish for Outlets {
    fn publish(&mut self, tenant: &Name, events: Vec<Event>) {
        self.outward.tell_events(tenant, &events);
        Publish::publish(&mut self.hub, tenant, events);
    }

    fn is_heard(&self) -> bool {
        self.hub.is_heard() || self.outward.is_heard()
    }

    fn listeners(&self) -> Listeners {
        self.bus.listeners()
    }

    fn notice(&mut self, tenant: &Name, notices: Vec<Notice>) {
        self.tracer.notice(tenant, &notices, clock::now());
        self.outward.tell_notices(tenant, &notices);
        self.bus.notice(tenant, &notices);
    }
}
