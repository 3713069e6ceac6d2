//! `mmc-lab serve` and `mmc-lab verify` as a client meets them: the program, its sockets, and the image it leaves behind.

mod hostile;
mod lab;
mod verify;

use lab::{Server, image, run, scratch};
use mmc_lab::serve::wire::{command, export, flag};
use std::collections::HashMap;

/// Whole sectors of one byte.
fn block(byte: u8, sectors: usize) -> Vec<u8> {
    vec![byte; sectors * 512]
}

#[test]
fn what_is_written_is_read_and_is_in_the_image_at_the_end() {
    for (card, sched) in [("a1", "ftb"), ("emmc", "mq-deadline"), ("slow2018", "bfq")] {
        let path = scratch(&format!("{card}.img"));
        let server =
            Server::start(&["--image", &path, "--size", "64M", "--card", card, "--sched", sched, "--json"]);
        let mut c = server.client();
        assert_eq!((c.size, c.min_block), (64 << 20, 512));
        let offers = export::SEND_FLUSH | export::SEND_FUA | export::SEND_TRIM | export::SEND_WRITE_ZEROES;
        assert_eq!(
            c.flags & (offers | export::CAN_MULTI_CONN | export::READ_ONLY),
            offers | export::CAN_MULTI_CONN
        );
        c.write(0, &block(1, 2048), false).unwrap();
        c.write(5 << 20, &block(2, 8), true).unwrap();
        // Longer than one command of the card, and than a megabyte.
        c.write(8 << 20, &block(3, 32 << 11), false).unwrap();
        let ask = |c: &mut mmc_lab::serve::client::Client, command, at: u64, len: u32| {
            c.send(command, 0, at, len, &[]).unwrap();
            assert_eq!(c.answer().unwrap().1, 0, "{card}: command {command}");
        };
        ask(&mut c, command::WRITE_ZEROES, 512, 1 << 16);
        ask(&mut c, command::WRITE_ZEROES, 20 << 20, 9 << 20);
        ask(&mut c, command::TRIM, 40 << 20, 4 << 20);
        c.flush().unwrap();
        let mut back = vec![9; 32 << 20];
        c.read(8 << 20, &mut back).unwrap();
        assert!(back[..12 << 20].iter().all(|b| *b == 3) && back[21 << 20..].iter().all(|b| *b == 3));
        assert!(back[12 << 20..21 << 20].iter().all(|b| *b == 0), "{card}");
        c.disconnect();
        let report = server.stop();
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!((bytes[0], bytes[512], bytes[512 + (1 << 16)], bytes[5 << 20]), (1, 0, 1, 2));
        assert!(bytes[8 << 20..40 << 20] == back[..], "{card}: the image is what was read");
        assert_eq!(report["served"]["write"]["requests"], 3);
        assert_eq!(report["served"]["write"]["bytes"], (32 << 20) + 2056 * 512);
        assert_eq!(report["served"]["trim"]["bytes"], 4 << 20);
        assert_eq!((&report["stored"], &report["failed"]), (&true.into(), &0.into()));
        assert_eq!(report["violations"], serde_json::json!([]), "{card}");
        if card == "emmc" {
            assert!(report["disk"]["flushes"].as_u64() >= Some(2), "FUA and the flush: {report}");
        }
    }
}

#[test]
fn killing_the_server_is_a_loss_of_power() {
    for card in ["a1", "emmc"] {
        let path = scratch(&format!("power-{card}.img"));
        let server = Server::start(&["--image", &path, "--size", "64M", "--card", card]);
        let mut c = server.client();
        c.write(1 << 20, &block(1, 100), false).unwrap();
        c.flush().unwrap();
        c.write(2 << 20, &block(2, 8), true).unwrap();
        c.write(1 << 20, &block(3, 100), false).unwrap();
        c.write(3 << 20, &block(4, 8), false).unwrap();
        server.kill();
        let bytes = image(&path);
        assert_eq!(bytes[2 << 20], 2, "{card}: FUA");
        // A card without a cache has stored what it has answered; one with a cache has lost it.
        let (again, new) = if card == "a1" { (3, 4) } else { (1, 0) };
        assert!(bytes[1 << 20..(1 << 20) + 51_200].iter().all(|b| *b == again), "{card}");
        assert_eq!(bytes[3 << 20], new, "{card}");
        // The next server goes on from there, with what the image says of the size.
        let server = Server::start(&["--image", &path, "--card", card]);
        let mut c = server.client();
        let mut back = block(9, 100);
        c.read(1 << 20, &mut back).unwrap();
        assert!(c.size == 64 << 20 && back.iter().all(|b| *b == again), "{card}");
        // A part of a chunk that was there before.
        c.write((1 << 20) + 512, &block(7, 1), true).unwrap();
        server.kill();
        let bytes = image(&path);
        assert_eq!(
            (bytes[1 << 20], bytes[(1 << 20) + 512], bytes[(1 << 20) + 1024]),
            (again, 7, again),
            "{card}"
        );
    }
}

#[test]
fn many_requests_meet_in_the_scheduler_and_each_has_its_own_answer() {
    let server = Server::start(&["--size", "64M", "--card", "cheap", "--pace", "real", "--json"]);
    let mut c = server.client();
    let mut other = server.client();
    let mut sent = HashMap::new();
    for i in 0..40_u64 {
        // Neighbours, backwards: what waits in the scheduler is merged.
        let at = (40 - i) * 4096;
        sent.insert(c.send(command::WRITE, 0, at, 4096, &block(i as u8, 8)).unwrap(), at);
    }
    other.flush().unwrap();
    let mut order = Vec::new();
    for _ in 0..40 {
        let (cookie, error) = c.answer().unwrap();
        assert_eq!(error, 0);
        order.push(sent.remove(&cookie).expect("an answer to what was asked, once"));
    }
    // Reads are answered as they come, each with its own data.
    let mut asked = HashMap::new();
    for i in 0..40_u64 {
        asked.insert(c.send(command::READ, 0, (i + 1) * 4096, 4096, &[]).unwrap(), (39 - i) as u8);
    }
    for _ in 0..40 {
        let (cookie, error) = c.answer().unwrap();
        let mut data = block(99, 8);
        c.data(&mut data).unwrap();
        assert_eq!((error, Some(data[0])), (0, asked.remove(&cookie)));
    }
    // On a busy machine all of them may have been one command; alone a write takes another time.
    c.write(1 << 20, &block(1, 8), false).unwrap();
    drop((c, other));
    let report = server.stop();
    let disk = &report["disk"];
    assert!(disk["merged"].as_u64() > Some(10), "{report}");
    assert!(disk["depth_max"].as_u64() > Some(10), "{report}");
    assert!(disk["commands"].as_u64() < Some(81), "{report}");
    let waits = &report["waits"]["other"];
    assert!(waits["max_ms"].as_f64() > waits["mean_ms"].as_f64(), "{report}");
    assert!(!order.is_sorted_by(|a, b| a > b), "answered in another order than asked: {order:?}");
}

#[test]
fn faults_of_the_card_are_cured_or_told() {
    let cured =
        "at CMD25#1: block 3 crc; at CMD18#1: no-answer; at CMD24: response-crc; at frame 60: no-answer";
    for card in ["a1", "emmc"] {
        let server = Server::start(&["--size", "64M", "--card", card, "--fault", cured, "--json"]);
        let mut c = server.client();
        for i in 0..20_u64 {
            c.write(i << 16, &block(i as u8 + 1, 64), false).unwrap();
            c.write((40 << 20) + i * 512, &block(i as u8 + 1, 1), false).unwrap();
            let mut back = block(0, 64);
            c.read(i << 16, &mut back).unwrap();
            assert!(back.iter().all(|b| *b == i as u8 + 1), "{card}");
        }
        let report = server.stop();
        assert!(report["disk"]["retries"].as_u64() > Some(0), "{card}: {report}");
        assert_eq!(
            (&report["failed"], &report["faults_that_never_struck"]),
            (&0.into(), &serde_json::json!([]))
        );
    }
    // A block that never comes right is an I/O error of its request, and of no other.
    let server =
        Server::start(&["--size", "64M", "--card", "ideal", "--fault", "every CMD18: block 2 crc", "--json"]);
    let mut c = server.client();
    assert_eq!(c.read(0, &mut block(0, 8)).map_err(|e| e.raw_os_error()), Ok(()), "cured block by block");
    let report = server.stop();
    assert!(report["disk"]["retries"].as_u64() > Some(0), "{report}");
    let server = Server::start(&["--size", "64M", "--card", "ideal", "--fault", "every CMD17: block 0 crc"]);
    let mut c = server.client();
    assert_eq!(c.read(0, &mut block(0, 1)).unwrap_err().raw_os_error(), Some(5));
    c.read(0, &mut block(0, 8)).unwrap();
    drop(c);
    assert_eq!(server.stop()["failed"], 1);
    // A card that hangs is cured by cutting its supply: if that took unflushed writes, the next flush says so, once.
    let path = scratch("hangs.img");
    let hangs = ["--image", &path, "--size", "64M", "--card", "emmc", "--fault", "at CMD25#3: busy forever"];
    let server = Server::start(&hangs);
    let mut c = server.client();
    for i in 0..6_u64 {
        c.write(i << 16, &block(7, 64), false).unwrap();
    }
    assert_eq!(c.flush().unwrap_err().raw_os_error(), Some(5));
    c.write(0, &block(8, 64), false).unwrap();
    c.flush().unwrap();
    server.kill();
    assert_eq!(image(&path)[0], 8);
}

#[test]
fn a_card_that_is_taken_out_fails_what_comes_and_keeps_what_it_has() {
    let path = scratch("gone.img");
    let server = Server::start(&["--image", &path, "--size", "64M", "--fault", "at CMD24#2: remove"]);
    let mut c = server.client();
    for i in 0..2_u64 {
        c.write(i * 512, &block(6, 1), false).unwrap();
    }
    for _ in 0..2 {
        assert_eq!(c.write(4096, &block(7, 1), false).unwrap_err().raw_os_error(), Some(5));
        assert_eq!(c.read(0, &mut block(0, 1)).unwrap_err().raw_os_error(), Some(5));
        assert_eq!(c.flush().unwrap_err().raw_os_error(), Some(5));
    }
    assert_eq!(server.ends_with(), Some(1), "not all could be stored");
    let bytes = image(&path);
    assert_eq!((bytes[0], bytes[512], bytes[4096]), (6, 6, 0));
}

#[test]
fn a_card_that_is_worn_out_and_a_disk_that_is_read_only_say_so() {
    // After 64 blocks every write is a WP_VIOLATION.
    let server = Server::start(&["--card", "dies-read-only"]);
    let mut c = server.client();
    c.write(0, &block(1, 64), false).unwrap();
    assert_eq!(c.write(0, &block(1, 8), false).unwrap_err().raw_os_error(), Some(1), "EPERM");
    drop(server);
    let server = Server::start(&["--size", "64M", "--read-only"]);
    let mut c = server.client();
    assert_ne!(c.flags & export::READ_ONLY, 0);
    assert_eq!(c.write(0, &block(1, 8), false).unwrap_err().raw_os_error(), Some(1));
    c.read(0, &mut block(0, 8)).unwrap();
    c.send(command::TRIM, flag::FUA, 0, 512, &[]).unwrap();
    assert_eq!(c.answer().unwrap().1, 1);
}

#[test]
fn it_ends_with_its_last_client_if_it_is_told_to() {
    let mut server = Server::start(&["--size", "64M", "--once"]);
    let first = server.client();
    let mut second = server.client();
    first.disconnect();
    second.write(0, &block(1, 1), false).unwrap();
    second.disconnect();
    let text = server.finished();
    assert!(text.contains("clients     2 (0 cut off)") && text.contains("write 1 (512 B)"), "{text}");
    // Over TCP, at a port of the system's choice.
    let mut server = Server::start(&["--size", "64M", "--once", "--listen", "127.0.0.1:0"]);
    server.client().disconnect();
    assert!(server.finished().contains("requests    none"));
}

#[test]
fn what_cannot_be_served_is_said_in_one_line() {
    let (small, held) = (scratch("small.img"), scratch("held.img"));
    std::fs::write(&small, [0; 1000]).unwrap();
    let server = Server::start(&["--image", &held, "--size", "64M"]);
    let folder = std::env::temp_dir().display().to_string();
    for (args, status, why) in [
        (vec!["--card", "sd9000"], 2, "no card is called 'sd9000'"),
        (vec!["--card", "sandisk-sa16g", "--size", "64M"], 2, "no other size"),
        (vec!["--sched", "ftb,bfq"], 2, "one policy"),
        (vec!["--sched", "ftb", "--set", "nothing=1"], 2, "has a tunable 'nothing'"),
        (vec!["--size", "100"], 2, "whole sectors"),
        (vec!["--size", "3G", "--card", "emmc", "--timing", "warp"], 2, "warp"),
        (vec!["--pace", "slow"], 2, "accepted are real, fast"),
        (vec!["--cache", "maybe"], 2, "accepted are on, off"),
        (vec!["--listen", "0.0.0.0:10809"], 2, "not loopback"),
        (vec!["--fault", "at CMD99: no-answer"], 2, "no file 'at CMD99"),
        (vec!["--image", &small], 1, "1000 bytes"),
        (vec!["--image", &folder], 1, "directory"),
        (vec!["--image", &held], 1, "in use"),
        (vec!["--image", &held, "--size", "128M"], 1, "in use"),
        (vec!["--size", "64M", "--fault", "every CMD2: no-answer"], 1, "not identified"),
        (vec!["--size", "64M", "--listen", "unix:/nowhere/at/all"], 1, "cannot listen"),
    ] {
        let all: Vec<&str> = ["serve"].into_iter().chain(args).collect();
        let (code, out, err) = run(&all);
        assert_eq!((code, out.as_str(), err.lines().count()), (status, "", 1), "{all:?}: {err}");
        assert!(err.contains(why), "{all:?}: {err}");
    }
    // No image is left behind by a server that did not start, and none is touched.
    let (new, empty) = (scratch("new.img"), scratch("empty.img"));
    std::fs::write(&empty, []).unwrap();
    for path in [&new, &empty] {
        for args in [
            ["--size", "64M", "--fault", "every CMD2: no-answer"],
            ["--size", "64M", "--listen", "unix:/nowhere/at/all"],
            ["--size", "64M", "--card", "sandisk-sa16g"],
        ] {
            let all: Vec<&str> = ["serve", "--image", path].into_iter().chain(args).collect();
            let (code, _, err) = run(&all);
            assert!(code > 0 && err.lines().count() == 1, "{all:?}: {err}");
        }
    }
    assert!(!std::path::Path::new(&new).exists());
    assert!(image(&empty).is_empty());
    drop(server);
    // What a killed server left behind does not bar the way.
    let server = Server::start(&["--image", &held, "--card", "emmc"]);
    assert_eq!(server.client().size, 64 << 20);
}

#[test]
fn a_disk_that_lets_its_clients_wait_for_long_says_what_it_is_at() {
    let server = Server::start(&["--size", "64M", "--fault", "every CMD25: busy 2s", "--json"]);
    let mut c = server.client();
    // One request, so that all of it comes at once: its parts wait for each other.
    c.write(0, &vec![1; 16 << 20], false).unwrap();
    c.disconnect();
    let (report, said) = server.stop_and_say();
    assert!(said.contains("a request is not over after 1"), "{said}");
    for part in [
        "running: Write ",
        "scheduler: ftb, ",
        "tags: ",
        "requests: 1 ",
        "Write 0+32768 of stream ",
        "in a command",
    ] {
        assert!(said.contains(part), "{part} in {said}");
    }
    assert_eq!(report["failed"], 0, "it waited, and was served");
    assert_eq!(report["disk"]["slow_commands"], report["disk"]["commands"], "{report}");
    assert!(report["disk"]["command_max_ms"].as_f64() >= Some(2000.0), "{report}");
}
