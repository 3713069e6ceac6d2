//! One operation on the wire, without a bus: what to exchange next, and what the answer means.
//!
//! [`Line::step`] names the next [`Io`]; whoever drives it does that and asks again. Bytes go out of and come back into
//! [`Line::window`].

use crate::status::{busy, of_r1, of_r2, of_token, ready_in};
use crate::task::{Known, Open, Task, argument, silence, status, translate, word};
use mmc_hal::Payload;
use mmc_proto::command::{Command, DataShape, Gate, Stop};
use mmc_proto::frame::CommandFrame;
use mmc_proto::host::{Cause, Failure, Phase, Reply};
use mmc_proto::spi::{self, DataResponse, IDLE, R1, R2, ReadToken, Tail};
use mmc_proto::status::{CardState, CardStatus};
use mmc_time::{Duration, Instant};

/// The longest a transaction on a shared bus keeps the bus waiting for the data of a read.
pub const MAX_PAUSE: Duration = Duration::from_millis(300);

/// The first pause for a card whose data came too late for a transaction without one.
const FIRST_PAUSE: u32 = 100_000;
/// Transactions of one block until its data count as missing: all pauses up to the longest, and once more.
const LATE_TRIES: u8 = 9;
/// So many blocks in time, and the pause is halved: what was needed once is not needed for ever.
const CALM: u8 = 16;
/// How often CMD0, or CMD59, is said.
const TRIES: u8 = 8;
/// Bytes of a whole command: frame, N_CR, R1 and the longest tail.
const HEAD: usize = 20;
/// Bytes a shared bus reads beyond a block: the card's way to its first token.
const SLACK: usize = 64;
/// Longest block.
const BLOCK: usize = 512;
/// A whole read of one block on a shared bus is the longest exchange.
const BUF: usize = HEAD + SLACK + BLOCK + 3;
/// Bytes looked at in one go while the card looks for data; of those that came after the token none is lost.
const CHUNK: usize = 8;
/// Bytes looked at in one go while the card is busy; those after its end are lost.
const BUSY_CHUNK: usize = 4;
/// A wait shorter than this is spent on the bus; a longer one leaves the processor to others.
const EAGER: Duration = Duration::from_millis(2);
/// The supply window of a card that is not ready to tell (2.7–3.6 V).
const WINDOW: u32 = 0x00ff_8000;
const OCR_READY: u32 = 1 << 31;
const OCR_SECTORS: u32 = 1 << 30;

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Io {
    /// Bytes `from..to` of the buffer, with the clock still for `pause` ns before `middle`.
    Exchange { from: usize, middle: usize, pause: u32, to: usize },
    /// Chip select high.
    Release,
    /// The clocks of power-up.
    Clocks,
    /// Nothing before then.
    Wait(Instant),
    /// The operation is over.
    Done(Result<Reply, Failure>),
}

/// What happens once the card is not busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Send,
    Load,
    StopToken,
    Finish(Reply),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Begin,
    /// The card is to be looked at: is it busy?
    Ready,
    /// So many bytes of it were read.
    Polled(usize),
    /// A command went out; the buffer is filled up to here.
    Heard(usize),
    /// A token is to be looked for …
    Look,
    /// … in these bytes.
    Token(usize, usize),
    /// A block and its CRC begin here.
    Block(usize),
    /// A block went out; its data response is in these bytes.
    Taken(usize, usize),
    /// The stop token went out.
    Ended,
    Over(Result<Reply, Failure>),
    Released(Result<Reply, Failure>),
}

#[derive(Clone, Copy, Debug)]
struct Run {
    cmd: Command,
    app: bool,
    task: Task,
    stage: Stage,
    then: Then,
    /// The command on the wire.
    index: u8,
    arg: u32,
    /// The clocks of power-up, or those before the first command, have been given.
    clocked: bool,
    /// The command on the wire is the CMD12, or the CMD13, before the one that was asked for.
    cleaning: bool,
    tries: u8,
    polled: bool,
    since: Instant,
    /// Blocks moved, and where the next byte of the payload is.
    k: u32,
    segment: usize,
    at: usize,
}

impl Run {
    fn shape(&self) -> DataShape {
        let register = Command::data(0, 0, mmc_hal::Dir::Read, 16, 1, Stop::None).data;
        let none = DataShape { dir: mmc_hal::Dir::Read, block_len: 0, blocks: 0, stop: Stop::None };
        match self.task {
            Task::Register(_) => register.unwrap_or(none),
            _ => self.cmd.data.unwrap_or(none),
        }
    }
    fn len(&self) -> usize {
        usize::from(self.shape().block_len)
    }
    /// CMD18 and CMD25: the card goes on until it is told to stop.
    fn endless(&self) -> bool {
        !self.app && matches!(self.cmd.index, 18 | 25)
    }
    fn moves_data(&self) -> bool {
        matches!(self.task, Task::Read | Task::Write | Task::Register(_))
    }
    fn over(&mut self, result: Result<Reply, Failure>) -> Option<Io> {
        self.stage = Stage::Over(result);
        None
    }
    fn fail(&mut self, cause: Cause, phase: Phase, said: CardStatus) -> Option<Io> {
        let r1 = (!said.is_empty()).then_some(said.bits());
        self.over(Err(Failure { cause, phase, r1 }))
    }
    /// All data have passed.
    fn moved(&mut self, stopped: CardStatus) -> Option<Io> {
        let bytes = u64::from(self.k).saturating_mul(self.len() as u64);
        let words = [ready_in(CardState::Tran).bits(), stopped.bits(), 0, 0];
        self.over(Ok(Reply { words, bytes }))
    }
    fn say(&mut self, index: u8, arg: u32) {
        (self.index, self.arg) = (index, arg);
    }
    /// Once the card is not busy.
    fn wait(&mut self, then: Then, now: Instant) -> Option<Io> {
        (self.then, self.stage, self.since, self.polled) = (then, Stage::Ready, now, false);
        None
    }
    /// The card is not where it should be yet: `again`, at once or after a while.
    fn nap(&mut self, again: Stage, now: Instant) -> Option<Io> {
        self.stage = again;
        let so_far = now.since(self.since);
        if so_far < EAGER {
            return None;
        }
        let pause = Duration::from_nanos(so_far.as_nanos() / 128).min(Duration::from_millis(1));
        Some(Io::Wait(now + pause))
    }
    /// The next bytes of the payload, read or written by `f(payload bytes, place in the block)`.
    fn walk<P: Payload>(&mut self, payload: &mut P, len: usize, mut f: impl FnMut(&mut [u8], usize)) {
        let mut done = 0_usize;
        while done < len {
            let Some(segment) = payload.segment_mut(self.segment) else { return };
            let left = segment.get_mut(self.at..).unwrap_or(&mut []);
            let n = left.len().min(len.saturating_sub(done));
            if n == 0 {
                (self.segment, self.at) = (self.segment.saturating_add(1), 0);
                continue;
            }
            f(left.get_mut(..n).unwrap_or(&mut []), done);
            self.at = self.at.saturating_add(n);
            done = done.saturating_add(n);
        }
    }
}

/// The card at the end of the wires, as far as it is known.
#[derive(Debug)]
pub(crate) struct Line {
    buf: [u8; BUF],
    /// Chip select can be held from one exchange to the next.
    holds: bool,
    known: Known,
    open: Open,
    mmc: bool,
    sectors: bool,
    /// The card checks CRCs, and those it sends are right.
    crc: bool,
    /// CMD55 came just before.
    app: bool,
    /// The last R1 said "illegal command": the next one may say it once more.
    illegal: bool,
    /// How long the card is given in a transaction before its data are fetched, ns.
    pause: u32,
    /// Blocks in a row that came in time.
    calm: u8,
    run: Option<Run>,
}

impl Line {
    pub(crate) const fn new(holds: bool) -> Self {
        Self {
            buf: [IDLE; BUF],
            holds,
            known: Known::Nothing,
            open: Open::No,
            mmc: false,
            sectors: false,
            crc: false,
            app: false,
            illegal: false,
            pause: 0,
            calm: 0,
            run: None,
        }
    }
    /// The card lost its supply, or is told CMD0.
    pub(crate) fn forget(&mut self) {
        (self.known, self.open, self.mmc, self.sectors) = (Known::Nothing, Open::No, false, false);
        (self.crc, self.app, self.illegal) = (false, false, false);
    }
    /// An MMC answered CMD1.
    pub(crate) const fn mmc(&self) -> bool {
        self.mmc
    }
    /// Blocks and commands are checked by CRC on both sides.
    pub(crate) const fn checked(&self) -> bool {
        self.crc
    }
    /// Bytes `from..to` of the buffer.
    pub(crate) fn window(&mut self, from: usize, middle: usize, to: usize) -> (&mut [u8], &mut [u8]) {
        let all = self.buf.get_mut(from..to).unwrap_or(&mut []);
        let at = middle.saturating_sub(from).min(all.len());
        all.split_at_mut_checked(at).unwrap_or((&mut [], &mut []))
    }

    /// # Errors
    /// Nothing was begun.
    pub(crate) fn start(&mut self, cmd: &Command, now: Instant) -> Result<(), Cause> {
        if let Some(shape) = cmd.data {
            if usize::from(shape.block_len) > BLOCK {
                return Err(Cause::Unsupported("blocks of more than 512 bytes"));
            }
            if shape.blocks > 1 && (shape.block_len != 512 || !matches!(cmd.index, 18 | 25)) {
                return Err(Cause::Unsupported("several blocks, but not by CMD18 or CMD25"));
            }
        }
        let app = core::mem::take(&mut self.app);
        let task = translate(cmd, app, self.known, self.open, self.mmc);
        self.run = Some(Run {
            cmd: *cmd,
            app,
            task,
            stage: Stage::Begin,
            then: Then::Send,
            index: 0,
            arg: 0,
            clocked: false,
            cleaning: false,
            tries: 0,
            polled: false,
            since: now,
            k: 0,
            segment: 0,
            at: 0,
        });
        Ok(())
    }
    /// Whatever runs is dropped; what the card makes of it is put right before the next command. Whether chip select may
    /// rise.
    pub(crate) fn halt(&mut self) -> bool {
        let begun = self.run.take().filter(|run| run.stage != Stage::Begin);
        if begun.is_some_and(|run| run.moves_data() || matches!(run.task, Task::Stop | Task::Why)) {
            self.open = Open::Unknown;
        }
        self.open == Open::No
    }

    /// What comes next; after an exchange its bytes have replaced those that were sent.
    pub(crate) fn step<P: Payload>(&mut self, payload: Option<&mut P>, now: Instant) -> Io {
        let Some(mut run) = self.run.take() else {
            return Io::Done(Err((Cause::Controller, Phase::Submit).into()));
        };
        let mut payload = payload;
        // More than any way from one exchange to the next has.
        for _ in 0..8 {
            match self.turn(&mut run, payload.as_deref_mut(), now) {
                None => {}
                Some(Io::Done(result)) => return Io::Done(result),
                Some(io) => {
                    self.run = Some(run);
                    return io;
                }
            }
        }
        self.run = Some(run);
        Io::Wait(now)
    }

    fn turn<P: Payload>(&mut self, run: &mut Run, payload: Option<&mut P>, now: Instant) -> Option<Io> {
        match run.stage {
            Stage::Begin => self.begin(run, now),
            Stage::Ready => {
                // One byte tells that a card is ready, which it mostly is.
                let n = if run.polled { BUSY_CHUNK } else { 1 };
                (run.polled, run.stage) = (true, Stage::Polled(n));
                self.exchange(0, n)
            }
            Stage::Polled(n) if spi::is_ready(self.byte(n.saturating_sub(1))) => match run.then {
                Then::Send => self.send(run, payload),
                Then::Load => self.load(run, payload),
                Then::StopToken => {
                    self.put(0, &[spi::STOP_TRANSMISSION, IDLE]);
                    run.stage = Stage::Ended;
                    self.exchange_as_is(0, 2)
                }
                Then::Finish(reply) => run.over(Ok(reply)),
            },
            Stage::Polled(_) if run.task == Task::Plain(13) && run.cmd.gate == Gate::Now => {
                run.over(Ok(status(busy())))
            }
            Stage::Polled(_) => run.nap(Stage::Ready, now),
            Stage::Heard(to) => self.heard(run, to, payload, now),
            Stage::Look => {
                run.stage = Stage::Token(0, CHUNK);
                self.exchange(0, CHUNK)
            }
            Stage::Token(from, to) => self.token(run, from, to, now),
            Stage::Block(at) => self.block(run, at, payload, now),
            Stage::Taken(from, to) => self.taken(run, from, to, now),
            Stage::Ended => {
                self.open = Open::No;
                let tran = ready_in(CardState::Tran);
                match run.task {
                    Task::Stop if run.cmd.busy => run.wait(Then::Finish(status(tran)), now),
                    Task::Stop => run.over(Ok(status(tran))),
                    _ => run.moved(tran),
                }
            }
            Stage::Over(result) => {
                run.stage = Stage::Released(result);
                // A card that goes on sending, or waits for more, stays selected.
                let stays = self.holds && self.open != Open::No;
                (!stays).then_some(Io::Release)
            }
            Stage::Released(result) => Some(Io::Done(result)),
        }
    }

    fn begin(&mut self, run: &mut Run, now: Instant) -> Option<Io> {
        if run.cmd.init_clocks && !run.clocked {
            run.clocked = true;
            return Some(Io::Clocks);
        }
        // What came last may have been a response, with chip select still low: eight clocks until the next command (N_RC,
        // `spec/card.md` §1). QEMU's card does not see the first byte otherwise, and takes CMD12 for CMD0.
        if self.open == Open::Unknown && self.holds && !run.clocked {
            run.clocked = true;
            return self.exchange(0, 1);
        }
        let cmd = &run.cmd;
        let (index, arg) = match run.task {
            Task::Answer(result) => return run.over(result),
            Task::Reset => {
                self.forget();
                run.say(0, 0);
                return self.send_now(run);
            }
            Task::Stop if self.open == Open::Write => return run.wait(Then::StopToken, now),
            // Each block was a command of its own.
            Task::Stop if self.open == Open::Read && !self.holds => {
                self.open = Open::No;
                return run.over(Ok(status(ready_in(CardState::Tran))));
            }
            Task::Stop => {
                run.say(12, 0);
                return self.send_now(run);
            }
            _ if self.open != Open::No => {
                run.say(12, 0);
                run.cleaning = true;
                return self.send_now(run);
            }
            // In SPI mode R1 speaks of its own command, but some cards (QEMU's) say "illegal" once more in the next, as
            // on the SD bus: CMD13 hears that, so that what was asked for is not taken for refused.
            _ if self.illegal && self.known == Known::Ready => {
                run.say(13, 0);
                run.cleaning = true;
                return run.wait(Then::Send, now);
            }
            // The block comes once more: so does what makes it an application command.
            Task::Read if run.app && run.tries > 0 && run.index != 55 => (55, 0),
            Task::Register(index) => (index, 0),
            Task::Why => (13, 0),
            Task::Plain(index) => (index, argument(cmd, index, run.app)),
            Task::Read if run.endless() && !self.holds => {
                let unit = if self.sectors { 1 } else { 512 };
                (17, cmd.arg.wrapping_add(run.k.wrapping_mul(unit)))
            }
            Task::OpCond | Task::Read | Task::Write => (cmd.index, argument(cmd, cmd.index, run.app)),
        };
        run.say(index, arg);
        run.wait(Then::Send, now)
    }

    // Bytes out.

    fn byte(&self, at: usize) -> u8 {
        self.buf.get(at).copied().unwrap_or(IDLE)
    }
    fn put(&mut self, at: usize, bytes: &[u8]) {
        for (to, from) in self.buf.iter_mut().skip(at).zip(bytes) {
            *to = *from;
        }
    }
    fn idle(&mut self, from: usize, to: usize) {
        self.buf.get_mut(from..to).unwrap_or(&mut []).fill(IDLE);
    }
    fn exchange(&mut self, from: usize, to: usize) -> Option<Io> {
        self.idle(from, to);
        self.exchange_as_is(from, to)
    }
    fn exchange_as_is(&self, from: usize, to: usize) -> Option<Io> {
        Some(Io::Exchange { from, middle: to, pause: 0, to })
    }
    /// A command that does not wait for a busy card: CMD0, CMD12.
    fn send_now(&mut self, run: &mut Run) -> Option<Io> {
        self.send::<[u8; 1]>(run, None)
    }
    fn send<P: Payload>(&mut self, run: &mut Run, payload: Option<&mut P>) -> Option<Io> {
        self.put(0, &CommandFrame { index: run.index, arg: run.arg }.emit());
        let own = !run.cleaning && run.index != 55;
        let tail = if own { tail_len(run) } else { 0 };
        if self.holds {
            let to = 8_usize.saturating_add(usize::from(spi::has_stuff_byte(run.index))).saturating_add(tail);
            run.stage = Stage::Heard(to);
            self.idle(6, to);
            return self.exchange_as_is(0, to);
        }
        run.stage = Stage::Heard(HEAD);
        self.idle(6, HEAD);
        match run.task {
            Task::Read | Task::Register(_) if own && run.index != 12 => {
                let to = HEAD.saturating_add(SLACK).saturating_add(run.len()).saturating_add(3);
                run.stage = Stage::Heard(to);
                self.idle(HEAD, to);
                Some(Io::Exchange { from: 0, middle: HEAD, pause: self.pause, to })
            }
            Task::Write if own && run.index != 12 => {
                let to = self.fill(run, HEAD, payload);
                run.stage = Stage::Heard(to);
                self.exchange_as_is(0, to)
            }
            _ => self.exchange_as_is(0, HEAD),
        }
    }
    /// Puts token, block and CRC at `at`, and room for the data response; the end of it.
    fn fill<P: Payload>(&mut self, run: &mut Run, at: usize, payload: Option<&mut P>) -> usize {
        let token = if run.endless() { spi::START_MULTIPLE_WRITE } else { spi::START_BLOCK };
        self.put(at, &[token]);
        let (len, at) = (run.len(), at.saturating_add(1));
        let end = at.saturating_add(len);
        let to = self.buf.get_mut(at..end).unwrap_or(&mut []);
        if let Some(payload) = payload {
            run.walk(payload, len, |bytes, place| {
                for (to, from) in to.iter_mut().skip(place).zip(bytes) {
                    *to = *from;
                }
            });
        }
        let crc = spi::block_crc(to);
        self.put(end, &crc);
        let answer = end.saturating_add(2);
        let end = answer.saturating_add(if self.holds { 1 } else { CHUNK });
        self.idle(answer, end);
        end
    }
    /// The next block of a write whose command was answered.
    fn load<P: Payload>(&mut self, run: &mut Run, payload: Option<&mut P>) -> Option<Io> {
        // A byte between response and token; between blocks the look whether the card is busy was one.
        self.put(0, &[IDLE]);
        let lead = usize::from(run.k == 0);
        let to = self.fill(run, lead, payload);
        let answer = lead.saturating_add(run.len()).saturating_add(3);
        run.stage = Stage::Taken(answer, to);
        self.exchange_as_is(0, to)
    }

    // Bytes in.

    fn heard<P: Payload>(
        &mut self,
        run: &mut Run,
        to: usize,
        payload: Option<&mut P>,
        now: Instant,
    ) -> Option<Io> {
        let from = 6_usize.saturating_add(usize::from(spi::has_stuff_byte(run.index)));
        let end = to.min(from.saturating_add(spi::N_CR).saturating_add(1));
        let found = (from..end).find_map(|at| R1::from_byte(self.byte(at)).map(|r1| (at, r1)));
        let more = |run: &mut Run, line: &mut Self| {
            let end = to.saturating_add(CHUNK);
            run.stage = Stage::Heard(end);
            line.exchange(to, end)
        };
        let Some((at, r1)) = found else {
            let looked = to.saturating_sub(from);
            return if looked <= spi::N_CR && self.holds {
                more(run, self)
            } else {
                self.unanswered(run, now)
            };
        };
        let own = !run.cleaning && run.index != 55;
        let tail = if own && !r1.ends_here() { tail_len(run) } else { 0 };
        let tail_at = at.saturating_add(1);
        let after = tail_at.saturating_add(tail);
        if after > to {
            return if self.holds { more(run, self) } else { self.unanswered(run, now) };
        }
        let mut value = 0_u32;
        for i in tail_at..after {
            value = value << 8 | u32::from(self.byte(i));
        }
        self.answered(run, r1, value, (after, to), payload, now)
    }

    /// No R1 came.
    fn unanswered(&mut self, run: &mut Run, now: Instant) -> Option<Io> {
        if run.cleaning {
            return self.cleaned(run);
        }
        if run.moves_data() {
            self.open = Open::Unknown;
        }
        match run.task {
            Task::Reset => self.reset_again(run, now),
            Task::Why => run.fail(Cause::NoCrcStatus, Phase::Data, CardStatus::empty()),
            _ => run.over(Err(silence())),
        }
    }
    fn cleaned(&mut self, run: &mut Run) -> Option<Io> {
        (self.open, run.cleaning, run.stage) = (Open::No, false, Stage::Begin);
        self.illegal &= run.index == 12;
        // CMD55 has to be said again as well.
        run.index = 12;
        None
    }
    /// CMD0 or CMD59 came to nothing.
    fn reset_again(&mut self, run: &mut Run, now: Instant) -> Option<Io> {
        run.tries = run.tries.saturating_add(1);
        if run.tries >= TRIES {
            self.known = Known::Nothing;
            // On the SD bus CMD0 has no answer that could be missing.
            return run.over(if run.cmd.index == 0 { Ok(Reply::default()) } else { Err(silence()) });
        }
        if run.index == 0 { self.send_now(run) } else { run.wait(Then::Send, now) }
    }

    fn answered<P: Payload>(
        &mut self,
        run: &mut Run,
        r1: R1,
        tail: u32,
        (after, to): (usize, usize),
        payload: Option<&mut P>,
        now: Instant,
    ) -> Option<Io> {
        self.illegal = r1.contains(R1::ILLEGAL_COMMAND);
        if run.cleaning {
            return self.cleaned(run);
        }
        if run.task == Task::Reset {
            return self.reset_answered(run, r1, now);
        }
        let said = of_r1(r1);
        if r1.contains(R1::IDLE) && self.known == Known::Ready {
            // It has started anew, and knows nothing of what it was told.
            self.known = Known::Nothing;
            return run.over(Err(silence()));
        }
        let at_end = run.index == 12 && run.task != Task::Stop;
        if at_end {
            self.open = Open::No;
            return run.moved(ready_in(CardState::Data) | said);
        }
        if r1.contains(R1::ILLEGAL_COMMAND) && run.task == Task::Plain(13) {
            // Every card knows CMD13: some say once more that the command before was not legal, as on the SD bus.
            return run.over(Ok(status(said | ready_in(CardState::Tran))));
        }
        if r1.contains(R1::ILLEGAL_COMMAND) {
            if run.task == Task::Stop {
                // There is nothing to stop.
                self.open = Open::No;
            }
            return run.fail(Cause::Timeout, Phase::Command, said);
        }
        if r1.contains(R1::CRC_ERROR) {
            return run.fail(Cause::Crc, Phase::Command, said);
        }
        match run.task {
            Task::OpCond if run.index == 58 => {
                if tail & OCR_READY != 0 {
                    (self.known, self.sectors) = (Known::Ready, tail & OCR_SECTORS != 0);
                }
                run.over(Ok(word(tail)))
            }
            Task::OpCond => {
                self.mmc = run.cmd.index == 1;
                if r1.contains(R1::IDLE) {
                    return run.over(Ok(word(WINDOW)));
                }
                run.say(58, 0);
                run.wait(Then::Send, now)
            }
            Task::Read | Task::Write | Task::Register(_) if !said.is_empty() => {
                // There should be no data phase now; some cards begin one.
                self.open = Open::Unknown;
                run.fail(Cause::Timeout, Phase::Data, said)
            }
            Task::Read if run.index == 55 => {
                run.say(run.cmd.index, argument(&run.cmd, run.cmd.index, true));
                run.wait(Then::Send, now)
            }
            Task::Read | Task::Register(_) => {
                (run.since, run.stage) = (now, Stage::Token(after, to));
                None
            }
            Task::Write if self.holds => self.load(run, payload),
            Task::Write => {
                let answer = HEAD.saturating_add(run.len()).saturating_add(3);
                run.stage = Stage::Taken(answer, to);
                None
            }
            Task::Why => {
                let why = said | of_r2(R2::from_bits_retain(tail as u8));
                let why = if why.is_empty() { CardStatus::ERROR } else { why };
                run.fail(Cause::NoCrcStatus, Phase::Data, why)
            }
            Task::Stop => {
                self.open = Open::No;
                let reply = status(ready_in(CardState::Data) | said);
                if run.cmd.busy { run.wait(Then::Finish(reply), now) } else { run.over(Ok(reply)) }
            }
            Task::Plain(8) => run.over(Ok(word(tail))),
            Task::Plain(index) => {
                let state = if self.known == Known::Ready { CardState::Tran } else { CardState::Idle };
                let mut said = said | ready_in(state);
                if index == 13 {
                    said |= of_r2(R2::from_bits_retain(tail as u8));
                }
                if index == 55 {
                    self.app = true;
                    said |= CardStatus::APP_CMD;
                }
                let reply = status(said);
                if run.cmd.busy { run.wait(Then::Finish(reply), now) } else { run.over(Ok(reply)) }
            }
            Task::Answer(result) => run.over(result),
            Task::Reset => self.reset_again(run, now),
        }
    }
    fn reset_answered(&mut self, run: &mut Run, r1: R1, now: Instant) -> Option<Io> {
        match run.index {
            0 if r1 == R1::IDLE => {
                self.known = Known::Idle;
                run.tries = 0;
                run.say(59, 1);
                return run.wait(Then::Send, now);
            }
            // A card that has no CMD59 goes on without.
            59 if r1.contains(R1::ILLEGAL_COMMAND) => self.crc = false,
            59 if !r1.is_error() => self.crc = true,
            _ => return self.reset_again(run, now),
        }
        if run.cmd.index == 0 {
            return run.over(Ok(Reply::default()));
        }
        (run.task, run.stage) = (Task::Plain(run.cmd.index), Stage::Begin);
        None
    }

    fn token(&mut self, run: &mut Run, from: usize, to: usize, now: Instant) -> Option<Io> {
        let found = (from..to).find(|at| self.byte(*at) != IDLE);
        let Some(at) = found else {
            return if self.holds { run.nap(Stage::Look, now) } else { self.late(run) };
        };
        match ReadToken::from_byte(self.byte(at)) {
            ReadToken::Start => {
                let at = at.saturating_add(1);
                let end = at.saturating_add(run.len()).saturating_add(2);
                if end > to && !self.holds {
                    return self.late(run);
                }
                run.stage = Stage::Block(at);
                if end > to { self.exchange(to, end) } else { None }
            }
            ReadToken::Error(e) => {
                self.unsettled(run);
                run.fail(Cause::Timeout, Phase::Data, of_token(e))
            }
            ReadToken::Wait | ReadToken::Unknown(_) => {
                self.open = Open::Unknown;
                run.fail(Cause::Framing, Phase::Data, CardStatus::empty())
            }
        }
    }
    /// A read or write that the card may not know to be over has failed.
    fn unsettled(&mut self, run: &Run) {
        if run.endless() {
            self.open = Open::Unknown;
        }
    }
    /// The block was not in the transaction: once more, with more time for the card.
    fn late(&mut self, run: &mut Run) -> Option<Io> {
        (self.open, self.calm) = (Open::Unknown, 0);
        run.tries = run.tries.saturating_add(1);
        if run.tries >= LATE_TRIES {
            return run.fail(Cause::Timeout, Phase::Data, CardStatus::empty());
        }
        let most = u32::try_from(MAX_PAUSE.as_nanos()).unwrap_or(u32::MAX);
        self.pause = self.pause.saturating_mul(4).clamp(FIRST_PAUSE, most);
        run.stage = Stage::Begin;
        None
    }

    fn block<P: Payload>(
        &mut self,
        run: &mut Run,
        at: usize,
        payload: Option<&mut P>,
        now: Instant,
    ) -> Option<Io> {
        let len = run.len();
        let end = at.saturating_add(len);
        let block = self.buf.get(at..end).unwrap_or(&[]);
        let crc = self.buf.get(end..end.saturating_add(2)).unwrap_or(&[]);
        if self.crc && crc != spi::block_crc(block) {
            self.unsettled(run);
            return run.fail(Cause::Crc, Phase::Data, CardStatus::empty());
        }
        if matches!(run.task, Task::Register(_)) {
            let mut words = [0; 4];
            for (word, bytes) in words.iter_mut().zip(block.chunks(4)) {
                *word = bytes.iter().fold(0_u32, |w, b| w << 8 | u32::from(*b));
            }
            return run.over(Ok(Reply { words, bytes: 0 }));
        }
        if let Some(payload) = payload {
            run.walk(payload, len, |bytes, place| {
                for (to, from) in bytes.iter_mut().zip(block.iter().skip(place)) {
                    *to = *from;
                }
            });
        }
        run.k = run.k.saturating_add(1);
        if !self.holds {
            (run.tries, self.calm) = (0, self.calm.saturating_add(1));
            if self.calm >= CALM {
                (self.calm, self.pause) = (0, self.pause / 2);
            }
        }
        let shape = run.shape();
        if run.k < shape.blocks {
            (run.since, run.stage) = (now, if self.holds { Stage::Look } else { Stage::Begin });
            return None;
        }
        match (run.endless(), shape.stop) {
            (true, Stop::Manual) => {
                self.open = Open::Read;
                run.moved(CardStatus::empty())
            }
            (true, _) if self.holds => {
                run.say(12, 0);
                self.send_now(run)
            }
            _ => run.moved(ready_in(CardState::Tran)),
        }
    }

    fn taken(&mut self, run: &mut Run, from: usize, to: usize, now: Instant) -> Option<Io> {
        let found = (from..to).map(|at| self.byte(at)).find(|byte| *byte != IDLE);
        let shape = run.shape();
        match found.map(DataResponse::from_byte) {
            None if from != 0 && self.holds => {
                run.stage = Stage::Taken(0, CHUNK);
                self.exchange(0, CHUNK)
            }
            None | Some(None) => {
                self.open = Open::Unknown;
                run.fail(Cause::NoCrcStatus, Phase::Data, CardStatus::empty())
            }
            Some(Some(DataResponse::Accepted)) => {
                run.k = run.k.saturating_add(1);
                match (run.k < shape.blocks, run.endless(), shape.stop) {
                    (true, ..) => run.wait(Then::Load, now),
                    (_, true, Stop::Manual) => {
                        self.open = Open::Write;
                        run.moved(CardStatus::empty())
                    }
                    (_, true, _) => run.wait(Then::StopToken, now),
                    _ => run.moved(CardStatus::empty()),
                }
            }
            Some(Some(DataResponse::CrcError)) => {
                self.unsettled(run);
                run.fail(Cause::Crc, Phase::Data, CardStatus::empty())
            }
            Some(Some(DataResponse::WriteError)) => {
                self.unsettled(run);
                (run.task, run.stage) = (Task::Why, Stage::Begin);
                None
            }
        }
    }
}

/// Bytes behind the R1 of the command on the wire.
fn tail_len(run: &Run) -> usize {
    if matches!(run.task, Task::Read) && run.index == 8 {
        return 0;
    }
    let app = run.app && run.index == run.cmd.index;
    match spi::tail(run.index, app) {
        Tail::None | Tail::Busy => 0,
        Tail::Status => 1,
        Tail::Word => 4,
    }
}
