//! Serialization of what has bits instead of fields: the number itself, so that no bit is lost.

use crate::status::CardStatus;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

impl Serialize for CardStatus {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.bits().serialize(to)
    }
}

impl<'de> Deserialize<'de> for CardStatus {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        u32::deserialize(from).map(Self::from_bits_retain)
    }
}
