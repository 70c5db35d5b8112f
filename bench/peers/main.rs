// SPDX-License-Identifier: MIT

// A limiter of Rust at the work that bench/costs gives to weir, one round of it: bench/run --peers
// builds it against the sources that the distribution packages, and runs it round by round.
// The method is that of bench/costs.c and bench/costs_two.c.
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Instant;
use std::{process, thread};
use tokio::sync::Semaphore;

const BATCH: u64 = 1000;
const SHARE: u64 = 2000;
const SAMPLES: usize = 30;
const WARM_UP: usize = 2;
const BLOCK: u64 = 16;

fn require(condition: bool, what: &str) {
    if !condition {
        eprintln!("peers: not so: {}", what);
        process::exit(1); // from any thread, where a panic would end but that one
    }
}

// ---- processors ----

type Mask = [u64; 16];

extern "C" {
    fn sched_getaffinity(pid: i32, size: usize, mask: *mut Mask) -> i32;
    fn sched_setaffinity(pid: i32, size: usize, mask: *const Mask) -> i32;
}

fn allowed_processors() -> Vec<usize> {
    let mut mask: Mask = [0; 16];
    let status = unsafe { sched_getaffinity(0, std::mem::size_of::<Mask>(), &mut mask) };
    require(status == 0, "sched_getaffinity");
    (0..1024)
        .filter(|i| mask[i / 64] & (1 << (i % 64)) != 0)
        .collect()
}

fn pin(processor: usize) {
    let mut mask: Mask = [0; 16];
    mask[processor / 64] = 1 << (processor % 64);
    let status = unsafe { sched_setaffinity(0, std::mem::size_of::<Mask>(), &mask) };
    require(status == 0, "sched_setaffinity");
}

// ---- the work ----

struct Work {
    name: &'static str,
    run: Box<dyn Fn(u64) + Sync>, // repeats it this many times
    alone: Vec<f64>,
    two: Vec<f64>,
}

fn work(name: &'static str, run: impl Fn(u64) + Sync + 'static) -> Work {
    Work {
        name,
        run: Box::new(run),
        alone: Vec::new(),
        two: Vec::new(),
    }
}

fn works() -> Vec<Work> {
    let semaphore = Semaphore::new(1000);
    vec![work("tokio::Semaphore: try_acquire + drop", move |n| {
        for _ in 0..n {
            let permit = semaphore.try_acquire();
            require(permit.is_ok(), "try_acquire");
            drop(permit);
        }
    })]
}

fn alone(work: &Work) -> f64 {
    let begin = Instant::now();
    (work.run)(BATCH);
    begin.elapsed().as_nanos() as f64 / BATCH as f64
}

#[repr(align(64))]
struct Line<T>(T); // on cache lines of its own

// Measures a thread that does its share while another repeats that work until its end: the time of
// one of them per operation, over both.
fn against(work: &Work, there: usize) -> f64 {
    let (done, over) = (Line(AtomicU64::new(0)), Line(AtomicBool::new(false)));
    thread::scope(|scope| {
        scope.spawn(|| {
            pin(there);
            while !over.0.load(Relaxed) {
                (work.run)(BLOCK);
                done.0.fetch_add(BLOCK, Relaxed);
            }
        });
        while done.0.load(Relaxed) == 0 {
            thread::yield_now();
        }
        let before = done.0.load(Relaxed);
        let begin = Instant::now();
        for _ in 0..SHARE / BLOCK {
            (work.run)(BLOCK);
        }
        let ns = begin.elapsed().as_nanos() as f64;
        let other = done.0.load(Relaxed) - before;
        over.0.store(true, Relaxed);
        2.0 * ns / (SHARE + other) as f64
    })
}

// ---- sums ----

fn quantile(sorted: &[f64], part: f64) -> f64 {
    sorted[((part * sorted.len() as f64).ceil() as usize).max(1) - 1]
}

fn report(name: &str, ns: &mut [f64]) {
    ns.sort_by(f64::total_cmp);
    println!(
        r#"{{"name": "{}", "min_ns": {}, "median_ns": {}, "p99_ns": {}, "max_ns": {}}}"#,
        name,
        ns[0],
        quantile(ns, 0.5),
        quantile(ns, 0.99),
        ns[ns.len() - 1]
    );
}

fn main() {
    let processors = allowed_processors();
    let mut all = works();
    pin(processors[0]);
    for i in 0..WARM_UP + SAMPLES {
        for work in &mut all {
            let ns = alone(work);
            if i >= WARM_UP {
                work.alone.push(ns);
            }
        }
    }
    for _ in 0..if processors.len() > 1 { SAMPLES } else { 0 } {
        for work in &mut all {
            work.two.push(against(work, processors[1]));
        }
    }
    for work in &mut all {
        report(work.name, &mut work.alone);
    }
    for work in all.iter_mut().filter(|work| !work.two.is_empty()) {
        report(&format!("two: {}", work.name), &mut work.two);
    }
}
