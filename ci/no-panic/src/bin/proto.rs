//! `mmc-proto`: frames, checksums, every register, SPI framing, RPMB, quirks, and the machines over a supervised host.
#![no_std]
#![no_main]

use core::fmt::Write;
use mmc_hal::{Dir, Payload};
use mmc_proto::bus::{BusConfig, Power};
use mmc_proto::command::{Addressing, Command, Dialect, ExtPlace, ExtUnit, IoCount, SwitchAccess};
use mmc_proto::frame::{CommandFrame, CommandText, LongFrame, ResponseFrame};
use mmc_proto::host::{Capabilities, Cause, Engine, Failure, Host, Lease, Reply, Slot, Supervised, Why};
use mmc_proto::machine::{
    After, BootFrom, CardTraits, Conductor, Extensions, Fetch, FindExtensions, Health, Identify, Lock, LockOp, Machine,
    Means, Order, POLICY, Partition, PowerNotice, Protection, Recover, Reread, Rpmb, SdRegister, SlotWatch, TalkError, Transfer,
    TransferCause, TransferOptions, Trouble, Turn, plan,
};
use mmc_proto::register::{Cid, CrcPolicy, Csd, MmcCid, MmcCsd, Ocr, Scr, Ssr, SwitchStatus, mmc_year};
use mmc_proto::machine::Erase;
use mmc_proto::register::extension::{GeneralInfo, PerformanceSet, PowerSet};
use mmc_proto::register::sdio::{Cccr, Fbr, Tuples};
use mmc_proto::register::{ExtCsd, ext_csd};
use mmc_proto::response::{QueueStatus, R5};
use mmc_proto::timing::{EraseKind, MmcEraseKind};
use mmc_proto::{quirk, rpmb, spi, timing};
use mmc_time::{Duration, Instant};
use no_panic::sink;

struct Text;
impl Write for Text {
    fn write_str(&mut self, s: &str) -> core::fmt::Result {
        sink(s);
        Ok(())
    }
}

struct Nothing;
impl Engine for Nothing {
    type Payload = [u8; 512];
    fn capabilities(&self) -> Capabilities {
        sink(Capabilities::new())
    }
    fn start(&mut self, c: &Command, _: Option<Lease<'_, [u8; 512]>>, _: Instant) -> Result<(), Cause> {
        sink(c);
        sink(Ok(()))
    }
    fn set_bus(&mut self, b: &BusConfig, _: Instant) -> Result<(), Cause> {
        sink(b);
        sink(Ok(()))
    }
    fn set_power(&mut self, p: Power, _: Instant) -> Result<(), Cause> {
        sink(p);
        sink(Ok(()))
    }
    fn advance(
        &mut self,
        data: Option<Lease<'_, [u8; 512]>>,
        _: Instant,
    ) -> Option<Result<Reply, Failure>> {
        if let Some(mut lease) = data {
            sink(lease.get().segment_mut(0));
        }
        sink(None)
    }
    fn waits(&self, now: Instant) -> (Why, Instant) {
        sink((Why::Timer, now))
    }
    fn halt(&mut self, now: Instant) {
        sink(now);
    }
    fn halted(&mut self, _: Instant) -> bool {
        sink(true)
    }
}

fn conduct<M: Machine>(machine: M) {
    let mut host = Supervised::new(Nothing, sink(Duration::from_millis(1)));
    let mut conductor = Conductor::new(machine, Some([0; 512]));
    loop {
        match conductor.poll(&mut host, sink(Instant::ZERO)) {
            Turn::Wait { until, .. } => {
                sink(until);
                if sink(false) {
                    host.abort(until);
                }
            }
            Turn::Done(out, payload) => {
                sink(out);
                sink(payload);
                break;
            }
        }
    }
    sink(host.reclaim(sink(Instant::ZERO)));
}

fn shown<E: core::fmt::Display>(r: Result<(), E>) {
    if let Err(e) = r {
        let _ = write!(Text, "{e}");
    }
}

fn main() {
    let bytes: &[u8] = sink(&[0_u8; 17][..]);
    sink(CommandFrame::parse(bytes).map(|f| f.emit()).ok());
    sink(ResponseFrame::parse(bytes).map(|f| f.emit()).ok());
    sink(ResponseFrame::parse_without_crc(bytes).map(|f| f.emit_without_crc()).ok());
    sink(LongFrame::parse(bytes).map(|f| f.emit()).ok());
    let _ = write!(Text, "{}", CommandText { bytes, dialect: sink(Dialect::Sd), app: sink(false) });
    let mut see = |name: &'static str, value: u64| {
        sink((name, value));
    };
    let b16 = sink([0_u8; 16]);
    let csd = Csd::new(b16);
    csd.fields(&mut see);
    shown(csd.check(CrcPolicy::Host));
    sink((csd.capacity_bytes(), csd.currents_ua(), csd.erase_sector_bytes()));
    sink((csd.tran_speed_bps(), csd.taac_ps(), csd.info().emit(), csd.has_class(sink(3))));
    let cid = Cid::new(b16);
    cid.fields(&mut see);
    let _ = write!(Text, "{} {}", cid.pnm_text(), cid.oid_text());
    shown(cid.check(CrcPolicy::Wire));
    sink(cid.info().emit());
    let mmc = MmcCsd::new(b16);
    mmc.fields(&mut see);
    sink((mmc.csd_capacity_bytes(), mmc.erase_group_bytes(), mmc.tran_speed_hz(), mmc.info().emit()));
    sink((MmcCid::new(b16).info().emit(), mmc_year(sink(3), sink(None))));
    let scr = Scr::new(sink([0; 8]));
    scr.fields(&mut see);
    let _ = write!(Text, "{}", scr.version());
    shown(scr.check());
    let ssr = Ssr::new(sink([0; 64]));
    ssr.fields(&mut see);
    sink((ssr.au_size_kib(), ssr.erase_ms_per_au(), ssr.cq_depth(), ssr.info().emit()));
    shown(ssr.check());
    let switch = SwitchStatus::new(sink([0; 64]));
    switch.fields(&mut see);
    sink((switch.can(sink(1), sink(1)), switch.info().emit()));
    shown(switch.check());
    let _ = write!(Text, "{}", Ocr(sink(0)));
    shown(Ocr(sink(0)).check());
    for tuple in Tuples::new(bytes) {
        match tuple {
            Ok(t) => {
                sink((t.manfid(), t.funcid(), t.max_block_size(), t.texts().count()));
            }
            Err(e) => {
                let _ = write!(Text, "{e}");
            }
        }
    }
    sink(Cccr::parse(bytes).map(|c| c.info()).ok());
    sink(Fbr::parse(bytes).map(|c| (c.interface(), c.cis())).ok());
    let page = sink([0_u8; 512]);
    if let Ok(info) = GeneralInfo::parse(&page) {
        for e in info.extensions() {
            sink((e.sfc, e.name, e.address.map(|a| a.read_arg())));
        }
    }
    sink((PowerSet::parse(bytes), PerformanceSet::parse(bytes)));
    let e = ExtCsd::new(page);
    sink((e.info(), e.get(*sink(&ext_csd::ALL[0])), e.hc_wp_group_bytes(), e.gp_partition_bytes(sink(2))));
    shown(e.check());
    let mut frames = sink([rpmb::Frame::new(sink(rpmb::Request::ReadData)); 2]);
    rpmb::seal(&mut frames, |parts| {
        parts.for_each(|p| {
            sink(p);
        });
        sink([0; 32])
    });
    shown(rpmb::verify(&frames, rpmb::Request::ReadData, sink(None), |_| sink([0; 32])));
    sink((frames[0].with_nonce(sink(1)).with_data(&sink([0; 256])), frames[0].outcome().is_ok()));
    sink((spi::R1::from_byte(sink(1)), spi::ReadToken::from_byte(sink(1)), spi::block_crc(bytes)));
    sink(quirk::avoid(&cid, quirk::SD));
    sink(mmc_proto::crc::crc16_lines4(bytes));
    sink(mmc_proto::crc::crc16_lines8(bytes));
    conduct(Identify::new(&sink(Capabilities::new())));
    let traits = sink(mmc_proto::machine::CardTraits {
        rca: 1,
        blocks: 1,
        byte_addressed: true,
        cmd23: true,
        read_limit: Duration::ZERO,
        write_limit: Duration::ZERO,
        block_time: Duration::ZERO,
        unit: 1,
    });
    let t = Transfer::new(&traits, sink(Dir::Read), sink(0), sink(8), sink(TransferOptions::default()));
    sink(t.limit());
    conduct(Erase::new(&traits, sink(Some(&ssr)), sink(EraseKind::Erase), sink(0), sink(9)));
    conduct(t);
    talks(&traits, &e);
}

/// The smaller conversations, and what is decided without any.
fn talks(card: &CardTraits, e: &ExtCsd) {
    let t = Transfer::new(card, sink(Dir::Write), sink(0), sink(8), sink(TransferOptions::default()));
    conduct(t.reliable());
    conduct(t.auto_stop(&sink(Capabilities::new())));
    conduct(sink(Recover::new(sink(1), sink(true), sink(Duration::ZERO))));
    let csd = MmcCsd::new(sink([0; 16]));
    let erase = Erase::mmc(card, &csd, sink(Some(e)), sink(MmcEraseKind::SecureTrim), sink(0), sink(9));
    let erase = erase.in_pieces(sink(3));
    sink((erase.limit(), erase.progress()));
    conduct(erase);
    let notice = sink(PowerNotice::Sleep);
    for order in [
        Order::cache(card, e, sink(true)),
        Order::flush(card, e),
        Order::background(card, e),
        Order::interrupt(card, e),
        Order::sanitize(card, e),
        Order::power_notice(card, e, notice),
        Order::sleep(card, e, sink(true)),
        Order::awake(card, e),
        Order::partition(card, e, sink(Partition::General(2))),
        Order::boot(card, e, sink(BootFrom::Boot1), sink(true), sink(Some(2))),
        Order::protection(card, e, sink(Protection::PowerOn)),
        Order::protect_boot(card, e, sink(true)),
        Order::protect(card, sink(7)),
        Order::speed_class(card, sink(4)),
        Order::status(card),
        Order::set(card, e, sink(SwitchAccess::SetBits), *sink(&ext_csd::ALL[0]), sink(1)),
    ] {
        sink(order.limit());
        conduct(order);
    }
    conduct(Fetch::ext_csd(card));
    conduct(Fetch::sd_status(card));
    conduct(Fetch::scr(card));
    conduct(Fetch::stored_blocks(card));
    conduct(Fetch::protection_types(card, sink(7)));
    conduct(Fetch::vendor(card, sink(7)));
    conduct(Reread::csd(card));
    let password: &[u8] = sink(&[1; 4][..]);
    conduct(Lock::lock(card, sink(LockOp::Change { old: password, new: password })));
    conduct(Lock::write_protect_mmc(card, &csd, sink(true)));
    let hmac = |parts: &mut dyn Iterator<Item = &[u8]>| {
        parts.for_each(|p| {
            sink(p);
        });
        sink([0; 32])
    };
    conduct(Rpmb::read(card, sink(1), sink(1), hmac));
    conduct(Rpmb::write(card, sink(1), &sink([0; 256]), sink(1), hmac));
    conduct(FindExtensions::new(card));
    conduct(SdRegister::flush(card, &sink(Extensions::default())));
    sink(Health::of(e));
    let mut watch = SlotWatch::new(&sink(Slot::default()));
    sink(watch.look(&sink(Slot::default())));
    let trouble = Trouble::of(&sink(TransferCause::NotReady), sink(None), sink(After::Ready));
    for cure in plan(POLICY, trouble, sink(Some(Dir::Read)), sink(0), sink(Means::all())) {
        sink(cure);
    }
    if let Err(error) = card.range(sink(1), sink(2)) {
        let _ = write!(Text, "{error}");
    }
    let r1 = sink(None);
    let error = TalkError { cause: sink(TransferCause::Card), phase: sink(None), status: r1, after: After::Ready };
    let _ = write!(Text, "{error} {:?}", error.is_retryable());
    sink((timing::mmc_read_limit(&csd, sink(0)), timing::mmc_write_limit(&csd, sink(0))));
    let sd = Csd::new(sink([0; 16]));
    sink((timing::sd_read_limit(&sd, sink(0)), timing::sd_write_limit(&sd, sink(0))));
    let far = sink(Addressing::Extended).address(sink(1 << 37));
    sink((far.and_then(|a| a.extension()), QueueStatus(sink(0)).first(), R5(sink(0)).errors()));
    sink(Command::io_rw_extended(sink(Dir::Read), sink(1), sink(2), sink(true), sink(IoCount::Bytes(512))));
    sink(Command::read_extr_multi(sink(ExtPlace { io: false, function: 1, address: 2 }), sink(ExtUnit::Large), sink(2)));
}

no_panic::program!(main);
