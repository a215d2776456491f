//! Floats to the bytes of a tensor, in the few types the tiny models use.
//!
//! Plain round-to-nearest quantising, for test data only.

use half::{bf16, f16};

/// How to store a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(non_camel_case_types)]
pub enum Encoding {
    /// 32-bit floats.
    F32,
    /// IEEE half.
    F16,
    /// bfloat16.
    BF16,
    /// 8 bits per value, blocks of 32.
    Q8_0,
    /// 4 bits per value, blocks of 32.
    Q4_0,
    /// 4 bits per value and a minimum, blocks of 32.
    Q4_1,
}

impl Encoding {
    /// All of them.
    pub const ALL: [Encoding; 6] = [
        Encoding::F32,
        Encoding::F16,
        Encoding::BF16,
        Encoding::Q8_0,
        Encoding::Q4_0,
        Encoding::Q4_1,
    ];

    /// The id of the type in a GGUF file.
    pub fn type_id(self) -> u32 {
        match self {
            Encoding::F32 => 0,
            Encoding::F16 => 1,
            Encoding::BF16 => 30,
            Encoding::Q4_0 => 2,
            Encoding::Q4_1 => 3,
            Encoding::Q8_0 => 8,
        }
    }

    /// The bytes of `values`.
    ///
    /// # Panics
    ///
    /// If the type has blocks of 32 and `values` is not a whole number of them.
    pub fn encode(self, values: &[f32]) -> Vec<u8> {
        match self {
            Encoding::F32 => values
                .iter()
                .flat_map(|value| value.to_le_bytes())
                .collect(),
            Encoding::F16 => values
                .iter()
                .flat_map(|&value| f16::from_f32(value).to_le_bytes())
                .collect(),
            Encoding::BF16 => values
                .iter()
                .flat_map(|&value| bf16::from_f32(value).to_le_bytes())
                .collect(),
            Encoding::Q8_0 => blocks(values, q8_0),
            Encoding::Q4_0 => blocks(values, q4_0),
            Encoding::Q4_1 => blocks(values, q4_1),
        }
    }
}

fn blocks(values: &[f32], encode: fn(&[f32; 32], &mut Vec<u8>)) -> Vec<u8> {
    let (blocks, rest) = values.as_chunks::<32>();
    assert!(
        rest.is_empty(),
        "{} values are not whole blocks of 32",
        values.len()
    );
    let mut bytes = Vec::new();
    for block in blocks {
        encode(block, &mut bytes);
    }
    bytes
}

fn q8_0(block: &[f32; 32], bytes: &mut Vec<u8>) {
    let largest = block
        .iter()
        .fold(0.0f32, |largest, value| largest.max(value.abs()));
    let scale = largest / 127.0;
    bytes.extend(f16::from_f32(scale).to_le_bytes());
    bytes.extend(block.map(|value| code(value, scale, -127.0, 127.0) as i8 as u8));
}

fn q4_0(block: &[f32; 32], bytes: &mut Vec<u8>) {
    let largest = block
        .iter()
        .fold(0.0f32, |largest, value| largest.max(value.abs()));
    let scale = largest / 7.0;
    bytes.extend(f16::from_f32(scale).to_le_bytes());
    bytes.extend(nibbles(
        block.map(|value| (code(value, scale, -8.0, 7.0) + 8.0) as u8),
    ));
}

fn q4_1(block: &[f32; 32], bytes: &mut Vec<u8>) {
    let smallest = block.iter().copied().fold(f32::INFINITY, f32::min);
    let largest = block.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let scale = (largest - smallest) / 15.0;
    bytes.extend(f16::from_f32(scale).to_le_bytes());
    bytes.extend(f16::from_f32(smallest).to_le_bytes());
    bytes.extend(nibbles(
        block.map(|value| code(value - smallest, scale, 0.0, 15.0) as u8),
    ));
}

/// The nearest code to `value`; 0 in a block of zeros.
fn code(value: f32, scale: f32, smallest: f32, largest: f32) -> f32 {
    if scale == 0.0 {
        0.0
    } else {
        (value / scale).round().clamp(smallest, largest)
    }
}

/// Two codes a byte: the first half of a block in the low nibbles, the second in the high ones.
fn nibbles(codes: [u8; 32]) -> [u8; 16] {
    std::array::from_fn(|idx| codes[idx] | codes[idx + 16] << 4)
}
