//! Activations times weight matrices: nearly all the time of a forward pass.
//!
//! ```text
//! out[t, n] = sum over k of weights[n, k] * rows[t, k]
//! ```
//!
//! The one idea: a kernel takes one panel (16 outputs) and eight rows at a time, unpacks the weights once
//! for all eight, and keeps the sums in registers. Alone, a row reads every weight byte once and
//! memory is the limit; among others the same bytes serve eight rows and arithmetic is.
//!
//! **Batch invariance.** Each `out[t, n]` is summed over K in one fixed order by the same operations,
//! whoever the neighbours of `t` are, however many rows a call has, whichever worker takes the panel.
//! Instruction sets may differ from one another within a stated bound ([`relative_error_max`]).
//!
//! `scalar.rs` is the definition; the other files must agree with it. Quantised matrices multiply integers,
//! exactly, within a group of columns, and add up groups in f32.

#[cfg(target_arch = "x86_64")]
mod avx2; // AVX2, and AVX-VNNI on the same registers
#[cfg(target_arch = "x86_64")]
mod avx512; // AVX-512 VNNI, and BF16 dot products
mod scalar; // the definition

use std::ops::Range;

use crate::isa::{FloatIsa, Isa};
use crate::matrix::{CodePanel, FloatPanel, Matrix, PANEL_ROWS, Panels};
use crate::pool::{Disjoint, Pool};
use crate::rows::{Forms, Rows, TILE_ROWS};

/// One matrix of a [`matmul`].
#[derive(Debug)]
pub struct Job<'a> {
    /// `[outputs, cols]`.
    pub weights: &'a Matrix,
    /// `[num_rows, outputs]`.
    pub out: &'a mut [f32],
    /// What happens to what `out` holds.
    pub store: Store,
}

/// What becomes of the old contents of an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// They are replaced.
    Overwrite,
    /// The product is added to them (residual connections).
    Add,
}

/// Multiplies the same rows with several matrices in one parallel region.
///
/// # Shapes
///
/// | argument      | shape                | element |
/// |---------------|----------------------|---------|
/// | `rows`        | `[num_rows, cols]`   | f32, and the forms that the matrices ask for |
/// | `job.weights` | `[outputs, cols]`    | as packed |
/// | `job.out`     | `[num_rows, outputs]`| f32 |
///
/// # Panics
///
/// If shapes do not match, or `rows` lacks a form that a matrix needs ([`Matrix::form`]).
///
/// # Cost
///
/// Reads each weight byte once per 128 rows; `num_rows * outputs * cols` multiply-adds, rounded up to 16
/// outputs.
pub fn matmul(pool: &Pool, rows: &Rows, jobs: &mut [Job<'_>]) {
    matmul_on(Isa::current(), pool, rows, jobs);
}

/// As [`matmul`], by a given instruction set: for tests and measurements.
///
/// # Panics
///
/// As [`matmul`].
pub fn matmul_on(isa: Isa, pool: &Pool, rows: &Rows, jobs: &mut [Job<'_>]) {
    for job in jobs.iter() {
        check(isa, rows, job);
    }
    let num_panels: usize = jobs.iter().map(|job| job.weights.num_panels()).sum();
    let chunk_len = chunk_len(num_panels, pool.num_threads(), rows.num_rows());
    let jobs: Vec<Part<'_>> = jobs.iter_mut().map(Part::of).collect();
    let num_chunks: usize = jobs
        .iter()
        .map(|job| job.num_panels.div_ceil(chunk_len))
        .sum();
    pool.for_each(num_chunks, |chunk_idx| {
        let (job, panels) = locate(&jobs, chunk_len, chunk_idx);
        for first_row in (0..rows.num_rows()).step_by(BLOCK_ROWS) {
            let row_range = first_row..rows.num_rows().min(first_row + BLOCK_ROWS);
            for panel_idx in panels.clone() {
                job.panel_times_rows(isa, panel_idx, rows, row_range.clone());
            }
        }
    });
}

/// Bound on `|isa - scalar|`, relative to the sum over K of
/// `(|scale * code| + |min|) * |activation|`, or of `|weight * activation|` for floats.
///
/// Integers are exact, so for codes only the roundings of two terms a group differ: each sum of `n` terms is within
/// `n` half units of the exact one, on both sides. BF16 dot products also round the activations, by 2^-9.
pub fn relative_error_max(isa: Isa, weights: &Matrix) -> f32 {
    let num_terms = match &weights.panels {
        // A term is a product of three factors.
        Panels::Codes(codes) => 2 * codes.num_groups() + 4,
        Panels::Floats(_) => weights.cols() + 1,
    };
    let activations = if weights.form_on(isa).contains(Forms::BF16) {
        1.0 / 512.0
    } else {
        0.0
    };
    num_terms as f32 * f32::EPSILON + activations
}

/// Rows that go through a chunk of panels before the next rows do: so many stay in the second-level
/// cache meanwhile (1.5 bytes a value).
const BLOCK_ROWS: usize = 128;

/// Panels that a worker claims at a time.
///
/// Many rows: so few that they stay in the second-level cache over all blocks of rows. Few rows: long
/// stretches of memory, but several a worker, so that one who is interrupted leaves some to the others.
fn chunk_len(num_panels: usize, num_threads: usize, num_rows: usize) -> usize {
    const CHUNKS_PER_THREAD: usize = 3;
    const CHUNK_LEN_MAX: usize = 16;
    let chunk_len = num_panels.div_ceil(num_threads * CHUNKS_PER_THREAD).max(1);
    if num_rows > TILE_ROWS {
        chunk_len.min(CHUNK_LEN_MAX)
    } else {
        chunk_len
    }
}

fn check(isa: Isa, rows: &Rows, job: &Job<'_>) {
    let weights = job.weights;
    assert_eq!(
        rows.cols(),
        weights.cols(),
        "the rows' columns are the matrix's inputs"
    );
    assert_eq!(
        job.out.len(),
        rows.num_rows() * weights.rows(),
        "[num_rows, outputs] values"
    );
    assert!(
        rows.forms().contains(weights.form_on(isa)),
        "rows were prepared as {:?}, the matrix multiplies with {:?}",
        rows.forms(),
        weights.form_on(isa)
    );
}

/// A job as workers share it.
struct Part<'a> {
    weights: &'a Matrix,
    num_panels: usize,
    out: Disjoint<'a, f32>,
    store: Store,
}

impl Part<'_> {
    fn of<'a>(job: &'a mut Job<'_>) -> Part<'a> {
        Part {
            weights: job.weights,
            num_panels: job.weights.num_panels(),
            out: Disjoint::new(job.out),
            store: job.store,
        }
    }

    fn panel_times_rows(&self, isa: Isa, panel_idx: usize, rows: &Rows, row_range: Range<usize>) {
        let outputs = self.weights.rows();
        let first = panel_idx * PANEL_ROWS;
        let span = Span {
            rows,
            range: row_range,
        };
        // SAFETY: chunks do not overlap and each is claimed once, so these columns are this worker's alone.
        let mut out = unsafe {
            OutPanel::new(
                &self.out,
                outputs,
                first..outputs.min(first + PANEL_ROWS),
                self.store,
            )
        };
        match &self.weights.panels {
            Panels::Codes(codes) => multiply_codes(isa, codes.panel(panel_idx), &span, &mut out),
            Panels::Floats(floats) => {
                multiply_floats(isa, floats.panel(panel_idx), &span, &mut out)
            }
        }
    }
}

/// The job and its panels that a chunk stands for: chunks run over the jobs one after the other.
fn locate<'a, 'b>(
    jobs: &'a [Part<'b>],
    chunk_len: usize,
    mut chunk_idx: usize,
) -> (&'a Part<'b>, Range<usize>) {
    for job in jobs {
        let num_chunks = job.num_panels.div_ceil(chunk_len);
        if chunk_idx < num_chunks {
            let first = chunk_idx * chunk_len;
            return (job, first..job.num_panels.min(first + chunk_len));
        }
        chunk_idx -= num_chunks;
    }
    unreachable!("there are as many chunks as the jobs have")
}

fn multiply_codes(isa: Isa, panel: CodePanel<'_>, span: &Span<'_>, out: &mut OutPanel<'_>) {
    match isa {
        Isa::Scalar => scalar::multiply_codes(panel, span, out),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2(avx2) => avx2::multiply_codes(avx2, panel, span, out),
        #[cfg(target_arch = "x86_64")]
        Isa::AvxVnni(vnni) => avx2::multiply_codes_vnni(vnni, panel, span, out),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512Vnni(vnni) => avx512::multiply_codes(vnni, panel, span, out),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512Bf16(bf16) => avx512::multiply_codes(bf16.vnni(), panel, span, out),
    }
}

fn multiply_floats(isa: Isa, panel: FloatPanel<'_>, span: &Span<'_>, out: &mut OutPanel<'_>) {
    match (isa.floats(), isa, panel) {
        #[cfg(target_arch = "x86_64")]
        (_, Isa::Avx512Bf16(bf16), FloatPanel::Bf16(pairs)) => {
            avx512::multiply_pairs(bf16, pairs, span, out);
        }
        #[cfg(target_arch = "x86_64")]
        (FloatIsa::Avx512(vnni), ..) => avx512::multiply_floats(vnni, panel, span, out),
        #[cfg(target_arch = "x86_64")]
        (FloatIsa::Avx2(avx2), ..) => avx2::multiply_floats(avx2, panel, span, out),
        (FloatIsa::Scalar, ..) => scalar::multiply_floats(panel, span, out),
    }
}

/// Rows that a kernel is to multiply one panel with; the range starts at a whole tile.
struct Span<'a> {
    rows: &'a Rows,
    range: Range<usize>,
}

/// Fetches the weights that will be needed soon.
///
/// A panel's three streams are each too short for the prefetchers of the hardware: without this one core
/// reads 18 GB/s, with it 45 of the 50 that it can.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
struct Ahead {
    start: *const u8,
    bytes_per_block: usize,
}

#[cfg(target_arch = "x86_64")]
impl Ahead {
    /// Several panels: what a core computes in the time of one access to memory. Between 12 and 32 KiB
    /// makes no difference, 4 KiB halve the gain.
    const DISTANCE: usize = 16 << 10;

    fn of(panel: &CodePanel<'_>, num_blocks: usize) -> Ahead {
        let bytes = panel.codes.len() + size_of_val(panel.scales) + size_of_val(panel.mins);
        let start = panel.codes.as_ptr().wrapping_add(Ahead::DISTANCE);
        Ahead {
            start,
            bytes_per_block: bytes / num_blocks.max(1),
        }
    }

    /// What is as far ahead as a block is long. Panels lie one behind the other, so over a panel this covers a
    /// whole later one, whatever the order within.
    #[inline(always)]
    fn prefetch(self, block_idx: usize) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let start = self.start.wrapping_add(block_idx * self.bytes_per_block);
        for line in 0..self.bytes_per_block.div_ceil(64) {
            // SAFETY: SSE is part of x86-64, and prefetching reads nothing: any address will do.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(line * 64).cast()) };
        }
    }
}

/// The output columns of one panel, in all rows.
struct OutPanel<'a> {
    out: &'a Disjoint<'a, f32>,
    outputs: usize,
    columns: Range<usize>,
    store: Store,
}

impl<'a> OutPanel<'a> {
    /// # Safety
    ///
    /// While it lives nobody else touches these columns of `out`, which is `[_, outputs]`.
    unsafe fn new(
        out: &'a Disjoint<'a, f32>,
        outputs: usize,
        columns: Range<usize>,
        store: Store,
    ) -> OutPanel<'a> {
        debug_assert!(columns.end <= outputs && columns.len() <= PANEL_ROWS);
        OutPanel {
            out,
            outputs,
            columns,
            store,
        }
    }

    /// The panel's 1 to 16 outputs of one row.
    fn row(&mut self, row_idx: usize) -> &mut [f32] {
        let start = row_idx * self.outputs;
        // SAFETY: by the promise to `new` these columns are ours, and `&mut self` allows one row at a time.
        unsafe {
            self.out
                .slice(start + self.columns.start..start + self.columns.end)
        }
    }

    /// Writes or adds one row's sums; those beyond the matrix's outputs are dropped.
    fn store(&mut self, row_idx: usize, sums: &[f32; PANEL_ROWS]) {
        let store = self.store;
        for (value, sum) in self.row(row_idx).iter_mut().zip(sums) {
            *value = match store {
                Store::Overwrite => *sum,
                Store::Add => *value + sum,
            };
        }
    }
}

#[cfg(test)]
mod tests;
