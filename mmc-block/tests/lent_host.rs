//! The host is lent between two commands: soon, however full the queue is, and without costing it much.

mod common;

use common::{MockBench, buf, disk, read, settings, tags, write};
use mmc_block::{Blocking, Disk, Next, Observer, Ticket};
use mmc_hal::Dir;
use mmc_mock::timing::Profile;
use mmc_mock::{Buf, BufBatch, Clock};
use mmc_proto::command::Command;
use mmc_proto::machine::{CardTraits, Conductor, Machine, Step, Transfer, TransferOptions, Turn};
use mmc_sched::{MqDeadline, NoSched, Queue, Run, Slot};
use mmc_time::{Duration, Instant};

/// Counts the commands that went to the host.
#[derive(Debug, Default)]
struct Started(usize);

impl Observer for Started {
    fn started(&mut self, _: Ticket, _: &Run, _: Instant) {
        self.0 += 1;
    }
}

/// Runs `commands` writes of 64 KiB, always 16 of them queued and one prepared, with a look at the card's status
/// every `every` commands. The time it took, and the most commands between asking for the host and having it.
fn busy(commands: usize, every: Option<usize>) -> (Duration, usize) {
    let MockBench { host, identified, now: begin, .. } = MockBench::new(Profile::slow2018());
    let queue = Queue::new(vec![Slot::FREE; 32], MqDeadline::new());
    let traits = identified.traits;
    let mut disk =
        Disk::new(host, queue, traits, BufBatch::new(8), tags(32), settings(32), Started::default()).unwrap();
    disk.prepare_with(BufBatch::new(8)).unwrap();
    let (mut now, mut next, mut worst, mut asked, mut last) = (begin, 0_u64, 0, None, 0);
    let mut status: Option<Conductor<Status, BufBatch>> = None;
    while disk.observer().0 < commands || status.is_some() {
        while disk.core().outstanding() < 16 {
            // Every other stretch of 64 KiB, so that nothing merges.
            let r = write(next * 256, 128);
            disk.submit(r, buf(&r, 1), now).unwrap();
            next += 1;
        }
        let started = disk.observer().0;
        if every.is_some_and(|n| asked.is_none() && status.is_none() && started == last + n) {
            last = started;
            disk.ask_for_host();
            asked = Some(started);
            status = Some(Conductor::new(Status(traits.rca, false), None));
        }
        let until = match disk.poll(now) {
            Next::Wait { until, .. } => until,
            Next::Lent => {
                if let Some(at) = asked.take() {
                    worst = worst.max(disk.observer().0 - at);
                }
                match status.as_mut().unwrap().poll(disk.lent().unwrap(), now) {
                    Turn::Wait { until, .. } => until,
                    Turn::Done(ready, _) => {
                        assert!(ready);
                        disk.give_back();
                        status = None;
                        now
                    }
                }
            }
            Next::Idle => panic!("the queue is never empty"),
        };
        while let Some(done) = disk.take_done() {
            assert!(done.result.is_ok());
        }
        now = now.max(until);
    }
    (now.since(begin), worst)
}

/// CMD13: whether the card is ready.
struct Status(u16, bool);

impl Machine for Status {
    type Output = bool;
    fn next(
        &mut self,
        last: Option<Result<mmc_proto::host::Reply, mmc_proto::host::HostError>>,
        _: &mut [u8],
        _: Instant,
    ) -> Step<bool> {
        match last {
            None if !std::mem::replace(&mut self.1, true) => Step::Do(mmc_proto::machine::Action {
                command: Command::send_status(self.0),
                limit: Duration::from_secs(1),
            }),
            last => Step::Done(last.is_some_and(|r| r.is_ok_and(|r| r.words[0] & 0x1f00 == 0x900))),
        }
    }
}

#[test]
fn a_full_queue_lends_the_host_within_two_commands_and_loses_less_than_a_hundredth() {
    let (alone, _) = busy(400, None);
    let (shared, commands) = busy(400, Some(10));
    assert!(commands <= 2, "{commands} commands before the host was lent");
    let loss = 1.0 - alone.as_nanos() as f64 / shared.as_nanos() as f64;
    assert!(loss < 0.01, "{:.2} % lost to 40 questions in 400 commands", loss * 100.0);
}

#[test]
fn nothing_goes_on_while_the_host_is_lent_and_all_of_it_after() {
    let fake = common::FakeHost::new(1024, 8);
    let mut d = disk(&fake, NoSched::new(), 8, settings(8));
    assert!(d.lent().is_none(), "nobody has asked");
    d.ask_for_host();
    assert!(d.lent().is_none(), "it is not free yet, for all we know");
    assert_eq!(d.poll(Instant::ZERO), Next::Lent);
    let ticket = d.submit(read(0, 8), buf(&read(0, 8), 0), Instant::ZERO).unwrap();
    assert_eq!(d.poll(Instant::ZERO), Next::Lent);
    assert!(d.lent().is_some());
    assert!(fake.lock().seen.is_empty());
    d.give_back();
    common::run(&mut d, Instant::ZERO);
    assert!(d.take(ticket).unwrap().result.is_ok());
    // Asked and not wanted any more.
    d.ask_for_host();
    d.give_back();
    assert_eq!(d.poll(Instant::ZERO), Next::Idle);
}

#[test]
fn a_shut_down_disk_still_lends_the_host() {
    let fake = common::FakeHost::new(1024, 8);
    let mut d = disk(&fake, NoSched::new(), 8, settings(8));
    d.shutdown(Instant::ZERO);
    d.ask_for_host();
    assert_eq!(d.poll(Instant::ZERO), Next::Lent, "to put the card to sleep, or to switch it off");
}

struct Virtual(Clock);
impl mmc_block::Idle for Virtual {
    fn now(&mut self) -> Instant {
        self.0.now()
    }
    fn wait(&mut self, until: Instant) {
        self.0.advance_to(until);
    }
}

#[test]
fn the_blocking_front_holds_any_conversation() {
    let MockBench { host, identified, now, .. } = MockBench::new(Profile::ideal());
    let clock = Clock::new();
    clock.advance_to(now);
    let traits: CardTraits = identified.traits;
    let queue = Queue::new(vec![Slot::FREE; 8], NoSched::new());
    let d = Disk::new(host, queue, traits, BufBatch::new(8), tags(8), settings(8), ()).unwrap();
    let mut d = Blocking::new(d, Virtual(clock));
    d.write(7, Buf(vec![0x5a; 1024])).unwrap();
    let mut batch = BufBatch::new(1);
    mmc_hal::Batch::push(&mut batch, Buf(vec![0; 1024]), 0, 1024).unwrap();
    let transfer = Transfer::new(&traits, Dir::Read, 7, 2, TransferOptions::default());
    let (result, batch) = d.converse(transfer, Some(batch));
    assert_eq!(result, Ok(2));
    assert_eq!(mmc_hal::Batch::pop(&mut batch.unwrap()).unwrap(), Buf(vec![0x5a; 1024]));
    d.read(7, Buf(vec![0; 512])).unwrap();
}
