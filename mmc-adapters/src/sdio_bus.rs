//! Our conversations, and our scheduler, over `sdio::MmcBus`: [`BusDriver::drive`] holds one
//! [`Machine`]'s, [`BusDriver::serve`] carries out what is queued in a [`Core`].

use crate::bounce::{load, unload};
use aligned::{A4, Aligned};
use embedded_hal_async::delay::DelayNs;
use mmc_block::{Core, Observer, Tag, Work};
use mmc_hal::{Batch, Dir, Payload};
use mmc_proto::bus::{BusConfig, Power, Signal, Width};
use mmc_proto::command::{Command, DataShape, Response as Kind};
use mmc_proto::host::{Capabilities, Cause, HostError, Phase, Reply};
use mmc_proto::machine::{Machine, Step};
use mmc_sched::Scheduler;
use mmc_time::{Duration, Instant};
use sdio::sd::BlockSize;
use sdio::{
    BlockCommand, BlockReadCommand, BlockWriteCommand, BusWidth, ControlCommand, MmcBus, MmcError, Response,
    ResponseLen,
};

/// Which response, as a number for a type.
const NONE: u8 = 0;
const R1: u8 = 1;
const R1B: u8 = 2;
const R3: u8 = 3;
const R2: u8 = 4;

/// The raw words of a response.
struct Words<const KIND: u8>([u32; 4]);

impl<const KIND: u8> Response for Words<KIND> {
    const CRC: bool = matches!(KIND, R1 | R1B | R2);
    const BUSY: bool = KIND == R1B;
    const LEN: ResponseLen = match KIND {
        NONE => ResponseLen::Zero,
        R2 => ResponseLen::R136,
        _ => ResponseLen::R48,
    };
    fn from_words(words: &[u32; 4]) -> Self {
        Self(*words)
    }
}

/// A command whose index is a type, as that crate wants it.
struct Raw<const INDEX: u8, const KIND: u8>(u32);

impl<const INDEX: u8, const KIND: u8> sdio::Command for Raw<INDEX, KIND> {
    const INDEX: u8 = INDEX;
    type Resp<'a> = Words<KIND>;
    fn arg(&self) -> u32 {
        self.0
    }
}
impl<const INDEX: u8, const KIND: u8> ControlCommand for Raw<INDEX, KIND> {}

/// A block length in that crate's words.
fn block_size(len: u16) -> BlockSize {
    use BlockSize::{B1, B2, B4, B8, B16, B32, B64, B128, B256, B512, B1024, B2048};
    let known = [B1, B2, B4, B8, B16, B32, B64, B128, B256, B512, B1024, B2048];
    known.into_iter().find(|size| size.len() == len.into()).unwrap_or(BlockSize::Unknown)
}

/// The same with data.
struct RawData<const INDEX: u8, B> {
    arg: u32,
    shape: DataShape,
    buf: B,
}

impl<const INDEX: u8, B> sdio::Command for RawData<INDEX, B> {
    const INDEX: u8 = INDEX;
    type Resp<'a>
        = Words<R1>
    where
        B: 'a;
    fn arg(&self) -> u32 {
        self.arg
    }
}
impl<const INDEX: u8, B> BlockCommand for RawData<INDEX, B> {
    fn block_size(&self) -> BlockSize {
        block_size(self.shape.block_len)
    }
    fn block_count(&self) -> u32 {
        self.shape.blocks
    }
}
impl<const INDEX: u8> BlockReadCommand for RawData<INDEX, &mut Aligned<A4, [u8]>> {
    fn buf(&mut self) -> &mut Aligned<A4, [u8]> {
        self.buf
    }
}
impl<const INDEX: u8> BlockWriteCommand for RawData<INDEX, &Aligned<A4, [u8]>> {
    fn buf(&self) -> &Aligned<A4, [u8]> {
        self.buf
    }
}

fn translate(e: &MmcError) -> (Cause, Phase) {
    match e {
        MmcError::Timeout => (Cause::Timeout, Phase::Command),
        MmcError::Crc => (Cause::Crc, Phase::Command),
        MmcError::Busy => (Cause::Limit, Phase::Busy),
        MmcError::Signaling | MmcError::Voltage => (Cause::VoltageSwitch, Phase::Bus),
        MmcError::BlockSize => (Cause::Unsupported("a block of this size"), Phase::Submit),
        MmcError::BusWidth => (Cause::Unsupported("so many data lines"), Phase::Bus),
        MmcError::Unsupported => (Cause::Unsupported("on this bus"), Phase::Submit),
        _ => (Cause::Controller, Phase::Command),
    }
}

/// A foreign bus with what a conversation needs beside it.
///
/// That bus cannot be one of our hosts: its futures borrow it and have no name. So it is driven, not polled: what a
/// [`Conductor`](mmc_proto::machine::Conductor) does for a host, `drive` does here. Two promises are the bus's own business
/// then: it must wait until DAT0 is high after a busy response and after a write, and **no time limit is enforced** – a bus
/// that hangs, hangs the call. 3.3 V only, no tuning, one or four or eight lines.
pub struct BusDriver<'w, B, D, F> {
    bus: B,
    delay: D,
    now: F,
    work: &'w mut Aligned<A4, [u8]>,
}

impl<B, D, F> core::fmt::Debug for BusDriver<'_, B, D, F> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("BusDriver").field("work", &self.work.len()).finish_non_exhaustive()
    }
}

impl<'w, B: MmcBus, D: DelayNs, F: FnMut() -> Instant> BusDriver<'w, B, D, F> {
    /// A bus, a delay, a clock, and memory that the bus can move data in and out of: at least 512 bytes, and as long as the
    /// longest command.
    pub const fn new(bus: B, delay: D, now: F, work: &'w mut Aligned<A4, [u8]>) -> Self {
        Self { bus, delay, now, work }
    }
    /// The bus.
    pub fn into_bus(self) -> B {
        self.bus
    }
    /// What a conversation may ask of this bus: for [`Identify`](mmc_proto::machine::Identify), and as the
    /// [`Limits`](mmc_block::Limits) of a [`Core`].
    pub fn capabilities(&self) -> Capabilities {
        let mut caps = Capabilities::new();
        caps.max_blocks = u32::try_from(self.work.len() / mmc_block::SECTOR).unwrap_or(u32::MAX);
        caps.max_segments = u16::MAX;
        caps.max_hz = self.bus.supports_frequency();
        caps.width = match self.bus.supports_bus_width() {
            BusWidth::W1 => Width::One,
            BusWidth::W4 => Width::Four,
            BusWidth::W8 => Width::Eight,
        };
        caps
    }

    async fn plain(&mut self, c: &Command) -> Result<Reply, MmcError> {
        let kind = match (c.response, c.busy) {
            (Kind::None, _) => NONE,
            (Kind::Short, false) => R1,
            (Kind::Short, true) => R1B,
            (Kind::ShortNoCrc, _) => R3,
            (Kind::Long, _) => R2,
        };
        macro_rules! send {
            ($($kind:ident: $($index:literal)*;)*) => {
                match (c.index, kind) {
                    $($(($index, $kind) => self.bus.send_command(Raw::<$index, $kind>(c.arg)).await?.0,)*)*
                    _ => return Err(MmcError::Unsupported),
                }
            };
        }
        let words = send! {
            NONE: 0 4 7 15;
            R1: 3 6 7 8 11 13 16 20 22 23 32 33 35 36 39 42 52 55;
            R1B: 5 6 7 12 20 28 29 38;
            R3: 1 5 41;
            R2: 2 9 10;
        };
        // That crate numbers the words of a long response from its end.
        let [a, b, c, d] = words;
        let words = if kind == R2 { [d, c, b, a] } else { words };
        Ok(Reply { words, bytes: 0 })
    }

    async fn data(
        &mut self,
        c: &Command,
        shape: DataShape,
        payload: &mut impl Payload,
    ) -> Result<Reply, MmcError> {
        if block_size(shape.block_len) == BlockSize::Unknown {
            return Err(MmcError::BlockSize);
        }
        let bytes = usize::try_from(shape.bytes()).map_err(|_| MmcError::Unsupported)?;
        if bytes > self.work.len() || bytes > payload.bytes() {
            return Err(MmcError::Unsupported);
        }
        let (bus, arg) = (&mut self.bus, c.arg);
        #[allow(
            clippy::indexing_slicing,
            reason = "only indexing keeps the alignment; the length was checked"
        )]
        let buf = &mut self.work[..bytes];
        macro_rules! transfer {
            ($call:ident, $buf:expr, $($index:literal)*) => {
                match c.index {
                    $($index => bus.$call(RawData::<$index, _> { arg, shape, buf: $buf }, false).await?.0,)*
                    _ => return Err(MmcError::Unsupported),
                }
            };
        }
        let words = match shape.dir {
            Dir::Read => {
                let words = transfer!(read_blocks, &mut *buf, 6 8 13 17 18 22 30 48 51 53 56);
                load(payload, 0, buf);
                words
            }
            Dir::Write => {
                unload(payload, 0, buf);
                transfer!(write_blocks, &*buf, 24 25 26 27 42 49 53 56)
            }
        };
        Ok(Reply { words, bytes: shape.bytes() })
    }

    fn set_bus(&mut self, bus: &BusConfig) -> Result<Reply, MmcError> {
        if bus.signal != Signal::V3_3 || bus.timing.ddr() || bus.sample != 0 {
            return Err(MmcError::Unsupported);
        }
        let width = match bus.width {
            Width::One => BusWidth::W1,
            Width::Four => BusWidth::W4,
            Width::Eight => BusWidth::W8,
        };
        self.bus.set_bus(width, bus.hz.min(self.bus.supports_frequency()))?;
        Ok(Reply::default())
    }

    async fn sleep(&mut self, time: Duration) {
        let mut left = time.as_nanos();
        while left > 0 {
            let now = u32::try_from(left).unwrap_or(u32::MAX);
            self.delay.delay_ns(now).await;
            left = left.saturating_sub(now.into());
        }
    }

    /// Holds `machine`'s conversation to its end. `payload` is the caller's data, or scratch of at least 512 bytes in one
    /// segment for a machine that wants it. Dropping the future leaves the card in the middle of a conversation: identify it
    /// anew.
    pub async fn drive<M: Machine>(&mut self, machine: &mut M, payload: &mut impl Payload) -> M::Output {
        let mut last = None;
        loop {
            let now = (self.now)();
            let mut empty: [u8; 0] = [];
            let scratch = match machine.scratch() {
                true => payload.segment_mut(0).unwrap_or(&mut empty),
                false => &mut empty,
            };
            let (result, index) = match machine.next(last.take(), scratch, now) {
                Step::Do(action) => {
                    let command = action.command;
                    let result = match command.data {
                        None => self.plain(&command).await,
                        Some(shape) => self.data(&command, shape, payload).await,
                    };
                    (result, command.index)
                }
                Step::Bus(bus) => (self.set_bus(&bus), 255),
                // What it does is what switching the supply on does; that it goes off cannot be said.
                Step::Power(Power::On) => (self.bus.init_idle(400_000).await.map(|()| Reply::default()), 255),
                Step::Power(Power::Off) => (Ok(Reply::default()), 255),
                Step::Sleep(time) => {
                    self.sleep(time).await;
                    continue;
                }
                Step::Done(output) => return output,
            };
            last = Some(result.map_err(|e| {
                let (cause, phase) = translate(&e);
                HostError::new(cause, phase, index)
            }));
        }
    }

    /// Carries out all that is queued in `core`, one command after the other, and returns when nothing is. Take what is done,
    /// submit more, and call it again. Dropping the future leaves the requests of one command without an end: shut the core
    /// down then.
    pub async fn serve<S, T, P, O>(&mut self, core: &mut Core<S, T, P::Buffer, O>, batch: &mut P)
    where
        S: Scheduler,
        T: AsRef<[Tag<P::Buffer>]> + AsMut<[Tag<P::Buffer>]>,
        P: Batch,
        O: Observer,
    {
        loop {
            let now = (self.now)();
            match core.next(batch, now) {
                Work::Run(job) => {
                    let mut exchange = core.start(&job, now);
                    let answer = self.drive(&mut exchange, batch).await;
                    core.finish(job, answer, Some(batch), (self.now)());
                }
                // Nobody has switched a cache on.
                Work::Flush => core.finish_flush(Ok(()), now),
                Work::Wait { at: Some(at) } => {
                    self.sleep(at.since(now).max(Duration::from_micros(1))).await;
                }
                Work::Wait { at: None } | Work::Idle => return,
            }
        }
    }
}
