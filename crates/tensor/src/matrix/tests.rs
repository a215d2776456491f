//! Packing and decoding give back what was put in.

use std::num::NonZeroUsize;

use super::*;

fn pool() -> Pool {
    Pool::new(NonZeroUsize::new(2).expect("not zero"))
}

/// A number in 0..1 that only depends on its place.
fn noise(row_idx: usize, idx: usize) -> f32 {
    let hash = (row_idx as u64 * 1_000_003 + idx as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (hash >> 40) as f32 / (1 << 24) as f32
}

fn specs() -> Vec<QuantSpec> {
    let codebook = Some([
        -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113,
    ]);
    let mut specs = Vec::new();
    for group in [GroupLen::Sixteen, GroupLen::ThirtyTwo] {
        for offset in [Offset::Zero(0), Offset::Zero(8), Offset::PerGroup] {
            for (bits, codebook) in [
                (CodeBits::Four, None),
                (CodeBits::Four, codebook),
                (CodeBits::Eight, None),
            ] {
                specs.push(QuantSpec {
                    bits,
                    group,
                    offset,
                    codebook,
                });
            }
        }
    }
    specs
}

#[test]
fn a_row_of_codes_decodes_to_scale_times_code_plus_min() {
    for spec in specs() {
        for (rows, cols) in [(1, 32), (16, 64), (17, 96), (35, 48)] {
            if cols % spec.group.cols() != 0 {
                continue;
            }
            let levels = if spec.bits == CodeBits::Four {
                16.0
            } else {
                256.0
            };
            let fill = |row_idx: usize, row: &mut CodeRow| {
                for (idx, code) in row.codes.iter_mut().enumerate() {
                    *code = (noise(row_idx, idx) * levels) as u8;
                }
                for (idx, scale) in row.scales.iter_mut().enumerate() {
                    *scale = 0.001 + noise(row_idx + 1000, idx);
                }
                for (idx, min) in row.mins.iter_mut().enumerate() {
                    *min = -noise(row_idx + 2000, idx);
                }
            };
            let matrix = Matrix::from_codes(&pool(), spec, rows, cols, fill);
            assert_eq!((matrix.rows(), matrix.cols()), (rows, cols));
            let group = spec.group.cols();
            let mut row = CodeRow {
                codes: vec![0; cols],
                scales: vec![0.0; cols / group],
                mins: vec![
                    0.0;
                    if spec.offset == Offset::PerGroup {
                        cols / group
                    } else {
                        0
                    }
                ],
            };
            for row_idx in 0..rows {
                fill(row_idx, &mut row);
                let mut decoded = vec![0.0; cols];
                matrix.decode_row(row_idx, &mut decoded);
                for (col, value) in decoded.into_iter().enumerate() {
                    let code = row.codes[col];
                    let code = spec
                        .codebook
                        .map_or(f32::from(code), |book| f32::from(book[usize::from(code)]));
                    let scale = row.scales[col / group];
                    let min = match spec.offset {
                        Offset::Zero(zero) => -f32::from(zero) * scale,
                        Offset::PerGroup => row.mins[col / group],
                    };
                    // Half a unit in the last place of f16, of each term; the bias of codebooks adds
                    // and removes 128 scales.
                    let bound = (scale * (code.abs() + 128.0) + min.abs()) * 2.0_f32.powi(-11);
                    assert!(
                        (value - (scale * code + min)).abs() <= bound,
                        "{spec:?} {row_idx} {col}"
                    );
                }
            }
        }
    }
}

#[test]
fn scales_that_come_from_f16_are_kept_exactly_down_to_its_smallest() {
    let spec = QuantSpec {
        bits: CodeBits::Four,
        group: GroupLen::ThirtyTwo,
        offset: Offset::PerGroup,
        codebook: None,
    };
    let halves = [0x0001_u16, 0x03ff, 0x0400, 0x1234, 0x2abc, 0x3c01];
    let number = |idx: usize| half::f16::from_bits(halves[idx % halves.len()]).to_f32();
    let cols = 32 * halves.len();
    let matrix = Matrix::from_codes(&pool(), spec, 3, cols, |row_idx, row| {
        row.codes.fill(1);
        for (idx, scale) in row.scales.iter_mut().enumerate() {
            *scale = number(idx + row_idx);
        }
        row.mins.fill(0.0);
    });
    let mut decoded = vec![0.0; cols];
    for row_idx in 0..3 {
        matrix.decode_row(row_idx, &mut decoded);
        for (col, &value) in decoded.iter().enumerate() {
            assert_eq!(value, number(col / 32 + row_idx));
        }
    }
}

#[test]
fn memory_stays_within_1_3_of_the_file_types() {
    let spec = |bits, offset| QuantSpec {
        bits,
        group: GroupLen::ThirtyTwo,
        offset,
        codebook: None,
    };
    // Bytes of 32 weights in the file: Q4_0, Q4_1, Q4_K, Q8_0.
    for (spec, file_bytes) in [
        (spec(CodeBits::Four, Offset::Zero(8)), 18.0),
        (spec(CodeBits::Four, Offset::PerGroup), 20.0),
        (spec(CodeBits::Four, Offset::PerGroup), 18.0),
        (spec(CodeBits::Eight, Offset::Zero(128)), 34.0),
    ] {
        let matrix = Matrix::from_codes(&pool(), spec, 64, 576, |_, _| ());
        let file = 64.0 * 576.0 / 32.0 * file_bytes;
        assert!(
            matrix.bytes() as f64 <= 1.3 * file,
            "{spec:?}: {} of {file}",
            matrix.bytes()
        );
    }
}

#[test]
fn floats_decode_to_their_nearest_in_the_storage_type() {
    for (rows, cols) in [(1, 1), (16, 32), (19, 33)] {
        for kind in [FloatKind::F32, FloatKind::F16, FloatKind::Bf16] {
            let value_at = |row_idx, col| noise(row_idx, col) - 0.5;
            let matrix = Matrix::from_floats(&pool(), kind, rows, cols, |row_idx, values| {
                for (col, value) in values.iter_mut().enumerate() {
                    *value = value_at(row_idx, col);
                }
            });
            let mut decoded = vec![0.0; cols];
            for row_idx in 0..rows {
                matrix.decode_row(row_idx, &mut decoded);
                for (col, &value) in decoded.iter().enumerate() {
                    let exact = value_at(row_idx, col);
                    let nearest = match kind {
                        FloatKind::F32 => exact,
                        FloatKind::F16 => half::f16::from_f32(exact).to_f32(),
                        FloatKind::Bf16 => half::bf16::from_f32(exact).to_f32(),
                    };
                    assert_eq!(value, nearest);
                }
            }
        }
    }
}

#[test]
#[should_panic(expected = "not whole groups")]
fn columns_that_are_not_whole_groups_are_refused() {
    let spec = specs()[0];
    let _ = Matrix::from_codes(&pool(), spec, 1, 17, |_, _| ());
}
