//! A driver that is not ours on our cards, on their own bus: embassy's `sdio` identifies them, writes and reads; what
//! it makes of faults is the table of `docs/test-your-driver.md`, which is checked here line by line.

use aligned::{A4, Aligned};
use block_device_driver::BlockDevice as _;
use mmc_mock::Clock;
use mmc_mock::card::{Card as _, SdCard, SdConfig, Shared};
use mmc_mock::drive::Bound;
use mmc_mock::fault::{Faulty, Medium as _};
use mmc_mock::sdio::{SdioBus, SdioDelay};
use mmc_mock::timing::Profile;
use mmc_mock::zoo;
use mmc_time::Duration;
use sdio::sd::Card;
use sdio::{DefaultBlockDevice, MmcError};
use std::task::{Context, Poll, Waker};

type Slot = Shared<Faulty<SdCard>>;
type Driver = DefaultBlockDevice<Card, SdioBus<Slot>, SdioDelay>;
type Block = Aligned<A4, [u8; 512]>;

/// Every future of this bus is ready at its first poll.
fn now<T>(future: impl Future<Output = T>) -> T {
    match std::pin::pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(t) => t,
        Poll::Pending => panic!("nothing would wake it"),
    }
}

fn start(config: SdConfig, script: &str) -> (Result<Driver, MmcError>, Slot, Clock) {
    let clock = Clock::new();
    let card = Faulty::new(SdCard::new(config).unwrap(), script.parse().unwrap()).unwrap();
    let card = Shared::new(card);
    let mut bus = SdioBus::new(card.clone(), clock.clone());
    bus.bounded(Bound { time: Duration::from_secs(60), steps: 20_000 });
    (now(Driver::new_sd_card(bus, 50_000_000, SdioDelay(clock.clone()))), card, clock)
}

fn blocks(n: usize, byte: u8) -> Vec<Block> {
    (0..n).map(|i| Aligned([byte.wrapping_add(i as u8); 512])).collect()
}

#[test]
fn it_identifies_writes_and_reads() {
    let (driver, card, clock) = start(SdConfig::new(Profile::slow2018(), 1), "");
    let mut driver = driver.unwrap();
    assert_eq!(now(driver.size()).unwrap(), 8 << 30);
    for (at, n) in [(100, 1), (200, 8)] {
        let data = blocks(n, at as u8);
        now(driver.write(at, &data)).unwrap();
        let mut back = blocks(n, 0);
        now(driver.read(at, &mut back)).unwrap();
        assert!(back.iter().zip(&data).all(|(a, b)| a[..] == b[..]));
        let mut stored = [0; 512];
        card.lock().with_storage(&mut |s| s.read(u64::from(at) * 512, &mut stored).unwrap());
        assert_eq!(stored, [at as u8; 512], "on the card, not by the driver's word alone");
    }
    assert_eq!(card.violations(), Vec::<String>::new());
    assert!(clock.now().as_nanos() < 200_000_000, "{:?}", clock.now());
}

/// What the driver made of a card: a block written and read back, and once more after an error.
fn outcome(config: SdConfig, script: &str) -> String {
    let bytes = config.sectors * 512;
    let (driver, ..) = start(config, script);
    let mut driver = match driver {
        Ok(driver) => driver,
        Err(e) => return format!("fails: {e}"),
    };
    let mut same = true;
    let mut session = || -> Result<(), MmcError> {
        now(driver.write(64, &blocks(1, 7)))?;
        now(driver.write(72, &blocks(4, 8)))?;
        let (mut one, mut four) = (blocks(1, 0), blocks(4, 0));
        now(driver.read(64, &mut one))?;
        now(driver.read(72, &mut four))?;
        same &= one[0][..] == [7; 512] && four[3][..] == [11; 512];
        Ok(())
    };
    let (first, second) = (session(), session());
    let said = now(driver.size()).unwrap();
    match (first, second) {
        (Ok(()), Ok(())) if !same => "fails: other data came back than were written".into(),
        (Ok(()), Ok(())) if said != bytes => format!("works, but takes {bytes} bytes for {said}"),
        (Ok(()), Ok(())) => "works".into(),
        (Err(e), Ok(())) => format!("fails: {e}; the next time works"),
        (Err(e), Err(next)) => format!("fails: {e}; the next time fails: {next}"),
        (Ok(()), Err(e)) => format!("works; the next time fails: {e}"),
    }
}

#[test]
fn the_tables_are_true() {
    let docs = include_str!("../../docs/test-your-driver.md");
    let mut shown = Vec::new();
    for mark in ["sdio presets", "sdio faults"] {
        let (_, rest) = docs.split_once(&format!("<!-- {mark} -->")).unwrap();
        let (table, _) = rest.split_once("<!-- end -->").unwrap();
        let rows = table.lines().filter(|l| l.starts_with("| `"));
        let mut rows: Vec<(String, &str)> = rows
            .map(|line| {
                let cells: Vec<&str> = line.split('|').map(str::trim).collect();
                (cells[1].replace('`', ""), cells[2])
            })
            .collect();
        if mark == "sdio presets" {
            let there = |name| rows.iter().any(|r| r.0 == name);
            let missing: Vec<_> = zoo::list().iter().filter(|p| !there(p.name)).collect();
            rows.extend(missing.into_iter().map(|p| (p.name.to_owned(), "")));
        }
        for (name, told) in rows {
            let got = match mark {
                "sdio presets" => outcome(zoo::card(&name, Profile::a1(), 1).unwrap(), ""),
                _ => outcome(SdConfig::new(Profile::a1(), 1), &name),
            };
            if got != told {
                shown.push(format!("| `{name}` | {got} |"));
            }
        }
    }
    assert!(shown.is_empty(), "the docs must say:\n{}", shown.join("\n"));
}
