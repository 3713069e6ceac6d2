//! What reads and writes of the registers do.

use super::config::DataWidth;
use super::core::Core;
use super::reg::*;
use crate::card::Card;

impl<C: Card> Core<C> {
    pub(super) fn read(&mut self, offset: u32) -> u32 {
        if offset >= if self.cfg.has_extensions() { 0x200 } else { 0x100 } {
            return self.data_read(offset);
        }
        let r = &self.r;
        let wide = self.cfg.addr64;
        match offset {
            CTRL => {
                let (bits, left) = self.reset_shown;
                let shown = if self.faults.stuck_reset || left > 0 { bits } else { 0 };
                self.reset_shown.1 = left.saturating_sub(1);
                self.r.ctrl | shown
            }
            PWREN => r.pwren,
            CLKDIV => r.clkdiv,
            CLKSRC => r.clksrc,
            CLKENA => r.clkena,
            TMOUT => r.tmout,
            CTYPE => r.ctype,
            BLKSIZ => r.blksiz,
            BYTCNT => r.bytcnt,
            INTMASK => r.intmask,
            CMDARG => r.cmdarg,
            CMD => r.cmd,
            RESP0..=RESP3 => r.resp[((offset - RESP0) / 4) as usize],
            MINTSTS => self.rintsts & r.intmask,
            RINTSTS => self.rintsts,
            STATUS => self.status(),
            FIFOTH => r.fifoth,
            CDETECT => u32::from(!self.pin),
            WRTPRT => u32::from(self.write_protect),
            GPIO => r.gpio,
            TCBCNT => r.tcbcnt,
            TBBCNT => r.tbbcnt,
            DEBNCE => r.debnce,
            USRID => r.usrid,
            VERID => self.cfg.verid,
            HCON => self.cfg.hcon(),
            UHS_REG => r.uhs,
            RST_N => r.rst_n,
            BMOD => {
                let swr = u32::from(self.swr_shown > 0);
                self.swr_shown = self.swr_shown.saturating_sub(1);
                self.r.bmod | (self.r.fifoth >> 28 & 7) << 8 | swr
            }
            DBADDR => r.dbaddr as u32,
            0x8c if wide => (r.dbaddr >> 32) as u32,
            0x8c | 0x90 if wide == (offset == 0x90) => self.idsts | self.idmac.fsm() << 13,
            0x90 | 0x94 if wide == (offset == 0x94) => r.idinten,
            0x94 | 0x98 if wide == (offset == 0x98) => self.idmac.descriptor_address() as u32,
            0x9c if wide => (self.idmac.descriptor_address() >> 32) as u32,
            0x98 | 0xa0 if wide == (offset == 0xa0) => self.idmac.buffer_address() as u32,
            0xa4 if wide => (self.idmac.buffer_address() >> 32) as u32,
            CARDTHRCTL => r.cardthr,
            BACK_END_POWER => r.back_end,
            UHS_REG_EXT => r.uhs_ext,
            EMMC_DDR_REG => r.emmc_ddr,
            ENABLE_SHIFT => r.shift,
            _ if self.is_sample(offset) => r.sample,
            _ => 0,
        }
    }

    fn status(&self) -> u32 {
        let count = self.fifo_words() as u32;
        let (tx, rx) = (self.r.fifoth & 0xfff, self.r.fifoth >> 16 & 0xfff);
        let low = self.connected() && (self.volt.is_some() || self.card.lines_low(self.t));
        let busy = self.dat0_until() > self.t || self.data_busy();
        let fsm = match &self.command {
            None => 0,
            Some(c) if c.receiving() => 11,
            Some(_) => 4,
        };
        u32::from(count > rx)
            | u32::from(count <= tx) << 1
            | u32::from(count == 0) << 2
            | u32::from(count >= self.cfg.depth()) << 3
            | fsm << 4
            | u32::from(!low) << 8
            | u32::from(busy) << 9
            | u32::from(self.data.is_some()) << 10
            | self.response_index << 11
            | (count & 0x1fff) << 17
    }

    pub(super) fn write(&mut self, offset: u32, value: u32) {
        if offset >= if self.cfg.has_extensions() { 0x200 } else { 0x100 } {
            self.data_write(offset, value);
            return;
        }
        if self.pending
            && let Some((_, name)) = LOCKED.iter().find(|(o, _)| *o == offset)
        {
            self.raise(int::HLE);
            self.violation(format!("{name} written with {value:#x} while locked (START is set)"));
            return;
        }
        let wide = self.cfg.addr64;
        let mask = !(u64::from(self.cfg.data_width.bytes()) - 1);
        match offset {
            CTRL => self.write_ctrl(value),
            PWREN => {
                self.r.pwren = value;
                self.power();
            }
            CLKDIV => self.r.clkdiv = value,
            CLKSRC => self.r.clksrc = value,
            CLKENA => self.r.clkena = value,
            TMOUT => self.r.tmout = value,
            CTYPE => self.r.ctype = value,
            BLKSIZ => self.r.blksiz = value & 0xffff,
            BYTCNT => self.r.bytcnt = value,
            INTMASK => self.r.intmask = value,
            CMDARG => self.r.cmdarg = value,
            CMD => {
                self.r.cmd = value;
                if value & cmd::START != 0 {
                    self.command_start();
                }
            }
            RINTSTS => self.rintsts &= !value,
            FIFOTH => self.r.fifoth = value & 0x7fff_0fff,
            GPIO => self.r.gpio = value & 0x00ff_ff00,
            DEBNCE => self.r.debnce = value & 0x00ff_ffff,
            USRID => self.r.usrid = value,
            UHS_REG => {
                self.r.uhs = value;
                self.bus_changed();
            }
            RST_N => {
                self.r.rst_n = value & 0xffff;
                self.reset_pin(value & 1 != 0);
            }
            BMOD => {
                self.r.bmod = value & bmod::STORED;
                if value & bmod::SWR != 0 {
                    self.swr_shown = self.cfg.swr_reads;
                    self.idmac_stop();
                } else if value & bmod::DE == 0 {
                    self.idmac_stop();
                }
            }
            PLDMND => self.idmac_poll_demand(),
            DBADDR => {
                self.dbaddr_written();
                self.r.dbaddr = (self.r.dbaddr & !0xffff_ffff | u64::from(value)) & mask;
            }
            0x8c if wide => {
                self.dbaddr_written();
                self.r.dbaddr = self.r.dbaddr & 0xffff_ffff | u64::from(value) << 32;
            }
            0x8c | 0x90 if wide == (offset == 0x90) => {
                self.idsts &= !(value & idsts::ALL);
                if value & idsts::FBE != 0 {
                    self.idsts &= !(7 << 10);
                }
            }
            0x90 | 0x94 if wide == (offset == 0x94) => self.r.idinten = value & idsts::ALL,
            CARDTHRCTL => {
                if self.data.is_some() {
                    self.violation("CARDTHRCTL written while data are moving".into());
                }
                self.r.cardthr = value;
            }
            BACK_END_POWER => self.r.back_end = value & 0xffff,
            UHS_REG_EXT => {
                self.r.uhs_ext = value;
                if self.cfg.ext_div[(value >> 30) as usize] == 0 {
                    self.violation(format!("external divider: nobody knows what value {} does", value >> 30));
                }
                self.bus_changed();
            }
            EMMC_DDR_REG => {
                self.r.emmc_ddr = value;
                self.bus_changed();
            }
            ENABLE_SHIFT => self.r.shift = value,
            _ if self.is_sample(offset) => self.r.sample = value,
            _ => {}
        }
    }

    /// Whether `offset` is a register of its own for the sample phase (CLKSEL of Exynos).
    fn is_sample(&self, offset: u32) -> bool {
        offset != UHS_REG_EXT && self.cfg.sample.is_some_and(|f| f.offset == offset)
    }

    fn dbaddr_written(&mut self) {
        if self.data.as_ref().is_some_and(|d| d.dma) {
            self.violation("DBADDR written while the IDMAC runs".into());
        }
    }

    fn write_ctrl(&mut self, value: u32) {
        let had = self.r.ctrl;
        self.r.ctrl = value & !ctrl::SELF_CLEARING;
        let resets = value & ctrl::RESETS;
        if resets != 0 {
            self.reset_shown = (resets, self.cfg.reset_reads);
        }
        if had & !value & ctrl::INTERNAL_DMAC != 0 {
            self.idmac_stop();
        }
        if self.faults.stuck_reset {
            return;
        }
        if resets & ctrl::RESET != 0 {
            self.all_stops();
            self.r.ctrl &= !ctrl::READ_WAIT;
            if self.cfg.reset_forgets_clock {
                (self.ciu.clkdiv, self.ciu.clksrc, self.ciu.clkena) = (0, 0, 0);
                self.bus_changed();
            }
        }
        if value & ctrl::CE_ATA != 0 {
            self.violation(format!("CTRL {value:#x} asks for CE-ATA, which is not modelled"));
        }
        if value & ctrl::ABORT_READ != 0 && self.data.as_ref().is_some_and(|d| d.read) {
            // SDIO suspend: the data path goes idle without a word.
            self.data = None;
            self.faults.data.clear();
        }
        if (had ^ value) & ctrl::READ_WAIT != 0 {
            self.read_wait(value & ctrl::READ_WAIT != 0);
        }
        if resets & ctrl::FIFO_RESET != 0 {
            self.fifo.clear();
            self.rx_fifo = self.data.as_ref().is_some_and(|d| d.read && !d.dma);
        }
        if resets & ctrl::DMA_RESET != 0 {
            self.idmac_stop();
        }
    }

    fn data_read(&mut self, offset: u32) -> u32 {
        match self.cfg.data_width {
            DataWidth::W32 => self.pop() as u32,
            DataWidth::W16 => {
                let low = self.pop() as u32;
                low | (self.pop() as u32) << 16
            }
            DataWidth::W64 if offset & 4 == 0 => {
                let word = self.pop();
                self.half = (word >> 32) as u32;
                word as u32
            }
            DataWidth::W64 => self.half,
        }
    }

    fn pop(&mut self) -> u64 {
        if self.fifo_words() == 0 {
            self.raise(int::FRUN);
            return 0;
        }
        let mut word = [0; 8];
        let width = self.cfg.data_width.bytes() as usize;
        self.fifo.pop_into(&mut word[..width]);
        self.counted(width);
        u64::from_le_bytes(word)
    }

    fn data_write(&mut self, offset: u32, value: u32) {
        match self.cfg.data_width {
            DataWidth::W32 => self.push(value.into()),
            DataWidth::W16 => {
                self.push((value & 0xffff).into());
                self.push((value >> 16).into());
            }
            DataWidth::W64 if offset & 4 == 0 => self.half = value,
            DataWidth::W64 => self.push(u64::from(value) << 32 | u64::from(self.half)),
        }
    }

    fn push(&mut self, word: u64) {
        let width = self.cfg.data_width.bytes() as usize;
        if self.fifo.space() < width {
            self.raise(int::FRUN);
            return;
        }
        if self.data.is_none() {
            self.rx_fifo = false;
        }
        self.fifo.push(&word.to_le_bytes()[..width]);
        self.counted(width);
    }

    fn counted(&mut self, width: usize) {
        self.counters.fifo_words += 1;
        self.r.tbbcnt = self.r.tbbcnt.wrapping_add(width as u32);
    }
}
