//! `block-device-driver` over an async disk.

use crate::{Guarded, Virtual, block_on, buffers, disk, new_card, pattern, stored};
use aligned::{A4, Aligned};
use block_device_driver::BlockDevice as _;
use mmc_adapters::{AsyncDevice, Bounce, Error};
use mmc_block::{Async, Failure, Handle, Refusal, Watch};
use mmc_mock::card::Card as _;
use mmc_sched::{Flags, Op, StreamId};
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

type Sector = Aligned<A4, [u8; 512]>;

fn sectors(bytes: &[u8]) -> Vec<Sector> {
    bytes.chunks(512).map(|c| Aligned(c.try_into().unwrap())).collect()
}

fn shared(card: &crate::Card, env: &Virtual) -> Guarded {
    let watches = (0..16).map(|_| Watch::new()).collect();
    Guarded(Mutex::new(Async::new(disk(card, env), watches).unwrap()))
}

type Device<'d> = AsyncDevice<'d, Guarded, Virtual, Vec<Option<mmc_mock::Buf>>>;

fn client<'d>(disk: Handle<'d, Guarded, Virtual>, stream: u32, lengths: &[usize]) -> Device<'d> {
    AsyncDevice::new(disk, StreamId(stream), Bounce::new(buffers(lengths)).unwrap())
}

/// Writes, reads back, and asks for too much.
async fn work(mut device: Device<'_>, at: u32) -> Vec<u8> {
    let data = pattern(21 * 512, at as usize);
    device.write(at, &sectors(&data)).await.unwrap();
    let mut back = sectors(&vec![0; data.len()]);
    device.read(at, &mut back).await.unwrap();
    assert!(back.iter().zip(sectors(&data)).all(|(a, b)| a[..] == b[..]));
    assert_eq!(device.size().await.unwrap(), 8 << 30);
    let end = device.read(16_777_215, &mut sectors(&[0; 1024])).await.unwrap_err();
    assert!(matches!(end, Error::Disk(Failure::Refused(Refusal::OutOfRange { .. }))), "{end}");
    data
}

#[test]
fn two_clients_share_a_disk() {
    let (card, env) = (new_card(), Virtual::default());
    let lock = shared(&card, &env);
    let handle = Handle::new(&lock, &env);
    let mut runner = std::pin::pin!(handle.runner());
    let mut first = std::pin::pin!(work(client(handle, 1, &[8, 1]), 100));
    let mut second = std::pin::pin!(work(client(handle, 2, &[8, 1]), 5000));
    let (mut a, mut b) = (None, None);
    // Both in one task: whichever was woken, both look.
    let both = std::future::poll_fn(|cx| {
        if a.is_none()
            && let Poll::Ready(data) = first.as_mut().poll(cx)
        {
            a = Some(data);
        }
        if b.is_none()
            && let Poll::Ready(data) = second.as_mut().poll(cx)
        {
            b = Some(data);
        }
        if a.is_some() && b.is_some() { Poll::Ready(()) } else { Poll::Pending }
    });
    block_on(&env, both, Some(runner.as_mut()));
    assert_eq!(Some(stored(&card, 100 * 512, 21 * 512)), a);
    assert_eq!(Some(stored(&card, 5000 * 512, 21 * 512)), b);
    assert!(card.violations().is_empty());
    // Somebody waits for each, which the scheduler knows of a read anyhow.
    let log = env.log.0.lock().unwrap();
    assert!(log.len() >= 4, "{log:?}");
    assert!(log.iter().all(|r| r.flags.contains(Flags::SYNC) == (r.op == Op::Write)), "{log:?}");
    assert_eq!([1, 2].map(|s| log.iter().filter(|r| r.stream == StreamId(s)).count()), [log.len() / 2; 2]);
}

#[test]
fn a_call_dropped_at_any_await_keeps_the_device_whole() {
    for polls in 1..12 {
        let (card, env) = (new_card(), Virtual::default());
        let lock = shared(&card, &env);
        let handle = Handle::new(&lock, &env);
        let mut device = client(handle, 1, &[4, 1]);
        let mut runner = std::pin::pin!(handle.runner());
        let data = pattern(14 * 512, polls);
        {
            let blocks = sectors(&data);
            let mut call = std::pin::pin!(device.write(64, &blocks));
            let idle = &mut Context::from_waker(Waker::noop());
            for _ in 0..polls {
                if call.as_mut().poll(idle).is_ready() {
                    break;
                }
                let _ = runner.as_mut().poll(idle);
                let armed = env.armed.lock().unwrap().clone();
                if let Some((_, until)) = armed.filter(|a| !a.1.is_never()) {
                    env.clock.advance_to(until);
                }
            }
        }
        // Whatever was on its way: the next calls have all the buffers, and their own data.
        let again = pattern(14 * 512, polls + 1);
        let work = async {
            device.write(64, &sectors(&again)).await.unwrap();
            let mut back = sectors(&vec![0; again.len()]);
            device.read(64, &mut back).await.unwrap();
            assert!(back.iter().zip(sectors(&again)).all(|(a, b)| a[..] == b[..]));
        };
        block_on(&env, work, Some(runner.as_mut()));
        assert_eq!(stored(&card, 64 * 512, again.len()), again, "after {polls} polls");
    }
}
