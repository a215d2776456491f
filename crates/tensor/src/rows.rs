//! Activations: `[num_rows, cols]` floats, and the forms that matrices multiply them in.

/// Rows of activations prepared for [`crate::ops::matmul`]: as f32, and as i8 with a scale per
/// 32 columns (plus sums per group of 16) and as bf16, each made only if a matrix needs it.
#[derive(Debug, Default)]
pub struct Rows {}
