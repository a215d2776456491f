//! Pinned workers that spin briefly, then park.

use std::num::NonZeroUsize;

/// The compute threads. The thread that calls [`Pool::run`] is worker 0.
#[derive(Debug)]
pub struct Pool {}

impl Pool {
    /// Starts `num_threads - 1` workers.
    pub fn new(num_threads: NonZeroUsize) -> Pool {
        let _ = num_threads;
        unimplemented!()
    }
    /// Workers, the caller included.
    pub fn num_threads(&self) -> usize {
        unimplemented!()
    }
    /// Runs `task(worker_idx)` once on every worker and returns when all are done.
    pub fn run(&self, task: &(dyn Fn(usize) + Sync)) {
        let _ = task;
        unimplemented!()
    }
}
