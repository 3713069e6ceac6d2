//! A loop of one's own around a disk: two tasks send requests while the card is at work, and the scheduler decides whose is
//! next.
//!
//! It is not tied to a system: [`System`] and [`serve`] stand in `docs/in-a-driver.md`, word for word; below them a small
//! system in virtual time, where one task stores a video and another needs an index now and then.

use mmc_block::{AnyDisk, Care, Disk, Done, Idle, Init, Next, Refused, Settings, Tag, identify};
use mmc_dw_hsdk::platform::HSDK;
use mmc_dw_hsdk::{DwEngine, Ring};
use mmc_hal::Payload;
use mmc_mock::card::{SdCard, SdConfig};
use mmc_mock::dw::{Config, Dw};
use mmc_mock::timing::Profile;
use mmc_mock::{Buf, BufBatch, Clock, Memory, MemoryDma, Wakes};
use mmc_proto::host::Host;
use mmc_sched::{Op, Queue, Request, Slot, StreamId};
use mmc_time::{Duration, Instant};
use std::collections::VecDeque;
use std::error::Error;

/// What the loop needs of the system around it.
trait System {
    type Buffer: Payload;
    fn now(&mut self) -> Instant;
    /// The next request that somebody has sent, and its buffer.
    fn next_request(&mut self) -> Option<(Request, Self::Buffer)>;
    /// A request is over; its buffer is in `done`.
    fn answer(&mut self, done: Done<Self::Buffer>);
    /// A request that is not taken: why is in `refused`. If the table is full, send it again after the next answer.
    fn refuse(&mut self, refused: Refused<Self::Buffer>);
    /// Sleeps until an interrupt, a new request, or that instant. False: the system goes down.
    fn sleep(&mut self, until: Instant) -> bool;
}

fn serve<D: AnyDisk>(disk: &mut D, system: &mut impl System<Buffer = D::Buffer>) {
    loop {
        while let Some((request, buffer)) = system.next_request() {
            if let Err(refused) = disk.submit(request, buffer, system.now()) {
                system.refuse(refused);
            }
        }
        let next = disk.poll(system.now());
        while let Some(done) = disk.take_done() {
            system.answer(done);
        }
        let until = match next {
            Next::Wait { until, .. } => until,
            // Nothing is queued. (Or you have the host yourself, after `ask_for_host`: `give_back` it.)
            Next::Idle | Next::Lent => Instant::NEVER,
        };
        if !system.sleep(until) {
            return;
        }
    }
}

const VIDEO: StreamId = StreamId(1);
const INDEX: StreamId = StreamId(2);

/// Each with the instant of it.
type Answers = Vec<(Done<Buf>, Instant)>;

/// Virtual time; what the tasks will send, and when; what came of it.
struct Toy<M> {
    clock: Clock,
    model: M,
    to_come: VecDeque<(Instant, Request, Buf)>,
    answers: Answers,
}

impl<M: Wakes> System for Toy<M> {
    type Buffer = Buf;
    fn now(&mut self) -> Instant {
        self.clock.now()
    }
    fn next_request(&mut self) -> Option<(Request, Buf)> {
        let now = self.clock.now();
        self.to_come.pop_front_if(|(at, ..)| *at <= now).map(|(_, request, buffer)| (request, buffer))
    }
    fn answer(&mut self, done: Done<Buf>) {
        self.answers.push((done, self.clock.now()));
    }
    fn refuse(&mut self, refused: Refused<Buf>) {
        panic!("{refused:?}");
    }
    fn sleep(&mut self, until: Instant) -> bool {
        let request = self.to_come.front().map_or(Instant::NEVER, |(at, ..)| *at);
        let next = until.min(self.model.next_event()).min(request);
        self.clock.advance_to(if next.is_never() { self.clock.now() } else { next });
        // When both tasks have ended and all is answered.
        !next.is_never()
    }
}

/// For the identification.
impl<M: Wakes> Idle for Toy<M> {
    fn now(&mut self) -> Instant {
        self.clock.now()
    }
    fn wait(&mut self, until: Instant) {
        self.clock.advance_to(self.model.next_event().min(until));
    }
}

fn run() -> Result<Answers, Box<dyn Error>> {
    let (clock, memory) = (Clock::new(), Memory::new(0x8000_0000, 0xc000_0000));
    let card = SdCard::new(SdConfig::new(Profile::slow2018(), 1))?;
    let model = Dw::new(card, clock.clone(), memory.clone(), Config::hsdk());
    let at = memory.alloc(8192);
    let ring = Ring::new(memory.window(at, 8192), at, 8192)?;
    let mut host = DwEngine::new(model.clone(), ring, MemoryDma::new(memory, u32::MAX.into()), HSDK);
    let mut toy =
        Toy { clock: clock.clone(), model: model.clone(), to_come: VecDeque::new(), answers: vec![] };

    let caps = host.capabilities();
    let mut init = Init::new(&caps, BufBatch::new(64), Buf(vec![0; 512])).map_err(|_| "a short buffer")?;
    let (card, parts) = identify(&mut host, &mut init, &mut toy);
    let (card, (batch, scratch)) = (card?, parts.ok_or("the host kept the buffers")?);
    let queue = Queue::new([Slot::FREE; 64], mmc_sched::Deadline::new());
    let tags = [const { Tag::new() }; 64];
    let mut disk = Disk::new(host, queue, card.traits, batch, tags, Settings::default(), ())?;
    disk.look_after(card, scratch, Care::new(&caps), clock.now()).map_err(|_| "a short buffer")?;

    // 48 pieces of 64 KiB at once; a sector of the index each 100 ms.
    let now = clock.now();
    for n in 0..48 {
        let write = Request::new(Op::Write, 100_000 + 1000 * n, 128, VIDEO);
        toy.to_come.push_back((now, write, Buf(vec![n as u8; 65_536])));
    }
    for n in 1..=10 {
        let read = Request::new(Op::Read, 100_000 + 1000 * n, 1, INDEX);
        toy.to_come.push_back((now + Duration::from_millis(100 * n), read, Buf(vec![0xee; 512])));
    }
    serve(&mut disk, &mut toy);
    match model.violations().first() {
        None => Ok(toy.answers),
        Some(violation) => Err(violation.as_str().into()),
    }
}

/// The longest wait of a task's requests.
fn longest(answers: &[(Done<Buf>, Instant)], task: StreamId) -> Duration {
    let of_task = answers.iter().filter(|(done, _)| done.request.stream == task);
    of_task.map(|(done, at)| at.since(done.stamps.queued)).max().unwrap_or(Duration::ZERO)
}

fn main() -> Result<(), Box<dyn Error>> {
    let answers = run()?;
    println!(
        "{} answers; longest waits: video {}, index {}",
        answers.len(),
        longest(&answers, VIDEO),
        longest(&answers, INDEX)
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_tasks_are_served_and_the_index_does_not_wait_for_the_video() {
        let answers = run().expect("a card");
        assert_eq!(answers.len(), 58);
        for (done, _) in &answers {
            assert_eq!(done.result, Ok(()), "{:?}", done.request);
            if done.request.op == Op::Read {
                let n = ((done.request.lba - 100_000) / 1000) as u8;
                // What is stored there, or will be.
                let read = &done.buffer.as_ref().expect("it comes back").0;
                assert!(read[..] == [n; 512] || read[..] == [0; 512], "{:?}", done.request);
            }
        }
        let (video, index) = (longest(&answers, VIDEO), longest(&answers, INDEX));
        assert!(index.as_nanos() < video.as_nanos() / 3, "the queue was long, {video}, for all but {index}");
    }

    #[test]
    fn the_loop_is_the_one_that_is_explained() {
        let explained = include_str!("../../docs/in-a-driver.md");
        let (_, rest) = explained.split_once("```rust\n").expect("the loop");
        let (text, _) = rest.split_once("```\n").expect("its end");
        assert!(include_str!("own_loop.rs").contains(text), "docs/in-a-driver.md has another loop");
    }
}
