//! The host is lent between two commands: soon, however full the queue is, and without costing it much.

mod common;
mod stack;

use common::{MockBench, buf, disk, read, settings, tags, write};
use mmc_block::{Blocking, Disk, Failure, InPartition, Next, Observer, Refusal, Ticket};
use mmc_hal::Dir;
use mmc_mock::card::MmcCard;
use mmc_mock::timing::Profile;
use mmc_mock::{Buf, BufBatch, Clock};
use mmc_proto::command::Command;
use mmc_proto::machine::{
    CardTraits, Conductor, Fetch, Health, Machine, Partition, Rpmb, Step, Transfer, TransferOptions, Turn,
};
use mmc_proto::rpmb::SoftwareHmac;
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

fn emmc(text: &str) -> (stack::Door<MmcCard>, Clock, Blocking<stack::TheDisk, Virtual>) {
    let b = stack::Bench::new(stack::Backend::Mock, stack::emmc_card(text), false, "mq-deadline").unwrap();
    (b.card, b.clock.clone(), Blocking::new(b.disk, Virtual(b.clock)))
}

#[test]
fn another_partition_is_read_and_written_between_requests_and_the_user_area_stays_what_it_was() {
    let (_card, clock, mut d) = emmc("");
    let mut batch = Some(BufBatch::new(1));
    d.write(5, Buf(vec![1; 1024])).unwrap();
    // Others are served between.
    let queued = d.disk().submit(write(900, 8), buf(&write(900, 8), 4), clock.now()).unwrap();
    for (partition, byte) in [(Partition::Boot1, 2), (Partition::Boot2, 3)] {
        let sent = Buf(vec![byte; 1024]);
        assert_eq!(d.write_partition(partition, 5, sent.clone(), &mut batch).unwrap(), sent);
    }
    assert_eq!(d.read(5, Buf(vec![0; 1024])).unwrap().0, vec![1; 1024]);
    assert!(d.disk().take(queued).unwrap().result.is_ok());
    for (partition, byte) in [(Partition::Boot1, 2), (Partition::Boot2, 3)] {
        let back = d.read_partition(partition, 5, Buf(vec![0; 1024]), &mut batch).unwrap();
        assert_eq!(back.0, vec![byte; 1024], "{partition:?}");
    }
    assert_eq!(d.disk().statistics().resets, 0);
}

#[test]
fn a_partition_that_is_not_there_and_a_range_that_is_not_in_it_are_refused() {
    let (_card, _, mut d) = emmc("");
    let mut batch = Some(BufBatch::new(1));
    let boot = d.disk().card().unwrap().mmc().unwrap().ext_csd.unwrap().boot_partition_bytes() / 512;
    let mut refused = |partition, lba, bytes: usize, batch: &mut Option<BufBatch>| {
        let failed = d.read_partition(partition, lba, Buf(vec![0; bytes]), batch).unwrap_err();
        assert_eq!(failed.buffer.map(|b| b.0.len()), Some(bytes), "it comes back");
        match failed.error {
            Failure::Refused(why) => why,
            other => panic!("{other}"),
        }
    };
    for partition in [Partition::User, Partition::Rpmb, Partition::General(1), Partition::General(9)] {
        assert_eq!(refused(partition, 0, 512, &mut batch), Refusal::NoPartition(partition));
    }
    let out = |lba, blocks| Refusal::OutOfRange { lba, blocks, capacity: boot };
    assert_eq!(refused(Partition::Boot1, boot - 1, 1024, &mut batch), out(boot - 1, 2));
    assert_eq!(refused(Partition::Boot1, boot, 512, &mut batch), out(boot, 1));
    assert_eq!(refused(Partition::Boot1, u64::MAX, 512, &mut batch), out(u64::MAX, 1));
    assert_eq!(refused(Partition::Boot1, 0, 0, &mut batch), Refusal::Empty);
    let odd = Refusal::BufferLength { bytes: 700, needed: 512 };
    assert_eq!(refused(Partition::Boot1, 0, 700, &mut batch), odd);
    assert_eq!(refused(Partition::Boot1, 0, 512, &mut None), Refusal::NoBatch);
    // Its last two sectors are there.
    let last = d.read_partition(Partition::Boot1, boot - 2, Buf(vec![7; 1024]), &mut batch).unwrap();
    assert_eq!(last.0, [0; 1024]);
    // A card without partitions.
    let b = stack::Bench::new(stack::Backend::Mock, stack::sd_card(""), false, "none").unwrap();
    let mut sd = Blocking::new(b.disk, Virtual(b.clock));
    let failed = sd.read_partition(Partition::Boot1, 0, Buf(vec![0; 512]), &mut batch).unwrap_err();
    assert_eq!(failed.error, Failure::Refused(Refusal::NoPartition(Partition::Boot1)));
}

/// Whatever strikes while another partition is selected: what is written to the user area afterwards is there, and the
/// partition holds what it held or what was written.
#[test]
fn no_fault_leaves_the_disk_in_another_partition() {
    let kinds = [
        "lost",
        "no-answer",
        "response-crc",
        "status 0x00000080",
        "busy forever",
        "block 0 crc",
        "power-loss all",
    ];
    // Whether the partition or the user area is asked for first.
    let case = |text: &str, partition_first: bool| {
        let (card, _, mut d) = emmc(text);
        let ready = card.with(|c| c.frames());
        let mut batch = Some(BufBatch::new(1));
        let written = d.write_partition(Partition::Boot1, 7, Buf(vec![9; 512]), &mut batch);
        let end = card.with(|c| c.frames());
        if partition_first {
            d.read_partition(Partition::Boot1, 7, Buf(vec![0; 512]), &mut batch).unwrap();
        }
        d.write(7, Buf(vec![1; 512])).unwrap();
        assert_eq!(d.read(7, Buf(vec![0; 512])).unwrap().0, vec![1; 512], "{text}");
        assert!(batch.is_some());
        let held = d.read_partition(Partition::Boot1, 7, Buf(vec![0; 512]), &mut batch).unwrap().0;
        let right = if written.is_ok() { held == vec![9; 512] } else { held[0] == 9 || held[0] == 0 };
        assert!(right, "{text}: {written:?}, and it holds {}", held[0]);
        (ready, end, written.is_err())
    };
    let (ready, end, failed) = case("", false);
    assert!(!failed && end > ready + 4);
    let (mut cases, mut reported) = (0, 0);
    for frame in ready..end {
        for kind in kinds {
            for partition_first in [false, true] {
                cases += 1;
                reported += u32::from(case(&format!("at frame {frame}: {kind}"), partition_first).2);
            }
        }
    }
    println!("{cases} faults, {reported} reported");
    assert!(reported > 0 && cases >= 30, "{cases} {reported}");
}

/// Health, asked for through the blocking front: what the registers say of the card's wear.
#[test]
fn the_health_of_a_card_is_asked_for_between_two_requests() {
    let (_card, _, mut d) = emmc("");
    d.write(5, Buf(vec![1; 512])).unwrap();
    let traits = d.disk().card().unwrap().traits;
    let mut batch = BufBatch::new(1);
    mmc_hal::Batch::push(&mut batch, Buf(vec![0; 512]), 0, 512).unwrap();
    let (read, _) = d.converse(Fetch::ext_csd(&traits), Some(batch));
    let health = Health::of(&read.unwrap());
    println!("{health:?}");
    assert!(d.read(5, Buf(vec![0; 512])).is_ok());
}

/// The replay protected memory, in one loan: its key, a write, and the counter that has counted it.
#[test]
fn the_replay_protected_memory_is_reached_between_two_requests() {
    let (_card, _, mut d) = emmc("");
    d.write(5, Buf(vec![1; 512])).unwrap();
    let card = *d.disk().card().unwrap();
    let key = [7; 32];
    let mut talk = |machine| {
        let mut batch = BufBatch::new(1);
        mmc_hal::Batch::push(&mut batch, Buf(vec![0; 512]), 0, 512).unwrap();
        let machine = InPartition::new(&card, Partition::Rpmb, machine).unwrap();
        let (result, _) = d.converse_in(machine, Some(batch));
        result.unwrap()
    };
    let hmac = || SoftwareHmac::new(&key);
    talk(Rpmb::program_key(&card.traits, &key, hmac())).unwrap();
    talk(Rpmb::write(&card.traits, 3, &[0x5a; 256], 0, hmac())).unwrap();
    let counter = talk(Rpmb::read_counter(&card.traits, 1234, hmac())).unwrap();
    assert_eq!(counter.write_counter(), 1);
    // With another key the card is not believed, and the user area is served all the same.
    assert!(talk(Rpmb::read_counter(&card.traits, 99, SoftwareHmac::new(&[8; 32]))).is_err());
    assert_eq!(d.read(5, Buf(vec![0; 512])).unwrap().0, vec![1; 512]);
}
