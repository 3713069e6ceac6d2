//! Conversations with a card as machines without input or output: each is told what came of its last step and
//! says the next one, so that the same value runs over a [`Host`](crate::host::Host), a foreign async bus, or
//! a table in a test.

mod conductor;
mod erase;
mod health;
mod identify;
mod lock;
mod order;
mod policy;
mod read;
mod recover;
mod reply;
mod rpmb;
mod sd_register;
mod speed;
mod talk;
mod transfer;
mod tune;
mod watch;

pub use conductor::{Conductor, Turn};
pub use erase::{Erase, EraseError, EraseScript};
pub use health::{Background, Health, Spare, Wear};
pub use identify::{
    Identified, Identify, IdentifyCause, IdentifyError, IdentifyStep, IoPart, MMC_READ_LIMIT,
    MMC_WRITE_LIMIT, MmcPart, Registers, SD_READ_LIMIT, SD_WRITE_LIMIT, SdPart,
};
pub use lock::{Lock, LockOp, StoreScript};
pub use order::{BootFrom, Order, OrderScript, Partition, PowerNotice, Protection};
pub use policy::{Cure, Means, POLICY, Rule, Trouble, plan};
pub use read::{Fetch, FetchScript, Reread, RereadScript};
pub use recover::{After, Recover, RecoverPhase, Recovered};
pub use rpmb::{Hmac, Rpmb, RpmbScript};
pub use sd_register::{Extensions, FindExtensions, FindScript, SdRegister, SetScript};
pub use speed::{
    Fallback, Fallbacks, Mode, Raised, Reason, Speed, SpeedCause, SpeedError, SpeedOptions, SpeedPhase,
    Subject,
};
pub use talk::{Say, Script, Talk, TalkError, ready_limit};
pub use transfer::{
    COMMAND_LIMIT, CardTraits, Transfer, TransferCause, TransferError, TransferOptions, TransferPhase,
};
pub use tune::{TUNING_BLOCK_4, TUNING_BLOCK_8, Tune, TuneCause, TuneError, TunePhase, Tuned};
pub use watch::{SlotEvent, SlotWatch};

use crate::bus::{BusConfig, Power};
use crate::command::Command;
use crate::host::{HostError, Reply};
use mmc_time::{Duration, Instant};

/// One command of a conversation and the longest it may take, data and busy included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Action {
    /// What to send; with a data phase, the data go to and from the payload the machine runs with.
    pub command: Command,
    /// The limit from now on.
    pub limit: Duration,
}

/// What a machine wants next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<T> {
    /// Send a command.
    Do(Action),
    /// Change the bus.
    Bus(BusConfig),
    /// Switch the supply.
    Power(Power),
    /// Wait this long with nothing on the bus.
    Sleep(Duration),
    /// The conversation is over. Calling `next` again gives `Done` with an error.
    Done(T),
}

/// A conversation.
pub trait Machine {
    /// How it ends.
    type Output;
    /// Whether the payload is the machine's own scratch (at least 512 bytes, for registers) rather than the
    /// caller's data.
    fn scratch(&self) -> bool {
        false
    }
    /// Before the first step: the command that will carry the caller's data if all goes well, where that is certain, so
    /// that a host can get ready for it ([`Host::prepare`](crate::host::Host::prepare)).
    fn first_data(&self) -> Option<Command> {
        None
    }
    /// The next step. `last` is what came of the last `Do`, `Bus` or `Power` (`None` at the start and after a
    /// `Sleep`); `scratch` is the payload's first segment where [`scratch`](Self::scratch) says so, else
    /// empty. Never panics, whatever is passed in.
    fn next(
        &mut self,
        last: Option<Result<Reply, HostError>>,
        scratch: &mut [u8],
        now: Instant,
    ) -> Step<Self::Output>;
}
