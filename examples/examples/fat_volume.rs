//! A FAT volume through `embedded-sdmmc`, on two hosts: the mock without a controller, and the DesignWare driver on the
//! model of its registers. The code from the host up is the same.
//!
//! On a board the buffers are ones the DMA reaches (`mmc_hal::DmaBuf`), and the clock is the board's own.

use embedded_sdmmc::{Mode, TimeSource, Timestamp, VolumeIdx, VolumeManager};
use mmc_adapters::{Bounce, FatDevice, Sectors};
use mmc_block::{Blocking, Disk, Idle, Init, Settings, Tag, identify};
use mmc_dw_hsdk::platform::HSDK;
use mmc_dw_hsdk::{DwEngine, Ring};
use mmc_mock::card::{Card, SdCard, SdConfig, Shared};
use mmc_mock::dw::{Config, Dw};
use mmc_mock::timing::Profile;
use mmc_mock::{Buf, BufBatch, Clock, Memory, MemoryDma, MockHost, Wakes};
use mmc_proto::host::{Capabilities, Host};
use mmc_sched::{Queue, Slot};
use mmc_time::Instant;
use std::error::Error;

// Lays out a volume of 32 MiB with one file, and looks into it without a driver.
#[path = "../../mmc-mock/tests/fat/mod.rs"]
mod fat;

/// What is written; any length.
const NOTE: &[u8] = &[b'.'; 70_000];

struct NoClock;

impl TimeSource for NoClock {
    fn get_timestamp(&self) -> Timestamp {
        Timestamp::from_calendar(2026, 1, 1, 0, 0, 0).expect("a date")
    }
}

/// Lists the root directory, reads HELLO.TXT, writes NOTE.TXT and reads it back. Returns the names and what HELLO.TXT says.
fn files(
    mut host: impl Host<Payload = BufBatch>,
    mut idle: impl Idle,
) -> Result<(Vec<String>, String), Box<dyn Error>> {
    let mut init = Init::new(&host.capabilities(), BufBatch::new(16), Buf(vec![0; 512]))
        .map_err(|_| "the scratch buffer is too small")?;
    let (card, parts) = identify(&mut host, &mut init, &mut idle);
    let (card, (batch, _)) = (card?, parts.ok_or("the host kept the buffers")?);
    let queue = Queue::new([Slot::FREE; 8], mmc_sched::Deadline::new());
    let tags = [const { Tag::new() }; 8];
    let disk = Disk::new(host, queue, card.traits, batch, tags, Settings::default(), ())?;

    // The file system lends slices, the disk takes buffers: these three stand in between.
    let buffers = [64, 8, 1].map(|sectors| Some(Buf(vec![0; sectors * 512])));
    let sectors = Sectors::new(Blocking::new(disk, idle), Bounce::new(buffers)?);
    let volumes = VolumeManager::new(FatDevice::new(sectors), NoClock);
    let text = |e| format!("{e:?}");
    let volume = volumes.open_volume(VolumeIdx(0)).map_err(text)?;
    let root = volume.open_root_dir().map_err(text)?;

    let mut hello = [0; 64];
    let file = root.open_file_in_dir("HELLO.TXT", Mode::ReadOnly).map_err(text)?;
    let n = file.read(&mut hello).map_err(text)?;
    file.close().map_err(text)?;

    let file = root.open_file_in_dir("NOTE.TXT", Mode::ReadWriteCreate).map_err(text)?;
    file.write(NOTE).map_err(text)?;
    file.close().map_err(text)?;
    let file = root.open_file_in_dir("NOTE.TXT", Mode::ReadOnly).map_err(text)?;
    let mut back = vec![0; NOTE.len()];
    let m = file.read(&mut back).map_err(text)?;
    if back.get(..m) != Some(NOTE) {
        return Err("NOTE.TXT does not read as it was written".into());
    }
    file.close().map_err(text)?;

    let mut names = Vec::new();
    root.iterate_dir(|entry| {
        names.push(entry.name.to_string());
        core::ops::ControlFlow::Continue(())
    })
    .map_err(text)?;
    Ok((names, String::from_utf8_lossy(&hello[..n]).into_owned()))
}

/// Virtual time: a wait ends at once, at the next event of a model, if there is one.
struct Virtual<F> {
    clock: Clock,
    next: F,
}

impl<F: Fn() -> Instant> Idle for Virtual<F> {
    fn now(&mut self) -> Instant {
        self.clock.now()
    }
    fn wait(&mut self, until: Instant) {
        self.clock.advance_to((self.next)().min(until));
    }
}

fn card() -> Result<Shared<SdCard>, Box<dyn Error>> {
    let mut card = SdCard::new(SdConfig::new(Profile::a1(), 1))?;
    fat::format(card.storage_mut());
    Ok(Shared::new(card))
}

/// What both hosts must come to.
fn check(
    name: &str,
    card: &Shared<SdCard>,
    clock: &Clock,
    (names, hello): (Vec<String>, String),
) -> Result<(), Box<dyn Error>> {
    println!("{name}: {names:?} after {} ms; HELLO.TXT: {hello:?}", clock.now().as_nanos() / 1_000_000);
    if names != ["HELLO.TXT", "NOTE.TXT"] || hello.as_bytes() != fat::HELLO {
        return Err(format!("{name}: {names:?} {hello:?}").into());
    }
    // Not by the file system's word alone: the file is on the card.
    let stored = fat::file(card.lock().storage_mut(), b"NOTE    TXT");
    if stored.as_deref() != Some(NOTE) || !card.violations().is_empty() {
        return Err(format!("{name}: not what was written is on the card; {:?}", card.violations()).into());
    }
    Ok(())
}

fn on_the_mock() -> Result<(), Box<dyn Error>> {
    let (clock, card) = (Clock::new(), card()?);
    let mut caps = Capabilities::new();
    caps.max_segments = 16;
    let host = MockHost::new(card.clone(), caps);
    let found = files(host, Virtual { clock: clock.clone(), next: || Instant::NEVER })?;
    check("mock host", &card, &clock, found)
}

fn on_the_designware_model() -> Result<(), Box<dyn Error>> {
    let (clock, memory, card) = (Clock::new(), Memory::new(0x8000_0000, 0xc000_0000), card()?);
    let model = Dw::new(card.clone(), clock.clone(), memory.clone(), Config::hsdk());
    let at = memory.alloc(8192);
    let ring = Ring::new(memory.window(at, 8192), at, 8192)?;
    let host = DwEngine::new(model.clone(), ring, MemoryDma::new(memory, u32::MAX.into()), HSDK);
    let watched = model.clone();
    let found = files(host, Virtual { clock: clock.clone(), next: move || watched.next_event() })?;
    check("DesignWare model", &card, &clock, found)?;
    model.violations().first().map_or(Ok(()), |v| Err(v.as_str().into()))
}

fn main() -> Result<(), Box<dyn Error>> {
    on_the_mock()?;
    on_the_designware_model()
}

#[test]
fn a_volume_is_read_and_written_on_both_hosts() {
    on_the_mock().expect("the mock host");
    on_the_designware_model().expect("the DesignWare model");
}
