//! What a card says in SPI mode, as the card status of the SD bus (`spec/card.md` §4, §16).

use mmc_proto::spi::{DataError, R1, R2};
use mmc_proto::status::{CardState, CardStatus};

/// The address every card has here.
pub(crate) const RCA: u16 = 1;

/// A card that is ready in this state.
pub(crate) fn ready_in(state: CardState) -> CardStatus {
    CardStatus::from_bits_retain(u32::from(state.code()) << 9) | CardStatus::READY_FOR_DATA
}

/// A card that is busy storing.
pub(crate) fn busy() -> CardStatus {
    CardStatus::from_bits_retain(u32::from(CardState::Prg.code()) << 9)
}

fn pick<T: Copy>(pairs: &[(T, CardStatus)], has: impl Fn(T) -> bool) -> CardStatus {
    pairs.iter().filter(|(bit, _)| has(*bit)).fold(CardStatus::empty(), |all, (_, s)| all | *s)
}

/// The error bits of an R1.
pub(crate) fn of_r1(r1: R1) -> CardStatus {
    let pairs = [
        (R1::ERASE_RESET, CardStatus::ERASE_RESET),
        (R1::ILLEGAL_COMMAND, CardStatus::ILLEGAL_COMMAND),
        (R1::CRC_ERROR, CardStatus::COM_CRC_ERROR),
        (R1::ERASE_SEQUENCE_ERROR, CardStatus::ERASE_SEQ_ERROR),
        (R1::ADDRESS_ERROR, CardStatus::ADDRESS_ERROR),
        (R1::PARAMETER_ERROR, CardStatus::OUT_OF_RANGE),
    ];
    pick(&pairs, |bit| r1.contains(bit))
}

/// The bits of the second byte of an R2.
pub(crate) fn of_r2(r2: R2) -> CardStatus {
    let pairs = [
        (R2::LOCKED, CardStatus::CARD_IS_LOCKED),
        (R2::WP_ERASE_SKIP, CardStatus::WP_ERASE_SKIP),
        (R2::ERROR, CardStatus::ERROR),
        (R2::CC_ERROR, CardStatus::CC_ERROR),
        (R2::CARD_ECC_FAILED, CardStatus::CARD_ECC_FAILED),
        (R2::WP_VIOLATION, CardStatus::WP_VIOLATION),
        (R2::ERASE_PARAM, CardStatus::ERASE_PARAM),
        (R2::OUT_OF_RANGE, CardStatus::OUT_OF_RANGE),
    ];
    pick(&pairs, |bit| r2.contains(bit))
}

/// The bits of a data error token.
pub(crate) fn of_token(token: DataError) -> CardStatus {
    let pairs = [
        (DataError::ERROR, CardStatus::ERROR),
        (DataError::CC_ERROR, CardStatus::CC_ERROR),
        (DataError::CARD_ECC_FAILED, CardStatus::CARD_ECC_FAILED),
        (DataError::OUT_OF_RANGE, CardStatus::OUT_OF_RANGE),
        (DataError::LOCKED, CardStatus::CARD_IS_LOCKED),
    ];
    pick(&pairs, |bit| token.contains(bit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_of_spi_mode_has_a_place_in_the_status() {
        for bit in 1..7 {
            assert!(!of_r1(R1::from_bits_retain(1 << bit)).is_empty(), "R1 bit {bit}");
        }
        assert!(of_r1(R1::IDLE).is_empty(), "a state is no error");
        for bit in 0..8 {
            assert!(!of_r2(R2::from_bits_retain(1 << bit)).is_empty(), "R2 bit {bit}");
        }
        for bit in 0..5 {
            assert!(!of_token(DataError::from_bits_retain(1 << bit)).is_empty(), "token bit {bit}");
        }
        assert!(ready_in(CardState::Tran).is_ready() && !busy().is_ready());
    }
}
