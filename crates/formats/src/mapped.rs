//! A file as bytes: mapped, or held in memory by tests and fuzzers.
//!
//! The one file of this crate with `unsafe`. A map costs address space, not memory: pages come in when read and
//! can be given back with [`FileBytes::forget`] once their content has been repacked.
//!
//! Not here: any idea of what the bytes mean.

#![allow(unsafe_code)]

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::path::Path;

use memmap2::Mmap;

/// Bytes that stay at one address for as long as the value lives.
#[derive(Debug)]
pub(crate) enum FileBytes {
    Mapped(Mmap),
    Owned(Vec<u8>),
}

impl FileBytes {
    /// Maps a regular file for reading. Anything else (a folder, a pipe, which would block) is an error.
    pub(crate) fn map(path: &Path) -> io::Result<FileBytes> {
        if !fs::metadata(path)?.is_file() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "not a regular file",
            ));
        }
        let file = File::open(path)?;
        // SAFETY: the map is read-only and private to this value. The bytes can only change if someone rewrites
        // the file in place while it is mapped, which no program can rule out; model files are replaced by
        // rename, which leaves the mapped one alone. Every range is checked against the length taken here.
        let map = unsafe { Mmap::map(&file)? };
        Ok(FileBytes::Mapped(map))
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            FileBytes::Mapped(map) => map,
            FileBytes::Owned(bytes) => bytes,
        }
    }

    /// Tells the system that `range` will not be read again soon, so that its pages leave our resident set.
    /// Reading it again is correct and costs a page fault. A hint: failure changes nothing and is not reported.
    pub(crate) fn forget(&self, range: Range<usize>) {
        #[cfg(unix)]
        if let FileBytes::Mapped(map) = self
            && range.start < range.end
            && range.end <= map.len()
        {
            // SAFETY: the map is shared, read-only and backed by a file, so dropped pages are read back from
            // the file with the same content; no modification can be lost because none is possible.
            let _ = unsafe {
                map.unchecked_advise_range(
                    memmap2::UncheckedAdvice::DontNeed,
                    range.start,
                    range.end - range.start,
                )
            };
        }
        #[cfg(not(unix))]
        let _ = range;
    }
}
