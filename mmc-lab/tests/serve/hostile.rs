//! Clients that break the rules: each is told or cut off, memory stays bounded, and nobody else notices.

use crate::block;
use crate::lab::{Server, watched};
use mmc_lab::serve::client::Client;
use mmc_lab::serve::handshake::{GO, OPTION_MAGIC};
use mmc_lab::serve::socket::Stream;
use mmc_lab::serve::wire::{MAX_PAYLOAD, Request, command};
use proptest::prelude::*;
use std::io::{Read, Write};

/// A connection that has taken the greeting and said nothing.
fn raw(server: &Server) -> Stream {
    let mut s = server.address.connect().unwrap();
    s.read_exact(&mut [0; 18]).unwrap();
    s
}

/// The end of what it says: half a message will not get whole.
fn says_no_more(s: &Stream) {
    // One that was cut off already has nothing to end.
    let _ = match s {
        Stream::Unix(u) => u.shutdown(std::net::Shutdown::Write),
        Stream::Tcp(t) => t.shutdown(std::net::Shutdown::Write),
    };
}

/// All that still comes until the server closes, which it must.
fn rest(mut s: Stream) -> Vec<u8> {
    s.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
    let mut all = Vec::new();
    match s.read_to_end(&mut all) {
        Ok(_) => all,
        Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => all,
        Err(e) => panic!("the server neither answers nor closes: {e}"),
    }
}

/// A handshake up to the requests, by hand.
fn begun(server: &Server) -> Stream {
    let mut s = raw(server);
    let mut say = vec![0, 0, 0, 3];
    say.extend(OPTION_MAGIC.to_be_bytes());
    say.extend(GO.to_be_bytes());
    say.extend([0, 0, 0, 6, 0, 0, 0, 0, 0, 0]);
    s.write_all(&say).unwrap();
    // Export (12), block sizes (14), end: 20 bytes of head each.
    s.read_exact(&mut [0; 20 + 12 + 20 + 14 + 20]).unwrap();
    s
}

fn request(command: u16, offset: u64, length: u32) -> Vec<u8> {
    Request { flags: 0, command, cookie: 1, offset, length }.bytes()
}

/// The server serves as if nothing had been.
fn is_well(good: &mut Client) {
    good.write(4096, &block(5, 8), false).unwrap();
    let mut back = block(0, 8);
    good.read(4096, &mut back).unwrap();
    assert_eq!(back, block(5, 8));
}

/// Bytes of memory in use, as Linux counts them.
fn resident(server: &Server) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
    let line = text.lines().find(|l| l.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

#[test]
fn noise_half_messages_and_lies_harm_nobody_else() {
    let server = Server::start(&["--size", "64M", "--json"]);
    let mut good = server.client();
    is_well(&mut good);
    let mut cut_off = 0;
    // In the handshake.
    for noise in [&b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..], &[0xff; 4000], &[0, 0, 0, 4], &[0, 0, 0, 3, 1]] {
        let mut s = raw(&server);
        // It may be closed before all of it is out.
        let _ = s.write_all(noise);
        says_no_more(&s);
        rest(s);
        cut_off += 1;
        is_well(&mut good);
    }
    // Among requests: no magic, half a head, a write that never comes, one that is longer than all of it.
    for broken in [
        vec![7; 28],
        request(command::READ, 0, 512)[..13].to_vec(),
        [request(command::WRITE, 0, 1 << 20), vec![1; 1000]].concat(),
        request(command::WRITE, 0, MAX_PAYLOAD + 512),
        request(command::WRITE, 0, u32::MAX),
    ] {
        let mut s = begun(&server);
        s.write_all(&broken).unwrap();
        says_no_more(&s);
        assert_eq!(rest(s), [0_u8; 0], "nothing was done and nothing answered");
        cut_off += 1;
        is_well(&mut good);
    }
    // What makes no sense is answered, and the client may stay; its data are not taken for requests.
    let mut s = begun(&server);
    for (bad, error) in [
        (request(command::READ, 64 << 20, 512), 22),
        (request(command::READ, u64::MAX - 511, 512), 22),
        ([request(command::WRITE, 64 << 20, 512), vec![0x25; 512]].concat(), 28),
        ([request(command::WRITE, 1, 512), vec![0x25; 512]].concat(), 22),
        (request(command::READ, 0, MAX_PAYLOAD + 512), 22),
        (request(99, 0, 512), 22),
    ] {
        s.write_all(&bad).unwrap();
        let mut head = [0; 16];
        s.read_exact(&mut head).unwrap();
        assert_eq!(head[7], error, "{bad:?}");
    }
    s.write_all(&request(command::DISC, 0, 0)).unwrap();
    rest(s);
    is_well(&mut good);
    good.disconnect();
    let report = server.stop();
    assert_eq!(report["refused"], 6);
    let broken = report["broken_clients"].as_u64().expect("a number");
    // The visitor that ends a server under the sanitizer may be one of them.
    assert!(broken == cut_off || watched() && broken == cut_off + 1, "{broken}, not {cut_off}");
}

#[test]
fn a_flood_that_nobody_reads_the_answers_of_takes_its_own_budget_only() {
    let server = Server::start(&["--size", "64M", "--json"]);
    let mut good = server.client();
    is_well(&mut good);
    let before = resident(&server);
    // Reads of 32 MiB, good and bad ones mixed, as fast as they go, and no answer is read.
    let floods: Vec<_> = (0..3)
        .map(|_| {
            let mut s = begun(&server);
            s.set_write_timeout(Some(std::time::Duration::from_millis(300))).unwrap();
            let two =
                [request(command::READ, 0, MAX_PAYLOAD), request(command::READ, 1, 1)].concat().repeat(500);
            let mut sent = 0;
            while sent < 50_000_000 {
                match s.write(&two) {
                    Ok(n) => sent += n,
                    Err(_) => break,
                }
            }
            assert!(sent < 10_000_000, "the server reads on and on");
            s
        })
        .collect();
    is_well(&mut good);
    let took = resident(&server).saturating_sub(before);
    assert!(took < if watched() { 1200 } else { 300 } << 20, "{} MiB", took >> 20);
    drop(floods);
    is_well(&mut good);
    // More clients than there is room for are turned away, and later not.
    let soon = || {
        (0..500)
            .find_map(|_| {
                let client = Client::connect(&server.address).ok();
                if client.is_none() {
                    std::thread::sleep(std::time::Duration::from_millis(20));
                }
                client
            })
            .expect("there is room again")
    };
    let many: Vec<_> = (0..15).map(|_| soon()).collect();
    assert!(Client::connect(&server.address).is_err());
    drop(many);
    soon().disconnect();
    is_well(&mut good);
}

/// Something a client may say: a piece of the protocol, or not.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        3 => (0..9_u16, 0..300_u64, 0..40_u32).prop_map(|(c, at, n)| {
            let mut bytes = request(c, at * 512, n * 512);
            if c == command::WRITE {
                bytes.extend(vec![c as u8; n as usize * 512]);
            }
            bytes
        }),
        1 => (any::<u16>(), any::<u64>(), 0..70_000_u32).prop_map(|(c, at, n)| request(c, at, n)),
        1 => prop::collection::vec(any::<u8>(), 0..60),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases / 8))]
    /// Whatever a client says after the handshake, it hears replies and nothing else, and the next client is served.
    #[test]
    fn any_requests_are_answered_in_the_protocol(pieces in prop::collection::vec(piece(), 1..12)) {
        // One server for all cases: none of them may leave a mark on it. It ends with the test's thread.
        thread_local! {
            static SERVER: std::rc::Rc<Server> = std::rc::Rc::new(Server::start(&["--size", "64M"]));
        }
        let server = SERVER.with(std::rc::Rc::clone);
        let mut s = begun(&server);
        // It may be cut off on the way.
        let _ = s.write_all(&pieces.concat());
        if let Stream::Unix(u) = &s {
            let _ = u.shutdown(std::net::Shutdown::Write);
        }
        let heard = rest(s);
        prop_assert!(heard.is_empty() || heard.starts_with(&0x6744_6698_u32.to_be_bytes()));
        is_well(&mut server.client());
    }
}
