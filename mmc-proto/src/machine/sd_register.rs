//! Extension registers of SD cards (`spec/card.md` §2.8): finding the register sets, the cache, the notification of
//! power-off.
//!
//! ```text
//!  find      CMD48 general information, CMD48 of each set that is known
//!  change    CMD49, CMD13 until ready, CMD48 until the register shows it, one second at most
//! ```

use super::talk::{Say, Script, Talk, ready_limit};
use super::transfer::{CardTraits, TransferCause};
use crate::command::{Command, ExtPlace};
use crate::host::Reply;
use crate::register::extension::{GeneralInfo, PerformanceSet, PowerSet, SetAddress, sfc};
use crate::timing::SD_REGISTER_LIMIT;
use mmc_time::{Duration, Instant};

/// The limit of a CMD48 or of the data of a CMD49.
const ACCESS: Duration = Duration::from_millis(1_010);
/// Pause between two looks at a register.
const PAUSE: Duration = Duration::from_millis(5);

/// What an SD card has of extension registers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extensions {
    /// Power management, and where it is.
    pub power: Option<(SetAddress, PowerSet)>,
    /// Performance enhancement (cache, queue, maintenance), and where it is.
    pub performance: Option<(SetAddress, PerformanceSet)>,
}

/// The course of an [`FindExtensions`].
#[derive(Clone, Copy, Debug)]
pub struct FindScript {
    power: Option<SetAddress>,
    performance: Option<SetAddress>,
    found: Extensions,
    at: Find,
}

#[derive(Clone, Copy, Debug)]
enum Find {
    Start,
    General,
    Power,
    Performance,
}

/// Finds the register sets of a card with CMD48 (SCR bit 34). Sets that lie over the end of a page, and a second set of
/// a kind, are left out.
///
/// The machine wants a scratch payload of 512 bytes.
pub type FindExtensions = Talk<FindScript>;

impl FindExtensions {
    /// With this card.
    #[must_use]
    pub fn new(card: &CardTraits) -> Self {
        let found = Extensions::default();
        Self::follow(card.rca, FindScript { power: None, performance: None, found, at: Find::Start })
    }
}

const fn place(set: SetAddress, offset: u16) -> ExtPlace {
    // 17 bits: the page, and the byte in it.
    let start = (set.page() as u32) << 9 | set.offset() as u32;
    ExtPlace { io: false, function: set.function(), address: start.saturating_add(offset as u32) }
}

impl FindScript {
    fn page(&mut self, at: Find, phase: &'static str, set: SetAddress) -> Say<Extensions> {
        self.at = at;
        let page = SetAddress(set.0 & !0x1ff);
        Say::Do(phase, Command::read_extr_single(place(page, 0), 512), ACCESS)
    }
    fn rest(&mut self) -> Say<Extensions> {
        if let Some(set) = self.power.filter(|_| matches!(self.at, Find::General)) {
            return self.page(Find::Power, "Power", set);
        }
        match self.performance.filter(|_| !matches!(self.at, Find::Performance)) {
            Some(set) => self.page(Find::Performance, "Performance", set),
            None => Say::Done(self.found),
        }
    }
}

/// The set in the page that was read.
fn set_of(page: &[u8], set: SetAddress) -> &[u8] {
    page.get(usize::from(set.offset())..512).unwrap_or(&[])
}

impl Script for FindScript {
    type Output = Extensions;

    fn scratch(&self) -> bool {
        true
    }
    fn limit(&self) -> Duration {
        ACCESS.saturating_mul(3)
    }
    fn patience(&self) -> Duration {
        SD_REGISTER_LIMIT
    }
    fn next(
        &mut self,
        _: Option<Reply>,
        scratch: &mut [u8],
        _: Instant,
    ) -> Result<Say<Extensions>, TransferCause> {
        match (self.at, self.power, self.performance) {
            (Find::Start, ..) => return Ok(self.page(Find::General, "General", SetAddress(0))),
            (Find::General, ..) => {
                let page = scratch.get(..512).ok_or(TransferCause::Scratch)?;
                let info = GeneralInfo::parse(page).map_err(TransferCause::Register)?;
                info.check().map_err(TransferCause::Register)?;
                for extension in info.extensions() {
                    let at = match extension.sfc {
                        sfc::POWER => &mut self.power,
                        sfc::PERFORMANCE => &mut self.performance,
                        _ => continue,
                    };
                    // The registers used lie within 263 bytes.
                    let inside = extension.address.filter(|set| set.offset() <= 512 - 263);
                    *at = at.or(inside);
                }
            }
            (Find::Power, Some(set), _) => {
                self.found.power = Some((set, PowerSet::parse(set_of(scratch, set))));
            }
            (Find::Performance, _, Some(set)) => {
                self.found.performance = Some((set, PerformanceSet::parse(set_of(scratch, set))));
            }
            (Find::Power | Find::Performance, ..) => {}
        }
        Ok(self.rest())
    }
}

/// The course of an [`SdRegister`].
#[derive(Clone, Copy, Debug)]
pub struct SetScript {
    refused: Option<TransferCause>,
    set: SetAddress,
    /// Byte of the set, and its new value.
    write: (u16, u8),
    /// Byte of the set, the bits of it that are waited for, and what they must be.
    see: (u16, u8, u8),
    until: Instant,
    at: Set,
}

#[derive(Clone, Copy, Debug)]
enum Set {
    Start,
    Write,
    Ready,
    Read,
    Pause,
}

/// Changes an extension register and waits until the card shows that it has done what was asked.
///
/// The machine wants a scratch payload of 512 bytes.
pub type SdRegister = Talk<SetScript>;

impl SdRegister {
    fn of(
        card: &CardTraits,
        set: Option<SetAddress>,
        what: &'static str,
        write: (u16, u8),
        see: (u16, u8, u8),
    ) -> Self {
        let refused = match set {
            Some(_) => None,
            None => Some(TransferCause::Unsupported(what)),
        };
        let set = set.unwrap_or(SetAddress(0));
        let script = SetScript { refused, set, write, see, until: Instant::ZERO, at: Set::Start };
        Self::follow(card.rca, script)
    }
    fn performance(has: &Extensions) -> Option<SetAddress> {
        has.performance.filter(|(_, set)| set.cache).map(|(at, _)| at)
    }
    /// Switches the cache on or off.
    #[must_use]
    pub fn cache(card: &CardTraits, has: &Extensions, on: bool) -> Self {
        let on = u8::from(on);
        Self::of(card, Self::performance(has), "a cache", (260, on), (260, 1, on))
    }
    /// Stores what is in the cache.
    #[must_use]
    pub fn flush(card: &CardTraits, has: &Extensions) -> Self {
        Self::of(card, Self::performance(has), "a cache", (261, 1), (261, 1, 0))
    }
    /// Says that power goes, and waits until the card is ready for it.
    #[must_use]
    pub fn power_off(card: &CardTraits, has: &Extensions) -> Self {
        let power = has.power.filter(|(_, set)| set.off_notification).map(|(at, _)| at);
        Self::of(card, power, "power-off notification", (2, 1), (1, 1, 1))
    }
}

impl Script for SetScript {
    type Output = ();

    fn scratch(&self) -> bool {
        true
    }
    fn limit(&self) -> Duration {
        // The last look begins when the second has passed.
        ACCESS + ready_limit(SD_REGISTER_LIMIT) + SD_REGISTER_LIMIT + PAUSE + ACCESS
    }
    fn patience(&self) -> Duration {
        SD_REGISTER_LIMIT
    }
    fn next(&mut self, _: Option<Reply>, scratch: &mut [u8], now: Instant) -> Result<Say<()>, TransferCause> {
        if let Some(cause) = self.refused {
            return Err(cause);
        }
        match self.at {
            Set::Start => {
                self.at = Set::Write;
                let block = scratch.get_mut(..512).ok_or(TransferCause::Scratch)?;
                block.fill(0);
                if let Some(first) = block.first_mut() {
                    *first = self.write.1;
                }
                let command = Command::write_extr_single(place(self.set, self.write.0), 1);
                return Ok(Say::Do("Write", command, ACCESS));
            }
            Set::Write => {
                self.at = Set::Ready;
                return Ok(Say::Ready(SD_REGISTER_LIMIT));
            }
            Set::Ready => self.until = now + SD_REGISTER_LIMIT,
            Set::Read => {
                let seen = scratch.first().copied().ok_or(TransferCause::Scratch)?;
                let (_, mask, wanted) = self.see;
                if seen & mask == wanted {
                    return Ok(Say::Done(()));
                }
                if now >= self.until {
                    return Err(TransferCause::NotReady);
                }
                self.at = Set::Pause;
                return Ok(Say::Sleep("Look", PAUSE));
            }
            Set::Pause => {}
        }
        self.at = Set::Read;
        Ok(Say::Do("Look", Command::read_extr_single(place(self.set, self.see.0), 1), ACCESS))
    }
}
