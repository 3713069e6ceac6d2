//! SDIO and combo cards by name.

use super::UnknownCard;
use crate::card::{IoFunction, SdConfig, SdioConfig};
use crate::timing::Profile;
use mmc_time::Duration;

/// One preset.
#[derive(Clone, Copy, Debug)]
pub struct IoPreset {
    /// What [`io`] calls it.
    pub name: &'static str,
    /// What is special about it.
    pub what: &'static str,
    /// What a good host does about that.
    pub host: &'static str,
    /// Who published it.
    pub source: &'static str,
    change: fn(&mut SdioConfig, &Profile, u64),
}

/// All presets.
#[must_use]
pub fn io_list() -> &'static [IoPreset] {
    &PRESETS
}

/// The card called `name`; a memory beside its functions has the timing of `profile` and pauses drawn from `seed`.
///
/// # Errors
/// [`UnknownCard`], whose text lists the names there are.
pub fn io(name: &str, profile: &Profile, seed: u64) -> Result<SdioConfig, UnknownCard> {
    let unknown = || UnknownCard { name: name.to_owned() };
    let preset = PRESETS.iter().find(|p| p.name == name).ok_or_else(unknown)?;
    let mut config = SdioConfig::new();
    (preset.change)(&mut config, profile, seed);
    Ok(config)
}

/// The names, for an error.
pub(super) fn names() -> String {
    PRESETS.map(|p| p.name).join(", ")
}

const PRESETS: [IoPreset; 3] = [
    IoPreset {
        name: "sdio-wlan",
        what: "SDIO card with a WLAN function and a Bluetooth function, no memory",
        host: "finds it by CMD5 before ACMD41 and takes no CMD8 from it",
        source: "spec/card.md §15 (include/linux/mmc/sdio.h)",
        change: |c, _, _| {
            c.functions.push(IoFunction { interface: 2, max_block: 64, wake_up: Duration::from_millis(10) });
        },
    },
    IoPreset {
        name: "cw1200",
        what: "SDIO card that cannot move 512 bytes in byte mode",
        host: "knows the card by its MANFID (0020:2280), uses block mode or 508 bytes",
        source: "SDIO quirk table of Linux 6.12 (STE CW1200, silabs wf200)",
        change: |c, _, _| (c.vendor, c.device, c.byte_mode_512_fails) = (0x0020, 0x2280, true),
    },
    IoPreset {
        name: "combo",
        what: "SD memory of 8 GiB and a WLAN function in one card, with one address",
        host: "wakes both by CMD5 and ACMD41 before CMD3",
        source: "spec/card.md §13.1, §15",
        change: |c, profile, seed| c.memory = Some(SdConfig::new(profile.clone(), seed)),
    },
];
