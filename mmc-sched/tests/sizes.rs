//! What a request and a policy cost in memory, so that a change is seen.
#![cfg(all(feature = "mq-deadline", feature = "deadline", feature = "bfq"))]

use mmc_sched::{
    AnyPolicy, Bfq, MqDeadline, NoSched, Policy, Queue, Request, RequestId, Run, Scheduler, Slot,
};

#[test]
#[cfg(target_pointer_width = "64")]
fn memory_per_request_and_per_policy() {
    assert_eq!(size_of::<Request>(), 24);
    assert_eq!(size_of::<RequestId>(), 8);
    assert_eq!(size_of::<Run>(), 32);
    assert_eq!(size_of::<Slot>(), 192);
    assert_eq!(size_of::<NoSched>(), 4);
    assert!(size_of::<MqDeadline>() <= 312, "{}", size_of::<MqDeadline>());
    assert!(size_of::<AnyPolicy>() <= 17 * 1024, "{}: 64 streams of bfq", size_of::<AnyPolicy>());
    // With the slots elsewhere; an array of them brings their alignment with it.
    assert_eq!(size_of::<Queue<&mut [Slot], NoSched>>(), 104);
}

/// What one stream more costs in the policies that tell streams apart: the figures of the crate's docs.
#[test]
#[cfg(target_pointer_width = "64")]
fn memory_per_stream() {
    // Rounded: a policy as a whole is padded to its alignment.
    let per_stream = |of_64: usize, of_1: usize| (of_64 - of_1).div_ceil(63);
    assert_eq!(per_stream(size_of::<Bfq<64>>(), size_of::<Bfq<1>>()), 260);
    assert!(size_of::<Bfq<8>>() <= 2560, "{}", size_of::<Bfq<8>>());
    #[cfg(feature = "cfq")]
    assert_eq!(per_stream(size_of::<mmc_sched::Cfq<64>>(), size_of::<mmc_sched::Cfq<1>>()), 88);
    #[cfg(feature = "ftb")]
    assert!(per_stream(size_of::<mmc_sched::Ftb<64>>(), size_of::<mmc_sched::Ftb<1>>()) <= 160);
}

#[test]
fn both_traits_are_object_safe_and_schedulers_may_move_between_threads() {
    fn send<T: Send>(_: &T) {}
    let mut q = Queue::new([Slot::FREE; 2], MqDeadline::new());
    send(&q);
    let policy: &dyn Policy = &MqDeadline::new();
    assert_eq!(policy.name(), "mq-deadline");
    let scheduler: &mut dyn Scheduler = &mut q;
    assert_eq!(scheduler.capacity(), 2);
}
