//! What a request and a policy cost in memory, so that a change is seen.
#![cfg(all(feature = "mq-deadline", feature = "deadline", feature = "bfq"))]

use mmc_sched::{AnyPolicy, MqDeadline, NoSched, Policy, Queue, Request, RequestId, Run, Scheduler, Slot};

#[test]
#[cfg(target_pointer_width = "64")]
fn memory_per_request_and_per_policy() {
    assert_eq!(size_of::<Request>(), 24);
    assert_eq!(size_of::<RequestId>(), 8);
    assert_eq!(size_of::<Run>(), 32);
    assert_eq!(size_of::<Slot>(), 128);
    assert_eq!(size_of::<NoSched>(), 4);
    assert!(size_of::<MqDeadline>() <= 224, "{}", size_of::<MqDeadline>());
    assert!(size_of::<AnyPolicy>() <= 17 * 1024, "{}: 64 streams of bfq", size_of::<AnyPolicy>());
    let fixed = size_of::<Queue<[Slot; 0], NoSched>>();
    assert!(fixed <= 64, "{fixed}");
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
