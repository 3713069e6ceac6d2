//! Block-layer traces: the event model every reader fills and every analysis reads.

pub mod model;
