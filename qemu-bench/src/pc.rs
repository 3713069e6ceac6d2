//! A PC (`q35`) with an SD host controller on its PCI bus and a card of QEMU's in it.

use crate::memory::{Copies, Window};
use crate::qtest::Qtest;
use crate::{IMAGE, empty};
use mmc_block::Idle;
use mmc_hal::Mmio;
use mmc_mock::BufBatch;
use mmc_proto::host::{IrqHandler, Supervised};
use mmc_sdhci::{IrqHalf, Mailbox, Platform, SdhciEngine, Table};
use mmc_time::Instant;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Where the controller's registers are put.
const REGISTERS: u64 = 0xe000_0000;
/// Where the descriptors are.
const TABLE: u64 = 0x10_0000;
const TABLE_BYTES: u32 = 4096;
/// Device 4 on bus 0.
const DEVICE: u32 = 0x8000_0000 | 4 << 11;

/// What the machine is like.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// QEMU's device: `sd-card` or `emmc`.
    pub card: &'static str,
    /// Bytes of the card, a power of two; more than 2 GiB make an SDHC card.
    pub card_bytes: u64,
    /// More properties of the `sdhci-pci` device, each with a comma before it.
    pub controller: &'static str,
    /// Descriptors with 64-bit addresses.
    pub wide: bool,
    /// With the interrupt half.
    pub interrupts: bool,
    /// What the driver is told of the board.
    pub platform: Platform,
}

/// The descriptors, some of which can be spoilt.
#[derive(Clone, Debug)]
pub struct Descriptors {
    window: Window,
    spoil: Arc<AtomicBool>,
}

impl Mmio for Descriptors {
    fn read32(&self, offset: u32) -> u32 {
        self.window.read32(offset)
    }
    fn write32(&self, offset: u32, value: u32) {
        // Bit 0 says that a descriptor is valid.
        let spoilt = offset == 0 && self.spoil.load(Ordering::Relaxed);
        self.window.write32(offset, if spoilt { value & !1 } else { value });
    }
}

/// The driver on it.
pub type TheHost = Supervised<SdhciEngine<Window, Descriptors, Copies, BufBatch>>;

/// Real time, and the interrupt line if there is somebody to hear it.
#[derive(Debug)]
pub struct Clock {
    origin: std::time::Instant,
    qtest: Qtest,
    irq: Option<IrqHalf<Window>>,
    /// Interrupts handled.
    pub interrupts: u64,
}

impl Clock {
    /// Without interrupts.
    #[must_use]
    pub fn polled(qtest: Qtest) -> Self {
        Self { origin: std::time::Instant::now(), qtest, irq: None, interrupts: 0 }
    }
}

impl Idle for Clock {
    fn now(&mut self) -> Instant {
        Instant::from_nanos(u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
    fn wait(&mut self, until: Instant) {
        loop {
            if let Some(irq) = &mut self.irq {
                // QEMU says what the lines are when it is asked something.
                self.qtest.ask("readl 0x0");
                if self.qtest.lines() & 0x00ff_0000 != 0 {
                    irq.handle();
                    self.interrupts += 1;
                    return;
                }
            }
            let now = self.now();
            if now >= until {
                return;
            }
            let left = Duration::from_nanos(until.since(now).as_nanos());
            std::thread::sleep(left.min(Duration::from_micros(100)));
            if self.irq.is_none() {
                return;
            }
        }
    }
}

/// The machine.
#[derive(Debug)]
pub struct Pc {
    /// The way to QEMU.
    pub qtest: Qtest,
    /// The driver.
    pub host: TheHost,
    /// Time.
    pub clock: Clock,
    /// From now on the first descriptor of each transfer is not valid.
    pub spoil: Arc<AtomicBool>,
}

/// 64 KiB of firmware that halts the processor.
fn halt() -> Vec<u8> {
    let mut rom = vec![0xf4; 65_536];
    // cli; hlt; jmp to the hlt. The processor starts 16 bytes below the end.
    rom[65_520..65_524].copy_from_slice(&[0xfa, 0xf4, 0xeb, 0xfd]);
    rom
}

impl Pc {
    /// Starts one, with the controller where its driver finds it. The card is empty.
    ///
    /// # Panics
    /// If QEMU or the controller is not as expected.
    #[must_use]
    pub fn start(qemu: &Path, o: &Options) -> Self {
        let device = format!("sdhci-pci,addr=4{}", o.controller);
        let card = format!("{},drive=card", o.card);
        let arguments = [
            "-machine",
            "q35",
            "-m",
            "64",
            "-bios",
            "{dir}/halt.bin",
            "-drive",
            "if=none,id=card,format=raw,file={dir}/card.img",
            "-device",
            &device,
            "-device",
            &card,
        ];
        let qtest = Qtest::start(qemu, &arguments, |dir| {
            std::fs::write(dir.join("halt.bin"), halt()).expect("firmware");
            empty(&dir.join(IMAGE), o.card_bytes);
        });
        let pc = Self::connect(qtest, o);
        assert_ne!(pc.host.engine().caps().low, 0, "the controller is where it was put");
        pc
    }

    fn connect(qtest: Qtest, o: &Options) -> Self {
        let configure = |register: u32, value: u32| {
            qtest.ask(&format!("outl 0xcf8 {:#x}", DEVICE | register));
            qtest.ask(&format!("outl 0xcfc {value:#x}"));
        };
        // Where the registers are; then memory and bus master on.
        configure(0x10, REGISTERS as u32);
        configure(0x04, 6);
        qtest.ask("irq_intercept_in ioapic");
        let regs = Window::new(qtest.clone(), REGISTERS);
        let spoil = Arc::new(AtomicBool::new(false));
        let window = Descriptors { window: Window::new(qtest.clone(), TABLE), spoil: Arc::clone(&spoil) };
        let table = match o.wide {
            true => Table::wide(window, TABLE, TABLE_BYTES),
            false => Table::new(window, TABLE, TABLE_BYTES),
        };
        let table = table.expect("a good place");
        let dma = Copies::new(qtest.clone(), 0x20_0000, 0x200_0000);
        let (host, irq) = if o.interrupts {
            let mailbox: &'static Mailbox = Box::leak(Box::new(Mailbox::new()));
            let (host, irq) = SdhciEngine::split(regs.clone(), regs, mailbox, table, dma, o.platform);
            (host, Some(irq))
        } else {
            (SdhciEngine::new(regs, table, dma, o.platform), None)
        };
        let clock = Clock { irq, ..Clock::polled(qtest.clone()) };
        Self { qtest, host, clock, spoil }
    }

    /// Takes the card out.
    pub fn eject(&self) {
        self.qtest.human("eject -f card");
    }

    /// Puts a card in whose image is `name`, made if it is not there. (This card refuses images that are read-only.)
    pub fn insert(&self, name: &str, bytes: u64) {
        let path = self.qtest.file(name);
        if !path.exists() {
            empty(&path, bytes);
        }
        self.qtest.human(&format!("change card {} raw", path.display()));
    }
}
