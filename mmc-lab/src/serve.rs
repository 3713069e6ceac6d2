//! `mmc-lab serve`: a disk for others over NBD, whose every request goes through the whole stack: scheduler, card
//! protocol, DesignWare driver, its register model, card model.
//!
//! ```text
//!  client ══ socket ══ reader thread ──► channel ──► worker: Disk ── DwEngine ── Dw ── Faulty ── card
//!                      writer thread ◄── channel ◄──┘                                             │
//!                                                    Image: a file ◄── what is durable ───────────┘
//! ```
//!
//! One thread has the stack and its virtual time; each client has one thread that reads and one that writes, and a
//! budget of requests and bytes, so that no client can take more memory than its own.

pub mod card;
pub mod client;
pub mod connection;
pub mod handshake;
pub mod image;
pub mod socket;
pub mod wire;
pub mod worker;
