//! Workers that spin briefly, then park: the only threads that compute.
//!
//! The one idea: a forward pass is some hundred parallel regions of tens of microseconds each, so
//! a hand-over must cost about one, and an idle server must cost nothing. Workers therefore spin
//! for [`SPIN_MAX`] after their last task and then park in the kernel. A worker that spins
//! starts within a microsecond; waking a parked one costs the caller a system call (about 5 µs each) and
//! the worker starts some 50 µs later, which is once per step and not once per operation.
//!
//! ```text
//! caller   write task, remaining = n-1 ── epoch += 1 ── task(0) ── spin, then park, until remaining = 0
//! worker i spin, then park, until epoch moves ───────── task(i) ── remaining -= 1, the last one wakes the caller
//! ```
//!
//! Which worker computes what must never show in the result: tasks partition *outputs*, and each
//! output has one fixed order of operations. Not here: queues, work stealing, futures.

use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::marker::PhantomData;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// How long a waiting thread spins before it parks: longer than the serial stretches between the
/// operations of a step, shorter than anybody would notice on an idle machine.
pub const SPIN_MAX: Duration = Duration::from_micros(100);

/// The compute threads. The thread that calls [`Pool::run`] is worker 0.
#[derive(Debug)]
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<Worker>,
    /// One region at a time; held by the caller of `run`.
    region: Mutex<()>,
}

#[derive(Debug)]
struct Worker {
    thread: JoinHandle<()>,
}

/// What the caller and the workers hand over to one another.
struct Shared {
    /// The current region's task and caller. Written by the caller while no worker may look (after
    /// `remaining` fell to 0, before `epoch` moves); read by workers after they saw `epoch` move.
    region: UnsafeCell<Option<Region>>,
    /// Moves by one when a region starts or the pool stops.
    epoch: AtomicU32,
    /// Workers that have not finished the current region.
    remaining: AtomicUsize,
    /// Per worker (the caller is 0): it is about to park, or parked.
    parked: Box<[AtomicBool]>,
    /// The first panic of a worker in the current region.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    stop: AtomicBool,
    /// Zero where there are more threads than processors: spinning would then keep from running
    /// the very thread that is waited for.
    spin_max: Duration,
}

#[derive(Clone)]
struct Region {
    /// The lifetime is erased; `Pool::run` does not return before all workers are done with it.
    task: *const (dyn Fn(usize) + Sync),
    caller: Thread,
}

// SAFETY: the only non-Sync parts are `region` and the pointer in it. `region` is written only by the
// thread that holds `Pool::region`, while `remaining == 0`, and read by workers only between the
// release-store of `epoch` and their release-decrement of `remaining`, which the writer acquires. The
// pointer's target is `Sync`.
unsafe impl Sync for Shared {}
// SAFETY: as above; nothing in it is bound to a thread.
unsafe impl Send for Shared {}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("epoch", &self.epoch)
            .finish_non_exhaustive()
    }
}

thread_local! {
    /// This thread is inside a task. A nested `run` would wait for itself.
    static IN_TASK: Cell<bool> = const { Cell::new(false) };
}

impl Pool {
    /// Starts `num_threads - 1` workers.
    ///
    /// If the pool takes every processor that this process may use, each worker is pinned to one of
    /// them: the kernel then cannot put two on one core while another idles. A smaller pool
    /// shares the machine with others, who may have had the same idea; it is left to the scheduler.
    ///
    /// # Panics
    ///
    /// If the operating system refuses a thread.
    pub fn new(num_threads: NonZeroUsize) -> Pool {
        let cpus = allowed_cpus();
        let num_threads = num_threads.get();
        let shared = Arc::new(Shared {
            region: UnsafeCell::new(None),
            epoch: AtomicU32::new(0),
            remaining: AtomicUsize::new(0),
            parked: (0..num_threads).map(|_| AtomicBool::new(false)).collect(),
            panic: Mutex::new(None),
            stop: AtomicBool::new(false),
            spin_max: if num_threads > cpus.len() {
                Duration::ZERO
            } else {
                SPIN_MAX
            },
        });
        let workers = (1..num_threads)
            .map(|worker_idx| {
                let shared = Arc::clone(&shared);
                let cpu = (num_threads == cpus.len()).then(|| cpus[worker_idx]);
                let thread = std::thread::Builder::new()
                    .name(format!("compute-{worker_idx}"))
                    .spawn(move || shared.work(worker_idx, cpu))
                    .expect("the operating system starts a compute thread");
                Worker { thread }
            })
            .collect();
        Pool {
            shared,
            workers,
            region: Mutex::new(()),
        }
    }

    /// How many threads are worth starting here: processors in the affinity mask, less if the
    /// control group's quota is lower.
    pub fn num_threads_available() -> NonZeroUsize {
        std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
    }

    /// Workers, the caller included.
    pub fn num_threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Runs `task(worker_idx)` once on every worker and returns when all are done.
    ///
    /// A second caller waits until the first is done.
    ///
    /// # Panics
    ///
    /// If a task panics: all others are awaited first, then the panic goes on in the caller. Also
    /// if called from within a task.
    ///
    /// # Cost
    ///
    /// About 1 µs while workers spin, see the module's words on parking.
    pub fn run(&self, task: &(dyn Fn(usize) + Sync)) {
        assert!(
            !IN_TASK.get(),
            "Pool::run inside a task would wait for itself"
        );
        if self.workers.is_empty() {
            let _inside = InTask::enter();
            return task(0);
        }
        // The lock guards no data that a panic could leave half-made.
        let _one_at_a_time = self.region.lock().unwrap_or_else(PoisonError::into_inner);
        self.start(task);
        let own = {
            let _inside = InTask::enter();
            catch_unwind(AssertUnwindSafe(|| task(0)))
        };
        self.shared
            .wait_as(0, || self.shared.remaining.load(Ordering::Acquire) == 0);
        let theirs = self
            .shared
            .panic
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(payload) = own.err().or(theirs) {
            resume_unwind(payload);
        }
    }

    /// Calls `task(item_idx)` for every item, each by whichever worker is free: for items of unequal
    /// cost. The result must not depend on who computes what.
    ///
    /// # Panics
    ///
    /// As [`Pool::run`].
    pub fn for_each(&self, num_items: usize, task: impl Fn(usize) + Sync) {
        let next = AtomicUsize::new(0);
        self.run(&|_| {
            loop {
                let item_idx = next.fetch_add(1, Ordering::Relaxed);
                if item_idx >= num_items {
                    return;
                }
                task(item_idx);
            }
        });
    }

    /// Calls `task(row_idx, row)` for every row of `rows`, `[num_rows, row_len]`; each worker takes one
    /// range of rows.
    ///
    /// # Panics
    ///
    /// If `rows` is not a whole number of rows; and as [`Pool::run`].
    pub fn for_each_row<T: Send>(
        &self,
        rows: &mut [T],
        row_len: usize,
        task: impl Fn(usize, &mut [T]) + Sync,
    ) {
        if rows.is_empty() {
            return;
        }
        assert!(
            row_len > 0 && rows.len().is_multiple_of(row_len),
            "rows must be whole"
        );
        let num_rows = rows.len() / row_len;
        let disjoint = Disjoint::new(rows);
        self.run(&|worker_idx| {
            for row_idx in partition(num_rows, self.num_threads(), worker_idx) {
                // SAFETY: `partition` gives each row to one worker, which visits it once.
                let row = unsafe { disjoint.slice(row_idx * row_len..(row_idx + 1) * row_len) };
                task(row_idx, row);
            }
        });
    }

    fn start(&self, task: &(dyn Fn(usize) + Sync)) {
        // SAFETY: only the lifetime changes. Workers drop the pointer before they count down
        // `remaining`, and `run` returns (or unwinds) only after `remaining` reached 0.
        let task: *const (dyn Fn(usize) + Sync + 'static) = unsafe { std::mem::transmute(task) };
        let region = Region {
            task,
            caller: std::thread::current(),
        };
        debug_assert_eq!(self.shared.remaining.load(Ordering::Relaxed), 0);
        // SAFETY: `run` holds the region lock and no worker is inside a region, so nobody reads.
        unsafe { *self.shared.region.get() = Some(region) };
        self.shared
            .remaining
            .store(self.workers.len(), Ordering::Relaxed);
        self.wake_all();
    }

    /// Publishes what was written before and wakes who sleeps.
    fn wake_all(&self) {
        // SeqCst here and in `wait_as`: either the worker sees the new epoch before it parks, or we see
        // that it is about to park.
        self.shared.epoch.fetch_add(1, Ordering::SeqCst);
        for (worker, parked) in self.workers.iter().zip(&self.shared.parked[1..]) {
            if parked.load(Ordering::SeqCst) {
                worker.thread.thread().unpark();
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.wake_all();
        for worker in self.workers.drain(..) {
            // A worker catches the panics of its tasks; it has nothing to tell at the end.
            let _ = worker.thread.join();
        }
    }
}

impl Shared {
    /// A worker's life.
    fn work(&self, worker_idx: usize, cpu: Option<usize>) {
        if let Some(cpu) = cpu {
            pin_to(cpu);
        }
        let _inside = InTask::enter();
        let mut seen = 0;
        loop {
            self.wait_as(worker_idx, || self.epoch.load(Ordering::SeqCst) != seen);
            seen = seen.wrapping_add(1);
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            // SAFETY: `epoch` moved, so the caller has written the region, and it will not write again
            // before this worker counts down `remaining`.
            let Region { task, caller } = unsafe { (*self.region.get()).clone() }
                .expect("a region is written before the epoch moves");
            // SAFETY: the target lives until `remaining` is 0.
            let task = unsafe { &*task };
            if let Err(payload) = catch_unwind(AssertUnwindSafe(|| task(worker_idx))) {
                let mut panic = self.panic.lock().unwrap_or_else(PoisonError::into_inner);
                panic.get_or_insert(payload);
            }
            if self.remaining.fetch_sub(1, Ordering::SeqCst) == 1
                && self.parked[0].load(Ordering::SeqCst)
            {
                caller.unpark();
            }
        }
    }

    /// Spins, then parks, until `ready`. Whoever makes it ready unparks this thread if
    /// `parked[worker_idx]` is set.
    fn wait_as(&self, worker_idx: usize, ready: impl Fn() -> bool) {
        let start = Instant::now();
        loop {
            for _ in 0..64 {
                if ready() {
                    return;
                }
                std::hint::spin_loop();
            }
            if start.elapsed() >= self.spin_max {
                break;
            }
        }
        self.parked[worker_idx].store(true, Ordering::SeqCst);
        // The fence orders the flag before the loads in `ready`, whatever their ordering: either the
        // other side sees the flag, or we see what it has done.
        std::sync::atomic::fence(Ordering::SeqCst);
        while !ready() {
            std::thread::park();
        }
        self.parked[worker_idx].store(false, Ordering::Relaxed);
    }
}

/// Marks the current thread as inside a task until dropped.
struct InTask(());

impl InTask {
    fn enter() -> InTask {
        IN_TASK.set(true);
        InTask(())
    }
}

impl Drop for InTask {
    fn drop(&mut self) {
        IN_TASK.set(false);
    }
}

/// The `part_idx`-th of `num_parts` ranges that together are `0..len`, in order; lengths differ by
/// one at most.
///
/// # Panics
///
/// If `part_idx >= num_parts`.
pub fn partition(len: usize, num_parts: usize, part_idx: usize) -> Range<usize> {
    assert!(part_idx < num_parts, "part {part_idx} of {num_parts}");
    let (each, rest) = (len / num_parts, len % num_parts);
    let start = part_idx * each + part_idx.min(rest);
    start..start + each + usize::from(part_idx < rest)
}

/// A mutable slice that several workers write at once, each its own elements.
///
/// Prefer [`Pool::for_each_row`], which is safe; this is for outputs that are split in two
/// directions.
#[derive(Debug)]
pub struct Disjoint<'a, T> {
    start: *mut T,
    len: usize,
    whole: PhantomData<&'a mut [T]>,
}

// SAFETY: it gives out `&mut T` to several threads, as `&mut [T]` split up would; that needs `T: Send`.
unsafe impl<T: Send> Sync for Disjoint<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for Disjoint<'_, T> {}

impl<'a, T> Disjoint<'a, T> {
    /// Takes the slice over.
    pub fn new(slice: &'a mut [T]) -> Disjoint<'a, T> {
        Disjoint {
            start: slice.as_mut_ptr(),
            len: slice.len(),
            whole: PhantomData,
        }
    }

    /// Elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// No elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A pointer to one element, for writers of parts of an element.
    ///
    /// # Panics
    ///
    /// If there is no such element.
    pub fn pointer(&self, idx: usize) -> *mut T {
        assert!(idx < self.len, "element {idx} of {}", self.len);
        // SAFETY: inside the slice.
        unsafe { self.start.add(idx) }
    }

    /// A part of the slice.
    ///
    /// # Panics
    ///
    /// If `range` is not inside the slice.
    ///
    /// # Safety
    ///
    /// No two parts that live at the same time may overlap.
    #[expect(
        clippy::mut_from_ref,
        reason = "the caller promises that parts are disjoint"
    )]
    pub unsafe fn slice(&self, range: Range<usize>) -> &mut [T] {
        assert!(
            range.start <= range.end && range.end <= self.len,
            "part {range:?} of {}",
            self.len
        );
        // SAFETY: inside the slice that `self` borrows mutably; disjointness is the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.len()) }
    }
}

/// The processors that this thread may run on, ascending; never empty.
fn allowed_cpus() -> Vec<usize> {
    let all = match sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU)
            .filter(|&cpu| set.is_set(cpu))
            .collect(),
        Err(_) => Vec::new(),
    };
    if all.is_empty() { vec![0] } else { all }
}

/// Pinning is a wish: a sandbox that forbids it only costs speed.
fn pin_to(cpu: usize) {
    let mut only = CpuSet::new();
    only.set(cpu);
    let _ = sched_setaffinity(None, &only);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(num_threads: usize) -> Pool {
        Pool::new(NonZeroUsize::new(num_threads).expect("at least one"))
    }

    #[test]
    fn every_worker_runs_every_task_once() {
        for num_threads in [1, 2, 3, 7] {
            let pool = pool(num_threads);
            assert_eq!(pool.num_threads(), num_threads);
            let counts: Vec<AtomicUsize> = (0..num_threads).map(|_| AtomicUsize::new(0)).collect();
            for _ in 0..2000 {
                pool.run(&|worker_idx| {
                    counts[worker_idx].fetch_add(1, Ordering::Relaxed);
                });
            }
            for count in counts {
                assert_eq!(count.into_inner(), 2000);
            }
        }
    }

    #[test]
    fn what_a_task_wrote_is_seen_by_the_next_region_whoever_runs_it() {
        let pool = pool(3);
        let mut values = vec![0_u32; 3];
        for turn in 0..3000_u32 {
            let before = values.clone();
            pool.for_each_row(&mut values, 1, |idx, row| {
                row[0] = before[(idx + 1) % 3] + 1
            });
            assert!(values.iter().all(|&value| value == turn + 1));
        }
    }

    #[test]
    fn workers_that_parked_wake_up_again() {
        let pool = pool(2);
        let ran = AtomicUsize::new(0);
        for _ in 0..20 {
            pool.run(&|_| {
                ran.fetch_add(1, Ordering::Relaxed);
            });
            while !pool.shared.parked[1].load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
        }
        assert_eq!(ran.into_inner(), 40);
    }

    #[test]
    fn a_caller_that_waits_long_parks_and_is_woken() {
        let pool = pool(2);
        for _ in 0..20 {
            pool.run(&|worker_idx| {
                while worker_idx == 1 && !pool.shared.parked[0].load(Ordering::SeqCst) {
                    std::thread::yield_now();
                }
            });
        }
    }

    #[test]
    fn a_panic_in_any_worker_reaches_the_caller_and_the_pool_still_works() {
        let pool = pool(3);
        for culprit in 0..3 {
            let result = catch_unwind(AssertUnwindSafe(|| {
                pool.run(&|worker_idx| assert!(worker_idx != culprit, "culprit {culprit}"));
            }));
            let payload = result.expect_err("the panic goes on");
            let words = payload
                .downcast_ref::<String>()
                .expect("a formatted message");
            assert!(words.contains(&format!("culprit {culprit}")));
            let ran = AtomicUsize::new(0);
            pool.run(&|_| {
                ran.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(ran.into_inner(), 3);
        }
    }

    #[test]
    fn a_nested_run_is_refused_instead_of_waiting_for_itself() {
        for num_threads in [1, 2] {
            let pool = pool(num_threads);
            let result = catch_unwind(AssertUnwindSafe(|| pool.run(&|_| pool.run(&|_| ()))));
            assert!(result.is_err());
            pool.run(&|_| ());
        }
    }

    #[test]
    fn several_callers_take_turns() {
        let pool = pool(2);
        let inside = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..300 {
                        pool.run(&|worker_idx| {
                            if worker_idx == 0 {
                                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                                assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1);
                            }
                        });
                    }
                });
            }
        });
    }

    #[test]
    fn claimed_items_are_each_computed_once() {
        let pool = pool(3);
        for num_items in [0, 1, 2, 100] {
            let counts: Vec<AtomicUsize> = (0..num_items).map(|_| AtomicUsize::new(0)).collect();
            pool.for_each(num_items, |item_idx| {
                counts[item_idx].fetch_add(1, Ordering::Relaxed);
            });
            assert!(counts.into_iter().all(|count| count.into_inner() == 1));
        }
    }

    #[test]
    fn parts_cover_the_whole_in_order_and_differ_by_one_at_most() {
        for len in 0..50 {
            for num_parts in 1..9 {
                let parts: Vec<_> = (0..num_parts)
                    .map(|idx| partition(len, num_parts, idx))
                    .collect();
                assert_eq!(
                    parts.iter().cloned().flatten().collect::<Vec<_>>(),
                    (0..len).collect::<Vec<_>>()
                );
                let shortest = parts.iter().map(Range::len).min();
                let longest = parts.iter().map(Range::len).max();
                assert!(longest <= shortest.map(|len| len + 1));
            }
        }
    }
}
