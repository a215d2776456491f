//! AVX-512: a block is two registers of values, and half a register of codes.

use std::arch::x86_64::*;

use super::{BLOCK_COLS, Coded, each_block, scale_and_inverse};
use crate::isa::Avx512Vnni;

pub(super) fn code_row(_proof: Avx512Vnni, row: &[f32], emit: impl FnMut(usize, Coded)) {
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    fn entry(row: &[f32], emit: impl FnMut(usize, Coded)) {
        each_block(row, |values| code(values), emit);
    }
    // SAFETY: `_proof` exists, so this machine has these features.
    unsafe { entry(row, emit) }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn code(values: &[f32; BLOCK_COLS]) -> Coded {
    // SAFETY: 32 readable floats.
    let (first, second) = unsafe {
        (
            _mm512_loadu_ps(values.as_ptr()),
            _mm512_loadu_ps(values.as_ptr().add(16)),
        )
    };
    let magnitude = |values| _mm512_castps_si512(_mm512_abs_ps(values));
    let largest = _mm512_reduce_max_epu32(_mm512_max_epu32(magnitude(first), magnitude(second)));
    let Some((scale, inverse)) = scale_and_inverse(largest) else {
        return Coded::no_number();
    };
    // The conversion rounds to nearest even, which nothing in this process changes.
    let inverse = _mm512_set1_ps(inverse);
    let first = _mm512_cvtps_epi32(_mm512_mul_ps(first, inverse));
    let second = _mm512_cvtps_epi32(_mm512_mul_ps(second, inverse));
    let mut codes = [0; BLOCK_COLS];
    // SAFETY: 32 writable bytes.
    unsafe {
        _mm_storeu_si128(codes.as_mut_ptr().cast(), _mm512_cvtepi32_epi8(first));
        _mm_storeu_si128(
            codes.as_mut_ptr().add(16).cast(),
            _mm512_cvtepi32_epi8(second),
        );
    }
    Coded::new(
        codes,
        scale,
        [
            _mm512_reduce_add_epi32(first),
            _mm512_reduce_add_epi32(second),
        ],
    )
}
