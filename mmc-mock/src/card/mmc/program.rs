//! Blocks that go to a register instead of memory: CMD26, CMD27, CMD42, CMD49, CMD56, and the frames of the RPMB.

use super::super::lock::Verdict;
use super::config::at;
use super::transfer::Source;
use super::{CID_CSD_OVERWRITE, LOCK_UNLOCK_FAILED, MmcCard, Outcome};
use mmc_time::{Duration, Instant};

/// Where they go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sink {
    /// CMD26.
    Cid,
    /// CMD27.
    Csd,
    /// CMD42.
    Lock,
    /// CMD49.
    Time,
    /// CMD56.
    Vendor,
    /// CMD25 in the RPMB; whether CMD23 said reliable write.
    Rpmb(bool),
}

impl MmcCard {
    /// A command whose block goes to `to`.
    pub(super) fn open_sink(&mut self, to: Sink, now: Instant) -> Outcome {
        let len = match to {
            Sink::Cid | Sink::Csd => 16,
            Sink::Lock => self.lock_len,
            _ => 512,
        };
        self.open_run(Source::Sink(to, Vec::new()), now, Duration::ZERO, len, (Some(1), true));
        Outcome::R1
    }
    /// All its blocks came; how long the card is busy with them.
    pub(super) fn sink(&mut self, to: Sink, bytes: &[u8]) -> Duration {
        let mut time = self.config.profile.cmd;
        match to {
            // The maker programmed it.
            Sink::Cid => self.errors |= CID_CSD_OVERWRITE,
            Sink::Csd => self.program_csd(bytes),
            Sink::Lock => {
                let may_set = self.ext[at::USER_WP] & 0x80 == 0;
                let may_erase = self.csd[14] & 0x20 == 0 && self.protection.may_erase();
                match self.lock.apply(bytes, may_set, may_erase) {
                    Verdict::Done => {}
                    Verdict::Failed => self.errors |= LOCK_UNLOCK_FAILED,
                    Verdict::Erase => {
                        let last = self.areas[0].sectors() - 1;
                        time += self.timing.erase(0, last + 1);
                        self.wipe(0, 0, last);
                        self.csd[14] &= !0x10;
                    }
                }
            }
            Sink::Time => {}
            Sink::Vendor => self.vendor.copy_from_slice(bytes),
            Sink::Rpmb(reliable) => {
                if self.rpmb.take(bytes, reliable, &mut self.areas[3]) {
                    time += self.config.profile.wr_rand;
                }
                if self.ext[at::SECURE_WP_INFO] & 1 == 1 {
                    self.ext[at::SECURE_WP_INFO] = 1 | (self.rpmb.settings[0] & 1) << 1;
                }
            }
        }
        time
    }
    /// Bits 15:8 may change, of them COPY and PERM_WRITE_PROTECT once.
    fn program_csd(&mut self, new: &[u8]) {
        let (old, wanted) = (self.csd[14], new[14]);
        let one_way = old & !wanted & 0x60 != 0;
        let forbidden = wanted & !old & 0x20 != 0 && self.ext[at::USER_WP] & 0x40 != 0;
        if new[..14] != self.csd[..14] || one_way || forbidden {
            self.errors |= CID_CSD_OVERWRITE;
        } else {
            self.csd[14] = wanted;
        }
    }
}
