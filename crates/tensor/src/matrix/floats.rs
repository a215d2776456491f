//! Panels of floats.
//!
//! ```text
//! F32, F16   [panel, column, 16 rows]
//! BF16       [panel, column / 2, 16 rows] of pairs, the earlier column in the low half:
//!            what `vdpbf16ps` takes; an odd last column is paired with 0
//! ```

use half::{bf16, f16};

use super::{FloatKind, PANEL_ROWS};
use crate::aligned::Aligned;
use crate::pool::{Disjoint, Pool, partition};

/// A float matrix's panels.
#[derive(Debug)]
pub(crate) struct Floats {
    cols: usize,
    panels: FloatPanels,
}

/// The element type decides the layout.
#[derive(Debug)]
enum FloatPanels {
    F32(Aligned<f32>),
    F16(Aligned<u16>),
    Bf16(Aligned<u32>),
}

/// One panel, as kernels read it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FloatPanel<'a> {
    /// `[cols, 16]`.
    F32(&'a [f32]),
    /// `[cols, 16]`.
    F16(&'a [u16]),
    /// `[ceil(cols / 2), 16]`.
    Bf16(&'a [u32]),
}

impl FloatPanel<'_> {
    /// One value of the panel: the definition of the layout.
    pub(crate) fn value(&self, col: usize, lane: usize) -> f32 {
        match self {
            FloatPanel::F32(values) => values[col * PANEL_ROWS + lane],
            FloatPanel::F16(values) => f16::from_bits(values[col * PANEL_ROWS + lane]).to_f32(),
            FloatPanel::Bf16(pairs) => {
                let pair = pairs[col / 2 * PANEL_ROWS + lane];
                f32::from_bits(if col.is_multiple_of(2) {
                    pair << 16
                } else {
                    pair & 0xffff_0000
                })
            }
        }
    }
}

impl Floats {
    pub(super) fn pack(
        pool: &Pool,
        kind: FloatKind,
        (rows, cols): (usize, usize),
        fill: &(impl Fn(usize, &mut [f32]) + Sync),
    ) -> Floats {
        let panels = match kind {
            FloatKind::F32 => {
                FloatPanels::F32(pack_panels(pool, (rows, cols), 1, fill, |values| values[0]))
            }
            FloatKind::F16 => {
                FloatPanels::F16(pack_panels(pool, (rows, cols), 1, fill, |values| {
                    f16::from_f32(values[0]).to_bits()
                }))
            }
            FloatKind::Bf16 => {
                FloatPanels::Bf16(pack_panels(pool, (rows, cols), 2, fill, |values| {
                    let bits = |value: f32| u32::from(bf16::from_f32(value).to_bits());
                    bits(values[0]) | values.get(1).map_or(0, |&value| bits(value) << 16)
                }))
            }
        };
        Floats { cols, panels }
    }

    pub(super) fn kind(&self) -> FloatKind {
        match self.panels {
            FloatPanels::F32(_) => FloatKind::F32,
            FloatPanels::F16(_) => FloatKind::F16,
            FloatPanels::Bf16(_) => FloatKind::Bf16,
        }
    }

    pub(super) fn bytes(&self) -> usize {
        match &self.panels {
            FloatPanels::F32(values) => size_of_val(&values[..]),
            FloatPanels::F16(values) => size_of_val(&values[..]),
            FloatPanels::Bf16(values) => size_of_val(&values[..]),
        }
    }

    /// # Panics
    ///
    /// If there is no such panel.
    pub(crate) fn panel(&self, panel_idx: usize) -> FloatPanel<'_> {
        let slice =
            |steps: usize| panel_idx * steps * PANEL_ROWS..(panel_idx + 1) * steps * PANEL_ROWS;
        match &self.panels {
            FloatPanels::F32(values) => FloatPanel::F32(&values[slice(self.cols)]),
            FloatPanels::F16(values) => FloatPanel::F16(&values[slice(self.cols)]),
            FloatPanels::Bf16(pairs) => FloatPanel::Bf16(&pairs[slice(self.cols.div_ceil(2))]),
        }
    }

    pub(super) fn decode_row(&self, row_idx: usize, out: &mut [f32]) {
        let panel = self.panel(row_idx / PANEL_ROWS);
        for (col, value) in out.iter_mut().enumerate() {
            *value = panel.value(col, row_idx % PANEL_ROWS);
        }
    }
}

/// `[panel, cols / step_cols, 16]`: `element` makes one of `step_cols` columns of a row (the last of a
/// row may get fewer).
fn pack_panels<T: bytemuck::Pod + Send>(
    pool: &Pool,
    (rows, cols): (usize, usize),
    step_cols: usize,
    fill: &(impl Fn(usize, &mut [f32]) + Sync),
    element: impl Fn(&[f32]) -> T + Sync,
) -> Aligned<T> {
    let num_panels = rows.div_ceil(PANEL_ROWS);
    let panel_len = cols.div_ceil(step_cols) * PANEL_ROWS;
    let total = num_panels
        .checked_mul(panel_len)
        .expect("the size fits the address space");
    let mut elements = Aligned::zeroed_lasting(total);
    let all = Disjoint::new(&mut elements);
    pool.run(&|part_idx| {
        let mut row = vec![0.0; cols];
        for panel_idx in partition(num_panels, pool.num_threads(), part_idx) {
            // SAFETY: each panel is in one part, which visits it once.
            let panel = unsafe { all.slice(panel_idx * panel_len..(panel_idx + 1) * panel_len) };
            let first = panel_idx * PANEL_ROWS;
            for row_idx in first..rows.min(first + PANEL_ROWS) {
                fill(row_idx, &mut row);
                let lanes = panel.chunks_exact_mut(PANEL_ROWS);
                for (values, lanes) in row.chunks(step_cols).zip(lanes) {
                    lanes[row_idx - first] = element(values);
                }
            }
        }
    });
    elements
}
