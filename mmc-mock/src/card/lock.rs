//! CMD42 of SD and MMC cards: a password of up to 16 bytes that locks the card (`spec/card.md` §2.5).
//!
//! What a locked card refuses, and the erase that a forced one asks for, are the card's business.

const SET: u8 = 1;
const CLEAR: u8 = 2;
const LOCK: u8 = 4;
const ERASE: u8 = 8;

/// What came of a CMD42 block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It was done.
    Done,
    /// LOCK_UNLOCK_FAILED; nothing changed.
    Failed,
    /// The password is gone and the card unlocked; its contents must go, too.
    Erase,
}

/// The password and whether it locks the card now.
#[derive(Clone, Debug, Default)]
pub(super) struct Lock {
    /// Empty: none was set. It outlives a loss of power.
    password: Vec<u8>,
    locked: bool,
}

impl Lock {
    /// The card gets its supply: a password locks it.
    pub(super) fn power_up(&mut self) {
        self.locked = !self.password.is_empty();
    }
    /// Most commands are refused.
    pub(super) fn locked(&self) -> bool {
        self.locked
    }
    /// The block of CMD42 arrived whole. `may_set`: a new password is allowed; `may_erase`: nothing is protected for good.
    ///
    /// Only one of set, clear and force erase can be asked for; set may lock at once. Bits 7:4 must be 0 (the ownership
    /// protection of SD 9, bit 4, is not offered). Bytes behind the password are ignored.
    pub(super) fn apply(&mut self, block: &[u8], may_set: bool, may_erase: bool) -> Verdict {
        self.try_apply(block, may_set, may_erase).unwrap_or(Verdict::Failed)
    }
    fn try_apply(&mut self, block: &[u8], may_set: bool, may_erase: bool) -> Option<Verdict> {
        let (&mode, rest) = block.split_first()?;
        if mode & ERASE != 0 {
            // A block of one byte, and no other bit.
            if mode != ERASE || !rest.is_empty() || !self.locked || !may_erase {
                return None;
            }
            *self = Self::default();
            return Some(Verdict::Erase);
        }
        let (&len, rest) = rest.split_first()?;
        let given = rest.get(..len.into())?;
        let right = !self.password.is_empty() && given == self.password;
        match mode {
            m if m & !LOCK == SET && may_set => {
                // With a password there already, it comes first.
                let new = given.strip_prefix(&self.password[..])?;
                if !(1..=16).contains(&new.len()) {
                    return None;
                }
                self.password = new.to_vec();
                self.locked = mode & LOCK != 0;
            }
            CLEAR if right => *self = Self::default(),
            LOCK if right && !self.locked => self.locked = true,
            0 if right && self.locked => self.locked = false,
            _ => return None,
        }
        Some(Verdict::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(lock: &mut Lock, mode: u8, password: &str) -> Verdict {
        let mut block = vec![mode, password.len() as u8];
        block.extend(password.as_bytes());
        lock.apply(&block, true, true)
    }

    #[test]
    fn a_password_is_set_changed_used_and_cleared() {
        let mut l = Lock::default();
        assert_eq!(ask(&mut l, LOCK, "abc"), Verdict::Failed, "no password yet");
        assert_eq!(ask(&mut l, SET, "abc"), Verdict::Done);
        assert!(!l.locked());
        assert_eq!(ask(&mut l, SET, "xyz123"), Verdict::Failed, "the old one comes first");
        assert_eq!(ask(&mut l, SET | LOCK, "abcxyz123"), Verdict::Done);
        assert!(l.locked());
        assert_eq!(ask(&mut l, 0, "abc"), Verdict::Failed);
        assert_eq!(ask(&mut l, LOCK, "xyz123"), Verdict::Failed, "locked already");
        assert_eq!(ask(&mut l, 0, "xyz123"), Verdict::Done);
        assert_eq!(ask(&mut l, 0, "xyz123"), Verdict::Failed, "unlocked already");
        l.power_up();
        assert!(l.locked(), "power brings the lock back");
        assert_eq!(ask(&mut l, CLEAR, "xyz123"), Verdict::Done);
        l.power_up();
        assert!(!l.locked());
    }

    #[test]
    fn force_erase_is_one_byte_for_a_locked_card() {
        let mut l = Lock::default();
        assert_eq!(l.apply(&[ERASE], true, true), Verdict::Failed, "not locked");
        ask(&mut l, SET | LOCK, "secret");
        assert_eq!(l.apply(&[ERASE, 0], true, true), Verdict::Failed);
        assert_eq!(l.apply(&[ERASE], true, false), Verdict::Failed, "protected");
        assert!(l.locked());
        assert_eq!(l.apply(&[ERASE], true, true), Verdict::Erase);
        assert_eq!((l.locked(), ask(&mut l, SET, "new")), (false, Verdict::Done));
    }

    #[test]
    fn what_cannot_be_changes_nothing() {
        let mut l = Lock::default();
        ask(&mut l, SET | LOCK, "secret");
        let blocks: [&[u8]; 8] = [
            &[],
            &[SET],
            &[SET, 6],
            &[0, 200, b's'],
            &[SET | CLEAR, 6, b's', b'e', b'c', b'r', b'e', b't'],
            &[CLEAR | LOCK, 6, b's', b'e', b'c', b'r', b'e', b't'],
            &[0x10, 6, b's', b'e', b'c', b'r', b'e', b't'],
            &[SET, 6, b's', b'e', b'c', b'r', b'e', b't'],
        ];
        for block in blocks {
            assert_eq!(l.apply(block, true, true), Verdict::Failed, "{block:?}");
        }
        assert_eq!(ask(&mut l, SET, "secret0123456789abcdef0"), Verdict::Failed, "17 bytes");
        assert_eq!(l.apply(b"\x01\x0csecretfoobar", false, true), Verdict::Failed, "not allowed");
        assert!(l.locked());
        assert_eq!(ask(&mut l, 0, "secret"), Verdict::Done);
    }
}
