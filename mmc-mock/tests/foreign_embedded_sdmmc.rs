//! A driver that is not ours on our cards: `embedded-sdmmc` initialises them over SPI, reads and writes a FAT volume;
//! what it does on each odd card is the table of `docs/test-your-driver.md`, which is checked here line by line.

mod fat;

use embedded_sdmmc::{
    BlockDevice, BlockIdx, Mode, SdCard as Driver, TimeSource, Timestamp, VolumeIdx, VolumeManager,
};
use mmc_mock::Clock;
use mmc_mock::card::{SdCard, SdConfig};
use mmc_mock::drive::Bound;
use mmc_mock::spi::{Delay, Device, Spi, SpiConfig};
use mmc_mock::timing::Profile;
use mmc_mock::zoo;
use mmc_time::Duration;
use std::panic::{AssertUnwindSafe, catch_unwind};

struct NoClock;

impl TimeSource for NoClock {
    fn get_timestamp(&self) -> Timestamp {
        Timestamp::from_calendar(2026, 1, 1, 0, 0, 0).unwrap()
    }
}

/// What one whole session may take: virtual time, and bytes on the bus.
const BOUND: Bound = Bound { time: Duration::from_secs(60), steps: 3_000_000 };

/// A bus with a formatted card on it, after the 80 clocks of power-up.
fn bus(config: SdConfig, script: &str, wires: SpiConfig) -> Spi {
    let mut card = SdCard::new(config).unwrap();
    fat::format(card.storage_mut());
    let spi = Spi::new(card, script.parse().unwrap(), wires, Clock::new()).unwrap();
    spi.bounded(BOUND);
    spi.start_up().unwrap();
    spi
}

fn driver(spi: &Spi) -> Driver<Device, Delay> {
    // The driver cuts each command into many transactions, so chip select is held for it, as its own docs advise.
    spi.select(true);
    Driver::new(spi.held_device(), spi.delay())
}

/// Initialises, reads the file that is there, writes another and reads it back through the driver.
fn session(spi: &Spi) -> Result<(), String> {
    let text = |e: embedded_sdmmc::Error<embedded_sdmmc::SdCardError>| match e {
        embedded_sdmmc::Error::DeviceError(e) => e.to_string(),
        e => format!("{e:?}"),
    };
    let card = driver(spi);
    card.num_bytes().map_err(|e| e.to_string())?;
    spi.set_hz(20_000_000);
    let manager = VolumeManager::new(card, NoClock);
    let volume = manager.open_volume(VolumeIdx(0)).map_err(text)?;
    let root = volume.open_root_dir().map_err(text)?;
    {
        let file = root.open_file_in_dir("HELLO.TXT", Mode::ReadOnly).map_err(text)?;
        let mut bytes = [0; 64];
        let n = file.read(&mut bytes).map_err(text)?;
        assert_eq!(&bytes[..n], fat::HELLO);
    }
    let data = contents();
    {
        let file = root.open_file_in_dir("NEW.BIN", Mode::ReadWriteCreate).map_err(text)?;
        file.write(&data).map_err(text)?;
        file.close().map_err(text)?;
    }
    let file = root.open_file_in_dir("NEW.BIN", Mode::ReadOnly).map_err(text)?;
    let mut back = vec![0; data.len()];
    let n = file.read(&mut back).map_err(text)?;
    if (n, &back) != (data.len(), &data) {
        return Err("other data came back than were written".into());
    }
    Ok(())
}

/// Ten thousand bytes that say where they belong.
fn contents() -> Vec<u8> {
    (0..10_000_u32).map(|i| ((i / 7) ^ i) as u8).collect()
}

#[test]
fn it_initialises_reads_and_writes_a_fat_volume() {
    let spi = bus(SdConfig::new(Profile::slow2018(), 1), "", SpiConfig::default());
    session(&spi).unwrap();
    // Not by the driver's word alone: the file is on the card.
    let written = spi.with(|c| fat::file(c.card_mut().sd_mut().storage_mut(), b"NEW     BIN"));
    assert!(written.unwrap() == contents());
    assert_eq!(spi.violations(), Vec::<String>::new());
    let spent = spi.spent();
    assert!(spent.time < Duration::from_secs(2), "{spent:?}");
}

#[test]
fn many_blocks_at_once() {
    let spi = bus(SdConfig::new(Profile::ideal(), 1), "", SpiConfig::default());
    let card = driver(&spi);
    let mut blocks: Vec<embedded_sdmmc::Block> = (0..8).map(|_| embedded_sdmmc::Block::new()).collect();
    for (i, b) in blocks.iter_mut().enumerate() {
        b.contents.fill(i as u8 + 1);
    }
    card.write(&blocks, BlockIdx(5000)).unwrap();
    let mut back: Vec<embedded_sdmmc::Block> = (0..8).map(|_| embedded_sdmmc::Block::new()).collect();
    card.read(&mut back, BlockIdx(5000)).unwrap();
    assert!(back.iter().zip(&blocks).all(|(a, b)| a.contents == b.contents));
    assert_eq!(spi.violations(), Vec::<String>::new());
}

#[test]
fn with_chip_select_as_its_device_has_it_each_command_is_torn_apart() {
    let spi = bus(SdConfig::new(Profile::ideal(), 1), "", SpiConfig::default());
    let card = Driver::new(spi.device(), spi.delay());
    assert!(card.num_bytes().is_ok(), "a card that goes on where it was does not mind");
    let torn = spi.violations();
    assert!(torn.iter().any(|v| v == "chip select rose in the middle of CMD8"), "{torn:?}");

    let strict = SpiConfig { strict_select: true, ..SpiConfig::default() };
    let spi = bus(SdConfig::new(Profile::ideal(), 1), "", strict);
    let card = Driver::new(spi.device(), spi.delay());
    assert!(card.num_bytes().is_err(), "one that follows the standard does");
}

/// What the driver made of a card, in the words of the table.
fn outcome(spi: &Spi) -> String {
    match catch_unwind(AssertUnwindSafe(|| session(spi))) {
        Ok(Ok(())) => "works".into(),
        Ok(Err(e)) => format!("fails: {e}"),
        Err(panic) => format!("panics: {}", panic.downcast_ref::<&str>().unwrap_or(&"?")),
    }
}

/// Rows of the docs: `| name | outcome |` between two marks.
fn rows(mark: &str) -> Vec<(String, String)> {
    let docs = include_str!("../../docs/test-your-driver.md");
    let (_, rest) = docs.split_once(&format!("<!-- {mark} -->")).unwrap();
    let (table, _) = rest.split_once("<!-- end -->").unwrap();
    let cells = |l: &str| -> Vec<String> { l.split('|').map(|c| c.trim().to_owned()).collect() };
    table
        .lines()
        .map(cells)
        .filter(|c| c.len() >= 4 && c[1].starts_with('`'))
        .map(|c| (c[1].replace('`', ""), c[2].clone()))
        .collect()
}

#[test]
fn the_table_of_presets_is_true() {
    let mut shown = Vec::new();
    let mut table = rows("presets");
    for preset in zoo::list() {
        if !table.iter().any(|r| r.0 == preset.name) {
            table.push((preset.name.into(), String::new()));
        }
    }
    for (name, expected) in table {
        let config = zoo::card(&name, Profile::a1(), 1).unwrap();
        let spi = bus(config, "", SpiConfig::default());
        let got = outcome(&spi);
        if got != expected {
            shown.push(format!("| `{name}` | {got} |"));
        }
    }
    assert!(shown.is_empty(), "the docs must say:\n{}", shown.join("\n"));
}

#[test]
fn the_table_of_odd_wires_is_true() {
    let odd = |f: fn(&mut SpiConfig)| {
        let mut c = SpiConfig::default();
        f(&mut c);
        c
    };
    let wires = |name: &str| match name {
        "response-delay" => odd(|c| c.response_delay = 8),
        "stuff" => odd(|c| c.stuff = 0x7f),
        "no-crc-command" => odd(|c| c.no_crc_command = true),
        "always-crc" => odd(|c| c.always_crc = true),
        "low-until-cmd0" => odd(|c| c.low_until_cmd0 = true),
        "busy-after-app" => odd(|c| c.busy_after_app = 16),
        "last-by-single-only" => odd(|c| c.last_by_single_only = true),
        "no-multi-read" => odd(|c| c.no_multi_read = true),
        other => panic!("the docs name `{other}`"),
    };
    let mut shown = Vec::new();
    for (name, expected) in rows("wires") {
        let got = outcome(&bus(SdConfig::new(Profile::a1(), 1), "", wires(&name)));
        if got != expected {
            shown.push(format!("| `{name}` | {got} |"));
        }
    }
    for (script, expected) in rows("faults") {
        let got = outcome(&bus(SdConfig::new(Profile::a1(), 1), &script, SpiConfig::default()));
        if got != expected {
            shown.push(format!("| `{script}` | {got} |"));
        }
    }
    assert!(shown.is_empty(), "the docs must say:\n{}", shown.join("\n"));
}
