//! The core without a host: what it makes of results, and of a scheduler that lies.

mod common;

use common::*;
use mmc_block::{BlockError, Core, Job, Limits, Settings, Stopped, Work};
use mmc_hal::{Batch, Payload};
use mmc_mock::{Buf, BufBatch};
use mmc_proto::machine::{After, TransferCause, TransferError, TransferPhase};
use mmc_proto::status::CardStatus;
use mmc_sched::{Dispatch, MqDeadline, Queue, Run, Scheduler, Slot};
use mmc_time::Instant;

const T0: Instant = Instant::ZERO;
const LIMITS: Limits = Limits { max_blocks: 1024, max_segments: 64 };

/// A core whose scheduler's runs are changed by `lie` on their way.
fn core(lie: fn(&mut Run)) -> Core<Wrap<Queue<Vec<Slot>, MqDeadline>>, Tags, Buf> {
    let queue = Queue::new(vec![Slot::FREE; 8], MqDeadline::new());
    let liar = Wrap::new(
        queue,
        move |inner, now| match inner.dispatch(now) {
            Dispatch::Run(mut run) => {
                lie(&mut run);
                Dispatch::Run(run)
            }
            other => other,
        },
        || {},
    );
    Core::new(liar, card(), LIMITS, tags(8), Settings { nr_requests: 8, retries: 1 }, ()).unwrap()
}

fn job<S, T, O>(core: &mut Core<S, T, Buf, O>, batch: &mut BufBatch) -> Job
where
    S: Scheduler,
    T: AsRef<[mmc_block::Tag<Buf>]> + AsMut<[mmc_block::Tag<Buf>]>,
    O: mmc_block::Observer,
{
    let Work::Run(job) = core.next(batch, T0) else { panic!("no work") };
    let _ = core.start(&job, T0);
    job
}

#[test]
fn a_command_that_moved_fewer_blocks_is_never_a_success() {
    let mut core = core(|_| {});
    let mut batch = BufBatch::new(8);
    let tickets = [0, 8].map(|lba| core.submit(write(lba, 8), buf(&write(lba, 8), 1), T0).unwrap());
    let whole = job(&mut core, &mut batch);
    assert_eq!((whole.run().blocks, batch.len(), batch.bytes()), (16, 2, 16 * 512));
    core.finish(whole, Ok(15), Some(&mut batch), T0);
    assert!(!core.has_done(), "nobody knows which of the two it was");
    for moved in [7, 8] {
        assert!(batch.is_empty());
        let one = job(&mut core, &mut batch);
        assert_eq!((one.run().count, one.run().blocks), (1, 8));
        core.finish(one, Ok(moved), Some(&mut batch), T0);
    }
    let [short, whole] = tickets.map(|t| core.take(t).unwrap());
    // The command of both, and its own: `retries` is 1.
    assert_eq!((short.result, short.attempts), (Err(BlockError::Short { expected: 8, moved: 7 }), 2));
    assert_eq!((whole.result, whole.attempts), (Ok(()), 2));
    assert!(short.buffer.is_some() && whole.buffer.is_some());
    assert_eq!(core.next(&mut batch, T0), Work::Idle);
}

#[test]
fn data_never_follow_a_scheduler_that_lies_about_where_they_belong() {
    let lies: [fn(&mut Run); 6] = [
        |r| r.lba += 1,
        |r| r.blocks += 1,
        |r| r.blocks = 0,
        |r| r.offset += 1,
        |r| r.count += 1,
        |r| r.op = mmc_sched::Op::Read,
    ];
    for (i, lie) in lies.into_iter().enumerate() {
        let mut core = core(lie);
        let mut batch = BufBatch::new(8);
        let t = core.submit(write(16, 8), buf(&write(16, 8), 1), T0).unwrap();
        assert_eq!(core.next(&mut batch, T0), Work::Idle, "lie {i}");
        let done = core.take(t).unwrap();
        assert_eq!((done.result, done.attempts), (Err(BlockError::BadRun), 0), "lie {i}");
        assert_eq!(done.buffer, Some(buf(&write(16, 8), 1)), "lie {i}");
        assert!(batch.is_empty());
        assert_eq!((core.outstanding(), core.tags_in_use()), (0, 0));
    }
}

#[test]
fn requests_that_failed_together_are_tried_alone_unless_nothing_goes_on() {
    for stops in [false, true] {
        let mut core = core(|_| {});
        let mut batch = BufBatch::new(8);
        let tickets = [0, 8].map(|lba| core.submit(write(lba, 8), buf(&write(lba, 8), 1), T0).unwrap());
        let both = job(&mut core, &mut batch);
        if stops {
            core.stop(Stopped::Shutdown);
        }
        // An error that one request alone would not be sent again for.
        let error = TransferError {
            cause: TransferCause::Card,
            phase: TransferPhase::Data,
            status: Some(CardStatus::WP_VIOLATION),
            done: 0,
            after: After::Ready,
        };
        assert!(!error.is_retryable());
        core.finish(both, Err(BlockError::Transfer(error)), Some(&mut batch), T0);
        assert_eq!(core.has_done(), stops);
        if !stops {
            for result in [Err(error), Ok(8)] {
                let one = job(&mut core, &mut batch);
                assert_eq!((one.run().count, one.run().blocks), (1, 8));
                core.finish(one, result.map_err(BlockError::Transfer), Some(&mut batch), T0);
            }
        }
        let results = tickets.map(|t| core.take(t).unwrap().result);
        let failed = Err(BlockError::Transfer(error));
        assert_eq!(results, [failed, if stops { failed } else { Ok(()) }]);
        assert_eq!(core.outstanding(), 0);
    }
}
