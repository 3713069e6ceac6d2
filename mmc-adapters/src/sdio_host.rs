//! `sdio::MmcBus` on our hosts: that crate's card layer (SD, eMMC, SDIO) over any [`Host`].

use crate::bounce::{load, unload};
use core::future::poll_fn;
use core::task::Poll;
use mmc_block::Env;
use mmc_hal::{Dir, Payload};
use mmc_proto::bus::{BusConfig, Power, Timing, Width};
use mmc_proto::command::{Command, DataShape, Gate, Response as Kind, Stop};
use mmc_proto::host::{Cause, Completion, Host, HostError, Operation, Phase, Progress, Reply, Returned};
use mmc_time::{Duration, Instant};
use sdio::{
    BlockReadCommand, BlockWriteCommand, BusWidth, ByteReadCommand, ByteWriteCommand, ControlCommand, MmcBus,
    MmcError, Response, ResponseLen,
};

/// A host as that crate's bus. A call whose future is dropped is ended by the next one.
///
/// 3.3 V only, no tuning, no SDIO interrupts (`wait_for_event` returns at once). Its `set_bus` is not async: what it asks
/// for is done before the next command.
pub struct HostBus<'e, H: Host, E> {
    host: H,
    env: &'e E,
    /// What data go through; `None` while the host has it.
    payload: Option<H::Payload>,
    limit: Duration,
    /// The bus as it is wanted, and whether the host does not know yet.
    bus: BusConfig,
    dirty: bool,
    /// The next command needs 74 clocks before it.
    fresh: bool,
    /// The last command was CMD23: the next transfer ends by itself.
    counted: bool,
    running: bool,
}

impl<H: Host, E> core::fmt::Debug for HostBus<'_, H, E> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("HostBus")
            .field("bus", &self.bus)
            .field("running", &self.running)
            .finish_non_exhaustive()
    }
}

fn translate(e: HostError) -> MmcError {
    match (e.cause, e.phase) {
        (Cause::Limit | Cause::Timeout, Phase::Busy) | (Cause::Busy, _) => MmcError::Busy,
        (Cause::Limit | Cause::Timeout | Cause::NoCard, _) => MmcError::Timeout,
        (Cause::Crc, _) => MmcError::Crc,
        (Cause::VoltageSwitch, _) => MmcError::Signaling,
        (Cause::Unsupported(_), _) => MmcError::Unsupported,
        _ => MmcError::Io,
    }
}

/// The command of type `C` with response `R`, without data.
fn plain<R: Response>(index: u8, arg: u32) -> Command {
    let kind = match (R::LEN, R::CRC) {
        (ResponseLen::Zero, _) => Kind::None,
        (ResponseLen::R136, _) => Kind::Long,
        (ResponseLen::R48, true) => Kind::Short,
        (ResponseLen::R48, false) => Kind::ShortNoCrc,
    };
    let mut command = Command::plain(index & 63, arg, kind);
    command.busy = R::BUSY;
    if matches!(command.index, 0 | 12) {
        command.gate = Gate::Now;
    }
    command
}

/// Its words: short, bits 39:8; long, numbered from the end.
fn response<R: Response>(reply: &Reply) -> R {
    let [a, b, c, d] = reply.words;
    match R::LEN {
        ResponseLen::R136 => R::from_words(&[d, c, b, a]),
        _ => R::from_words(&reply.words),
    }
}

impl<'e, H: Host, E: Env> HostBus<'e, H, E> {
    /// A bus over `host`; data go through `payload`, which is as long as the longest transfer that will be asked for
    /// (longer ones are `MmcError::Unsupported`). Each operation ends within `limit`, for a card by the standard 3 s.
    pub fn new(host: H, env: &'e E, payload: H::Payload, limit: Duration) -> Self {
        Self {
            host,
            env,
            payload: Some(payload),
            limit,
            bus: BusConfig::default(),
            dirty: false,
            fresh: false,
            counted: false,
            running: false,
        }
    }
    /// Host and payload; the latter unless the host has it.
    pub fn into_parts(self) -> (H, Option<H::Payload>) {
        (self.host, self.payload)
    }

    async fn done(&mut self) -> Result<Reply, MmcError> {
        let (host, env) = (&mut self.host, self.env);
        let end = poll_fn(|cx| {
            // Armed before it looks: an interrupt in between would be lost.
            env.arm(cx.waker(), Instant::NEVER);
            match host.poll(env.now()) {
                Progress::Waiting { until, .. } => {
                    env.arm(cx.waker(), until);
                    Poll::Pending
                }
                Progress::Done(end) => Poll::Ready(Some(end)),
                Progress::Idle => Poll::Ready(None),
            }
        })
        .await;
        self.running = false;
        let Completion { result, payload } = end.ok_or(MmcError::Other)?;
        if let Returned::Back(payload) = payload {
            self.payload = Some(payload);
        }
        result.map_err(translate)
    }

    /// One operation, after what an earlier call left behind.
    async fn operation(&mut self, op: Operation<H::Payload>) -> Result<Reply, MmcError> {
        let now = self.env.now();
        match self.host.submit(op, now + self.limit, now) {
            Ok(()) => {
                self.running = true;
                self.done().await
            }
            Err(refused) => {
                if let Operation::Transfer(_, payload) = refused.operation {
                    self.payload = Some(payload);
                }
                Err(translate(refused.error))
            }
        }
    }

    async fn ready(&mut self) -> Result<(), MmcError> {
        if self.running {
            // A call was dropped: nobody wants to know.
            self.host.abort(self.env.now());
            let _ = self.done().await;
        }
        if self.dirty {
            self.operation(Operation::Bus(self.bus)).await?;
            self.dirty = false;
        }
        Ok(())
    }

    async fn send(&mut self, mut command: Command) -> Result<Reply, MmcError> {
        self.ready().await?;
        command.init_clocks = core::mem::take(&mut self.fresh);
        self.counted = command.index == 23;
        self.operation(Operation::Command(command)).await
    }

    /// A transfer; its shape is `len` bytes in each of `blocks` blocks. The payload is loaded before and unloaded after.
    async fn transfer(
        &mut self,
        mut command: Command,
        dir: Dir,
        (len, blocks): (usize, u32),
        out: Option<&[u8]>,
    ) -> Result<Reply, MmcError> {
        self.ready().await?;
        let open = matches!(command.index, 18 | 25) && !core::mem::take(&mut self.counted);
        let stop = if open { Stop::Manual } else { Stop::None };
        let block_len = u16::try_from(len).map_err(|_| MmcError::BlockSize)?;
        let shape = DataShape { dir, block_len, blocks, stop };
        // Where a write's R1 is followed by busy, it is behind the data: the next command waits for it.
        (command.busy, command.data) = (false, Some(shape));
        let mut payload = self.payload.take().ok_or(MmcError::Io)?;
        let room = u64::try_from(payload.bytes()).unwrap_or(u64::MAX);
        if shape.bytes() > room {
            self.payload = Some(payload);
            return Err(MmcError::Unsupported);
        }
        if let Some(bytes) = out {
            load(&mut payload, 0, bytes);
        }
        self.operation(Operation::Transfer(command, payload)).await
    }

    async fn read(
        &mut self,
        command: Command,
        shape: (usize, u32),
        into: &mut [u8],
        auto_stop: bool,
    ) -> Result<Reply, MmcError> {
        let reply = self.transfer(command, Dir::Read, shape, None).await?;
        if let Some(payload) = &self.payload {
            unload(payload, 0, into);
        }
        self.stop(auto_stop).await?;
        Ok(reply)
    }
    async fn write(
        &mut self,
        command: Command,
        shape: (usize, u32),
        from: &[u8],
        auto_stop: bool,
    ) -> Result<Reply, MmcError> {
        let reply = self.transfer(command, Dir::Write, shape, Some(from)).await?;
        self.stop(auto_stop).await?;
        Ok(reply)
    }
    async fn stop(&mut self, wanted: bool) -> Result<(), MmcError> {
        if wanted {
            self.send(Command::stop_transmission()).await?;
        }
        Ok(())
    }
}

impl<H: Host, E: Env> MmcBus for HostBus<'_, H, E> {
    async fn send_command<'a, C: ControlCommand + 'a>(&mut self, cmd: C) -> Result<C::Resp<'a>, MmcError> {
        let reply = self.send(plain::<C::Resp<'a>>(cmd.index(), cmd.arg())).await?;
        Ok(response(&reply))
    }

    async fn read_blocks<'a, C: BlockReadCommand + 'a>(
        &mut self,
        mut cmd: C,
        auto_stop: bool,
    ) -> Result<C::Resp<'a>, MmcError> {
        let command = plain::<C::Resp<'a>>(cmd.index(), cmd.arg());
        let shape = (cmd.block_size().len(), cmd.block_count());
        let reply = self.read(command, shape, cmd.buf(), auto_stop).await?;
        Ok(response(&reply))
    }

    async fn write_blocks<'a, C: BlockWriteCommand + 'a>(
        &mut self,
        cmd: C,
        auto_stop: bool,
    ) -> Result<C::Resp<'a>, MmcError> {
        let command = plain::<C::Resp<'a>>(cmd.index(), cmd.arg());
        let shape = (cmd.block_size().len(), cmd.block_count());
        let reply = self.write(command, shape, cmd.buf(), auto_stop).await?;
        Ok(response(&reply))
    }

    async fn read_bytes<'a, C: ByteReadCommand + 'a>(&mut self, mut cmd: C) -> Result<C::Resp<'a>, MmcError> {
        let command = plain::<C::Resp<'a>>(cmd.index(), cmd.arg());
        let shape = (cmd.byte_count(), 1);
        let reply = self.read(command, shape, cmd.buf(), false).await?;
        Ok(response(&reply))
    }

    async fn write_bytes<'a, C: ByteWriteCommand + 'a>(&mut self, cmd: C) -> Result<C::Resp<'a>, MmcError> {
        let command = plain::<C::Resp<'a>>(cmd.index(), cmd.arg());
        let reply = self.write(command, (cmd.byte_count(), 1), cmd.buf(), false).await?;
        Ok(response(&reply))
    }

    /// Cycles the supply where the host can switch it.
    async fn init_idle(&mut self, hz: u32) -> Result<(), MmcError> {
        self.dirty = false;
        self.ready().await?;
        for power in [Power::Off, Power::On] {
            match self.operation(Operation::Power(power)).await {
                // A supply that is always on is as good as one that was switched on.
                Ok(_) | Err(MmcError::Unsupported) => {}
                Err(e) => return Err(e),
            }
        }
        (self.fresh, self.counted) = (true, false);
        self.set_bus(BusWidth::W1, hz)
    }

    fn set_bus(&mut self, width: BusWidth, hz: u32) -> Result<(), MmcError> {
        let width = match width {
            BusWidth::W1 => Width::One,
            BusWidth::W4 => Width::Four,
            BusWidth::W8 => Width::Eight,
        };
        if width > self.host.capabilities().width {
            return Err(MmcError::BusWidth);
        }
        let timing = if hz > Timing::Default.max_hz() { Timing::High } else { Timing::Default };
        self.bus = BusConfig { hz, width, timing, ..BusConfig::default() };
        self.dirty = true;
        Ok(())
    }

    fn supports_mmc(&self) -> bool {
        true
    }
    fn supports_bus_width(&self) -> BusWidth {
        match self.host.capabilities().width {
            Width::One => BusWidth::W1,
            Width::Four => BusWidth::W4,
            Width::Eight => BusWidth::W8,
        }
    }
    fn supports_frequency(&self) -> u32 {
        self.host.capabilities().max_hz.min(Timing::Ddr52.max_hz())
    }
}
