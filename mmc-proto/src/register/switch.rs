//! The 64 bytes a card sends after CMD6 (`spec/card.md` §10).

use super::RegisterError;

register! {
    /// The switch status of an SD card, 64 bytes. It travels as data: a CRC16 guards it, nothing in it does.
    SwitchStatus, SwitchInfo, 64 {
        /// Highest current in mA with the functions chosen; 0 says that the choice is impossible.
        max_current_ma: u16 [511:496],
        /// Functions of group 6 (bit n for function n).
        support6: u16 [495:480],
        /// Functions of group 5.
        support5: u16 [479:464],
        /// Functions of group 4, power limit.
        support4: u16 [463:448],
        /// Functions of group 3, driver strength.
        support3: u16 [447:432],
        /// Functions of group 2, command system.
        support2: u16 [431:416],
        /// Functions of group 1, access mode: bit 1 high speed.
        support1: u16 [415:400],
        /// Function of group 6 that is, or would be, in force; 15 error.
        selected6: u8 [399:396],
        /// Function of group 5.
        selected5: u8 [395:392],
        /// Function of group 4.
        selected4: u8 [391:388],
        /// Function of group 3.
        selected3: u8 [387:384],
        /// Function of group 2.
        selected2: u8 [383:380],
        /// Function of group 1.
        selected1: u8 [379:376],
        /// 0, or 1: the busy bits below mean something.
        structure_version: u8 [375:368],
        /// Busy functions of group 6.
        busy6: u16 [367:352],
        /// Busy functions of group 5.
        busy5: u16 [351:336],
        /// Busy functions of group 4.
        busy4: u16 [335:320],
        /// Busy functions of group 3.
        busy3: u16 [319:304],
        /// Busy functions of group 2.
        busy2: u16 [303:288],
        /// Busy functions of group 1.
        busy1: u16 [287:272],
    }
}

impl SwitchStatus {
    /// Functions of `group` (1..=6); 0 for any other.
    #[must_use]
    pub fn support(&self, group: u8) -> u16 {
        match group {
            1 => self.support1(),
            2 => self.support2(),
            3 => self.support3(),
            4 => self.support4(),
            5 => self.support5(),
            6 => self.support6(),
            _ => 0,
        }
    }
    /// Function of `group` (1..=6) in force; 15, the error code, for any other.
    #[must_use]
    pub fn selected(&self, group: u8) -> u8 {
        match group {
            1 => self.selected1(),
            2 => self.selected2(),
            3 => self.selected3(),
            4 => self.selected4(),
            5 => self.selected5(),
            6 => self.selected6(),
            _ => 15,
        }
    }
    /// Whether `function` (0..=15) of `group` is there and not busy.
    #[must_use]
    pub fn can(&self, group: u8, function: u8) -> bool {
        let bit = 1_u16.checked_shl(function.into()).unwrap_or(0);
        let busy = match (self.structure_version(), group) {
            (0, _) => 0,
            (_, 1) => self.busy1(),
            (_, 2) => self.busy2(),
            (_, 3) => self.busy3(),
            (_, 4) => self.busy4(),
            (_, 5) => self.busy5(),
            (_, 6) => self.busy6(),
            _ => 0,
        };
        self.support(group) & bit != 0 && busy & bit == 0
    }
    /// Plain values.
    #[must_use]
    pub fn info(&self) -> SwitchInfo {
        self.fields_of()
    }
    /// Whether this can be a switch status.
    ///
    /// # Errors
    /// An unknown version (all ones), or a card whose group 1 has not even its default function (all zeros).
    pub fn check(&self) -> Result<(), RegisterError> {
        let bad = |field, value: u64, why| Err(RegisterError::Field { field, value, why });
        if self.structure_version() > 1 {
            let value = self.structure_version().into();
            return bad("STRUCTURE_VERSION", value, "unknown; all bits may be one");
        }
        if self.support1() & 1 == 0 {
            let value = self.support1().into();
            return bad("SUPPORT_GROUP_1", value, "the default function is missing; all bits may be zero");
        }
        Ok(())
    }
}

impl SwitchInfo {
    /// The register.
    #[must_use]
    pub fn emit(&self) -> SwitchStatus {
        self.bits()
    }
}
