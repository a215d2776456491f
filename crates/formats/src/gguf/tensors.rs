//! The tensor table: names, shapes, types and checked byte ranges.
//!
//! Two kinds of fault are kept apart. If the table itself is broken (a size that overflows, data past the end of
//! the file, an overlap) nothing in the file can be trusted and opening fails. If a tensor is merely of a type
//! we do not read, the file is fine: the tensor is listed with its [`Refusal`], `inspect` can show it, and
//! only asking for its content fails.

use std::collections::HashSet;
use std::ops::Range;

use super::error::{GgufError, Place};
use super::reader::Reader;
use super::value::check_limit;
use crate::Limits;
use crate::ggml::{GgmlType, UnsupportedType};

/// One row of the tensor table.
#[derive(Clone, Debug)]
pub struct TensorEntry {
    /// Its name.
    pub name: String,
    /// Its shape, fastest axis first: `dims[0]` is the length of a row. One to four axes, none zero.
    pub dims: Vec<usize>,
    /// Its element type, or why we cannot read it.
    pub ty: Result<GgmlType, Refusal>,
    /// Where it lies in the file. Empty if the type is refused: then nobody knows its size.
    pub(super) range: Range<usize>,
}

impl TensorEntry {
    /// Number of values.
    pub fn num_values(&self) -> usize {
        self.dims.iter().product()
    }

    /// Bytes in the file; 0 if the type is refused.
    pub fn num_bytes(&self) -> usize {
        self.range.len()
    }

    /// The error that asking for the content of this tensor gives.
    pub(super) fn refusal_error(&self, refusal: Refusal) -> GgufError {
        let tensor = self.name.clone();
        match refusal {
            Refusal::Type(ty) => GgufError::UnsupportedType { tensor, ty },
            Refusal::PartialBlock(ty) => GgufError::PartialBlock {
                tensor,
                ty,
                row_len: self.dims[0],
            },
        }
    }
}

/// Why a tensor of a sound file cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// We do not know how to decode its type.
    Type(UnsupportedType),
    /// Its rows are not whole blocks of its type.
    PartialBlock(GgmlType),
}

/// A tensor's content, borrowed from the file.
#[derive(Clone, Copy, Debug)]
pub struct TensorView<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its shape, fastest axis first: `dims[0]` is the length of a row.
    pub dims: &'a [usize],
    /// Its element type.
    pub ty: GgmlType,
    /// All rows, one after the other, each a whole number of blocks.
    pub bytes: &'a [u8],
}

impl<'a> TensorView<'a> {
    /// Values in a row.
    pub fn row_len(&self) -> usize {
        self.dims[0]
    }

    /// Rows, over all further axes.
    pub fn num_rows(&self) -> usize {
        self.dims[1..].iter().product()
    }

    /// The bytes of row `row_idx`.
    ///
    /// # Panics
    ///
    /// If there is no such row.
    pub fn row(&self, row_idx: usize) -> &'a [u8] {
        let row_bytes = self.bytes.len() / self.num_rows();
        &self.bytes[row_idx * row_bytes..(row_idx + 1) * row_bytes]
    }
}

/// A row of the table as read, before the start of the data is known.
struct Declared {
    entry: TensorEntry,
    offset: u64,
    num_bytes: u64,
}

/// Reads the table and checks every tensor against the bytes that are there.
pub(super) fn read_table(
    reader: &mut Reader<'_>,
    num_tensors: u64,
    alignment: u32,
    limits: &Limits,
) -> Result<Vec<TensorEntry>, GgufError> {
    let mut declared = Vec::new();
    let mut names = HashSet::new();
    for idx in 0..num_tensors {
        let row = read_row(reader, idx, alignment, limits)?;
        if !names.insert(row.entry.name.clone()) {
            return Err(GgufError::Duplicate {
                place: Place::Tensor(row.entry.name),
            });
        }
        declared.push(row);
    }
    let data_start = (reader.position() as u64).next_multiple_of(u64::from(alignment));
    let file_bytes = reader.position() as u64 + reader.bytes_left();
    let data_bytes = file_bytes.saturating_sub(data_start);
    let tensors: Vec<TensorEntry> = declared
        .into_iter()
        .map(|row| place_row(row, data_start, data_bytes))
        .collect::<Result<_, _>>()?;
    check_overlaps(&tensors)?;
    Ok(tensors)
}

fn read_row(
    reader: &mut Reader<'_>,
    idx: u64,
    alignment: u32,
    limits: &Limits,
) -> Result<Declared, GgufError> {
    let name = read_name(reader, || Place::TensorAt(idx), limits)?;
    let place = || Place::Tensor(name.clone());
    let num_dims = reader.u32().map_err(|short| short.at(place()))?;
    check_limit(
        place,
        "dimensions",
        u64::from(num_dims),
        u64::from(limits.num_dims_max),
    )?;
    let wide_dims: Vec<u64> = (0..num_dims)
        .map(|_| reader.u64())
        .collect::<Result<_, _>>()
        .map_err(|short| short.at(place()))?;
    let type_id = reader.u32().map_err(|short| short.at(place()))?;
    let offset = reader.u64().map_err(|short| short.at(place()))?;

    if wide_dims.is_empty() || wide_dims.contains(&0) {
        return Err(GgufError::EmptyTensor {
            place: place(),
            dims: wide_dims,
        });
    }
    if !offset.is_multiple_of(u64::from(alignment)) {
        return Err(GgufError::Misaligned {
            place: place(),
            offset,
            alignment,
        });
    }
    let Some((dims, num_values)) = checked_shape(&wide_dims) else {
        return Err(GgufError::SizeOverflow {
            place: place(),
            dims: wide_dims,
        });
    };
    let ty = match GgmlType::from_id(type_id) {
        None => Err(Refusal::Type(UnsupportedType { id: type_id })),
        Some(ty) if !dims[0].is_multiple_of(ty.block_len()) => Err(Refusal::PartialBlock(ty)),
        Some(ty) => Ok(ty),
    };
    let num_bytes = match ty {
        Ok(ty) => match ty.bytes_of(num_values) {
            Some(num_bytes) => num_bytes as u64,
            None => {
                return Err(GgufError::SizeOverflow {
                    place: place(),
                    dims: wide_dims,
                });
            }
        },
        Err(_) => 0,
    };
    Ok(Declared {
        entry: TensorEntry {
            name,
            dims,
            ty,
            range: 0..0,
        },
        offset,
        num_bytes,
    })
}

/// The dimensions and their product, if all of it fits the address space.
fn checked_shape(wide_dims: &[u64]) -> Option<(Vec<usize>, usize)> {
    let dims: Vec<usize> = wide_dims
        .iter()
        .map(|&dim| usize::try_from(dim).ok())
        .collect::<Option<_>>()?;
    let num_values = dims
        .iter()
        .try_fold(1usize, |product, &dim| product.checked_mul(dim))?;
    Some((dims, num_values))
}

/// Reads a length-prefixed name and checks it.
pub(super) fn read_name(
    reader: &mut Reader<'_>,
    place: impl Fn() -> Place,
    limits: &Limits,
) -> Result<String, GgufError> {
    let len = reader.u64().map_err(|short| short.at(place()))?;
    check_limit(&place, "name bytes", len, limits.name_bytes_max)?;
    let bytes = reader.take(len).map_err(|short| short.at(place()))?;
    match std::str::from_utf8(bytes) {
        Ok(name) if !name.is_empty() => Ok(name.to_owned()),
        _ => Err(GgufError::BadName { place: place() }),
    }
}

/// Turns an offset into a range of the file. Compares without adding, so nothing can wrap.
fn place_row(row: Declared, data_start: u64, data_bytes: u64) -> Result<TensorEntry, GgufError> {
    let Declared {
        mut entry,
        offset,
        num_bytes,
    } = row;
    let available_bytes = data_bytes.saturating_sub(offset);
    if offset > data_bytes || num_bytes > available_bytes {
        let place = Place::Tensor(entry.name);
        return Err(GgufError::Truncated {
            place,
            needed_bytes: num_bytes,
            available_bytes,
        });
    }
    // Both ends lie in the file, whose length is a usize.
    let start = (data_start + offset) as usize;
    entry.range = start..start + num_bytes as usize;
    Ok(entry)
}

fn check_overlaps(tensors: &[TensorEntry]) -> Result<(), GgufError> {
    let mut by_start: Vec<&TensorEntry> = tensors
        .iter()
        .filter(|tensor| tensor.num_bytes() > 0)
        .collect();
    by_start.sort_by_key(|tensor| tensor.range.start);
    for pair in by_start.windows(2) {
        let [first, second] = [pair[0], pair[1]];
        if second.range.start < first.range.end {
            return Err(GgufError::Overlap {
                first: first.name.clone(),
                second: second.name.clone(),
            });
        }
    }
    Ok(())
}
