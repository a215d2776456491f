//! Writing a safetensors file: whole, or not at all.
//!
//! The file is written under another name beside its place, forced to disk, then renamed. So a full disk or a kill leaves
//! the old file as it was. A target that is not a regular file (a pipe, a device) is written to directly, because
//! renaming onto it would replace it.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use super::{Dtype, SafetensorsError};

/// A tensor to be written.
#[derive(Clone, Copy, Debug)]
pub struct NewTensor<'a> {
    /// Its name. Not `__metadata__`.
    pub name: &'a str,
    /// Its element type.
    pub dtype: Dtype,
    /// Its shape, slowest axis first.
    pub shape: &'a [usize],
    /// Its values, little-endian.
    pub bytes: &'a [u8],
}

/// Writes tensors to a file, in their order.
///
/// # Errors
///
/// [`SafetensorsError::Write`] with the reason of the system, for example a full disk. Then nothing new is left, and a
/// file that was there is unchanged.
///
/// # Panics
///
/// If a tensor's shape does not take its bytes, or two have the same name.
pub fn write_safetensors(path: &Path, tensors: &[NewTensor<'_>]) -> Result<(), SafetensorsError> {
    let header = header_of(tensors);
    write_whole(path, |file| {
        file.write_all(&(header.len() as u64).to_le_bytes())?;
        file.write_all(header.as_bytes())?;
        tensors
            .iter()
            .try_for_each(|tensor| file.write_all(tensor.bytes))
    })
    .map_err(|source| SafetensorsError::Write {
        path: path.to_owned(),
        source,
    })
}

/// The JSON, padded with spaces so that the data starts at a multiple of 8.
fn header_of(tensors: &[NewTensor<'_>]) -> String {
    let mut entries = serde_json::Map::new();
    let mut start = 0;
    for tensor in tensors {
        let num_values: usize = tensor.shape.iter().product();
        let num_bytes = tensor.bytes.len();
        assert_eq!(
            num_values * tensor.dtype.value_bytes(),
            num_bytes,
            "bytes of {:?}",
            tensor.name
        );
        let entry = serde_json::json!({
            "dtype": tensor.dtype.name(),
            "shape": tensor.shape,
            "data_offsets": [start, start + num_bytes],
        });
        let replaced = entries.insert(tensor.name.to_owned(), entry);
        assert!(
            replaced.is_none() && tensor.name != "__metadata__",
            "name {:?}",
            tensor.name
        );
        start += num_bytes;
    }
    let json = serde_json::Value::Object(entries).to_string();
    let padded_len = json.len().next_multiple_of(8);
    format!("{json:padded_len$}")
}

fn write_whole(
    path: &Path,
    content: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> io::Result<()> {
    // Through a symbolic link: it is the file that gets replaced, not the link.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let replaceable = fs::metadata(&path).map_or(true, |existing| existing.is_file());
    if !replaceable {
        return fill(File::create(&path)?, content).map(|_| ());
    }
    let partial = partial_path(&path)?;
    let written = File::create(&partial)
        .and_then(|file| fill(file, content)?.sync_all())
        .and_then(|()| fs::rename(&partial, &path));
    if written.is_err() {
        // If it cannot be removed either, the first error is still the one to tell.
        let _ = fs::remove_file(&partial);
    }
    written
}

fn fill(
    file: File,
    content: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> io::Result<File> {
    let mut writer = BufWriter::new(file);
    content(&mut writer)?;
    writer.into_inner().map_err(io::IntoInnerError::into_error)
}

/// A name beside `path` that no other process of this machine uses.
fn partial_path(path: &Path) -> io::Result<PathBuf> {
    let Some(file_name) = path.file_name() else {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the path does not name a file",
        ));
    };
    let mut name = file_name.to_owned();
    name.push(format!(".{}.partial", std::process::id()));
    Ok(path.with_file_name(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_fills_up_leaves_the_old_file_and_nothing_else() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("out.safetensors");
        fs::write(&path, "old").expect("the folder is writable");

        let error = write_whole(&path, |file| {
            file.write_all(b"new")?;
            Err(io::Error::from(io::ErrorKind::StorageFull))
        })
        .expect_err("the content could not be written");

        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert_eq!(fs::read(&path).expect("it is still there"), b"old");
        assert_eq!(fs::read_dir(folder.path()).expect("readable").count(), 1);
    }

    #[test]
    fn the_header_is_padded_to_keep_values_aligned() {
        for len in 1..20 {
            let name = "x".repeat(len);
            let tensor = NewTensor {
                name: &name,
                dtype: Dtype::U8,
                shape: &[1],
                bytes: &[7],
            };
            let header = header_of(&[tensor]);
            assert_eq!(header.len() % 8, 0);
            assert!(header.trim_end().ends_with("}}"));
        }
    }
}
