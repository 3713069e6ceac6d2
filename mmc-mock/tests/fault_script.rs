//! Scripts at work: what a host sees of each action, on a host without a controller and on the DesignWare model, and
//! what stays on the card.

use mmc_hal::{Dir, Mmio};
use mmc_mock::card::{Bits, Card, MmcCard, MmcConfig, SdCard, SdConfig, Sent, Shared, Token};
use mmc_mock::drive::{Bound, Drive, Spent, drive_bounded};
use mmc_mock::dw::{Config, Dw};
use mmc_mock::fault::{Faulty, Medium, Script, strategy};
use mmc_mock::timing::Profile;
use mmc_mock::{Buf, Clock, Memory, MockHost, Wakes, zoo};
use mmc_proto::host::{Capabilities, Cause, Phase, Supervised};
use mmc_proto::machine::{
    Conductor, Identified, Identify, IdentifyError, Machine, Transfer, TransferCause, TransferError,
    TransferOptions, Turn,
};
use mmc_time::{Duration, Instant};
use proptest::prelude::*;

type Slot = Shared<Faulty<SdCard>>;

struct Bench {
    host: Supervised<MockHost<Buf, Slot>>,
    card: Slot,
    clock: Clock,
}

fn sd() -> SdCard {
    SdCard::new(SdConfig::new(Profile::ideal(), 1)).unwrap()
}

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i / 512) as u8 ^ (i % 251) as u8 ^ seed).collect()
}

impl Bench {
    fn new(script: &str) -> Self {
        Self::with(Faulty::new(sd(), script.parse().unwrap()).unwrap())
    }
    fn with(card: Faulty<SdCard>) -> Self {
        let card = Shared::new(card);
        let mut caps = Capabilities::new();
        caps.max_hz = 50_000_000;
        Self { host: MockHost::new(card.clone(), caps), card, clock: Clock::new() }
    }
    /// One conversation, in a minute and twenty thousand steps or not at all.
    fn drive<M: Machine>(&mut self, machine: M, payload: Buf) -> ((M::Output, Option<Buf>), Spent) {
        let bound = Bound { time: Duration::from_secs(60), steps: 20_000 };
        let mut talk = Conductor::new(machine, Some(payload));
        drive_bounded(&self.clock, bound, |now| match talk.poll(&mut self.host, now) {
            Turn::Wait { until, .. } => Drive::Wait(until),
            Turn::Done(output, payload) => Drive::Done((output, payload)),
        })
        .unwrap()
    }
    fn identify(&mut self) -> Result<Identified, IdentifyError> {
        let machine = Identify::new(&Capabilities::new());
        self.drive(machine, Buf(vec![0; 512])).0.0
    }
    fn transfer(
        &mut self,
        id: &Identified,
        dir: Dir,
        lba: u64,
        data: Vec<u8>,
    ) -> (Result<u32, TransferError>, Vec<u8>, Spent) {
        let blocks = (data.len() / 512) as u32;
        let machine = Transfer::new(&id.traits, dir, lba, blocks, TransferOptions::default());
        let ((result, payload), spent) = self.drive(machine, Buf(data));
        (result, payload.map(|b| b.0).unwrap_or_default(), spent)
    }
    fn stored(&self, lba: u64, blocks: usize) -> Vec<u8> {
        let mut bytes = vec![0; blocks * 512];
        self.card.with(|c| c.with_storage(&mut |s| s.read(lba * 512, &mut bytes).unwrap()));
        bytes
    }
}

#[test]
fn each_action_is_called_by_its_name_and_the_card_is_usable_after_it() {
    use Cause::{Crc, Framing, NoCrcStatus, Timeout};
    for (what, dir, cause, phase) in [
        ("lost", Dir::Read, Timeout, Phase::Command),
        ("no-answer", Dir::Read, Timeout, Phase::Command),
        ("command-crc", Dir::Read, Timeout, Phase::Command),
        ("response-crc", Dir::Write, Crc, Phase::Command),
        ("response-index", Dir::Write, Framing, Phase::Command),
        ("response-end", Dir::Write, Framing, Phase::Command),
        ("block 5 crc", Dir::Read, Crc, Phase::Data),
        ("block 5 crc", Dir::Write, Crc, Phase::Data),
        ("block 7 missing", Dir::Read, Timeout, Phase::Data),
        ("block 7 missing", Dir::Write, NoCrcStatus, Phase::Data),
    ] {
        let command = if dir == Dir::Read { "CMD18" } else { "CMD25" };
        let mut b = Bench::new(&format!("at {command}: {what}"));
        let id = b.identify().unwrap();
        let (result, ..) = b.transfer(&id, dir, 100, pattern(4096, 9));
        let error = result.unwrap_err();
        let TransferCause::Host(e) = error.cause else { panic!("{what}: {error}") };
        assert_eq!((e.cause, e.phase), (cause, phase), "{what} {dir:?}");
        assert!(b.card.lock().waiting().is_empty(), "{what}");
        assert_eq!(b.transfer(&id, dir, 100, pattern(4096, 9)).0, Ok(8), "after {what}");
    }
}

#[test]
fn late_blocks_and_a_busy_card_cost_what_the_script_says() {
    let time = |script: &str, dir| {
        let mut b = Bench::new(script);
        let id = b.identify().unwrap();
        let (result, _, spent) = b.transfer(&id, dir, 0, pattern(4096, 1));
        (result, spent.time)
    };
    let (plain, late) = (time("", Dir::Read), time("at CMD18: late 40ms", Dir::Read));
    let wait = late.1.saturating_sub(plain.1);
    assert_eq!(late.0, Ok(8));
    assert!(wait > Duration::from_millis(35) && wait <= Duration::from_millis(40), "{wait}");
    let (plain, busy) = (time("", Dir::Write), time("at CMD25: busy 70ms", Dir::Write));
    assert_eq!(busy.0, Ok(8));
    assert!(busy.1.saturating_sub(plain.1) > Duration::from_millis(65), "{} {}", busy.1, plain.1);
    let (stuck, took) = time("at CMD25: busy forever", Dir::Write);
    assert!(stuck.unwrap_err().needs_reset());
    assert!(took < Duration::from_secs(10), "{took}");
}

#[test]
fn bits_can_be_wrong_behind_everybodys_back() {
    let mut b = Bench::new("at CMD18: block 2 flip 7.4\nat CMD25: block 1 flip 0.0\nat 2s: rot 203 511.7");
    let id = b.identify().unwrap();
    let good = pattern(4096, 3);
    assert_eq!(b.transfer(&id, Dir::Write, 200, good.clone()).0, Ok(8));
    let mut stored = good.clone();
    stored[512] ^= 1;
    assert!(b.stored(200, 8) == stored);
    let (result, mut got, _) = b.transfer(&id, Dir::Read, 200, vec![0; 4096]);
    assert_eq!(result, Ok(8));
    got[2 * 512 + 7] ^= 0x10;
    assert!(got == stored, "the stored bytes are not touched by a bad wire");
    b.clock.advance_to(Instant::from_secs(2));
    let (_, mut got, _) = b.transfer(&id, Dir::Read, 200, vec![0; 4096]);
    got[3 * 512 + 511] ^= 0x80;
    assert!(got == stored);
}

#[test]
fn a_card_leaves_comes_back_and_is_another() {
    let large = SdCard::new(SdConfig { sectors: 33_554_432, ..SdConfig::new(Profile::ideal(), 2) }).unwrap();
    let script: Script = "at 2s: remove\nat 3s: insert\nat 4s: swap 0".parse().unwrap();
    let mut b = Bench::with(Faulty::with_others(sd(), vec![large], script).unwrap());
    let id = b.identify().unwrap();
    let read = |b: &mut Bench| b.transfer(&id, Dir::Read, 0, vec![0; 512]).0;
    assert_eq!(read(&mut b), Ok(1));
    for (at, present) in [(2, false), (3, true), (4, true)] {
        b.clock.advance_to(Instant::from_secs(at));
        assert!(read(&mut b).is_err(), "after {at} s nobody answers to the old address");
        assert_eq!(b.card.present(), present);
    }
    assert_eq!(b.identify().unwrap().traits.blocks, 33_554_432);
}

#[test]
fn rules_come_and_go_while_the_card_runs() {
    let mut b = Bench::new("every CMD19: lost");
    let card = b.identify().unwrap();
    let waiting = |b: &Bench| b.card.with(|c| c.waiting().len());
    let add = |b: &Bench, rule: &str| {
        let rule = rule.parse::<Script>().unwrap().rules.remove(0);
        b.card.with(|c| c.add(rule))
    };
    let nth = b.card.with(|c| c.seen(false, 17));
    add(&b, &format!("at CMD17#{nth}: block 0 crc")).unwrap();
    assert_eq!(waiting(&b), 2);
    assert!(b.transfer(&card, Dir::Read, 5, vec![0; 512]).0.is_err());
    assert_eq!((b.card.with(|c| c.seen(false, 17)), waiting(&b)), (nth + 1, 1));
    assert!(b.transfer(&card, Dir::Read, 5, vec![0; 512]).0.is_ok(), "once");
    // What has struck is forgotten, what always strikes is not.
    add(&b, "at CMD17: lost").unwrap();
    assert_eq!(b.card.with(|c| c.script().rules.len()), 2);
    let refused = add(&b, "at 1s: swap 0").unwrap_err().to_string();
    assert_eq!(refused, "rule 1, action: there is no other card 0, only 0 were given");
    // What needs no command happens at once; the rest does not.
    let now = b.clock.now();
    b.card.with(|c| {
        c.act(&mmc_mock::fault::Action::Remove, now);
        c.act(&mmc_mock::fault::Action::Swap(7), now);
        assert!(!c.present());
        c.act(&mmc_mock::fault::Action::Lost, now);
        c.act(&mmc_mock::fault::Action::Insert, now);
        assert!(c.present());
    });
}

#[test]
fn a_loss_of_power_keeps_exactly_the_blocks_it_says() {
    for (keep, survive) in [("all", vec![0, 1, 2, 3, 4, 5, 6, 7]), ("none", vec![]), ("keep 6 1", vec![1, 6])]
    {
        let mut b = Bench::new(&format!("cache 8\nat 2s: power-loss {keep}"));
        let id = b.identify().unwrap();
        // Old contents are durable: eight later blocks push them out of the cache.
        assert_eq!(b.transfer(&id, Dir::Write, 0, pattern(4096, 1)).0, Ok(8));
        assert_eq!(b.transfer(&id, Dir::Write, 0, pattern(4096, 2)).0, Ok(8));
        b.clock.advance_to(Instant::from_secs(2));
        assert!(b.transfer(&id, Dir::Read, 0, vec![0; 512]).0.is_err(), "it has forgotten its address");
        let (old, new, got) = (pattern(4096, 1), pattern(4096, 2), b.stored(0, 8));
        for k in 0..8 {
            let expected = if survive.contains(&k) { &new } else { &old };
            assert!(got[k * 512..][..512] == expected[k * 512..][..512], "{keep}: block {k}");
        }
        let id = b.identify().unwrap();
        assert_eq!(b.transfer(&id, Dir::Read, 0, vec![0; 4096]).1, got, "and it is a card again");
        let said = b.card.violations();
        assert!(!said.iter().any(|v| v.contains("clocks since")), "power-up was as it should be: {said:?}");
    }
    // Without a cache a write is durable once the card is no longer busy.
    let mut b = Bench::new("at 2s: power-loss none");
    let id = b.identify().unwrap();
    b.transfer(&id, Dir::Write, 0, pattern(4096, 1)).0.unwrap();
    b.clock.advance_to(Instant::from_secs(2));
    b.transfer(&id, Dir::Read, 0, vec![0; 512]).0.unwrap_err();
    assert!(b.stored(0, 8) == pattern(4096, 1));
    // And the random choice is the seed's.
    let random = |seed: u64| {
        let mut b = Bench::new(&format!("seed {seed}\ncache 64\nat 2s: power-loss random"));
        let id = b.identify().unwrap();
        b.transfer(&id, Dir::Write, 0, pattern(16384, 1)).0.unwrap();
        b.clock.advance_to(Instant::from_secs(2));
        b.transfer(&id, Dir::Read, 0, vec![0; 512]).0.unwrap_err();
        b.stored(0, 32)
    };
    assert!(random(5) == random(5) && random(5) != random(6));
}

#[test]
fn the_cache_of_an_emmc_card_is_lost_in_any_order() {
    let run = |keep: &str| {
        let config = MmcConfig::emmc(8, 16_777_216, Profile::ideal(), 1);
        let script = format!("at 5s: power-loss {keep}");
        let mut card = Faulty::new(MmcCard::new(config).unwrap(), script.parse().unwrap()).unwrap();
        let mut now = Instant::ZERO;
        card.power(true, now);
        card.bus(400_000, 1, now);
        card.idle_clocks(80);
        card.command(0, 0, now);
        // CMD1 until it is ready, then an address, selection, and CACHE_CTRL.
        for _ in 0..100 {
            card.command(1, 0x40ff_8080, now);
            now += Duration::from_millis(10);
        }
        for (index, arg) in [(2, 0), (3, 1 << 16), (7, 1 << 16), (6, 0x0321_0101)] {
            assert!(card.command(index, arg, now).response.is_some(), "CMD{index}");
            now += Duration::from_millis(10);
        }
        for (sector, byte) in [(8, 1), (9, 2), (8, 3)] {
            assert!(card.command(24, sector, now).data.is_some());
            assert_eq!(card.take(&[byte; 512], true, now), Token::Accepted);
            now += Duration::from_secs(1);
        }
        card.command(13, 1 << 16, Instant::from_secs(5));
        let mut stored = [9; 1024];
        card.with_storage(&mut |s| s.read(8 * 512, &mut stored).unwrap());
        (stored[0], stored[512])
    };
    assert_eq!(run("all"), (3, 2));
    assert_eq!(run("none"), (0, 0));
    assert_eq!(run("keep 1"), (0, 2));
    assert_eq!(run("keep 0 1"), (1, 2));
    assert_eq!(run("keep 2 0"), (1, 0), "the older write was programmed last");
}

/// A host of an eMMC card that may lose heart: `None` where an answer, a block or an end did not come.
struct Emmc {
    card: Faulty<MmcCard>,
    now: Instant,
}

impl Emmc {
    fn new(config: MmcConfig, script: &str) -> Self {
        Self::with(Faulty::new(MmcCard::new(config).unwrap(), script.parse().unwrap()).unwrap())
    }
    fn with(mut card: Faulty<MmcCard>) -> Self {
        card.power(true, Instant::ZERO);
        card.bus(400_000, 1, Instant::ZERO);
        card.idle_clocks(80);
        Self { card, now: Instant::ZERO }
    }
    fn short(&mut self, index: u8, arg: u32) -> Option<u32> {
        self.now += Duration::from_micros(200);
        match self.card.command(index, arg, self.now).response {
            Some(Bits::Short(b)) => Some(u32::from_be_bytes([b[1], b[2], b[3], b[4]])),
            _ => None,
        }
    }
    fn identify(&mut self) -> Option<()> {
        self.short(0, 0);
        for _ in 0..200 {
            if self.short(1, 0x40ff_8080)? >> 31 == 1 {
                break;
            }
            self.now += Duration::from_millis(10);
        }
        self.card.command(2, 0, self.now).response?;
        self.short(3, 1 << 16)?;
        self.short(7, 1 << 16)?;
        self.card.bus(20_000_000, 1, self.now);
        self.wait()
    }
    /// Until CMD13 says so, for ten seconds.
    fn wait(&mut self) -> Option<()> {
        for _ in 0..1000 {
            if self.short(13, 1 << 16)? >> 8 & 31 == 9 {
                return Some(());
            }
            self.now += Duration::from_millis(10);
        }
        None
    }
    /// Eight sectors from sector 64 on.
    fn write(&mut self, fill: u8) -> Option<()> {
        self.short(23, 8)?;
        self.short(25, 64)?;
        for _ in 0..8 {
            if self.card.take(&[fill; 512], true, self.now) != Token::Accepted {
                self.short(12, 0);
                return None;
            }
        }
        self.wait()
    }
    fn read(&mut self) -> Option<Vec<u8>> {
        self.short(23, 8)?;
        self.short(18, 64)?;
        let mut all = vec![0; 4096];
        for block in all.chunks_mut(512) {
            if self.card.send(block, self.now) != Sent::Good {
                self.short(12, 0);
                return None;
            }
        }
        Some(all)
    }
    fn stored(&mut self, sectors: usize) -> Vec<u8> {
        let mut all = vec![0; sectors * 512];
        self.card.with_storage(&mut |s| s.read(0, &mut all).unwrap());
        all
    }
}

#[test]
fn an_emmc_card_follows_a_script_as_an_sd_card_does() {
    let bench = |script: &str| {
        let mut b = Emmc::new(MmcConfig::emmc(8, 16_777_216, Profile::ideal(), 1), script);
        b.identify().unwrap();
        b
    };
    let mut b = bench("at CMD25: no-answer\nat CMD13#3: command-crc");
    assert!(b.write(1).is_none());
    // CMD3, CMD7 and CMD8 carry a status, too.
    let mut b = bench("at CMD8: status 0x80000");
    assert_eq!(b.short(8, 0).unwrap() >> 19 & 1, 1);
    let mut b = bench("at CMD18: block 3 crc\nat CMD18#1: block 2 flip 5.0\nat CMD25#1: block 4 missing");
    b.write(7).unwrap();
    assert!(b.read().is_none(), "a wrong CRC");
    assert_eq!(b.read().unwrap().iter().filter(|&&x| x != 7).count(), 1, "a wrong bit with a right one");
    assert!(b.write(8).is_none());
    b.wait().unwrap();
    assert_eq!(
        b.read().unwrap()[3 * 512..5 * 512],
        [[8; 512], [7; 512]].concat(),
        "four blocks of the second write"
    );
    assert!(b.card.waiting().is_empty());
    let mut b = bench("at CMD25: busy forever");
    assert!(b.write(1).is_none());
    let mut b = bench("at CMD23: remove\nat 20s: insert\nat 21s: rot 64 0.0");
    assert!(b.write(1).is_none() && b.short(13, 1 << 16).is_none());
    b.now = Instant::from_secs(22);
    b.identify().unwrap();
    assert_eq!(b.read().unwrap()[..2], [1, 0]);
    // What was being programmed: any of it, in any order.
    let slow = Profile { wr_rand: Duration::from_secs(1), ..Profile::ideal() };
    let config = MmcConfig::emmc(8, 16_777_216, slow, 1);
    let mut b = Emmc::new(config, "at CMD13#4: power-loss keep 7 0");
    b.identify().unwrap();
    b.short(23, 8);
    b.short(25, 64);
    assert_eq!(b.card.take_many(&[5; 4096], b.now), 4096);
    assert!(b.wait().is_none(), "power is lost, and with it the address");
    let kept: Vec<u8> = b.stored(72)[64 * 512..].chunks(512).map(|s| s[0]).collect();
    assert_eq!(kept, [5, 0, 0, 0, 0, 0, 0, 5]);
}

#[test]
fn the_cache_of_an_sd_card_is_lost_in_any_order() {
    let run = |keep: &str| {
        let config = SdConfig { extension: true, ..SdConfig::new(Profile::ideal(), 1) };
        let script = format!("at 20s: power-loss {keep}").parse().unwrap();
        let mut card = Faulty::new(SdCard::new(config).unwrap(), script).unwrap();
        card.power(true, Instant::ZERO);
        card.bus(400_000, 1, Instant::ZERO);
        card.idle_clocks(80);
        let mut at = 0;
        let mut command = |card: &mut Faulty<SdCard>, index, arg| {
            at += 1;
            (card.command(index, arg, Instant::from_millis(at * 100)), Instant::from_millis(at * 100))
        };
        let rca = 0xb368 << 16;
        for (index, arg) in [
            (0, 0),
            (8, 0x1aa),
            (55, 0),
            (41, 0x40ff_8000),
            (55, 0),
            (41, 0x40ff_8000),
            (2, 0),
            (3, 0),
            (7, rca),
        ] {
            command(&mut card, index, arg);
        }
        // CMD49, function 2 (performance), byte 260: the cache on.
        let (answer, now) = command(&mut card, 49, 2 << 27 | 260 << 9);
        assert!(answer.data.is_some());
        let mut block = [0; 512];
        block[0] = 1;
        assert_eq!(card.take(&block, true, now), Token::Accepted);
        for (sector, byte) in [(8, 1), (9, 2), (8, 3)] {
            let (answer, now) = command(&mut card, 24, sector);
            assert!(answer.data.is_some());
            assert_eq!(card.take(&[byte; 512], true, now), Token::Accepted);
        }
        assert_eq!(card.volatile(), 3, "all in the cache");
        card.command(13, rca, Instant::from_secs(20));
        let mut stored = [9; 1024];
        card.with_storage(&mut |s| s.read(8 * 512, &mut stored).unwrap());
        (stored[0], stored[512])
    };
    assert_eq!(run("all"), (3, 2));
    assert_eq!(run("none"), (0, 0));
    assert_eq!(run("keep 2 0"), (1, 0), "the older write was programmed last");
}

#[test]
fn the_controller_model_takes_its_faults_from_the_same_script() {
    let script: Script = "at CMD8: no-answer\nat CMD8#1: response-crc\nat frame 3: host response-index\n\
                          at 100ms: host spurious 0x80\nat access 1: host pin off"
        .parse()
        .unwrap();
    let clock = Clock::new();
    let card = Faulty::new(sd(), script.clone()).unwrap();
    let dw = Dw::new(card, clock.clone(), Memory::new(0x8000_0000, 0xc000_0000), Config::generic());
    script.arm(&dw).unwrap();
    assert_eq!(dw.read32(0x50) & 1, 1, "card detect says: gone");
    for (offset, value) in [(4, 1), (8, 63), (0x10, 1), (0x2c, 0x8020_2000)] {
        dw.write32(offset, value);
    }
    let command = |cmd: u32, arg: u32| {
        dw.write32(0x44, 0xffff);
        dw.write32(0x28, arg);
        dw.write32(0x2c, 0xa000_2000 | cmd);
        while dw.read32(0x44) & 4 == 0 {
            clock.advance_to(dw.next_event());
        }
        dw.read32(0x44) & 0xffff
    };
    assert_eq!(command(0x8000, 0), 4);
    let got: Vec<u32> = (0..4).map(|_| command(0x148, 0x1aa)).collect();
    assert_eq!(got, [0x104, 0x44, 0x46, 4], "silence, a wrong CRC, a wrong index, and at last an answer");
    clock.advance_to(Instant::from_millis(100));
    assert_eq!(dw.read32(0x44) & 0x80, 0x80);
    assert!(dw.card(|c| c.waiting().is_empty()));
}

#[test]
fn a_script_that_this_card_cannot_follow_is_refused() {
    for (script, says) in [
        (
            "at 1s: rot 16777216 0.0",
            "rule 1, action: there is no sector 16777216, the smallest card here stores 16777216",
        ),
        ("at CMD0: lost\nat 1s: swap 0", "rule 2, action: there is no other card 0, only 0 were given"),
    ] {
        let e = Faulty::new(sd(), script.parse().unwrap()).unwrap_err();
        assert_eq!(e.to_string(), says);
    }
}

/// The child of the next test: fails with a script at hand.
#[test]
fn fails_when_told_to() {
    let bench = Bench::new("seed 99\nat CMD17#4: block 0 crc");
    assert!(std::env::var_os("MMC_MOCK_FAIL").is_none(), "as told");
    drop(bench);
}

#[test]
fn a_test_that_fails_prints_its_script_and_seed() {
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "fails_when_told_to", "--nocapture"])
        .env("MMC_MOCK_FAIL", "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stderr).into_owned();
    assert!(!child.status.success());
    assert!(said.contains("the fault script was:\nseed 99\nat CMD17#4: block 0 crc\n"), "{said}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases / 2))]

    #[test]
    fn what_prints_parses_to_the_same_script(script in strategy::full_script(8)) {
        prop_assert_eq!(script.check(), Ok(()));
        prop_assert_eq!(&script.to_string().parse::<Script>().unwrap(), &script);
        let json = serde_json::to_string(&script).unwrap();
        prop_assert_eq!(serde_json::from_str::<Script>(&json).unwrap(), script);
    }

    #[test]
    fn any_text_is_a_script_or_an_error_with_its_line(
        lines in prop::collection::vec(
            prop_oneof![
                "[ -~]{0,40}",
                "(at|every) (A?CMD[0-9]{1,3}(#[0-9]{1,11})?|frame [0-9]{1,3}|[0-9]{1,21}(s|ms|us|ns)?): [a-z-]{1,12}( [0-9x.a-f]{1,12}){0,3}",
                "\\PC{0,20}",
            ],
            0..6,
        )
    ) {
        let text = lines.join("\n");
        match text.parse::<Script>() {
            Ok(script) => prop_assert_eq!(script.to_string().parse::<Script>(), Ok(script)),
            Err(e) => prop_assert!((1..=lines.len()).contains(&e.line), "{}", e),
        }
    }

    /// Whatever goes wrong: every conversation ends in bounded time, and no other sector than those written (or
    /// rotten) is touched.
    #[test]
    fn no_script_makes_a_conversation_endless_or_spoils_what_was_not_written(script in strategy::script(6)) {
        use mmc_mock::fault::Action;
        let rotten: Vec<u64> = script.rules.iter().filter_map(|r| match r.what {
            Action::Rot { sector, .. } => Some(sector),
            _ => None,
        }).collect();
        let mut b = Bench::with(Faulty::new(sd(), script).unwrap());
        for _ in 0..2 {
            if let Ok(id) = b.identify() {
                let _ = b.transfer(&id, Dir::Write, 64, pattern(4096, 7));
                let _ = b.transfer(&id, Dir::Read, 64, vec![0; 4096]);
                let _ = b.transfer(&id, Dir::Write, 80, pattern(512, 7));
            }
        }
        let all = b.stored(0, 256);
        for (sector, bytes) in all.chunks(512).enumerate() {
            let written = (64..72).contains(&sector) || sector == 80;
            prop_assert!(written || rotten.contains(&(sector as u64)) || bytes.iter().all(|&b| b == 0));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases / 2))]

    /// The same for each eMMC card of the zoo: whatever its character and whatever goes wrong besides.
    #[test]
    fn no_script_spoils_what_was_not_written_on_any_card_of_the_zoo(
        preset in prop::sample::select(zoo::mmc_list()),
        cache in any::<bool>(),
        script in strategy::script(6),
    ) {
        use mmc_mock::fault::Action;
        let rotten: Vec<u64> = script.rules.iter().filter_map(|r| match r.what {
            Action::Rot { sector, .. } => Some(sector),
            _ => None,
        }).collect();
        let config = zoo::mmc(preset.name, Profile::a2(), 1).unwrap();
        prop_assume!(config.sectors() >= 1 << 20);
        let byte_addressed = !config.sector_addressed();
        let mut b = Emmc::with(Faulty::new(MmcCard::new(config).unwrap(), script).unwrap());
        for fill in 1..4 {
            if b.identify().is_some() && !byte_addressed {
                if cache {
                    b.short(6, 0x0321_0100);
                    let _ = b.wait();
                }
                let _ = b.write(fill);
                if let Some(back) = b.read() {
                    prop_assert_eq!(back.len(), 4096);
                }
                b.short(6, 0x0320_0100);
                let _ = b.wait();
            }
        }
        prop_assert!(b.now < Instant::from_secs(300));
        for (sector, bytes) in b.stored(128).chunks(512).enumerate() {
            let written = (64..72).contains(&sector);
            prop_assert!(written || rotten.contains(&(sector as u64)) || bytes.iter().all(|&b| b == 0));
        }
    }
}

#[test]
fn rules_in_json_are_lines_and_a_bad_one_is_named() {
    let script: Script = serde_json::from_str(r#"{"seed":3,"rules":["at CMD17: block 0 crc"]}"#).unwrap();
    assert_eq!(script.to_string(), "seed 3\nat CMD17: block 0 crc\n");
    let e = serde_json::from_str::<Script>(r#"{"rules":["at CMD99: lost"]}"#).unwrap_err().to_string();
    assert!(e.contains("`at CMD99: lost`, trigger: there is no CMD99"), "{e}");
    let e = serde_json::from_str::<Script>(r#"{"rule":[]}"#).unwrap_err().to_string();
    assert!(e.contains("unknown field `rule`"), "{e}");
}

#[test]
fn an_empty_script_changes_nothing() {
    let run = |script: Option<&str>| {
        let mut caps = Capabilities::new();
        caps.max_hz = 50_000_000;
        let (card, clock) = (SdCard::new(SdConfig::new(Profile::slow2018(), 3)).unwrap(), Clock::new());
        match script {
            Some(text) => {
                let card = Shared::new(Faulty::new(card, text.parse().unwrap()).unwrap());
                let mut host = MockHost::new(card.clone(), caps);
                let moved = session(&mut host, &clock);
                (moved, clock.now(), card.lock().card().log().hash())
            }
            None => {
                let card = Shared::new(card);
                let mut host = MockHost::new(card.clone(), caps);
                let moved = session(&mut host, &clock);
                (moved, clock.now(), card.lock().log().hash())
            }
        }
    };
    assert_eq!(run(Some("")), run(None), "the same commands at the same instants");
    assert_eq!(
        run(Some("cache 8\nat 1000s: power-loss none")),
        run(None),
        "also with a loss of power to come"
    );
}

/// Identifies the card, writes and reads; the blocks that went well.
fn session<C: Card>(host: &mut Supervised<MockHost<Buf, C>>, clock: &Clock) -> u32 {
    let bound = Bound { time: Duration::from_secs(10), steps: 10_000 };
    let mut talk = Conductor::new(Identify::new(&Capabilities::new()), Some(Buf(vec![0; 512])));
    let (id, _) = drive_bounded(clock, bound, |now| match talk.poll(host, now) {
        Turn::Wait { until, .. } => Drive::Wait(until),
        Turn::Done(id, _) => Drive::Done(id.unwrap()),
    })
    .unwrap();
    let mut moved = 0;
    for (dir, lba) in
        [(Dir::Write, 0), (Dir::Write, 90_000), (Dir::Read, 0), (Dir::Write, 5), (Dir::Read, 90_004)]
    {
        let machine = Transfer::new(&id.traits, dir, lba, 8, TransferOptions::default());
        let mut talk = Conductor::new(machine, Some(Buf(pattern(4096, lba as u8))));
        let (n, _) = drive_bounded(clock, bound, |now| match talk.poll(host, now) {
            Turn::Wait { until, .. } => Drive::Wait(until),
            Turn::Done(n, _) => Drive::Done(n.unwrap()),
        })
        .unwrap();
        moved += n;
    }
    moved
}
