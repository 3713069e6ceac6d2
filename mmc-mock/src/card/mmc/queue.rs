//! The command queue of eMMC 5.1 (CMD44 to CMD48): tasks are told, asked for, run in any order, or dropped.
//!
//! A task is ready as soon as it is told; the card orders nothing by itself.

use super::config::at;
use super::{MmcCard, MmcState, Outcome};
use mmc_time::Instant;

/// What CMD44 and CMD45 said of a task.
#[derive(Clone, Copy, Debug)]
struct Task {
    read: bool,
    reliable: bool,
    blocks: u32,
    address: u32,
}

/// The tasks.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    tasks: [Option<Task>; 32],
    /// CMD44 came; its CMD45 has to follow at once.
    half: Option<(usize, Task)>,
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.tasks.iter().all(Option::is_none)
    }
    /// The queue status register: bit n, task n is ready to run.
    pub(super) fn status(&self) -> u32 {
        (0..32).filter(|&i| self.tasks[i].is_some()).fold(0, |bits, i| bits | 1 << i)
    }
    /// Any command but CMD45 drops a CMD44 that waits.
    pub(super) fn heard(&mut self, index: u8) {
        if index != 45 {
            self.half = None;
        }
    }
}

impl MmcCard {
    /// CMDQ_MODE_EN.
    pub(super) fn queueing(&self) -> bool {
        self.ext[at::CMDQ_MODE_EN] & 1 == 1
    }
    /// CMD44 to CMD48, with the queue on.
    pub(super) fn queue_command(&mut self, index: u8, arg: u32, now: Instant) -> Outcome {
        let id = (arg >> 16 & 31) as usize;
        let depth = usize::from(self.ext[at::CMDQ_DEPTH] & 31) + 1;
        match index {
            44 => {
                let blocks = arg & 0xffff;
                if blocks == 0 || id >= depth || self.queue.tasks[id].is_some() {
                    return Outcome::Illegal;
                }
                let task = Task { read: arg & 1 << 30 != 0, reliable: arg >> 31 == 1, blocks, address: 0 };
                self.queue.half = Some((id, task));
                Outcome::R1
            }
            45 => {
                let Some((id, task)) = self.queue.half.take() else { return Outcome::Illegal };
                self.queue.tasks[id] = Some(Task { address: arg, ..task });
                Outcome::R1
            }
            46 | 47 if self.state == MmcState::Tran => {
                let right = |t: &mut Task| t.read == (index == 46);
                let Some(task) = self.queue.tasks[id].take_if(right) else { return Outcome::Illegal };
                self.open_blocks(task.read, false, task.address, Some((task.blocks, task.reliable)), now)
            }
            48 if self.state == MmcState::Tran => match arg & 15 {
                1 => {
                    self.queue.tasks = [None; 32];
                    self.rest(now)
                }
                2 => {
                    self.queue.tasks[id] = None;
                    self.rest(now)
                }
                _ => Outcome::Illegal,
            },
            _ => Outcome::Illegal,
        }
    }
}
