//! What a policy costs the processor, measured by criterion: the loop of `mmc-lab bench sched`, with criterion's
//! statistics and its comparison with the run before.
//!
//! `cargo bench -p mmc-lab --bench sched -- 'bfq/random/'` measures one group; all of them take some minutes.

use criterion::{BenchmarkId, Criterion};
use mmc_lab::sched_bench::{Bench, FAIR, WORKLOADS};
use mmc_sched::AnyPolicy;
use std::time::{Duration, Instant};

fn main() {
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .sample_size(20)
        .configure_from_args();
    for name in AnyPolicy::NAMES {
        for workload in WORKLOADS {
            let mut group = criterion.benchmark_group(format!("{name}/{}", workload.name()));
            let streams: &[u32] = if FAIR.contains(name) { &[1, 8, 64] } else { &[1] };
            for depth in [1, 32, 128, 1024, 16_384] {
                for streams in streams {
                    group.bench_function(BenchmarkId::new(format!("{streams} streams"), depth), |b| {
                        let policy = AnyPolicy::by_name(name).expect("built in");
                        let mut bench = Bench::new(policy, workload, depth, *streams).expect("room");
                        // Time of one request: a command may carry several.
                        b.iter_custom(|requests| {
                            let began = Instant::now();
                            let done = bench.steps(requests as usize).expect("the policy goes on");
                            began.elapsed().mul_f64(requests as f64 / done as f64)
                        });
                    });
                }
            }
            group.finish();
        }
    }
    criterion.final_summary();
}
