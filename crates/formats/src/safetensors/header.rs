//! The header of one file: JSON in, checked byte ranges out.

use std::collections::HashSet;
use std::fmt;

use serde::de::{self, Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::{Dtype, SafetensorsError, TensorEntry};
use crate::Limits;

/// Bytes before the JSON: its length.
const PREFIX_BYTES: usize = 8;
/// The one key that is no tensor: free text, of which nothing is needed here.
const METADATA_KEY: &str = "__metadata__";
/// Of a type's name, which is only ever compared and shown: longer than any real one.
const DTYPE_CHARS_SHOWN: usize = 32;

/// Reads the header and checks every tensor against the bytes that are there.
pub(super) fn read(
    file: &[u8],
    shard_idx: usize,
    limits: &Limits,
) -> Result<Vec<TensorEntry>, SafetensorsError> {
    let (json, data) = split(file, limits)?;
    let mut declared = parse(json, limits)?;
    declared.sort_by_key(|tensor| tensor.data_offsets);

    let data_start = file.len() - data.len();
    let data_bytes = data.len() as u64;
    let mut tensors = Vec::with_capacity(declared.len());
    let mut covered_to = 0;
    for tensor in declared {
        let (start, end) = tensor.data_offsets;
        let mut entry = check(tensor, data_bytes)?;
        if start != covered_to {
            return Err(SafetensorsError::NotContiguous {
                tensor: entry.name,
                expected: covered_to,
                found: start,
            });
        }
        covered_to = end;
        // Both ends lie in the file, whose length is a usize.
        entry.range = data_start + start as usize..data_start + end as usize;
        entry.shard_idx = shard_idx;
        tensors.push(entry);
    }
    if covered_to != data_bytes {
        return Err(SafetensorsError::TrailingBytes {
            num_bytes: data_bytes - covered_to,
        });
    }
    Ok(tensors)
}

/// The JSON and the data after it.
fn split<'a>(file: &'a [u8], limits: &Limits) -> Result<(&'a [u8], &'a [u8]), SafetensorsError> {
    let truncated = |needed_bytes: u64, available_bytes: usize| SafetensorsError::Truncated {
        place: "the header".to_owned(),
        needed_bytes,
        available_bytes: available_bytes as u64,
    };
    let Some((prefix, rest)) = file.split_first_chunk::<PREFIX_BYTES>() else {
        return Err(truncated(PREFIX_BYTES as u64, file.len()));
    };
    let json_bytes = u64::from_le_bytes(*prefix);
    if json_bytes > limits.json_bytes_max {
        return Err(SafetensorsError::OverLimit {
            place: "a header",
            found: json_bytes,
            limit: limits.json_bytes_max,
        });
    }
    // Bounded by the limit, so it fits.
    rest.split_at_checked(json_bytes as usize)
        .ok_or_else(|| truncated(json_bytes, rest.len()))
}

/// A tensor as the header declares it.
struct Declared {
    name: String,
    dtype: String,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

/// Compares what a tensor declares with itself and with the data; its place is filled in by the caller.
fn check(declared: Declared, data_bytes: u64) -> Result<TensorEntry, SafetensorsError> {
    let Declared {
        name: tensor,
        dtype,
        shape,
        data_offsets: (start, end),
    } = declared;
    let Some(dtype) = Dtype::from_name(&dtype) else {
        return Err(SafetensorsError::UnknownDtype { tensor, dtype });
    };
    let Some(num_bytes) = end.checked_sub(start) else {
        return Err(SafetensorsError::Backwards { tensor, start, end });
    };
    let Some(checked_shape) = checked_shape(&shape, dtype, num_bytes) else {
        return Err(SafetensorsError::SizeMismatch {
            tensor,
            dtype,
            shape,
            num_bytes,
        });
    };
    if end > data_bytes {
        return Err(SafetensorsError::Truncated {
            place: format!("tensor {tensor:?}"),
            needed_bytes: num_bytes,
            available_bytes: data_bytes.saturating_sub(start),
        });
    }
    Ok(TensorEntry {
        name: tensor,
        dtype,
        shape: checked_shape,
        shard_idx: 0,
        range: 0..0,
    })
}

/// The shape, if it takes exactly `num_bytes`.
fn checked_shape(shape: &[u64], dtype: Dtype, num_bytes: u64) -> Option<Vec<usize>> {
    let size = shape
        .iter()
        .try_fold(dtype.value_bytes() as u64, |size, &dim| {
            size.checked_mul(dim)
        })?;
    if size != num_bytes {
        return None;
    }
    shape.iter().map(|&dim| usize::try_from(dim).ok()).collect()
}

fn parse(json: &[u8], limits: &Limits) -> Result<Vec<Declared>, SafetensorsError> {
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let parsed = deserializer
        .deserialize_map(Tensors { limits })
        .and_then(|tensors| {
            deserializer.end()?;
            Ok(tensors)
        });
    parsed.map_err(|source| SafetensorsError::Header { source })
}

/// Reads the top-level object as a list, so that no two entries can hide one another.
struct Tensors<'a> {
    limits: &'a Limits,
}

impl<'de> Visitor<'de> for Tensors<'_> {
    type Value = Vec<Declared>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Vec<Declared>, A::Error> {
        let mut tensors = Vec::new();
        let mut names = HashSet::new();
        while let Some(name) = map.next_key::<String>()? {
            if name.len() as u64 > self.limits.name_bytes_max {
                return Err(de::Error::custom("a tensor's name is too long"));
            }
            if !names.insert(name.clone()) {
                return Err(de::Error::custom(format!("{name:?} appears twice")));
            }
            if name == METADATA_KEY {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            if tensors.len() as u64 >= self.limits.num_tensors_max {
                let limit = self.limits.num_tensors_max;
                return Err(de::Error::custom(format!("more than {limit} tensors")));
            }
            let fields: Fields = map
                .next_value()
                .map_err(|error| de::Error::custom(format!("tensor {name:?}: {error}")))?;
            tensors.push(Declared {
                name,
                dtype: fields.dtype.chars().take(DTYPE_CHARS_SHOWN).collect(),
                shape: fields.shape.0,
                data_offsets: fields.data_offsets,
            });
        }
        Ok(tensors)
    }
}

/// The value of one entry.
#[derive(serde::Deserialize)]
struct Fields {
    dtype: String,
    shape: Shape,
    data_offsets: (u64, u64),
}

/// A list that refuses to grow past the axes a tensor can have.
struct Shape(Vec<u64>);

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Shape, D::Error> {
        struct Dims;
        impl<'de> Visitor<'de> for Dims {
            type Value = Vec<u64>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a list of at most {} dimensions", Limits::SHAPE_LEN_MAX)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<u64>, A::Error> {
                let mut dims = Vec::new();
                while let Some(dim) = seq.next_element()? {
                    if dims.len() == Limits::SHAPE_LEN_MAX {
                        return Err(de::Error::invalid_length(dims.len() + 1, &self));
                    }
                    dims.push(dim);
                }
                Ok(dims)
            }
        }
        deserializer.deserialize_seq(Dims).map(Shape)
    }
}
