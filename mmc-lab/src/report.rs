//! What a run looks like to people and programs.

pub mod chart;
pub mod front;
pub mod html;
pub mod json;
pub mod pages;
pub mod picture;
pub mod spans;
pub mod text;
pub mod waits;
