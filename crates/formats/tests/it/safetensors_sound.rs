//! Safetensors files as they should be, and those we write ourselves.

use crate::told;
use formats::GgmlType;
use formats::safetensors::{Dtype, NewTensor, Safetensors, write_safetensors};

use super::safetensors_hostile::file;

#[test]
fn tensors_are_read_by_name_with_type_shape_and_bytes() {
    let header = r#"{"__metadata__":{"format":"pt"},
        "b":{"dtype":"I64","shape":[],"data_offsets":[8,16]},
        "a":{"dtype":"BF16","shape":[2,2],"data_offsets":[0,8]},
        "none":{"dtype":"F32","shape":[0,7],"data_offsets":[16,16]}}  "#;
    let bytes: Vec<u8> = (0..16).collect();
    let file = Safetensors::parse(file(header, &bytes)).unwrap();
    let a = file.tensor("a").unwrap();
    assert_eq!(
        (a.dtype, a.shape, a.bytes),
        (Dtype::BF16, &[2, 2][..], &bytes[..8])
    );
    assert_eq!(a.dtype.ggml_type(), Some(GgmlType::BF16));
    let b = file.tensor("b").unwrap();
    assert_eq!(
        (b.dtype, b.shape, b.bytes),
        (Dtype::I64, &[][..], &bytes[8..])
    );
    assert_eq!(b.dtype.ggml_type(), None);
    assert!(file.tensor("none").unwrap().bytes.is_empty());
    assert!(file.find_tensor("__metadata__").is_none());
    assert_eq!(
        file.tensor("c").unwrap_err().to_string(),
        r#"tensor "c" is missing"#
    );
}

#[test]
fn what_we_write_is_what_we_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.safetensors");
    let logits: Vec<u8> = [0.5f32, -1.0, 2.0]
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    let tensors = [
        NewTensor {
            name: "logits",
            dtype: Dtype::F32,
            shape: &[1, 3],
            bytes: &logits,
        },
        NewTensor {
            name: "odd \"name\"",
            dtype: Dtype::U8,
            shape: &[3],
            bytes: &[1, 2, 3],
        },
    ];
    // Twice: the second time it replaces a file.
    for _ in 0..2 {
        write_safetensors(&path, &tensors).unwrap();
        let file = Safetensors::open(&path).unwrap();
        assert_eq!(file.tensors().len(), 2);
        for tensor in tensors {
            let read = file.tensor(tensor.name).unwrap();
            assert_eq!(
                (read.dtype, read.shape, read.bytes),
                (tensor.dtype, tensor.shape, tensor.bytes)
            );
            file.forget(&read);
            assert_eq!(read.bytes, tensor.bytes);
        }
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_place_that_cannot_be_written_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let tensor = NewTensor {
        name: "a",
        dtype: Dtype::U8,
        shape: &[1],
        bytes: &[1],
    };
    for path in [
        folder.path().to_owned(),
        folder.path().join("absent/out.safetensors"),
    ] {
        let error = told(write_safetensors(&path, &[tensor]).unwrap_err());
        assert!(
            error.starts_with(&format!("cannot write {}: ", path.display())),
            "{error}"
        );
    }
}

/// `/dev/full` answers every write as a full disk does. It must still be a device afterwards.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_an_error_that_says_so() {
    use std::os::unix::fs::FileTypeExt;
    let path = std::path::Path::new("/dev/full");
    let Ok(device) = std::fs::metadata(path) else {
        println!("skipped: there is no /dev/full");
        return;
    };
    let tensor = NewTensor {
        name: "a",
        dtype: Dtype::U8,
        shape: &[1],
        bytes: &[1],
    };
    let error = told(write_safetensors(path, &[tensor]).unwrap_err());
    assert!(error.contains("No space left on device"), "{error}");
    assert!(device.file_type().is_char_device());
    assert!(
        std::fs::metadata(path)
            .unwrap()
            .file_type()
            .is_char_device()
    );
}

#[test]
fn an_index_joins_its_shards_under_one_name_space() {
    let folder = tempfile::tempdir().unwrap();
    for (shard, name, byte) in [("one.safetensors", "a", 1), ("two.safetensors", "b", 2)] {
        let tensor = NewTensor {
            name,
            dtype: Dtype::U8,
            shape: &[1],
            bytes: &[byte],
        };
        write_safetensors(&folder.path().join(shard), &[tensor]).unwrap();
    }
    let path = folder.path().join("model.safetensors.index.json");
    let index = r#"{"metadata":{"total_size":2},"weight_map":{"b":"two.safetensors","a":"one.safetensors"}}"#;
    std::fs::write(&path, index).unwrap();
    let model = Safetensors::open(&path).unwrap();
    assert_eq!(model.tensor("a").unwrap().bytes, [1]);
    assert_eq!(model.tensor("b").unwrap().bytes, [2]);
    let names: Vec<&str> = model
        .tensors()
        .iter()
        .map(|tensor| tensor.name.as_str())
        .collect();
    assert_eq!(names, ["a", "b"]);
}

#[test]
fn the_reference_checkpoints_are_sound() {
    let Some(folder) = testkit::fixtures() else {
        return;
    };
    let mut num_opened = 0;
    for family in std::fs::read_dir(folder.join("arch")).unwrap() {
        let family = family.unwrap().path();
        for name in ["model.safetensors", "reference.safetensors"] {
            let file = Safetensors::open(&family.join(name)).unwrap();
            assert!(!file.tensors().is_empty());
            num_opened += 1;
        }
    }
    assert!(num_opened >= 2);
}
