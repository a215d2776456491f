//! Workers that spin briefly, then park: the only threads that compute.
//!
//! The one idea: a forward pass is some hundred parallel regions of tens of microseconds each, so
//! a hand-over must cost well below one, and an idle server must cost nothing. Workers therefore spin
//! for [`SPIN_MAX`] after their last task and then park in the kernel. A worker that spins
//! starts within a microsecond; waking a parked one costs the caller a system call (about 5 µs each) and
//! the worker starts some 50 µs later, which is once per step and not once per operation.
//!
//! ```text
//! caller   write region ── open gate ── claim items ──────── close gate ── spin, then park, until all left
//! worker   spin, then park, until the gate opens ── enter ── claim items ── leave; the last wakes the caller
//! ```
//!
//! Nobody waits for a worker that has not entered: where something else holds its processor, the
//! others do its share. So which worker computes what varies from run to run and must never
//! show in the result: items partition *outputs*, and each output has one fixed order of operations.
//! Not here: queues, work stealing, futures.

use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::marker::PhantomData;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// How long a waiting thread spins before it parks: longer than the serial stretches between the
/// operations of a step, shorter than anybody would notice on an idle machine.
pub const SPIN_MAX: Duration = Duration::from_micros(100);

/// The compute threads. The thread that calls [`Pool::run`] is one of them.
#[derive(Debug)]
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// One region at a time; held by the caller.
    turn: Mutex<()>,
}

/// What the caller and the workers hand over to one another.
struct Shared {
    gate: Gate,
    /// The next item that nobody has claimed.
    next: OwnLine<AtomicUsize>,
    /// The region that the gate leads to. Written by the caller while the gate is closed and nobody is inside;
    /// read by those inside.
    region: UnsafeCell<Option<Region>>,
    /// Per thread (the caller is 0): it is about to park, or parked.
    parked: Box<[AtomicBool]>,
    /// The first panic of a worker in the current region.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    stop: AtomicBool,
    /// Zero where there are more threads than processors: spinning would then keep from running
    /// the very thread that is waited for.
    spin_max: Duration,
}

/// A parallel region: `task(item_idx)` for every item.
#[derive(Clone)]
struct Region {
    /// The lifetime is erased; the caller does not return before all workers have left the region.
    task: *const (dyn Fn(usize) + Sync),
    num_items: usize,
    caller: Thread,
}

/// What is written often by all has a cache line (and its prefetched neighbour) of its own.
#[repr(align(128))]
struct OwnLine<T>(T);

// SAFETY: the only non-Sync part is `region`. It is written only by the thread that holds `Pool::turn`, while
// the gate is closed and nobody is inside, and read only by workers inside. Entering acquires what opening
// released, and the caller's wait for the last to leave acquires what leaving released. The pointer in
// it leads to something `Sync`.
unsafe impl Sync for Shared {}
// SAFETY: as above; nothing in it is bound to a thread.
unsafe impl Send for Shared {}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("num_threads", &self.parked.len())
            .finish_non_exhaustive()
    }
}

/// Lets workers into a region, counts them, and lets nobody in any more once closed.
///
/// ```text
/// bits 63..32: epoch, one more with each region    bit 31: open    bits 30..0: workers inside
/// ```
struct Gate(OwnLine<AtomicU64>);

impl Gate {
    const OPEN: u64 = 1 << 31;

    fn new() -> Gate {
        Gate(OwnLine(AtomicU64::new(0)))
    }

    fn epoch(&self) -> u32 {
        // SeqCst as in `open`.
        (self.0.0.load(Ordering::SeqCst) >> 32) as u32
    }

    /// Starts the next epoch. Only for the caller, while the gate is closed and nobody is inside: then nobody
    /// else writes it.
    fn open(&self) {
        let closed = self.0.0.load(Ordering::Relaxed);
        debug_assert_eq!(closed as u32, 0, "closed, and nobody inside");
        let next_epoch = (closed >> 32).wrapping_add(1) << 32;
        // SeqCst here and in `wait_as`: either a worker sees the new epoch before it parks, or the caller
        // sees that it is about to park.
        self.0.0.store(next_epoch | Gate::OPEN, Ordering::SeqCst);
    }

    /// Whether the caller of this, a worker, is inside now.
    fn try_enter(&self) -> bool {
        let enter = |gate| (gate & Gate::OPEN != 0).then_some(gate + 1);
        self.0
            .0
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, enter)
            .is_ok()
    }

    /// Whether it was the last one.
    fn leave(&self) -> bool {
        // SeqCst: as in `open`, with the caller as the one who parks.
        self.0.0.fetch_sub(1, Ordering::SeqCst) as u32 == 1
    }

    fn close(&self) {
        self.0.0.fetch_and(!Gate::OPEN, Ordering::Relaxed);
    }

    fn is_left(&self) -> bool {
        self.0.0.load(Ordering::Acquire) as u32 == 0
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
            gate: Gate::new(),
            next: OwnLine(AtomicUsize::new(0)),
            region: UnsafeCell::new(None),
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
            .map(|thread_idx| {
                let shared = Arc::clone(&shared);
                let cpu = (num_threads == cpus.len()).then(|| cpus[thread_idx]);
                std::thread::Builder::new()
                    .name(format!("compute-{thread_idx}"))
                    .spawn(move || shared.work(thread_idx, cpu))
                    .expect("the operating system starts a compute thread")
            })
            .collect();
        Pool {
            shared,
            workers,
            turn: Mutex::new(()),
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

    /// Calls `task(part_idx)` once for every part `0..num_threads` and returns when all are done: one part per
    /// thread, unless a thread is late and another has done its part meanwhile. Parts must not
    /// wait for one another.
    ///
    /// # Panics
    ///
    /// As [`Pool::for_each`].
    pub fn run(&self, task: &(dyn Fn(usize) + Sync)) {
        self.for_each(self.num_threads(), task);
    }

    /// Calls `task(item_idx)` once for every item, each by whichever worker is free, and returns when all are
    /// done. A second caller waits until the first is done.
    ///
    /// # Panics
    ///
    /// If a task panics: no more items are begun, what runs is awaited, then the panic goes on in the caller.
    /// Also if called from within a task.
    ///
    /// # Cost
    ///
    /// Below 1 µs while workers spin, see the module's words on parking; some 50 ns an item.
    pub fn for_each(&self, num_items: usize, task: impl Fn(usize) + Sync) {
        assert!(
            !IN_TASK.get(),
            "a parallel region inside a task would wait for itself"
        );
        if self.workers.is_empty() || num_items <= 1 {
            let _inside = InTask::enter();
            return (0..num_items).for_each(task);
        }
        // The lock guards no data that a panic could leave half-made.
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.open(num_items, &task);
        let own = {
            let _inside = InTask::enter();
            self.shared.claim_items(&task, num_items)
        };
        self.shared.gate.close();
        self.shared.wait_as(0, || self.shared.gate.is_left());
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

    /// Calls `task(row_idx, row)` for every row of `rows`, `[num_rows, row_len]`; each part is one
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
        let num_parts = self.num_threads().min(num_rows);
        self.for_each(num_parts, |part_idx| {
            for row_idx in partition(num_rows, num_parts, part_idx) {
                // SAFETY: each row is in one part, which visits it once.
                let row = unsafe { disjoint.slice(row_idx * row_len..(row_idx + 1) * row_len) };
                task(row_idx, row);
            }
        });
    }

    fn open(&self, num_items: usize, task: &(dyn Fn(usize) + Sync)) {
        // SAFETY: only the lifetime changes. The pointer is used only inside the gate, and `for_each` neither
        // returns nor unwinds before the gate is closed and left.
        let task: *const (dyn Fn(usize) + Sync + 'static) = unsafe { std::mem::transmute(task) };
        let region = Region {
            task,
            num_items,
            caller: std::thread::current(),
        };
        // SAFETY: this thread holds `turn`, and the gate is closed and left: nobody reads.
        unsafe { *self.shared.region.get() = Some(region) };
        self.shared.next.0.store(0, Ordering::Relaxed);
        self.shared.gate.open();
        self.wake_parked();
    }

    fn wake_parked(&self) {
        for (worker, parked) in self.workers.iter().zip(&self.shared.parked[1..]) {
            if parked.load(Ordering::SeqCst) {
                worker.thread().unpark();
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.wake_parked();
        for worker in self.workers.drain(..) {
            // A worker catches the panics of its tasks; it has nothing to tell at the end.
            let _ = worker.join();
        }
    }
}

impl Shared {
    /// A worker's life.
    fn work(&self, thread_idx: usize, cpu: Option<usize>) {
        if let Some(cpu) = cpu {
            pin_to(cpu);
        }
        let _inside = InTask::enter();
        let mut seen = 0;
        loop {
            let stop = || self.stop.load(Ordering::SeqCst);
            self.wait_as(thread_idx, || self.gate.epoch() != seen || stop());
            if stop() {
                return;
            }
            // If it moves again before we enter, we enter the later region now and find it closed next time.
            seen = self.gate.epoch();
            if self.gate.try_enter() {
                self.work_inside();
            }
        }
    }

    fn work_inside(&self) {
        // SAFETY: this thread is inside the gate, so the region was written before and stays.
        let region = unsafe { (*self.region.get()).clone() };
        let Region {
            task,
            num_items,
            caller,
        } = region.expect("a region is written before the gate opens");
        // SAFETY: the target lives until all have left.
        let task = unsafe { &*task };
        if let Err(payload) = self.claim_items(task, num_items) {
            self.panic
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .get_or_insert(payload);
        }
        // From here on the region is not ours to look at. The caller may also be one that has parked for
        // a reason of its own; then it wakes for nothing, which parking allows.
        if self.gate.leave() && self.parked[0].load(Ordering::SeqCst) {
            caller.unpark();
        }
    }

    /// Computes items until there are none left, or one panics: then the others stop claiming too.
    fn claim_items(
        &self,
        task: &(dyn Fn(usize) + Sync),
        num_items: usize,
    ) -> Result<(), Box<dyn Any + Send>> {
        let result = catch_unwind(AssertUnwindSafe(|| {
            loop {
                let item_idx = self.next.0.fetch_add(1, Ordering::Relaxed);
                if item_idx >= num_items {
                    return;
                }
                task(item_idx);
            }
        }));
        if result.is_err() {
            self.next.0.store(num_items, Ordering::Relaxed);
        }
        result
    }

    /// Spins, then parks, until `ready`. Whoever makes it ready unparks this thread if
    /// `parked[thread_idx]` is set.
    fn wait_as(&self, thread_idx: usize, ready: impl Fn() -> bool) {
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
        self.parked[thread_idx].store(true, Ordering::SeqCst);
        // The fence orders the flag before the loads in `ready`, whatever their ordering: either the
        // other side sees the flag, or we see what it has done.
        fence(Ordering::SeqCst);
        while !ready() {
            std::thread::park();
        }
        self.parked[thread_idx].store(false, Ordering::Relaxed);
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
mod tests;
