//! One function per block format: bytes of a block to its codes, scales and minimums.
//!
//! Each is the layout drawn above it, and nothing else. All lengths are in the types, so no index is checked
//! at run time and the loops over 32 neighbours become vector code.
//!
//! In the drawings `d` and `m` are halves, `e` a byte exponent, a number in brackets is a count of bytes; nibbles of
//! 16 bytes are the codes of 32 values, the first half in the low nibbles, the second in the high ones.
//!
//! Source: the block structs of GGML, <https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h>.

use half::f16;

use super::CodesMut;

/// Where one block of `LEN` values in `GROUPS` groups goes.
pub(super) struct Block<'a, const LEN: usize, const GROUPS: usize> {
    codes: &'a mut [u8; LEN],
    scales: &'a mut [f32; GROUPS],
    /// A scratch area if the layout has no minimums.
    mins: &'a mut [f32; GROUPS],
}

/// Blocks of 32 values, one group.
type Small<'a> = Block<'a, 32, 1>;
/// Blocks of 256 values in groups of 32.
type Wide<'a> = Block<'a, 256, 8>;
/// Blocks of 256 values in groups of 16.
type Fine<'a> = Block<'a, 256, 16>;

/// Runs `decode` over every block. The caller has checked that all lengths agree.
pub(super) fn each<const BYTES: usize, const LEN: usize, const GROUPS: usize>(
    bytes: &[u8],
    out: CodesMut<'_>,
    decode: impl Fn(&[u8; BYTES], Block<'_, LEN, GROUPS>),
) {
    let (blocks, rest) = bytes.as_chunks::<BYTES>();
    debug_assert!(rest.is_empty());
    let codes = out.codes.as_chunks_mut::<LEN>().0;
    let scales = out.scales.as_chunks_mut::<GROUPS>().0;
    let mut mins = out.mins.as_chunks_mut::<GROUPS>().0.iter_mut();
    let mut scratch = [0.0; GROUPS];
    for ((block, codes), scales) in blocks.iter().zip(codes).zip(scales) {
        let mins = mins.next().unwrap_or(&mut scratch);
        decode(
            block,
            Block {
                codes,
                scales,
                mins,
            },
        );
    }
}

/// The half at byte `at`.
fn half(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// `N` bytes from byte `at`. With constant arguments all of it folds away.
fn part<const N: usize>(block: &[u8], at: usize) -> &[u8; N] {
    block[at..]
        .first_chunk()
        .expect("the layouts below stay inside their blocks")
}

/// `N` codes from `at` on.
fn part_mut<const N: usize>(codes: &mut [u8], at: usize) -> &mut [u8; N] {
    codes[at..]
        .first_chunk_mut()
        .expect("the layouts below stay inside their blocks")
}

/// 32 codes from 16 bytes: first the low nibbles, then the high ones.
fn nibbles(bytes: &[u8; 16], codes: &mut [u8; 32]) {
    for (idx, byte) in bytes.iter().enumerate() {
        codes[idx] = byte & 15;
        codes[idx + 16] = byte >> 4;
    }
}

/// Sets bit 4 of each of 32 codes from the bits of one word.
fn fifth_bits(word: &[u8; 4], codes: &mut [u8; 32]) {
    let word = u32::from_le_bytes(*word);
    for (idx, code) in codes.iter_mut().enumerate() {
        *code |= ((word >> idx & 1) as u8) << 4;
    }
}

/// `| d | nibbles (16) |`
pub(super) fn q4_0(block: &[u8; 18], out: Small<'_>) {
    out.scales[0] = half(block, 0);
    nibbles(part(block, 2), out.codes);
}

/// `| d | m | nibbles (16) |`
pub(super) fn q4_1(block: &[u8; 20], out: Small<'_>) {
    out.scales[0] = half(block, 0);
    out.mins[0] = half(block, 2);
    nibbles(part(block, 4), out.codes);
}

/// `| d | fifth bits (4) | nibbles (16) |`
pub(super) fn q5_0(block: &[u8; 22], out: Small<'_>) {
    out.scales[0] = half(block, 0);
    nibbles(part(block, 6), out.codes);
    fifth_bits(part(block, 2), out.codes);
}

/// `| d | m | fifth bits (4) | nibbles (16) |`
pub(super) fn q5_1(block: &[u8; 24], out: Small<'_>) {
    out.scales[0] = half(block, 0);
    out.mins[0] = half(block, 2);
    nibbles(part(block, 8), out.codes);
    fifth_bits(part(block, 4), out.codes);
}

/// `| d | signed bytes (32) |`. Codes are the bytes plus 128, to be unsigned like all others.
pub(super) fn q8_0(block: &[u8; 34], out: Small<'_>) {
    out.scales[0] = half(block, 0);
    for (code, byte) in out.codes.iter_mut().zip(part::<32>(block, 2)) {
        *code = byte ^ 0x80;
    }
}

/// `| scale and minimum nibbles (16) | 2-bit codes (64) | d | dmin |`
///
/// Each half of the block (128 values) has 32 bytes; bit pair `p` of byte `l` is value `32 p + l` of the half.
pub(super) fn q2_k(block: &[u8; 84], out: Fine<'_>) {
    let (d, d_min) = (half(block, 80), half(block, 82));
    for (group, byte) in part::<16>(block, 0).iter().enumerate() {
        out.scales[group] = d * f32::from(byte & 15);
        out.mins[group] = -(d_min * f32::from(byte >> 4));
    }
    bit_pairs(part(block, 16), out.codes);
}

fn bit_pairs(bytes: &[u8; 64], codes: &mut [u8; 256]) {
    for half_idx in 0..2 {
        let bytes = part::<32>(bytes, 32 * half_idx);
        for pair in 0..4 {
            let codes = part_mut::<32>(codes, 128 * half_idx + 32 * pair);
            for (code, byte) in codes.iter_mut().zip(bytes) {
                *code = byte >> (2 * pair) & 3;
            }
        }
    }
}

/// `| third bits (32) | 2-bit codes (64) | scales (12) | d |`
///
/// Bit `b` of byte `l` of the third bits belongs to value `32 b + l`. Scales have 6 bits and stand for themselves
/// less 32: scale `g` has its low nibble in byte `g % 8` and its two high bits in byte `8 + g % 4`.
pub(super) fn q3_k(block: &[u8; 110], out: Fine<'_>) {
    let d = half(block, 108);
    let packed = part::<12>(block, 96);
    for group in 0..16 {
        let low = packed[group % 8] >> (4 * (group / 8)) & 15;
        let high = packed[8 + group % 4] >> (2 * (group / 4)) & 3;
        out.scales[group] = d * f32::from((low | high << 4) as i8 - 32);
    }
    bit_pairs(part(block, 32), out.codes);
    single_bits(part(block, 0), out.codes, 2);
}

/// Sets bit `to` of the codes: bit `b` of byte `l` belongs to value `32 b + l`.
fn single_bits(bytes: &[u8; 32], codes: &mut [u8; 256], to: u32) {
    for bit in 0..8 {
        let codes = part_mut::<32>(codes, 32 * bit);
        for (code, byte) in codes.iter_mut().zip(bytes) {
            *code |= (byte >> bit & 1) << to;
        }
    }
}

/// `| d | dmin | scales and minimums (12) | nibbles (128) |`
pub(super) fn q4_k(block: &[u8; 144], out: Wide<'_>) {
    scales_and_mins(block, out.scales, out.mins);
    wide_nibbles(part(block, 16), out.codes);
}

/// `| d | dmin | scales and minimums (12) | fifth bits (32) | nibbles (128) |`
pub(super) fn q5_k(block: &[u8; 176], out: Wide<'_>) {
    scales_and_mins(block, out.scales, out.mins);
    wide_nibbles(part(block, 48), out.codes);
    single_bits(part(block, 16), out.codes, 4);
}

/// The head that Q4_K and Q5_K share: eight 6-bit scales and eight 6-bit minimums in 12 bytes.
///
/// ```text
/// byte 0..4    high bits of scale 4..8 (2) | scale 0..4 (6)
/// byte 4..8    high bits of min   4..8 (2) | min   0..4 (6)
/// byte 8..12   low bits  of min   4..8 (4) | low bits of scale 4..8 (4)
/// ```
fn scales_and_mins(block: &[u8], scales: &mut [f32; 8], mins: &mut [f32; 8]) {
    let (d, d_min) = (half(block, 0), half(block, 2));
    let packed = part::<12>(block, 4);
    for idx in 0..4 {
        let (first, second, third) = (packed[idx], packed[idx + 4], packed[idx + 8]);
        scales[idx] = d * f32::from(first & 63);
        mins[idx] = -(d_min * f32::from(second & 63));
        scales[idx + 4] = d * f32::from(third & 15 | first >> 6 << 4);
        mins[idx + 4] = -(d_min * f32::from(third >> 4 | second >> 6 << 4));
    }
}

/// Each 32 bytes hold 64 values: 32 in the low nibbles, 32 in the high ones.
fn wide_nibbles(bytes: &[u8; 128], codes: &mut [u8; 256]) {
    for quarter in 0..4 {
        let bytes = part::<32>(bytes, 32 * quarter);
        let codes = part_mut::<64>(codes, 64 * quarter);
        for (idx, byte) in bytes.iter().enumerate() {
            codes[idx] = byte & 15;
            codes[idx + 32] = byte >> 4;
        }
    }
}

/// `| low nibbles (128) | high bit pairs (64) | signed scales (16) | d |`
///
/// Each half of the block (128 values) has 64 bytes of low nibbles, low ones first, and 32 bytes of pairs.
pub(super) fn q6_k(block: &[u8; 210], out: Fine<'_>) {
    let d = half(block, 208);
    for (scale, byte) in out.scales.iter_mut().zip(part::<16>(block, 192)) {
        *scale = d * f32::from(*byte as i8);
    }
    for half_idx in 0..2 {
        let low = part::<64>(block, 64 * half_idx);
        let high = part::<32>(block, 128 + 32 * half_idx);
        let codes = part_mut::<128>(out.codes, 128 * half_idx);
        for (idx, pairs) in high.iter().enumerate() {
            codes[idx] = low[idx] & 15 | (pairs & 3) << 4;
            codes[idx + 32] = low[idx + 32] & 15 | (pairs >> 2 & 3) << 4;
            codes[idx + 64] = low[idx] >> 4 | (pairs >> 4 & 3) << 4;
            codes[idx + 96] = low[idx + 32] >> 4 | (pairs >> 6) << 4;
        }
    }
}

/// `| d | nibbles (16) |`
pub(super) fn iq4_nl(block: &[u8; 18], out: Small<'_>) {
    q4_0(block, out);
}

/// `| d | high bit pairs of scales (2) | low nibbles of scales (4) | nibbles (8 times 16) |`
///
/// Scales have 6 bits and stand for themselves less 32.
pub(super) fn iq4_xs(block: &[u8; 136], out: Wide<'_>) {
    let d = half(block, 0);
    let high = u16::from_le_bytes(*part(block, 2));
    let low = part::<4>(block, 4);
    for group in 0..8 {
        let low = low[group / 2] >> (4 * (group % 2)) & 15;
        let high = (high >> (2 * group) & 3) as u8;
        out.scales[group] = d * f32::from((low | high << 4) as i8 - 32);
        nibbles(part(block, 8 + 16 * group), part_mut(out.codes, 32 * group));
    }
}

/// `| e | nibbles (16) |`: the scale is 2^(e - 127), halved because the codebook is doubled.
pub(super) fn mxfp4(block: &[u8; 17], out: Small<'_>) {
    // 2^-128 and 2^-127 are below the normal range of an f32. e = 255 is 2^127 here, as in the reference, although
    // the MX specification calls it NaN.
    out.scales[0] = match block[0] {
        e @ 0..2 => f32::from_bits(0x0020_0000 << e),
        e => f32::from_bits(u32::from(e - 1) << 23),
    };
    nibbles(part(block, 1), out.codes);
}
