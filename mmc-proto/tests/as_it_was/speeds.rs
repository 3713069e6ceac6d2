//! The choice of a speed alone, and the programming of a CSD, whatever is in it.

use super::{
    CARD, CardTraits, Device, Fetch, Lines, MmcEraseKind, Random, bad, cards, conversations, ext_csd, full,
    index, tell, time,
};
use mmc_proto::bus::{BusConfig, Signal, Width};
use mmc_proto::machine::{Erase, Lock, LockOp, Speed, SpeedOptions, Step, Subject};
use mmc_proto::register::sdio::Cccr;
use mmc_proto::register::{Csd, MmcCsd, Scr, ScrInfo};
use mmc_proto::rpmb::{Frame, Request, SoftwareHmac};
use mmc_time::Duration;
use std::fmt::Write;

#[test]
fn the_choice_of_a_speed() {
    let mut lines = Lines(Vec::new());
    for (name, card) in cards() {
        for (signal, width, sample) in
            [(Signal::V3_3, Width::Eight, 0), (Signal::V3_3, Width::One, 3), (Signal::V1_8, Width::Four, 5)]
        {
            let mut toy = card.clone();
            let cccr = Cccr::parse(&toy.cccr).unwrap().info();
            let (csd, scr) = (Csd::new(toy.csd), Scr::new(toy.scr));
            let subject = match (toy.mmc, toy.sd) {
                (true, _) => Subject::mmc(&MmcCsd::new(toy.csd), toy.ext_csd.as_ref()),
                (_, true) => Subject::sd(&csd, Some(&scr), toy.io.is_some().then_some(&cccr)),
                _ => Subject::io(&cccr),
            };
            let timing = subject.base(signal);
            toy.bus = BusConfig { hz: subject.hz(timing), timing, signal, sample, ..BusConfig::default() };
            let mut caps = full();
            caps.width = width;
            lines.digest(format!("{name}, {signal:?}, {width:?}"), |out| {
                writeln!(out, "{timing:?} {}", toy.bus.hz).unwrap();
                for run in 0..60 {
                    let (mut toy, mut random) = (toy.clone(), Random::new(run, 5));
                    let often = if run == 0 { 0 } else { 1 + random.below(3) };
                    let speed = Speed::new(&caps, SpeedOptions::new(&caps), subject, 1, toy.bus);
                    tell(speed, out, |step, scratch| {
                        let good = toy.step(step, scratch);
                        let hit = random.below(24) < often;
                        let kind = random.below(10);
                        let result = if hit { bad(kind, &mut random, good, index(step)) } else { good };
                        if hit && kind == 8 {
                            scratch[192 + random.below(50) as usize] ^= 1 << random.below(8);
                        }
                        let took =
                            if run == 0 { Duration::from_micros(200) } else { time(&mut random, step) };
                        (result, took)
                    });
                }
            });
        }
    }
    for bit in 0..128 {
        let mut csd = [0; 16];
        csd[bit / 8] = 1 << (bit % 8);
        lines.digest(format!("a CSD with bit {bit}"), |out| {
            for (csd, on) in
                [(csd, false), (csd, true), (csd.map(|b: u8| !b), false), (csd.map(|b: u8| !b), true)]
            {
                let mut device = Device::new();
                for lock in [
                    Lock::write_protect(&CARD, &Csd::new(csd), on),
                    Lock::write_protect_mmc(&CARD, &MmcCsd::new(csd), on),
                ] {
                    tell(lock, out, |step, scratch| match step {
                        Step::Do(a) => (device.answer(&a.command, scratch), Duration::from_micros(10)),
                        _ => unreachable!("{step:?}"),
                    });
                    writeln!(out, "{:x?}", device.written).unwrap();
                }
            }
        });
    }
    for code in (0..=9).chain([0x7f, 0x80, 0x81, 0x87, 0x100, 0x300]) {
        let mut bytes = Frame::new(Request::ReadCounter).emit();
        bytes[508..510].copy_from_slice(&u16::to_be_bytes(code));
        let frame = Frame::parse(&bytes).unwrap();
        let outcome = (frame.outcome(), frame.counter_expired(), Request::from_code(code));
        lines.say(format!("RPMB result {code:x}: {outcome:?} {frame:?}"));
    }
    lines.say(format!("{:?}", SoftwareHmac::new(&[0x4b; 32])));
    erasing_and_reading(&mut lines);
    lines.compare("speeds");
}

/// Erasing around the ends of groups and of the card; numbers of several bytes; versions; secrets that are cleared.
fn erasing_and_reading(lines: &mut Lines) {
    let odd = CardTraits { blocks: (1 << 24) + 5, ..CARD };
    let kinds = [
        MmcEraseKind::Erase,
        MmcEraseKind::SecureErase,
        MmcEraseKind::Trim,
        MmcEraseKind::SecureTrim,
        MmcEraseKind::Discard,
    ];
    for kind in kinds {
        lines.digest(format!("{kind:?}"), |out| {
            let (first, last) = ([0, 1, 1023, 1024, 1025], [1, 1023, 1024, 2048, 3000]);
            let inside = first.into_iter().flat_map(|lba| last.map(|blocks| (lba, blocks)));
            let end = [0, 1, 5, 1029, 2053].map(|n| (odd.blocks - n, n));
            for (lba, blocks) in inside.chain(end).chain([((1 << 24) - 1024, 1029), ((1 << 24) - 1024, 1028)])
            {
                for pieces in [1, 3] {
                    let csd = conversations::mmc_csd();
                    let erase = Erase::mmc(&odd, &csd, Some(&ext_csd()), kind, lba, blocks).in_pieces(pieces);
                    writeln!(out, "{lba} {blocks} {:?} {}", erase.progress(), erase.limit()).unwrap();
                    let mut device = Device::new();
                    tell(erase, out, |step, scratch| match step {
                        Step::Do(a) => (device.answer(&a.command, scratch), Duration::from_micros(10)),
                        _ => unreachable!("{step:?}"),
                    });
                }
            }
        });
    }
    for (name, fetch) in [
        ("stored blocks", Fetch::stored_blocks(&CARD)),
        ("protected groups", Fetch::protected_groups(&CARD, 64)),
        ("kinds of protection", Fetch::protection_types(&CARD, 64)),
    ] {
        let mut text = String::new();
        let mut device = Device::new();
        tell(fetch, &mut text, |step, scratch| {
            let Step::Do(a) = step else { unreachable!("{step:?}") };
            let answer = device.answer(&a.command, scratch);
            if let Some(data) = a.command.data {
                for (n, byte) in scratch.iter_mut().take(data.block_len.into()).enumerate() {
                    *byte = 0x11 * (n as u8 + 1);
                }
            }
            (answer, Duration::from_micros(10))
        });
        lines.say(format!("{name}: {}", text.lines().last().unwrap()));
    }
    for (spec, spec3, spec4, specx) in (0..4)
        .flat_map(|a| [0, 1].map(|b| (a, b)))
        .flat_map(|(a, b)| [0, 1].map(|c| (a, b, c)))
        .flat_map(|(a, b, c)| [0, 1, 4, 5, 6].map(|d| (a, b, c, d)))
    {
        let info = ScrInfo {
            sd_spec: spec,
            sd_spec3: spec3,
            sd_spec4: spec4,
            sd_specx: specx,
            ..ScrInfo::default()
        };
        lines.say(format!("SCR {spec} {spec3} {spec4} {specx}: {}", info.emit().version()));
    }
    let mut device = Device::new();
    let mut left = Vec::new();
    tell(
        Lock::lock(&CARD, LockOp::Set { new: b"sesame", lock: false }),
        &mut String::new(),
        |step, scratch| {
            let Step::Do(a) = step else { unreachable!("{step:?}") };
            left.push(scratch.windows(6).any(|w| w == b"sesame"));
            (device.answer(&a.command, scratch), Duration::from_micros(10))
        },
    );
    lines.say(format!("the password is there when a command goes out: {left:?}"));
    lines.say(format!("{:?} {:?}", LockOp::Unlock(b"sesame"), LockOp::ForceErase));
}
