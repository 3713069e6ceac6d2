//! Each card of the zoo: a good host gets along with it, and where it has a fault of character, a naive host fails the
//! way the source describes.

use mmc_hal::Dir;
use mmc_mock::card::{Card, SdCard, Shared};
use mmc_mock::drive::{Bound, Drive, drive_bounded};
use mmc_mock::timing::Profile;
use mmc_mock::{Buf, Clock, MockHost, zoo};
use mmc_proto::bus::Width;
use mmc_proto::host::{Capabilities, Cause, HostError};
use mmc_proto::machine::{
    CardTraits, Conductor, Identified, Identify, Machine, Transfer, TransferCause, TransferError,
    TransferOptions, Turn,
};
use mmc_time::{Duration, Instant};

struct Bench {
    host: mmc_proto::host::Supervised<MockHost<Buf, Shared<SdCard>>>,
    card: Shared<SdCard>,
    clock: Clock,
    id: Option<Identified>,
}

fn caps() -> Capabilities {
    let mut caps = Capabilities::new();
    caps.width = Width::Four;
    caps.max_hz = 50_000_000;
    caps
}

impl Bench {
    /// The card, identified.
    fn new(name: &str) -> Self {
        let config = zoo::card(name, Profile::ideal(), 1).unwrap();
        let card = Shared::new(SdCard::new(config).unwrap());
        let mut b = Self { host: MockHost::new(card.clone(), caps()), card, clock: Clock::new(), id: None };
        let (id, _) = b.drive(Identify::new(&caps()), Identify::LIMIT, vec![0; 512]);
        b.id = Some(id.unwrap_or_else(|e| panic!("{name}: {e}")));
        b
    }
    fn traits(&self) -> CardTraits {
        self.id.unwrap().traits
    }
    /// Within `time`.
    fn drive<M: Machine>(&mut self, machine: M, time: Duration, payload: Vec<u8>) -> (M::Output, Vec<u8>) {
        let mut conductor = Conductor::new(machine, Some(Buf(payload)));
        let (host, bound) = (&mut self.host, Bound { time, steps: 20_000 });
        let done = drive_bounded(&self.clock, bound, |now| match conductor.poll(host, now) {
            Turn::Done(output, payload) => Drive::Done((output, payload.unwrap().0)),
            Turn::Wait { until, .. } => Drive::Wait(until),
        });
        done.unwrap_or_else(|e| panic!("{e}")).0
    }
    fn run(
        &mut self,
        t: &CardTraits,
        dir: Dir,
        lba: u64,
        data: Vec<u8>,
        open_ended: bool,
    ) -> (Result<u32, TransferError>, Vec<u8>) {
        let blocks = (data.len() / 512) as u32;
        // The data, the card ready before and after them, and cleaning up after an error.
        let ready = t.read_limit.max(t.write_limit).saturating_mul(3);
        let time = t.data_limit(dir, blocks) + ready + Duration::from_secs(1);
        self.drive(Transfer::new(t, dir, lba, blocks, TransferOptions { open_ended }), time, data)
    }
    /// Writes and reads back, at the start and at the end of the card.
    fn round_trip(&mut self, open_ended: bool) {
        let t = self.traits();
        for lba in [0, t.blocks - 6] {
            let data: Vec<u8> = (0..6 * 512).map(|i| (i / 7 + lba as usize) as u8).collect();
            assert_eq!(self.run(&t, Dir::Write, lba, data.clone(), open_ended).0, Ok(6));
            let (result, got) = self.run(&t, Dir::Read, lba, vec![0; 6 * 512], open_ended);
            assert_eq!(result, Ok(6));
            assert!(got == data);
        }
    }
}

/// Cards with which this host cannot write and read back; their own hosts are in `sd_modern.rs`.
const ELSEWHERE: [&str; 2] = ["left-at-1v8", "immutable"];

#[test]
fn every_card_serves_a_good_host_without_a_broken_rule() {
    for preset in zoo::list().iter().filter(|p| !ELSEWHERE.contains(&p.name)) {
        let mut b = Bench::new(preset.name);
        b.round_trip(preset.name == "cmd23-hang");
        assert_eq!(b.card.violations(), Vec::<String>::new(), "{}", preset.name);
    }
}

#[test]
fn sizes_are_those_of_the_dumps() {
    let sizes = [
        ("pqi-64mb", 124_160),
        ("atp-2gb", 3_994_624),
        ("qemu-2gb", 4_194_304),
        ("adata-4gb", 8_040_448),
        ("napi-4gb", 7_569_408),
        ("transcend-4gb", 7_744_512),
        ("panasonic-8gb", 15_126_528),
        ("phison-16gb", 30_318_592),
        ("sandisk-sa16g", 31_116_288),
        ("sandisk-sc16g", 31_116_288),
        ("kingston-canvas-64gb", 121_536_512),
        ("gigastone-64gb", 122_138_624),
        ("samsung-128gb", 250_085_376),
        ("samsung-512gb", 1_001_390_080),
        ("goldmomo-2gb", 3_935_232),
    ];
    for (name, sectors) in sizes {
        let b = Bench::new(name);
        assert_eq!(b.traits().blocks, sectors, "{name}");
        assert_eq!(
            b.traits().byte_addressed,
            matches!(name, "pqi-64mb" | "atp-2gb" | "qemu-2gb" | "adata-4gb" | "goldmomo-2gb")
        );
    }
}

#[test]
fn cmd23_is_used_only_where_it_is_there() {
    for (name, cmd23) in
        [("napi-4gb", false), ("transcend-4gb", false), ("qemu-2gb", false), ("phison-16gb", true)]
    {
        let mut b = Bench::new(name);
        assert_eq!(b.traits().cmd23, cmd23, "{name}");
        if !cmd23 {
            // A host that reads the bit without the version gets no answer.
            let naive = CardTraits { cmd23: true, ..b.traits() };
            let error = b.run(&naive, Dir::Read, 0, vec![0; 1024], false).0.unwrap_err();
            assert!(matches!(
                error.cause,
                TransferCause::Host(HostError { cause: Cause::Timeout, index: 23, .. })
            ));
        }
    }
}

#[test]
fn a_card_that_hangs_on_cmd23_is_lost_to_a_host_that_uses_it() {
    let mut b = Bench::new("cmd23-hang");
    assert!(b.card.lock().config().cmd23, "it says so");
    let t = CardTraits { cmd23: true, ..b.traits() };
    let error = b.run(&t, Dir::Read, 0, vec![0; 1024], false).0.unwrap_err();
    assert!(error.needs_reset(), "{error}");
    assert!(b.run(&t, Dir::Read, 0, vec![0; 512], false).0.is_err(), "not even a single block any more");
}

#[test]
fn limits_of_the_standard_are_too_short_for_some() {
    let mut b = Bench::new("late-read");
    let strict = CardTraits { read_limit: Duration::from_millis(100), ..b.traits() };
    let error = b.run(&strict, Dir::Read, 0, vec![0; 512], false).0.unwrap_err();
    assert!(
        matches!(error.cause, TransferCause::Host(HostError { cause: Cause::Limit, index: 17, .. })),
        "{error}"
    );

    let mut b = Bench::new("slow-busy");
    let strict = CardTraits { write_limit: Duration::from_millis(500), ..b.traits() };
    let error = b.run(&strict, Dir::Write, 0, vec![0; 512], false).0.unwrap_err();
    assert!(error.needs_reset(), "{error}");

    let b = Bench::new("slow-acmd41");
    assert!(b.clock.now() > Instant::from_millis(1900), "a budget of one second would have given up");
}

#[test]
fn a_fake_card_says_all_is_well_and_destroys_what_was_there() {
    let mut b = Bench::new("fake-64gb");
    let t = b.traits();
    assert_eq!(t.blocks, 8 * 16_777_216);
    assert_eq!(b.run(&t, Dir::Write, 10, vec![1; 2048], false).0, Ok(4));
    assert_eq!(b.run(&t, Dir::Write, 16_777_216 + 12, vec![2; 512], false).0, Ok(1));
    let (_, got) = b.run(&t, Dir::Read, 10, vec![0; 2048], false);
    assert_eq!((got[1023], got[1024], got[1536]), (1, 2, 1));
    // Across the point where it wraps, in one command.
    let data: Vec<u8> = (0..2048).map(|i| (i / 512) as u8 + 5).collect();
    assert_eq!(b.run(&t, Dir::Write, 16_777_216 - 2, data.clone(), false).0, Ok(4));
    let (result, got) = b.run(&t, Dir::Read, 16_777_216 - 2, vec![0; 2048], false);
    assert!(result == Ok(4) && got == data);
    let (_, got) = b.run(&t, Dir::Read, 0, vec![0; 1024], false);
    assert!(got == data[1024..]);
}

#[test]
fn odd_registers_are_told_as_they_are() {
    let b = Bench::new("low-voltage-bit");
    assert_eq!(b.id.unwrap().ocr.0 & 0x80, 0x80);
    let b = Bench::new("kingston-canvas-64gb");
    let ssr = b.card.lock().config().ssr(4);
    assert_eq!((ssr[0], ssr[8], ssr[21]), (0x80, 4, 2), "width in use, speed class 10, application class 2");
}

#[test]
fn a_card_without_class_10_has_no_cmd6_for_a_good_host_and_none_for_a_naive_one() {
    let b = Bench::new("goldmomo-2gb");
    assert_eq!((b.id.unwrap().sd().unwrap().switch, b.id.unwrap().bus.hz), (None, 25_000_000));
    assert!(!b.card.lock().config().high_speed);
}

#[test]
fn an_unknown_name_is_refused_with_the_list() {
    let error = zoo::card("fake-65gb", Profile::ideal(), 0).unwrap_err().to_string();
    assert!(error.contains("`fake-65gb`"));
    for preset in zoo::list() {
        assert!(error.contains(preset.name));
        assert!(!preset.what.is_empty() && !preset.host.is_empty() && !preset.source.is_empty());
    }
    for preset in zoo::io_list() {
        assert!(error.contains(preset.name));
        assert!(!preset.what.is_empty() && !preset.host.is_empty() && !preset.source.is_empty());
    }
}
