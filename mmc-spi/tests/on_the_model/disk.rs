//! The disk over SPI, as it is over any host.

use crate::bench::{Bench, Slot, pattern, sd};
use mmc_block::{Care, Disk, Init, Media, Next, Settings, Tag, Up};
use mmc_mock::card::SdConfig;
use mmc_mock::spi::SpiSd;
use mmc_mock::timing::Profile;
use mmc_mock::{Buf, BufBatch};
use mmc_proto::host::{Host, Supervised};
use mmc_sched::{MqDeadline, Op, Queue, Request, StreamId};
use mmc_spi::{SpiEngine, Wires};
use mmc_time::{Duration, Instant};

type SpiHost<W> = Supervised<SpiEngine<W, Slot<SpiSd>, BufBatch>>;
pub type Store = Queue<Vec<mmc_sched::Slot>, MqDeadline>;

/// A disk that looks after its card.
pub struct OverSpi<W: Wires> {
    pub disk: Disk<SpiHost<W>, Store, Vec<Tag<Buf>>>,
    pub spi: mmc_mock::spi::Spi,
    /// Where the clock stood when the last call began.
    pub began: Instant,
}

impl<W: Wires> OverSpi<W> {
    /// `None`: the card could not be identified.
    pub fn new(bench: Bench<SpiSd, W>) -> Option<Self> {
        let Bench { spi, mut host } = bench;
        let caps = host.capabilities();
        let clock = spi.clock();
        let mut init = Init::new(&caps, BufBatch::new(8), Buf(vec![0; 512])).unwrap();
        let (id, (batch, scratch)) = loop {
            match init.poll(&mut host, clock.now()) {
                Up::Wait { until, .. } => clock.advance_to(until),
                Up::Done { card, parts } => break (card.ok()?, parts.unwrap()),
            }
        };
        let queue = Queue::new(vec![mmc_sched::Slot::FREE; 16], MqDeadline::new());
        let settings = Settings { nr_requests: 16, retries: 2 };
        let tags = (0..32).map(|_| Tag::new()).collect();
        let mut disk = Disk::new(host, queue, id.traits, batch, tags, settings, ()).unwrap();
        disk.look_after(id, scratch, Care::new(&caps), clock.now()).unwrap();
        let mut over = Self { disk, began: clock.now(), spi };
        over.run();
        Some(over)
    }
    pub fn run(&mut self) {
        let clock = self.spi.clock();
        self.began = clock.now();
        for _ in 0..2_000_000 {
            match self.disk.poll(clock.now()) {
                Next::Idle | Next::Lent => return,
                Next::Wait { until, .. } => {
                    assert!(!until.is_never(), "a wait that nothing ends");
                    clock.advance_to(until);
                }
            }
            assert!(clock.now().since(self.began) < Duration::from_secs(120), "it never ends");
        }
        panic!("never idle");
    }
    pub fn one(&mut self, op: Op, lba: u64, data: Vec<u8>) -> Option<mmc_block::Done<Buf>> {
        let request = Request::new(op, lba, (data.len() / 512) as u32, StreamId(1));
        let ticket = self.disk.submit(request, Buf(data), self.spi.clock().now()).ok()?;
        self.run();
        Some(self.disk.take(ticket).expect("each request ends once"))
    }
}

#[test]
fn a_disk_over_spi_merges_reads_and_writes_and_notices_a_swap() {
    let mut d = OverSpi::new(sd(SdConfig::new(Profile::a1(), 1), "")).unwrap();
    let data = pattern(64 * 512, 11);
    let now = d.spi.clock().now();
    let tickets: Vec<_> = data
        .chunks(4 * 512)
        .zip(0_u64..)
        .map(|(part, i)| {
            let request = Request::new(Op::Write, 800 + 4 * i, 4, StreamId(1));
            d.disk.submit(request, Buf(part.to_vec()), now).unwrap()
        })
        .collect();
    d.run();
    for ticket in tickets {
        assert_eq!(d.disk.take(ticket).unwrap().result, Ok(()));
    }
    let back = d.one(Op::Read, 800, vec![0; data.len()]).unwrap();
    assert_eq!(back.result, Ok(()));
    assert!(back.buffer.unwrap().0 == data);
    assert_eq!(d.spi.violations(), Vec::<String>::new());
    let merged = d.spi.with(|c| c.frames());

    d.spi.with(|c| c.card_mut().sd_mut().set_present(false));
    d.run();
    let gone = d.one(Op::Read, 800, vec![0; 512]);
    assert!(gone.is_none_or(|done| done.result.is_err()));
    assert_eq!(d.disk.media(), Media::Gone);
    d.spi.with(|c| c.card_mut().sd_mut().set_present(true));
    d.run();
    assert_eq!(d.disk.media(), Media::New);
    assert!(d.disk.accept_media());
    let back = d.one(Op::Read, 800, vec![0; 512]).unwrap();
    assert_eq!(back.buffer.unwrap().0, data[..512]);
    println!("{merged} frames for identification, 16 writes of 4 blocks and a read of 64");
}
