//! The operations of a forward pass. Each is one parallel region of the pool, or none if there is
//! little to do: `split_work` decides.

pub mod attention;
pub mod elementwise;
pub mod glu;
pub mod matmul;
pub mod norm;
pub mod rope;

mod math;

pub use matmul::{Job, Store, matmul};

use std::ops::Range;

use crate::pool::{Pool, partition};

/// Below this much work the caller works alone: handing over would take about as long. A unit is
/// what one float of a simple operation costs, some 0.1 ns; so these are about 3 µs.
const UNITS_ALONE_MAX: usize = 32 * 1024;

/// Runs `work` over `0..num_items`, one contiguous range per worker, or all of it in the caller if
/// there is little. What an item computes must not depend on its range: then any division gives
/// the same bits.
pub(crate) fn split_work(
    pool: &Pool,
    num_items: usize,
    units_per_item: usize,
    work: &(dyn Fn(Range<usize>) + Sync),
) {
    let num_workers = pool.num_threads();
    if num_workers == 1 || num_items.saturating_mul(units_per_item) <= UNITS_ALONE_MAX {
        return work(0..num_items);
    }
    pool.run(&|worker_idx| work(partition(num_items, num_workers, worker_idx)));
}
