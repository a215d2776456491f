//! AVX2: a block is four registers of values, and one of codes.

use std::arch::x86_64::*;

use super::{BLOCK_COLS, Coded, each_block, scale_and_inverse};
use crate::isa::Avx2;

pub(super) fn code_row(_proof: Avx2, row: &[f32], emit: impl FnMut(usize, Coded)) {
    #[target_feature(enable = "avx2,fma,f16c")]
    fn entry(row: &[f32], emit: impl FnMut(usize, Coded)) {
        each_block(row, |values| code(values), emit);
    }
    // SAFETY: `_proof` exists, so this machine has these features.
    unsafe { entry(row, emit) }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn code(values: &[f32; BLOCK_COLS]) -> Coded {
    // SAFETY: 8 readable floats from 0, 8, 16 and 24 on.
    let values = [0, 8, 16, 24].map(|at| unsafe { _mm256_loadu_ps(values.as_ptr().add(at)) });
    let no_sign = _mm256_set1_epi32(i32::MAX);
    let [a, b, c, d] = values.map(|values| _mm256_and_si256(_mm256_castps_si256(values), no_sign));
    let largest = _mm256_max_epu32(_mm256_max_epu32(a, b), _mm256_max_epu32(c, d));
    let Some((scale, inverse)) = scale_and_inverse(max_of_8(largest)) else {
        return Coded::no_number();
    };
    // The conversion rounds to nearest even, which nothing in this process changes.
    let inverse = _mm256_set1_ps(inverse);
    let [a, b, c, d] = values.map(|values| _mm256_cvtps_epi32(_mm256_mul_ps(values, inverse)));
    // Packing works within halves of registers: words of 4 columns come out as a0 b0 c0 d0 a1 b1 c1 d1.
    let packed = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
    let packed = _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    let mut codes = [0; BLOCK_COLS];
    // SAFETY: 32 writable bytes.
    unsafe { _mm256_storeu_si256(codes.as_mut_ptr().cast(), packed) };
    let sums = [
        sum_of_8(_mm256_add_epi32(a, b)),
        sum_of_8(_mm256_add_epi32(c, d)),
    ];
    Coded::new(codes, scale, sums)
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn max_of_8(values: __m256i) -> u32 {
    let four = _mm_max_epu32(
        _mm256_castsi256_si128(values),
        _mm256_extracti128_si256::<1>(values),
    );
    let two = _mm_max_epu32(four, _mm_shuffle_epi32::<0b01_00_11_10>(four));
    let one = _mm_max_epu32(two, _mm_shuffle_epi32::<0b10_11_00_01>(two));
    _mm_cvtsi128_si32(one).cast_unsigned()
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn sum_of_8(values: __m256i) -> i32 {
    let four = _mm_add_epi32(
        _mm256_castsi256_si128(values),
        _mm256_extracti128_si256::<1>(values),
    );
    let two = _mm_add_epi32(four, _mm_shuffle_epi32::<0b01_00_11_10>(four));
    let one = _mm_add_epi32(two, _mm_shuffle_epi32::<0b10_11_00_01>(two));
    _mm_cvtsi128_si32(one)
}
