//! A driver on its model as one host: whoever polls it need not know of the interrupt line.

use mmc_hal::Payload;
use mmc_proto::command::Command;
use mmc_proto::host::{Capabilities, Host, HostError, Operation, Progress, Slot, SubmitError};
use mmc_time::Instant;

/// A host, and what is done for it as its interrupt: at each poll a pending interrupt is served first, and again as long as
/// what the driver did raises the line at the same instant; a wait ends when the model has something to do next.
pub struct Wired<P> {
    host: Box<dyn Host<Payload = P>>,
    line: Option<Line>,
}

struct Line {
    service: Box<dyn FnMut() -> bool + Send>,
    next_event: Box<dyn Fn() -> Instant + Send>,
}

impl<P> std::fmt::Debug for Wired<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wired").field("line", &self.line.is_some()).finish_non_exhaustive()
    }
}

impl<P: Payload> Wired<P> {
    /// A host that names its instants itself: no line.
    pub fn without_line(host: impl Host<Payload = P> + 'static) -> Self {
        Self { host: Box::new(host), line: None }
    }
    /// `service` serves a pending interrupt and says whether the driver has to run for it; `next_event` is when the model has
    /// something to do next ([`Wakes`](crate::Wakes)).
    pub fn new(
        host: impl Host<Payload = P> + 'static,
        service: impl FnMut() -> bool + Send + 'static,
        next_event: impl Fn() -> Instant + Send + 'static,
    ) -> Self {
        let line = Line { service: Box::new(service), next_event: Box::new(next_event) };
        Self { host: Box::new(host), line: Some(line) }
    }
}

impl<P: Payload> Host for Wired<P> {
    type Payload = P;
    fn capabilities(&self) -> Capabilities {
        self.host.capabilities()
    }
    fn submit(&mut self, op: Operation<P>, until: Instant, now: Instant) -> Result<(), SubmitError<P>> {
        self.host.submit(op, until, now)
    }
    fn poll(&mut self, now: Instant) -> Progress<P> {
        let Some(line) = &mut self.line else { return self.host.poll(now) };
        (line.service)();
        loop {
            match self.host.poll(now) {
                // What the driver did may have raised the line again at this instant.
                Progress::Waiting { .. } if (line.service)() => {}
                Progress::Waiting { why, until } => {
                    return Progress::Waiting { why, until: until.min((line.next_event)()) };
                }
                over => return over,
            }
        }
    }
    fn abort(&mut self, now: Instant) {
        self.host.abort(now);
    }
    fn prepare(&mut self, cmd: Command, payload: P) -> Result<(), SubmitError<P>> {
        self.host.prepare(cmd, payload)
    }
    fn submit_prepared(&mut self, until: Instant, now: Instant) -> Result<(), HostError> {
        self.host.submit_prepared(until, now)
    }
    fn unprepare(&mut self) -> Option<(Command, P)> {
        self.host.unprepare()
    }
    fn slot(&mut self, now: Instant) -> Slot {
        self.host.slot(now)
    }
    fn sdio_interrupt(&mut self, enable: bool) {
        self.host.sdio_interrupt(enable);
    }
}
