//! The element types of GGML: which exist, which we read, and how large their blocks are.
//!
//! One table, because the numbers are a file format and not ours to choose. Ids that were once in use and have
//! been withdrawn stay listed, so that a file using one is refused by name.
//!
//! Source: `enum ggml_type` and the block structs of GGML, <https://github.com/ggml-org/ggml>.

use std::fmt;

/// An element type we can decode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(non_camel_case_types)]
pub enum GgmlType {
    /// IEEE single.
    F32,
    /// IEEE half.
    F16,
    /// bfloat16.
    BF16,
    /// 4 bits, symmetric, 32 to a block.
    Q4_0,
    /// 4 bits with a minimum, 32 to a block.
    Q4_1,
    /// 5 bits, symmetric, 32 to a block.
    Q5_0,
    /// 5 bits with a minimum, 32 to a block.
    Q5_1,
    /// 8 bits, symmetric, 32 to a block.
    Q8_0,
    /// 2 bits, 16 groups of 16 with 4-bit scales and minimums.
    Q2_K,
    /// 3 bits, 16 groups of 16 with 6-bit scales.
    Q3_K,
    /// 4 bits, 8 groups of 32 with 6-bit scales and minimums.
    Q4_K,
    /// 5 bits, 8 groups of 32 with 6-bit scales and minimums.
    Q5_K,
    /// 6 bits, 16 groups of 16 with 8-bit scales.
    Q6_K,
    /// 4 bits into a table of 16 uneven steps, 32 to a block.
    IQ4_NL,
    /// As `IQ4_NL`, 8 groups of 32 with 6-bit scales.
    IQ4_XS,
    /// 4-bit floats (E2M1) with a power-of-two scale, 32 to a block.
    MXFP4,
}

/// `(type, id, name, values per block, bytes per block)`.
const SUPPORTED: [(GgmlType, u32, &str, usize, usize); 16] = [
    (GgmlType::F32, 0, "F32", 1, 4),
    (GgmlType::F16, 1, "F16", 1, 2),
    (GgmlType::BF16, 30, "BF16", 1, 2),
    (GgmlType::Q4_0, 2, "Q4_0", 32, 18),
    (GgmlType::Q4_1, 3, "Q4_1", 32, 20),
    (GgmlType::Q5_0, 6, "Q5_0", 32, 22),
    (GgmlType::Q5_1, 7, "Q5_1", 32, 24),
    (GgmlType::Q8_0, 8, "Q8_0", 32, 34),
    (GgmlType::Q2_K, 10, "Q2_K", 256, 84),
    (GgmlType::Q3_K, 11, "Q3_K", 256, 110),
    (GgmlType::Q4_K, 12, "Q4_K", 256, 144),
    (GgmlType::Q5_K, 13, "Q5_K", 256, 176),
    (GgmlType::Q6_K, 14, "Q6_K", 256, 210),
    (GgmlType::IQ4_NL, 20, "IQ4_NL", 32, 18),
    (GgmlType::IQ4_XS, 23, "IQ4_XS", 256, 136),
    (GgmlType::MXFP4, 39, "MXFP4", 32, 17),
];

/// Known by name, not read.
const UNSUPPORTED: [(u32, &str); 26] = [
    (4, "Q4_2, withdrawn"),
    (5, "Q4_3, withdrawn"),
    (9, "Q8_1"),
    (15, "Q8_K"),
    (16, "IQ2_XXS"),
    (17, "IQ2_XS"),
    (18, "IQ3_XXS"),
    (19, "IQ1_S"),
    (21, "IQ3_S"),
    (22, "IQ2_S"),
    (24, "I8"),
    (25, "I16"),
    (26, "I32"),
    (27, "I64"),
    (28, "F64"),
    (29, "IQ1_M"),
    (31, "Q4_0_4_4, withdrawn"),
    (32, "Q4_0_4_8, withdrawn"),
    (33, "Q4_0_8_8, withdrawn"),
    (34, "TQ1_0"),
    (35, "TQ2_0"),
    (36, "IQ4_NL_4_4, withdrawn"),
    (37, "IQ4_NL_4_8, withdrawn"),
    (38, "IQ4_NL_8_8, withdrawn"),
    (40, "NVFP4"),
    (41, "Q1_0"),
];

impl GgmlType {
    /// Every supported type, in the order an error lists them.
    pub fn all() -> impl Iterator<Item = GgmlType> {
        SUPPORTED.iter().map(|row| row.0)
    }

    /// The type with this id in a GGUF file, if we read it.
    pub fn from_id(id: u32) -> Option<GgmlType> {
        SUPPORTED.iter().find(|row| row.1 == id).map(|row| row.0)
    }

    /// Its id in a GGUF file.
    pub fn id(self) -> u32 {
        self.row().1
    }

    /// Its name as GGML spells it.
    pub fn name(self) -> &'static str {
        self.row().2
    }

    /// Values in one block: 1 for floats. A row must be a whole number of blocks.
    pub fn block_len(self) -> usize {
        self.row().3
    }

    /// Bytes of one block.
    pub fn block_bytes(self) -> usize {
        self.row().4
    }

    /// Bytes of `num_values` values, or `None` if they are not whole blocks or the size does not fit.
    pub fn bytes_of(self, num_values: usize) -> Option<usize> {
        if !num_values.is_multiple_of(self.block_len()) {
            return None;
        }
        (num_values / self.block_len()).checked_mul(self.block_bytes())
    }

    fn row(self) -> &'static (GgmlType, u32, &'static str, usize, usize) {
        SUPPORTED
            .iter()
            .find(|row| row.0 == self)
            .expect("every variant has its row")
    }
}

impl fmt::Display for GgmlType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A type id we do not read, as it appears in messages: `16 (IQ2_XXS)`, or `255` if nobody knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnsupportedType {
    /// The id in the file.
    pub id: u32,
}

impl UnsupportedType {
    /// The name of the type, if GGML has or had one with this id.
    pub fn name(self) -> Option<&'static str> {
        UNSUPPORTED
            .iter()
            .find(|row| row.0 == self.id)
            .map(|row| row.1)
    }
}

impl fmt::Display for UnsupportedType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{} ({name})", self.id),
            None => write!(f, "{} (unknown)", self.id),
        }
    }
}

/// The supported types as a list for messages.
pub(crate) struct SupportedList;

impl fmt::Display for SupportedList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (idx, ty) in GgmlType::all().enumerate() {
            let separator = if idx == 0 { "" } else { ", " };
            write!(f, "{separator}{ty}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_id_below_42_has_exactly_one_meaning() {
        for id in 0..42 {
            let supported = GgmlType::from_id(id).is_some();
            let refused_by_name = UnsupportedType { id }.name().is_some();
            assert!(supported != refused_by_name, "id {id}");
        }
        assert_eq!(UnsupportedType { id: 255 }.to_string(), "255 (unknown)");
        assert_eq!(
            UnsupportedType { id: 36 }.to_string(),
            "36 (IQ4_NL_4_4, withdrawn)"
        );
    }

    #[test]
    fn sizes_of_partial_blocks_and_overflowing_sizes_do_not_exist() {
        assert_eq!(GgmlType::Q4_K.bytes_of(512), Some(288));
        assert_eq!(GgmlType::Q4_K.bytes_of(511), None);
        assert_eq!(GgmlType::F32.bytes_of(usize::MAX), None);
    }
}
