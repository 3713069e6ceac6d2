//! Where things end, exactly: limits to the nanosecond, tries to the last one, and what two readings of an answer tell
//! apart.

use super::{but, hs200, speeds};
use crate::support::TRAN;
use crate::toy::{Toy, full, walk};
use mmc_proto::bus::{Timing, Timings, Width};
use mmc_proto::host::{Cause, HostError, Phase, Reply};
use mmc_proto::machine::{
    Identify, IdentifyCause, Machine, Mode, Reason, Speed, SpeedCause, SpeedOptions, SpeedPhase, Step, Tune,
    TuneCause, TunePhase,
};
use mmc_proto::register::SwitchStatus;
use mmc_time::{Duration, Instant};

/// What the second step is when it comes so long after the first.
fn second<M: Machine + Clone>(machine: &M, after: Duration) -> Step<M::Output> {
    let (mut machine, mut scratch, start) = (machine.clone(), [0; 512], Instant::from_millis(9));
    let first = machine.next(None, &mut scratch, start);
    assert!(!matches!(first, Step::Done(_)));
    machine.next(Some(Ok(Reply { words: [TRAN; 4], bytes: 0 })), &mut scratch, start + after)
}

#[test]
fn a_conversation_may_take_all_of_its_limit_and_not_a_nanosecond_more() {
    let ns = Duration::from_nanos(1);
    let identify = Identify::new(&full());
    assert!(!matches!(second(&identify, Identify::LIMIT), Step::Done(_)));
    let Step::Done(Err(e)) = second(&identify, Identify::LIMIT + ns) else { panic!("it goes on") };
    assert_eq!(e.cause, IdentifyCause::Limit);
    for (_, speed) in speeds() {
        assert!(!matches!(second(&speed, Speed::LIMIT), Step::Done(Err(e)) if e.cause == SpeedCause::Limit));
        let Step::Done(Err(e)) = second(&speed, Speed::LIMIT + ns) else { panic!("it goes on") };
        assert_eq!(e.cause, SpeedCause::Limit);
    }
    let tune = Tune::sd(&full(), hs200());
    assert!(!matches!(second(&tune, Tune::LIMIT), Step::Done(_)));
    let Step::Done(Err(e)) = second(&tune, Tune::LIMIT + ns) else { panic!("it goes on") };
    assert_eq!(e.cause, TuneCause::Limit);
}

/// The commands that follow each bad answer to `index` while CMD13 is answered by `status`, up to any other.
fn cleaned_up<M: Machine>(
    machine: M,
    toy: &mut Toy,
    index: u8,
    status: Result<Reply, HostError>,
) -> Vec<Vec<u8>> {
    let (mut all, mut open) = (Vec::<Vec<u8>>::new(), false);
    walk(
        machine,
        toy,
        |_| String::new(),
        |_, step, good, _| {
            let Step::Do(a) = step else { return (good, Duration::ZERO) };
            let result = match a.command.index {
                n if n == index && a.command.data.is_some() => {
                    all.push(Vec::new());
                    open = true;
                    Err(HostError::new(Cause::Crc, Phase::Data, n))
                }
                13 if open && a.command.data.is_none() => status,
                12 if open => good,
                _ => {
                    open = false;
                    good
                }
            };
            if let (true, Some(last), true) = (open, all.last_mut(), a.command.data.is_none()) {
                last.push(a.command.index);
            }
            (result, Duration::ZERO)
        },
    );
    all
}

#[test]
fn a_card_that_never_stops_sending_gets_three_cmd12_for_each_bad_answer() {
    let sends = Ok(Reply { words: [0x0b00, 0, 0, 0], bytes: 0 });
    let three = vec![13, 12, 13, 12, 13, 12, 13];
    // Then it goes on; more questions may follow, which bring no CMD12.
    let only_three = |all: &[Vec<u8>]| {
        !all.is_empty()
            && all.iter().all(|after| after.starts_with(&three) && !after[three.len()..].contains(&12))
    };
    let all = cleaned_up(Identify::new(&full()), &mut Toy::sdhc(), 51, sends);
    assert!(only_three(&all), "SCR: {all:?}");
    let all = cleaned_up(Identify::new(&full()), &mut Toy::emmc(0x57), 8, sends);
    assert!(only_three(&all), "EXT_CSD: {all:?}");
    let (mut toy, speed) = speeds().swap_remove(0);
    let all = cleaned_up(speed, &mut toy, 6, sends);
    assert!(only_three(&all), "functions: {all:?}");
}

#[test]
fn a_card_that_says_nothing_after_bad_data_is_asked_three_times() {
    let silent = Err(HostError::new(Cause::Timeout, Phase::Command, 13));
    let all = cleaned_up(Identify::new(&full()), &mut Toy::sdhc(), 51, silent);
    // Once in each round: it is lost, and all begins again.
    assert_eq!(all, vec![vec![13, 13, 13]; usize::from(Identify::RESTARTS) + 1]);
    let (mut toy, speed) = speeds().swap_remove(0);
    assert_eq!(cleaned_up(speed, &mut toy, 6, silent), [[13, 13, 13]]);
}

/// Identifies `toy`, whose answer to the switch of functions tells of group `group` as changed to 15.
fn with_group_untold(mut toy: Toy, group: usize) -> (Timing, Vec<(Mode, Reason)>) {
    let walked = walk(
        Identify::new(&full()),
        &mut toy,
        |_| String::new(),
        |_, step, good, scratch| {
            if let Step::Do(a) = step {
                if a.command.index == 6 && a.command.data.is_some() && a.command.arg >> 31 == 1 {
                    let mut info = SwitchStatus::parse(&scratch[..64]).unwrap().info();
                    *[&mut info.selected3, &mut info.selected4][group - 3] = 15;
                    scratch[..64].copy_from_slice(&info.emit().emit());
                }
            }
            (good, Duration::ZERO)
        },
    );
    let id = walked.out.unwrap();
    (id.bus.timing, id.fallbacks.iter().map(|f| (f.mode, f.reason)).collect())
}

#[test]
fn a_group_that_stayed_as_it_is_may_be_told_as_15_at_3_3_v_alone() {
    for group in [3, 4] {
        assert_eq!(with_group_untold(Toy::sdhc(), group), (Timing::High, vec![]), "group {group}");
        // At 1.8 V both were asked for: nothing of what was wanted is in force.
        let (timing, left) = with_group_untold(Toy::uhs(), group);
        assert_eq!(timing, Timing::Sdr12, "group {group}");
        let refused = [Timing::Sdr104, Timing::Ddr50, Timing::Sdr50, Timing::Sdr25];
        assert!(
            left.len() == 4 && refused.iter().all(|t| left.contains(&(Mode::Timing(*t), Reason::Refused)))
        );
    }
}

#[test]
fn while_one_conversation_runs_in_another_both_can_be_looked_at() {
    let mut toy = Toy::uhs();
    let walked = walk(
        Identify::new(&full()),
        &mut toy,
        |m: &Identify| {
            let speed = m.speed().map(Speed::phase);
            let tune = m.speed().and_then(Speed::tune).map(Tune::phase);
            format!("{speed:?} {tune:?}")
        },
        |_, _, good, _| (good, Duration::ZERO),
    );
    let mut inner = walked.phases;
    inner.dedup();
    let say = |speed: SpeedPhase, tune: Option<TunePhase>| format!("{:?} {tune:?}", Some(speed));
    assert_eq!(inner[0], "None None");
    for expected in [
        say(SpeedPhase::List, None),
        say(SpeedPhase::Tune, Some(TunePhase::Start)),
        say(SpeedPhase::Tune, Some(TunePhase::Point)),
        say(SpeedPhase::Tune, Some(TunePhase::Block)),
        say(SpeedPhase::Tune, Some(TunePhase::Set)),
        say(SpeedPhase::Status, None),
    ] {
        assert!(inner.contains(&expected), "{expected} is not in {inner:?}");
    }
}

#[test]
fn a_tuned_point_holds_at_once_for_what_is_tuned_and_for_nothing_slower() {
    let mut toy = Toy::emmc(0x57);
    walk(Identify::new(&full()), &mut toy, |_| String::new(), |_, _, good, _| (good, Duration::ZERO))
        .out
        .unwrap();
    let buses: Vec<_> = toy.log.iter().filter(|line| line.contains(" Hz x8")).cloned().collect();
    let middle = |timing| format!("V1_8 {timing:?} 200000000 Hz x8 @6");
    let at =
        |line: &String| buses.iter().rposition(|b| b == line).unwrap_or_else(|| panic!("{line}: {buses:?}"));
    let slow = at(&"V1_8 High 52000000 Hz x8 @0".to_owned());
    assert!(at(&middle(Timing::Hs200)) < slow && slow < at(&middle(Timing::Hs400)), "{buses:?}");
}

/// Identifies or raises with one bad answer to the data command `index`, a card that then sends, and a CMD12 that nobody
/// answers: the card had stopped by itself.
fn stopped_by_itself<M: Machine>(machine: M, toy: &mut Toy, index: u8) -> (M::Output, Vec<u8>) {
    let (mut log, mut bad, mut sends) = (Vec::new(), true, false);
    let walked = walk(
        machine,
        toy,
        |_| String::new(),
        |_, step, good, _| {
            let Step::Do(a) = step else { return (good, Duration::ZERO) };
            log.push(a.command.index);
            let result = match a.command.index {
                n if n == index && a.command.data.is_some() && std::mem::take(&mut bad) => {
                    sends = true;
                    Err(HostError::new(Cause::Crc, Phase::Data, n))
                }
                13 if std::mem::take(&mut sends) => Ok(Reply { words: [0x0b00, 0, 0, 0], bytes: 0 }),
                12 => Err(HostError::new(Cause::Timeout, Phase::Command, 12)),
                _ => good,
            };
            (result, Duration::ZERO)
        },
    );
    (walked.out, log)
}

#[test]
fn a_cmd12_that_nobody_answers_is_no_reason_to_begin_again() {
    let settled = |log: &[u8]| log.windows(3).any(|three| three == [13, 12, 13]);
    for (mut toy, index) in [(Toy::sdhc(), 51), (Toy::emmc(0x57), 8)] {
        let (out, log) = stopped_by_itself(Identify::new(&full()), &mut toy, index);
        assert!(out.is_ok() && settled(&log), "{out:?} {log:?}");
        let resets = log.iter().filter(|index| **index == 0).count();
        assert_eq!(resets, 1, "{log:?}");
    }
    let (mut toy, speed) = speeds().swap_remove(0);
    let (out, log) = stopped_by_itself(speed, &mut toy, 6);
    assert!(out.is_ok_and(|raised| raised.fallbacks.iter().count() == 0) && settled(&log), "{log:?}");
}

#[test]
fn a_card_on_one_line_can_do_without_its_list_of_functions() {
    let garbled = |speed: Speed, toy: &mut Toy| {
        walk(
            speed,
            toy,
            |_| String::new(),
            |_, step, good, _| match step {
                Step::Do(a) if a.command.index == 6 && a.command.data.is_some() => {
                    (Err(HostError::new(Cause::Crc, Phase::Data, 6)), Duration::ZERO)
                }
                _ => (good, Duration::ZERO),
            },
        )
        .out
    };
    let (mut toy, wide) = speeds().swap_remove(0);
    let SpeedCause::Lost(lost) = garbled(wide, &mut toy).unwrap_err().cause else { panic!("not lost") };
    assert_eq!((lost.mode, lost.reason), (Mode::Width(Width::Four), Reason::Data));
    let (mut toy, narrow) = speeds().swap_remove(1);
    let raised = garbled(narrow, &mut toy).unwrap();
    assert_eq!((raised.bus.width, raised.switch), (Width::One, None));
}

/// Identifies `toy`; once the speed is being chosen, the scratch is of `len` bytes and answers come only if `told`.
fn misled(len: usize, told: bool) -> IdentifyCause {
    let (mut identify, mut toy, mut scratch) = (Identify::new(&full()), Toy::uhs(), [0; 512]);
    let (mut now, mut last) = (Instant::ZERO, None);
    loop {
        let raising = identify.speed().is_some();
        let heard = last.take().filter(|_| told || !raising);
        match identify.next(heard, &mut scratch[..if raising { len } else { 512 }], now) {
            Step::Done(out) => return out.unwrap_err().cause,
            Step::Sleep(time) => now += time,
            step => last = Some(toy.step(&step, &mut scratch)),
        }
    }
}

#[test]
fn what_a_caller_does_wrong_while_the_speed_is_chosen_is_named() {
    assert_eq!(misled(511, true), IdentifyCause::Scratch);
    assert_eq!(misled(512, false), IdentifyCause::OutOfTurn);
}

#[test]
fn a_card_that_holds_its_line_gets_two_power_cycles_and_then_three_tries() {
    let (mut toy, mut asked) = (Toy::sdhc(), 0);
    let walked = walk(
        Identify::new(&full()),
        &mut toy,
        |_| String::new(),
        |_, step, good, _| match step {
            Step::Do(a) if a.command.index == 8 => {
                asked += 1;
                (Err(HostError::new(Cause::Limit, Phase::Command, 8)), Duration::ZERO)
            }
            _ => (good, Duration::ZERO),
        },
    );
    assert_eq!(
        walked.out.unwrap_err().cause,
        IdentifyCause::Host(HostError::new(Cause::Limit, Phase::Command, 8))
    );
    assert_eq!(asked, 1 + 1 + 3);
}

#[test]
fn a_card_is_switched_to_1_8_v_only_for_a_mode_that_host_and_caller_both_have() {
    let (all, none) = (full(), but(|c| c.timings = Timings::default_only()));
    for (caps, wanted, switched) in [(all, all, true), (all, none, false), (none, all, false)] {
        let mut toy = Toy::uhs();
        let options = SpeedOptions { timings: wanted.timings, ..SpeedOptions::new(&caps) };
        let identify = Identify::with(&caps, options);
        walk(identify, &mut toy, |_| String::new(), |_, _, good, _| (good, Duration::ZERO)).out.unwrap();
        assert_eq!(toy.log.iter().any(|line| line.starts_with("CMD11")), switched, "{:?}", toy.log);
    }
}

#[test]
fn a_slot_where_every_answer_is_noise_is_not_called_empty() {
    for (cause, named) in [(Cause::Crc, true), (Cause::Timeout, false)] {
        let mut toy = Toy { sd: false, ..Toy::sdhc() };
        let noise = HostError::new(cause, Phase::Command, 55);
        let walked = walk(
            Identify::new(&full()),
            &mut toy,
            |_| String::new(),
            |_, step, good, _| match step {
                Step::Do(a) if a.command.index == 55 => (Err(noise), Duration::ZERO),
                _ => (good, Duration::ZERO),
            },
        );
        let expected = if named { IdentifyCause::Host(noise) } else { IdentifyCause::NoAnswer };
        assert_eq!(walked.out.unwrap_err().cause, expected);
    }
}

#[test]
fn a_combo_card_goes_as_fast_as_both_of_its_parts() {
    for (both, timing) in [(true, Timing::High), (false, Timing::Default)] {
        let mut toy = Toy::combo();
        toy.cccr[0x13] = u8::from(both);
        let id =
            walk(Identify::new(&full()), &mut toy, |_| String::new(), |_, _, good, _| (good, Duration::ZERO));
        let id = id.out.unwrap();
        assert_eq!((id.bus.timing, id.io.is_some()), (timing, true));
    }
}

#[test]
fn the_mode_that_brought_bad_data_is_blamed_when_the_card_then_falls_silent() {
    let (mut toy, speed) = speeds().swap_remove(0);
    let (mut failed, mut rung) = (0, Timing::Default);
    let walked = walk(
        speed,
        &mut toy,
        |_| String::new(),
        |_, step, good, _| match step {
            Step::Bus(bus) => {
                rung = bus.timing;
                (good, Duration::ZERO)
            }
            Step::Do(a) if a.command.index == 13 && a.command.data.is_some() => {
                failed += 1;
                (Err(HostError::new(Cause::Crc, Phase::Data, 13)), Duration::ZERO)
            }
            Step::Do(a) if a.command.index == 13 && failed == 3 => {
                (Err(HostError::new(Cause::Timeout, Phase::Command, 13)), Duration::ZERO)
            }
            _ => (good, Duration::ZERO),
        },
    );
    let SpeedCause::Lost(lost) = walked.out.unwrap_err().cause else { panic!("not lost") };
    assert_eq!((lost.mode, lost.reason, failed), (Mode::Timing(rung), Reason::NoAnswer, 3));
    assert_ne!(rung, Timing::Default);
}
