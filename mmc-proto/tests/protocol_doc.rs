//! The documents that state facts about the code: every command with its constructor (`docs/commands.md`), and the
//! diagrams of the conversations (`docs/protocol.md`; those that bring a card up are in `bring_up.rs`). Each is compared with what the code does, both ways.
//!
//! `MMC_PROTO_WRITE_DOCS=1 cargo test -p mmc-proto --test protocol_doc` writes `docs/commands.md` anew.

#[path = "support/conversations.rs"]
mod conversations;
#[path = "support/device.rs"]
mod device;
mod support;
#[path = "support/table.rs"]
mod table;
#[path = "support/toy.rs"]
mod toy;

use conversations::all;
use device::Device;
use mmc_hal::Dir;
use mmc_proto::command::{Command, Dialect, Response, name};
use mmc_proto::host::{Capabilities, Reply};
use mmc_proto::machine::{Identify, Step};
use mmc_time::{Duration, Instant};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use support::host_error;
use table::{Row, Set, rows};
use toy::{Toy, full};

/// The shape that the columns of a row ask for.
fn expected(row: &Row) -> (Response, bool, Option<(Dir, u16, bool)>) {
    let (response, busy) = match row.response {
        "-" => (Response::None, false),
        "R1b" => (Response::Short, true),
        "R2" => (Response::Long, false),
        "R3" => (Response::ShortNoCrc, false),
        "R4" if row.set == Set::Sdio => (Response::ShortNoCrc, false),
        "R1" | "R4" | "R5" | "R6" | "R7" => (Response::Short, false),
        other => panic!("{other}"),
    };
    let data = row.data.split_once(' ').map(|(dir, len)| {
        let dir = match dir {
            "read" => Dir::Read,
            "write" => Dir::Write,
            other => panic!("{other}"),
        };
        let many = len.ends_with('…');
        (dir, len.trim_end_matches([' ', '…']).parse().unwrap(), many)
    });
    (response, busy, data)
}

fn shape(command: &Command) -> (Response, bool, Option<(Dir, u16, bool)>) {
    (command.response, command.busy, command.data.map(|d| (d.dir, d.block_len, d.blocks > 1)))
}

#[test]
fn every_command_has_its_constructor_and_each_makes_what_the_standard_says() {
    for row in rows() {
        assert!(row.index < 64);
        let Some(command) = row.command else { continue };
        let what = row.constructor;
        assert_eq!((command.index, command.arg), (row.index, row.arg), "{what}");
        assert_eq!(shape(&command), expected(&row), "{what}");
        assert_eq!(name(row.index, row.set.dialect(), row.app), Some(row.name), "{what}");
        assert_eq!(command.voltage_switch, row.index == 11, "{what}");
    }
    // And the other way: no command with a name is left out.
    let has = |set: &[Set], app, index| {
        rows().iter().any(|row| set.contains(&row.set) && row.app == app && row.index == index)
    };
    for index in 0..64 {
        for app in [false, true] {
            if name(index, Dialect::Sd, app).is_some() {
                assert!(has(&[Set::Sd, Set::Sdio], app, index), "SD {index} app {app}");
            }
            if name(index, Dialect::Mmc, app).is_some() {
                assert!(has(&[Set::Mmc], app, index), "MMC {index}");
            }
        }
    }
}

/// A small generator of numbers, always the same.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// What was seen of the conversations of one title.
#[derive(Default)]
struct Seen {
    /// From one phase to another; `[*]` is the start and the end.
    edges: BTreeSet<(String, String)>,
    /// Commands that were sent, with whether CMD55 came before.
    sent: Vec<(bool, Command)>,
}

const RUNS: u64 = 300;

/// Walks through all conversations with random answers, most of them good.
fn walk() -> BTreeMap<&'static str, Seen> {
    let mut seen: BTreeMap<&'static str, Seen> = BTreeMap::new();
    for (n, way) in all().iter().enumerate() {
        let seen = seen.entry(way.title).or_default();
        for run in 0..RUNS {
            let mut random = Random(((n as u64 + 1) << 32) | ((run + 1) * 0x9e37_79b9));
            random.next();
            let (programming, running) = (random.below(4) as u32, random.below(3) as u32);
            let mut device = Device { programming, running, ..Device::new() };
            let mut conversation = (way.make)();
            let (mut now, mut last, mut app) = (Instant::ZERO, None, false);
            let mut scratch = [0; 512];
            let mut before = "[*]".to_string();
            // How often something is wrong, in 1/16; one run is all good.
            let wrong = if run == 0 { 0 } else { 1 + random.below(5) };
            loop {
                let step = conversation.next(last.take(), &mut scratch, now);
                let phase = conversation.phase().unwrap_or_else(|| "[*]".into());
                if phase != before || phase == "[*]" {
                    seen.edges.insert((before, phase.clone()));
                }
                before = phase;
                match step {
                    Step::Done(_) => break,
                    Step::Sleep(time) => now += time,
                    Step::Do(a) => {
                        if !seen.sent.contains(&(app, a.command)) {
                            seen.sent.push((app, a.command));
                        }
                        app = a.command.index == 55;
                        let good = device.answer(&a.command, &mut scratch);
                        let bad = random.below(16) < wrong;
                        let result = match random.below(6) {
                            _ if !bad => good,
                            0 | 1 => Err(host_error(random.next() as u8, a.command.index)),
                            2 => Err(device::silent(a.command.index)),
                            3 => Ok(Reply {
                                words: [random.next() as u32, 0, 0, 0],
                                bytes: random.below(9) * 64,
                            }),
                            _ => good
                                .map(|r| Reply { words: [r.words[0] ^ 1 << random.below(32), 0, 0, 0], ..r }),
                        };
                        if random.below(8) == 0 {
                            now += a.limit;
                        }
                        now += Duration::from_micros(10);
                        last = Some(result);
                    }
                    step => panic!("{step:?}"),
                }
            }
        }
    }
    seen
}

/// The edges of the diagrams of the document by their headings.
fn documented(text: &str) -> BTreeMap<&str, BTreeSet<(String, String)>> {
    let mut found: BTreeMap<&str, BTreeSet<(String, String)>> = BTreeMap::new();
    let (mut title, mut inside) = ("", false);
    for line in text.lines() {
        match line.trim() {
            "```mermaid" => inside = true,
            "```" => inside = false,
            "stateDiagram-v2" => {
                assert!(inside && !found.contains_key(title), "two diagrams under {title}");
                found.insert(title, BTreeSet::new());
            }
            edge if inside => {
                let edge = edge.split(" : ").next().unwrap_or(edge);
                let (from, to) = edge.split_once(" --> ").unwrap_or_else(|| panic!("not an edge: {line}"));
                assert!(
                    found.get_mut(title).unwrap().insert((from.into(), to.into())),
                    "{title}: twice {edge}"
                );
            }
            heading => {
                if let Some(heading) = heading.strip_prefix("## ") {
                    title = heading;
                }
            }
        }
    }
    found
}

#[test]
fn the_diagrams_show_the_transitions_that_happen_and_no_others() {
    let text = include_str!("../../docs/protocol.md");
    let documented = documented(text);
    let walked = walk();
    let titles: Vec<_> = documented.keys().collect();
    assert_eq!(titles, walked.keys().collect::<Vec<_>>(), "one diagram for each conversation");
    let mut report = String::new();
    for (title, seen) in &walked {
        let drawn = &documented[title];
        for (from, to) in seen.edges.difference(drawn) {
            writeln!(report, "{title}: happens, but is not drawn: {from} --> {to}").unwrap();
        }
        for (from, to) in drawn.difference(&seen.edges) {
            writeln!(report, "{title}: is drawn, but does not happen: {from} --> {to}").unwrap();
        }
    }
    assert!(report.is_empty(), "docs/protocol.md\n{report}");
}

/// Whose conversations these are, where a command's shape alone does not tell.
fn speaks(title: &str, set: Set) -> bool {
    match title {
        "Changing the EXT_CSD" | "High priority interrupt" | "Sleep" | "Waking" => set == Set::Mmc,
        _ if title.starts_with("RPMB") => set == Set::Mmc,
        _ if title.starts_with("SD registers") || title == "Speed class" => set == Set::Sd,
        _ => true,
    }
}

/// What is sent to bring good cards of every family up.
fn brought_up() -> Seen {
    let mut seen = Seen::default();
    let toys = [
        Toy::sdhc(),
        Toy::sdsc(),
        Toy::uhs(),
        Toy::emmc(0x157),
        Toy::emmc(0x57),
        Toy::emmc(0x07),
        Toy::mmc3(),
        Toy::sdio(),
        Toy::combo(),
    ];
    for mut toy in toys {
        for caps in [full(), Capabilities::new()] {
            let mut app = false;
            toy::walk(
                Identify::new(&caps),
                &mut toy,
                |_| String::new(),
                |_, step, good, _| {
                    if let Step::Do(a) = step {
                        seen.sent.push((app, a.command));
                        app = a.command.index == 55;
                    }
                    (good, Duration::from_micros(200))
                },
            )
            .out
            .unwrap();
        }
    }
    seen
}

fn senders(row: &Row, walked: &BTreeMap<&'static str, Seen>) -> String {
    let Some(command) = row.command else { return String::new() };
    let same = |sent: &Command| {
        let kind = |c: &Command| (c.index, c.response, c.data.map(|d| (d.dir, d.block_len)));
        // A password has any length; what the index alone means of CMD13, CMD12 and CMD0 is in the argument's low bits.
        let (mut a, mut b) = (kind(sent), kind(&command));
        if row.index == 42 {
            (a.2, b.2) = (None, None);
        }
        let special = |c: &Command| c.arg & 0xffff;
        let same = !matches!(row.index, 0 | 12 | 13) || special(sent) == special(&command);
        // CMD3 of SD asks for an address, CMD3 of MMC gives one.
        a == b && same && (row.index != 3 || (sent.arg == 0) == (command.arg == 0))
    };
    let titles: Vec<_> = walked
        .iter()
        .filter(|(title, seen)| {
            speaks(title, row.set) && seen.sent.iter().any(|(app, sent)| *app == row.app && same(sent))
        })
        .map(|(title, _)| *title)
        .collect();
    titles.join(", ")
}

fn commands_document() -> String {
    let mut walked = walk();
    walked.insert("Identify", brought_up());
    let mut text = String::from(
        "# Every command, and where it is tested\n\n\
         Generated by `mmc-proto/tests/protocol_doc.rs` from its table of the commands of SD, MMC and SDIO and from what the \
         conversations were seen to send;\nthe test fails when this file is not what it would write. \
         *Every* row with a constructor is tested there: index, argument, response, data and busy against the \
         standard's.\nThe conversations named in the last column send it; they are tested by \
         `mmc-proto/tests/{talks,transfer,erase,machines,identify,bring_up}.rs`, their diagrams are in [protocol.md](protocol.md) and [protocol-bring-up.md](protocol-bring-up.md).\n",
    );
    for set in [Set::Sd, Set::Mmc, Set::Sdio] {
        write!(
            text,
            "\n## {}\n\n| | name | response | data | constructor | sent by |\n|---|---|---|---|---|---|\n",
            set.title()
        )
        .unwrap();
        for row in rows().iter().filter(|row| row.set == set) {
            let kind = if row.app { "ACMD" } else { "CMD" };
            let constructor = match row.command {
                Some(_) => format!("✅ `{}`", row.constructor.trim_start_matches("Command::")),
                None => format!("❌ {}", row.constructor),
            };
            let Row { index, name, response, data, .. } = row;
            let senders = senders(row, &walked);
            writeln!(text, "| {kind}{index} | {name} | {response} | {data} | {constructor} | {senders} |")
                .unwrap();
        }
    }
    text.push_str(
        "\nCommand queueing: ❌ the commands (CMD43–48 of SD, CMD44–48 of eMMC) and the queue status are there, a \
         conversation in the queued mode is not.\n",
    );
    text
}

#[test]
fn the_table_of_commands_is_the_one_in_the_document() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/commands.md");
    let text = commands_document();
    if std::env::var_os("MMC_PROTO_WRITE_DOCS").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    let there = std::fs::read_to_string(path).unwrap_or_default();
    for (n, (is, should)) in there.lines().zip(text.lines()).enumerate() {
        assert_eq!(is, should, "docs/commands.md line {}", n + 1);
    }
    assert_eq!(there.lines().count(), text.lines().count(), "docs/commands.md");
}
