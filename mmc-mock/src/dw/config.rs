//! What a build of the controller and a board are like: the switches D1–D19 of `spec/dw-mshc-model.md` part D
//! and the numbers beside them.

/// When the error bits of a response appear relative to command done (D4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ErrorOrder {
    /// In the same step.
    #[default]
    Same,
    /// Eight card clocks before it.
    Before,
    /// Eight card clocks after it.
    After,
}

/// The width of the FIFO's words and of the slave interface (D13; HCON bits 9:7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DataWidth {
    /// 16 bits: a 32-bit access of DATA is two of these.
    W16,
    /// 32 bits.
    #[default]
    W32,
    /// 64 bits, accessed as two halves at +0 and +4; the word moves with the access at +0 (read) or +4 (write).
    W64,
}

impl DataWidth {
    /// Bytes of a word: 2, 4 or 8.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        match self {
            Self::W16 => 2,
            Self::W32 => 4,
            Self::W64 => 8,
        }
    }
}

/// A field of a register: where the sample phase is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Offset of the register.
    pub offset: u32,
    /// Its lowest bit there.
    pub shift: u8,
    /// Its bits; their values are spread over one clock period.
    pub bits: u8,
}

/// One build of the controller on one board. Start from a preset and set the fields that differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// D1: a clock update raises command done (Exynos7870). Default no.
    pub update_raises_done: bool,
    /// D2: a data read timeout is followed by data transfer over. Default yes; without it the data path stays
    /// busy until it is stopped or reset.
    pub timeout_then_over: bool,
    /// D3: a start-bit error is followed by data transfer over, after the data timeout. Default yes.
    pub start_error_then_over: bool,
    /// D4: response errors relative to command done. Default in the same step.
    pub error_order: ErrorOrder,
    /// D5: the automatic CMD12 is sent after a data error too. Default yes.
    pub auto_stop_after_error: bool,
    /// D6: a controller reset makes the card side forget its clock settings. Default yes.
    pub reset_forgets_clock: bool,
    /// D7: FIFO depth in words of `data_width`, 8..=4096.
    pub fifo_depth: u16,
    /// D8: 64-bit descriptors and register layout. Default no.
    pub addr64: bool,
    /// D9: VERID. Below `240a` (low half) the FIFO is at 0x100 and the registers from there on do not exist.
    pub verid: u32,
    /// D10: RINTSTS bit of the SDIO interrupt, 16 or 24.
    pub sdio_bit: u8,
    /// D11: bit 13 of RINTSTS also says "busy clear" when CARDTHRCTL bit 1 is set. Default no (start-bit error
    /// alone).
    pub busy_clear: bool,
    /// D12: the abnormal summary includes the card error summary. Default yes.
    pub ais_includes_ces: bool,
    /// D13: width of the FIFO.
    pub data_width: DataWidth,
    /// D14: a held command waits for DAT0 too. Default yes.
    pub held_waits_for_busy: bool,
    /// D15: FIFOTH as a boot loader left it; `None`: the reset value.
    pub fifoth: Option<u32>,
    /// D16: PWREN bit 0 switches the supply on when it is 0. Default no.
    pub power_active_low: bool,
    /// D17: the data phase runs after a CRC or framing error of the response. Default yes.
    pub data_after_response_error: bool,
    /// D18: the last block of an IDMAC read, the close of its descriptor and RI come this many register accesses
    /// (or as many microseconds) after data transfer over. Default 0.
    pub posted: u32,
    /// D19: a card lets its lines go after a voltage switch only if the clock was off for 5 ms. Default yes.
    pub strict_volt_switch: bool,
    /// Q34: OWN is written back this many register accesses (or microseconds) after TI/RI. Default 0.
    pub late_own: u32,
    /// How many reads of CTRL still show the reset bits after they were written. Default 0.
    pub reset_reads: u32,
    /// How many reads of BMOD still show SWR after it was written (Q59). Default 0.
    pub swr_reads: u32,
    /// Q35, Q61: a FIFOTH that breaks the rules of `spec/dw-mshc.md` §1.5 starves the IDMAC for ever, instead of
    /// being only a violation. Default no.
    pub strict_fifoth: bool,
    /// The clock that feeds the external divider, in Hz.
    pub ciu_hz: u32,
    /// What each value of UHS_REG_EXT bits 31:30 divides it by; 0: nobody has published that value.
    pub ext_div: [u32; 4],
    /// The bus clock in Hz; it counts the debounce time.
    pub biu_hz: u32,
    /// The fastest card clock the controller can make, in Hz.
    pub max_hz: u32,
    /// HCON without data width and address width, which are filled in.
    pub hcon: u32,
    /// Virtual time one register access costs, in nanoseconds. Default 0.
    pub access_ns: u64,
    /// Time from the response of CMD11 to the interrupt that says the card has pulled the lines low, in
    /// nanoseconds.
    pub volt_low_ns: u64,
    /// Time from the new clock to the release of the lines, in nanoseconds; a card of its own mind may take longer.
    pub volt_release_ns: u64,
    /// Where the sample phase is set; `None`: outside of the controller, by [`Dw::sample_at`](super::Dw::sample_at).
    /// Value 0 samples in the middle of the period, at 180°. Default bits 20:16 of UHS_REG_EXT.
    pub sample: Option<Field>,
    /// RST_N is wired to the card: a low of 1 µs or more resets it as a loss of power does. Default no.
    pub rst_n: bool,
}

impl Config {
    /// The HSDK: 100 MHz through the external divider (÷8 at reset, ÷2 for value 2), depth 16
    /// (`spec/dw-mshc.md` §5). Version and HCON of the real part are not published; these are guesses.
    #[must_use]
    pub fn hsdk() -> Self {
        Self { ciu_hz: 100_000_000, ext_div: [8, 0, 2, 0], biu_hz: 400_000_000, ..Self::generic() }
    }

    /// A plain build: 50 MHz, no external divider, depth 16, version 2.70a; what the traces of
    /// `spec/dw-mshc-model.md` part C assume.
    #[must_use]
    pub fn generic() -> Self {
        Self {
            update_raises_done: false,
            timeout_then_over: true,
            start_error_then_over: true,
            error_order: ErrorOrder::Same,
            auto_stop_after_error: true,
            reset_forgets_clock: true,
            fifo_depth: 16,
            addr64: false,
            verid: 0x5342_270a,
            sdio_bit: 16,
            busy_clear: false,
            ais_includes_ces: true,
            data_width: DataWidth::W32,
            held_waits_for_busy: true,
            fifoth: None,
            power_active_low: false,
            data_after_response_error: true,
            posted: 0,
            strict_volt_switch: true,
            late_own: 0,
            reset_reads: 0,
            swr_reads: 0,
            strict_fifoth: false,
            ciu_hz: 50_000_000,
            ext_div: [1; 4],
            biu_hz: 100_000_000,
            max_hz: 50_000_000,
            hcon: 0x00c4_3001,
            access_ns: 0,
            volt_low_ns: 100_000,
            volt_release_ns: 100_000,
            sample: Some(Field { offset: 0x108, shift: 16, bits: 5 }),
            rst_n: false,
        }
    }

    /// FIFO depth in words, whatever was configured, within 8..=4096.
    pub(super) fn depth(&self) -> u32 {
        u32::from(self.fifo_depth).clamp(8, 4096)
    }

    /// Whether the registers from 0x100 on exist and the FIFO is at 0x200.
    pub(super) fn has_extensions(&self) -> bool {
        self.verid & 0xffff >= 0x240a
    }

    pub(super) fn hcon(&self) -> u32 {
        let width = match self.data_width {
            DataWidth::W16 => 0,
            DataWidth::W32 => 1,
            DataWidth::W64 => 2,
        };
        self.hcon & !(7 << 7 | 1 << 27) | width << 7 | u32::from(self.addr64) << 27
    }

    pub(super) fn fifoth_reset(&self) -> u32 {
        self.fifoth.unwrap_or((self.depth() - 1) << 16)
    }
}
