//! A rule in JSON and the like is its line of text.

use super::script::Rule;
use super::text::ScriptError;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

impl Serialize for Rule {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Rule {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        text.parse()
            .map_err(|e: ScriptError| D::Error::custom(format!("`{text}`, {}: {}", e.field, e.problem)))
    }
}
