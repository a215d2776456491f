//! The definition, written to be read.

use super::{OutPanel, Span};
use crate::matrix::{CodePanel, FloatPanel, PANEL_ROWS};
use crate::rows::{BLOCK_COLS, TILE_ROWS};

/// Codes times codes: exact integers within a group, then groups are added up in f32.
///
/// ```text
/// sum over groups of (w_scale * a_scale) * (sum of w_code * a_code) + w_min * (a_scale * sum of a_code)
/// ```
pub(super) fn multiply_codes(panel: CodePanel<'_>, span: &Span<'_>, out: &mut OutPanel<'_>) {
    let group_cols = panel.group.cols();
    let groups_per_block = BLOCK_COLS / group_cols;
    for row_idx in span.range.clone() {
        let (tile, lane) = (span.rows.tile(row_idx / TILE_ROWS), row_idx % TILE_ROWS);
        let mut sums = [0.0; PANEL_ROWS];
        for group_idx in 0..tile.len() * groups_per_block {
            let (block, part) = (
                &tile[group_idx / groups_per_block],
                group_idx % groups_per_block,
            );
            let codes = &block.codes(lane)[part * group_cols..][..group_cols];
            let code_sum = match groups_per_block {
                1 => block.sums[lane],
                _ => block.half_sums[part][lane],
            };
            for (output, sum) in sums.iter_mut().enumerate() {
                let weight = |col| {
                    panel
                        .unpack
                        .code(panel.codes, group_idx * group_cols + col, output)
                };
                let products = codes
                    .iter()
                    .enumerate()
                    .map(|(col, &code)| i32::from(weight(col)) * i32::from(code));
                let dot: i32 = products.sum();
                let (scale, min) = panel.scale_and_min(group_idx, output);
                *sum += (scale * block.scales[lane]) * dot as f32;
                *sum += min * code_sum;
            }
        }
        out.store(row_idx, &sums.map(|sum| sum * panel.factor));
    }
}

/// Floats times floats, column by column.
pub(super) fn multiply_floats(panel: FloatPanel<'_>, span: &Span<'_>, out: &mut OutPanel<'_>) {
    for row_idx in span.range.clone() {
        let mut sums = [0.0; PANEL_ROWS];
        for (col, value) in span.rows.row(row_idx).iter().enumerate() {
            for (output, sum) in sums.iter_mut().enumerate() {
                *sum += panel.value(col, output) * value;
            }
        }
        out.store(row_idx, &sums);
    }
}
