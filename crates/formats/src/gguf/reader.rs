//! A cursor over untrusted little-endian bytes: every read is checked, none allocates.

use super::error::{GgufError, Place};

/// A position in the file.
#[derive(Clone, Debug)]
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// Fewer bytes are left than were asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Short {
    needed_bytes: u64,
    available_bytes: u64,
}

impl Short {
    /// The error that says what was being read. Apart from the read itself, so that the name is only copied
    /// when there is something to say.
    pub(super) fn at(self, place: Place) -> GgufError {
        let Short {
            needed_bytes,
            available_bytes,
        } = self;
        GgufError::Truncated {
            place,
            needed_bytes,
            available_bytes,
        }
    }
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, at: 0 }
    }

    /// Bytes from the start of the file.
    pub(super) fn position(&self) -> usize {
        self.at
    }

    pub(super) fn bytes_left(&self) -> u64 {
        (self.bytes.len() - self.at) as u64
    }

    pub(super) fn take(&mut self, num_bytes: u64) -> Result<&'a [u8], Short> {
        let available_bytes = self.bytes_left();
        if num_bytes > available_bytes {
            return Err(Short {
                needed_bytes: num_bytes,
                available_bytes,
            });
        }
        // It fits what is left of a slice, so it fits a usize.
        let taken = &self.bytes[self.at..self.at + num_bytes as usize];
        self.at += taken.len();
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Short> {
        let taken = self.take(N as u64)?;
        Ok(taken
            .try_into()
            .expect("take returns as many bytes as asked for"))
    }

    pub(super) fn u32(&mut self) -> Result<u32, Short> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Short> {
        self.array().map(u64::from_le_bytes)
    }
}
