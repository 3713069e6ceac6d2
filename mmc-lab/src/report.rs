//! What a run of the main job looks like to people and programs.

pub mod html;
pub mod json;
pub mod picture;
pub mod text;
