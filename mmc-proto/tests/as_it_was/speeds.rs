//! The choice of a speed alone, and the programming of a CSD, whatever is in it.

use super::{CARD, Device, Lines, Random, bad, cards, full, index, tell, time};
use mmc_proto::bus::{BusConfig, Signal, Width};
use mmc_proto::machine::{Lock, Speed, SpeedOptions, Step, Subject};
use mmc_proto::register::sdio::Cccr;
use mmc_proto::register::{Csd, MmcCsd, Scr};
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
    lines.compare("speeds");
}
