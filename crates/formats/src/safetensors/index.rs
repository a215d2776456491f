//! The index of a sharded model: which tensor is in which file.
//!
//! Shards are opened only from the folder of the index. A tensor that a shard holds but the index does not name is left
//! out, as the reference loader does.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::{Component, Path};

use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};

use super::{Safetensors, SafetensorsError, TensorEntry, header};
use crate::Limits;
use crate::mapped::FileBytes;

#[derive(serde::Deserialize)]
struct Index {
    weight_map: WeightMap,
}

/// Tensor name to shard name, sorted, without duplicates.
struct WeightMap(BTreeMap<String, String>);

impl<'de> Deserialize<'de> for WeightMap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<WeightMap, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = BTreeMap<String, String>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object from tensor names to file names")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = BTreeMap::new();
                while let Some(tensor) = map.next_key::<String>()? {
                    let shard = map.next_value().map_err(|error| {
                        de::Error::custom(format!("tensor {tensor:?}: {error}"))
                    })?;
                    if entries.contains_key(&tensor) {
                        return Err(de::Error::custom(format!(
                            "tensor {tensor:?} appears twice"
                        )));
                    }
                    entries.insert(tensor, shard);
                }
                Ok(entries)
            }
        }
        deserializer.deserialize_map(Entries).map(WeightMap)
    }
}

/// Opens every shard that the index names.
pub(super) fn open(path: &Path, limits: &Limits) -> Result<Safetensors, SafetensorsError> {
    let open_error = |source| SafetensorsError::Open {
        path: path.to_owned(),
        source,
    };
    let json = FileBytes::map(path).map_err(open_error)?;
    let json_bytes = json.as_slice().len() as u64;
    if json_bytes > limits.json_bytes_max {
        return Err(SafetensorsError::OverLimit {
            place: "an index",
            found: json_bytes,
            limit: limits.json_bytes_max,
        });
    }
    let index: Index = serde_json::from_slice(json.as_slice())
        .map_err(|source| SafetensorsError::Index { source })?;
    let folder = path.parent().unwrap_or(Path::new(""));
    open_shards(folder, index.weight_map, limits)
}

fn open_shards(
    folder: &Path,
    WeightMap(weight_map): WeightMap,
    limits: &Limits,
) -> Result<Safetensors, SafetensorsError> {
    let first_tensor_by_shard = shards_of(&weight_map, limits)?;
    let mut shards = Vec::new();
    let mut found: HashMap<(&str, String), TensorEntry> = HashMap::new();
    for (&shard, &tensor) in &first_tensor_by_shard {
        let file = FileBytes::map(&folder.join(shard)).map_err(|source| {
            SafetensorsError::ShardMissing {
                shard: shard.to_owned(),
                tensor: tensor.to_owned(),
                source,
            }
        })?;
        let entries = header::read(file.as_slice(), shards.len(), limits).map_err(|source| {
            SafetensorsError::Shard {
                shard: shard.to_owned(),
                source: Box::new(source),
            }
        })?;
        shards.push(file);
        found.extend(
            entries
                .into_iter()
                .map(|entry| ((shard, entry.name.clone()), entry)),
        );
    }
    let mut tensors = Vec::new();
    for (tensor, shard) in &weight_map {
        let entry = found
            .remove(&(shard.as_str(), tensor.clone()))
            .ok_or_else(|| SafetensorsError::NotInShard {
                tensor: tensor.clone(),
                shard: shard.clone(),
            })?;
        tensors.push(entry);
    }
    Ok(Safetensors::new(shards, tensors))
}

/// Every shard with the first tensor it is named for, after checking that the names stay in the folder.
fn shards_of<'a>(
    weight_map: &'a BTreeMap<String, String>,
    limits: &Limits,
) -> Result<BTreeMap<&'a str, &'a str>, SafetensorsError> {
    let mut first_tensor_by_shard = BTreeMap::new();
    for (tensor, shard) in weight_map {
        if !is_plain_file_name(shard) {
            return Err(SafetensorsError::ShardName {
                shard: shard.clone(),
                tensor: tensor.clone(),
            });
        }
        first_tensor_by_shard
            .entry(shard.as_str())
            .or_insert(tensor.as_str());
    }
    let num_shards = first_tensor_by_shard.len();
    if num_shards > limits.num_shards_max {
        return Err(SafetensorsError::TooManyShards {
            found: num_shards,
            limit: limits.num_shards_max,
        });
    }
    Ok(first_tensor_by_shard)
}

/// Whether a name stays in its folder on every system: no separators of either kind, no `..`, no drive.
fn is_plain_file_name(name: &str) -> bool {
    let mut components = Path::new(name).components();
    let single = matches!(
        (components.next(), components.next()),
        (Some(Component::Normal(_)), None)
    );
    single && !name.contains(['/', '\\', ':', '\0'])
}
