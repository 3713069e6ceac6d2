//! The optional features: what is serialized comes back, what a probe may print has a format, every step of a
//! conversation is recorded.

use mmc_hal::Dir;
use mmc_proto::command::{Command, Response, Stop};
use mmc_proto::host::{
    Capabilities, Cause, Completion, Host, HostError, Operation, Phase, Progress, Reply, Returned,
    SubmitError, Why,
};
use mmc_proto::machine::{Action, Conductor, Machine, Step, Turn};
use mmc_proto::register::extension::{PerformanceSet, PowerSet};
use mmc_proto::register::sdio::{Cccr, CccrInfo};
use mmc_proto::register::{
    Cid, CidInfo, Csd, CsdInfo, ExtCsd, ExtCsdInfo, MmcCid, MmcCidInfo, MmcCsd, MmcCsdInfo, Ocr, Scr,
    ScrInfo, Ssr, SsrInfo, SwitchInfo, SwitchStatus,
};
use mmc_proto::status::CardStatus;
use mmc_time::{Duration, Instant};
use std::sync::Mutex;

mod serde_feature {
    use super::*;
    use proptest::prelude::*;
    use serde::Serialize;
    use serde::de::DeserializeOwned;
    use std::fmt::Debug;

    fn there_and_back<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: &T) {
        let text = serde_json::to_string(value).unwrap();
        assert_eq!(&serde_json::from_str::<T>(&text).unwrap(), value, "{text}");
    }

    proptest! {
        #[test]
        fn every_info_comes_back_from_its_text(b in any::<[[u8; 32]; 16]>()) {
            let bytes: Vec<u8> = b.concat();
            let take = |n: usize| &bytes[..n];
            there_and_back::<CidInfo>(&Cid::parse(take(16)).unwrap().info());
            there_and_back::<CsdInfo>(&Csd::parse(take(16)).unwrap().info());
            there_and_back::<MmcCidInfo>(&MmcCid::parse(take(16)).unwrap().info());
            there_and_back::<MmcCsdInfo>(&MmcCsd::parse(take(16)).unwrap().info());
            there_and_back::<ScrInfo>(&Scr::parse(take(8)).unwrap().info());
            there_and_back::<SsrInfo>(&Ssr::parse(take(64)).unwrap().info());
            there_and_back::<SwitchInfo>(&SwitchStatus::parse(take(64)).unwrap().info());
            there_and_back::<ExtCsdInfo>(&ExtCsd::parse(&bytes).unwrap().info());
            there_and_back::<CccrInfo>(&Cccr::parse(take(Cccr::LEN)).unwrap().info());
            there_and_back::<PowerSet>(&PowerSet::parse(&bytes));
            there_and_back::<PerformanceSet>(&PerformanceSet::parse(&bytes));
            there_and_back::<Ocr>(&Ocr::parse(take(4)).unwrap());
            let word = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            there_and_back::<CardStatus>(&CardStatus::from_bits_retain(word));
        }
    }

    #[test]
    fn names_are_those_of_the_fields_and_bits_are_numbers() {
        let info = Scr::new([0x02, 0x35, 0x80, 0x03, 0, 0, 0, 7]).info();
        let value = serde_json::to_value(info).unwrap();
        assert_eq!((&value["sd_spec3"], &value["mfg"]), (&1.into(), &7.into()));
        let status = serde_json::to_string(&CardStatus::from_bits_retain(0x917)).unwrap();
        assert_eq!(status, "2327", "unknown bits are kept");
        assert!(serde_json::from_str::<ScrInfo>("{\"structure\": 256}").is_err());
    }
}

/// What has a format is said by the compiler; what it prints is for the probe's tools to say.
#[test]
fn what_a_probe_may_print_has_a_format() {
    fn name<T: defmt::Format>() -> &'static str {
        std::any::type_name::<T>()
    }
    let names = [
        name::<Command>(),
        name::<Reply>(),
        name::<HostError>(),
        name::<CardStatus>(),
        name::<CidInfo>(),
        name::<CsdInfo>(),
        name::<MmcCidInfo>(),
        name::<MmcCsdInfo>(),
        name::<ScrInfo>(),
        name::<SsrInfo>(),
        name::<SwitchInfo>(),
        name::<ExtCsdInfo>(),
        name::<CccrInfo>(),
        name::<Ocr>(),
    ];
    assert!(names.iter().all(|name| name.starts_with("mmc_proto::")), "{names:?}");
}

/// Answers the first command and fails the second.
struct Two(u32, Option<Option<[u8; 512]>>);

impl Host for Two {
    type Payload = [u8; 512];
    fn capabilities(&self) -> Capabilities {
        Capabilities::new()
    }
    fn submit(
        &mut self,
        op: Operation<[u8; 512]>,
        _: Instant,
        _: Instant,
    ) -> Result<(), SubmitError<[u8; 512]>> {
        self.1 = Some(match op {
            Operation::Transfer(_, payload) => Some(payload),
            _ => None,
        });
        Ok(())
    }
    fn poll(&mut self, now: Instant) -> Progress<[u8; 512]> {
        let Some(payload) = self.1.take() else { return Progress::Waiting { why: Why::Timer, until: now } };
        self.0 += 1;
        let result = match self.0 {
            1 => Ok(Reply { words: [0x1aa, 0, 0, 0], bytes: 0 }),
            _ => Err(HostError { cause: Cause::Crc, phase: Phase::Data, index: 17, r1: None }),
        };
        Progress::Done(Completion { result, payload: payload.map_or(Returned::None, Returned::Back) })
    }
    fn abort(&mut self, _: Instant) {}
}

/// CMD8, then CMD17, whatever comes of them.
struct Script(u32);

impl Machine for Script {
    type Output = ();
    fn next(&mut self, _: Option<Result<Reply, HostError>>, _: &mut [u8], _: Instant) -> Step<()> {
        self.0 += 1;
        let command = match self.0 {
            1 => Command::plain(8, 0x1aa, Response::Short),
            2 => Command::data(17, 0x2000, Dir::Read, 512, 1, Stop::None),
            _ => return Step::Done(()),
        };
        Step::Do(Action { command, limit: Duration::from_millis(10) })
    }
}

struct Lines(Mutex<Vec<String>>);

impl log::Log for Lines {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }
    fn log(&self, record: &log::Record<'_>) {
        if record.target() == "mmc_proto" {
            self.0.lock().unwrap().push(format!("{} {}", record.level(), record.args()));
        }
    }
    fn flush(&self) {}
}

static LINES: Lines = Lines(Mutex::new(Vec::new()));

#[test]
fn every_step_of_a_conversation_is_recorded() {
    log::set_logger(&LINES).unwrap();
    log::set_max_level(log::LevelFilter::Trace);
    let mut conductor = Conductor::new(Script(0), Some([0; 512]));
    let turn = conductor.poll(&mut Two(0, None), Instant::ZERO);
    assert_eq!(turn, Turn::Done((), Some([0; 512])));
    assert_eq!(
        *LINES.0.lock().unwrap(),
        [
            "TRACE CMD8 arg=0x000001aa 10.000 ms",
            "TRACE answer [000001aa, 00000000, 00000000, 00000000], 0 bytes",
            "TRACE CMD17 arg=0x00002000 10.000 ms",
            "DEBUG CRC error (Data phase of CMD17)",
        ]
    );
}
