//! The same conversations over `MockHost` (no controller at all) and over this driver on the register model: the card
//! sees the same commands, and from the end of identification on everything ends at the same virtual instants.
//!
//! What is outside the comparison: when a command of the identification is sent, since some have no answer (the mock
//! host gives up after 64 clocks, the controller after the 255 of TMOUT); and DAT0 held after an R1b answer, which the
//! driver finds by looking (never more than a quarter of the wait late).

mod bench;

use bench::{Bench, Mode, buffers, cases, filled, pattern};
use mmc_dw_hsdk::Platform;
use mmc_dw_hsdk::platform::HSDK;
use mmc_hal::Dir;
use mmc_mock::card::{Entry, SdCard, SdConfig, Shared};
use mmc_mock::dw::Config;
use mmc_mock::timing::Profile;
use mmc_mock::{BufBatch, Clock, MockHost};
use mmc_proto::host::{Capabilities, Host};
use mmc_proto::machine::{CardTraits, Conductor, Identify, Machine, Transfer, TransferOptions, Turn};
use mmc_time::{Duration, Instant};
use proptest::prelude::*;

/// 200 MHz divide to exactly 400 kHz, 25 MHz and 50 MHz, so that both hosts run the same clocks.
fn board() -> (Config, Platform) {
    let config = Config { ciu_hz: 200_000_000, ext_div: [1; 4], ..Config::hsdk() };
    (config, Platform { ciu_hz: 200_000_000, uhs_reg_ext: None, ..HSDK })
}

fn slow_card(cmd23: bool) -> SdConfig {
    SdConfig { cmd23, ..SdConfig::new(Profile::slow2018(), 7) }
}

/// A host of one kind or the other, and its clock.
trait Either {
    fn run<T: Machine>(&mut self, machine: T, payload: BufBatch) -> (T::Output, Instant);
    fn card(&self) -> &Shared<SdCard>;
    fn caps(&self) -> Capabilities;
}

impl Either for Bench {
    fn run<T: Machine>(&mut self, machine: T, payload: BufBatch) -> (T::Output, Instant) {
        let out = Bench::run(self, machine, Some(payload)).0;
        (out, self.clock.now())
    }
    fn card(&self) -> &Shared<SdCard> {
        &self.card
    }
    fn caps(&self) -> Capabilities {
        self.host.capabilities()
    }
}

struct Mock {
    clock: Clock,
    card: Shared<SdCard>,
    host: mmc_proto::host::Supervised<MockHost<BufBatch, Shared<SdCard>>>,
}

impl Mock {
    fn new(card: SdConfig, caps: Capabilities) -> Self {
        let card = Shared::new(SdCard::new(card).unwrap());
        card.lock().keep_log(true);
        Self { clock: Clock::new(), host: MockHost::new(card.clone(), caps), card }
    }
}

impl Either for Mock {
    fn run<T: Machine>(&mut self, machine: T, payload: BufBatch) -> (T::Output, Instant) {
        let mut conductor = Conductor::new(machine, Some(payload));
        for _ in 0..100_000 {
            match conductor.poll(&mut self.host, self.clock.now()) {
                Turn::Done(out, _) => return (out, self.clock.now()),
                Turn::Wait { until, .. } => {
                    self.clock.advance_to(until);
                }
            }
        }
        panic!("a conversation without end");
    }
    fn card(&self) -> &Shared<SdCard> {
        &self.card
    }
    fn caps(&self) -> Capabilities {
        self.host.capabilities()
    }
}

#[derive(Clone, Copy, Debug)]
struct Access {
    dir: Dir,
    lba: u64,
    blocks: u32,
    open_ended: bool,
}

/// Identification, then all accesses: what the card saw and when, and when each step ended, counted from the end of the
/// identification.
fn play<H: Either>(mut host: H, accesses: &[Access]) -> (Vec<(Entry, Duration)>, Vec<Duration>) {
    let machine = Identify::new(&host.caps());
    let (identified, at) = host.run(machine, buffers(&[512]));
    let card: CardTraits = identified.unwrap().traits;
    let (began, mut ends) = (at, Vec::new());
    for (i, a) in accesses.iter().enumerate() {
        let data = pattern(a.blocks as usize * 512, i as u64);
        let options = TransferOptions { open_ended: a.open_ended };
        let machine = Transfer::new(&card, a.dir, a.lba, a.blocks, options);
        let (r, at) = host.run(machine, filled(&data, &[data.len()]));
        assert_eq!(r, Ok(a.blocks), "{a:?}");
        ends.push(at.since(began));
    }
    let entries = host.card().with(|c| c.log().entries().to_vec());
    let since = |e: Entry| (Entry { at: Instant::ZERO, ..e }, e.at.since(began));
    (entries.into_iter().map(since).collect(), ends)
}

fn both(card: SdConfig, accesses: &[Access]) {
    let (config, platform) = board();
    let bench = Bench::with(Mode::Interrupts, config, platform, card.clone());
    let mock = Mock::new(card, bench.host.capabilities());
    let (dw_saw, dw_ends) = play(bench, accesses);
    let (mock_saw, mock_ends) = play(mock, accesses);
    for (i, (a, b)) in dw_saw.iter().zip(&mock_saw).enumerate() {
        assert_eq!(a, b, "command {i}");
    }
    assert_eq!(dw_saw.len(), mock_saw.len());
    assert_eq!(dw_ends, mock_ends);
}

#[test]
fn identification_reads_and_writes_end_together() {
    for cmd23 in [true, false] {
        let mut accesses = Vec::new();
        for (i, blocks) in [1, 8, 2, 128, 1024, 2048, 1].into_iter().enumerate() {
            for dir in [Dir::Write, Dir::Read] {
                let lba = 9_000 * i as u64 + 17;
                accesses.push(Access { dir, lba, blocks, open_ended: i % 3 == 2 });
            }
        }
        both(slow_card(cmd23), &accesses);
    }
}

proptest! {
    #![proptest_config(cases(12))]
    #[test]
    fn any_sequence_ends_together(
        list in prop::collection::vec((any::<bool>(), 0_u64..16_000_000, 1_u32..=300, any::<bool>()), 1..40),
    ) {
        let accesses: Vec<Access> = list.into_iter().map(|(write, lba, blocks, open_ended)| {
            Access { dir: if write { Dir::Write } else { Dir::Read }, lba, blocks, open_ended }
        }).collect();
        both(slow_card(true), &accesses);
    }
}
