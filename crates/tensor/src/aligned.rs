//! Memory for numbers: zeroed, aligned to a cache line, in huge pages where it is large.
//!
//! Weights are read once per step from end to end; with 4 KiB pages the translation of addresses
//! would be a good part of that. Not here: growing by pushing; sizes are known.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use bytemuck::Pod;

/// A cache line, and the width of a 512-bit register.
const LINE_BYTES: usize = 64;
/// From here on memory is aligned to, and asked for in, huge pages.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// A fixed number of elements, zero at first, the first of which is on a cache line's border.
pub struct Aligned<T> {
    start: NonNull<T>,
    len: usize,
    layout: Layout,
    owns: PhantomData<T>,
}

// SAFETY: it owns its elements as a `Box<[T]>` does.
unsafe impl<T: Send> Send for Aligned<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Aligned<T> {}

impl<T: Pod> Aligned<T> {
    /// `len` zeros.
    ///
    /// # Panics
    ///
    /// If that many bytes overflow the address space.
    pub fn zeroed(len: usize) -> Aligned<T> {
        let bytes = len
            .checked_mul(size_of::<T>())
            .expect("the size fits the address space");
        let align = if bytes >= HUGE_PAGE_BYTES {
            HUGE_PAGE_BYTES
        } else {
            LINE_BYTES
        };
        // At least a line: an allocation of zero bytes is not allowed.
        let layout = Layout::from_size_align(bytes.max(LINE_BYTES), align.max(align_of::<T>()))
            .expect("the size fits the address space");
        // SAFETY: the layout's size is not zero.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start.cast::<T>()) else {
            handle_alloc_error(layout)
        };
        advise_huge(start.cast(), layout.size());
        Aligned {
            start,
            len,
            layout,
            owns: PhantomData,
        }
    }
}

/// A wish: without huge pages it is slower, not wrong.
fn advise_huge(start: NonNull<u8>, bytes: usize) {
    // Only whole huge pages: the rest of the last one may belong to the allocator.
    let whole = bytes / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    if whole > 0 {
        // SAFETY: the range is inside our allocation, and this advice never changes contents.
        let _ = unsafe {
            rustix::mm::madvise(
                start.as_ptr().cast(),
                whole,
                rustix::mm::Advice::LinuxHugepage,
            )
        };
    }
}

impl<T> Drop for Aligned<T> {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout by `zeroed`; `T: Pod` has no destructor.
        unsafe { dealloc(self.start.as_ptr().cast(), self.layout) }
    }
}

impl<T> Deref for Aligned<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        // SAFETY: `len` initialised elements that we own.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T> DerefMut for Aligned<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<T: Pod> Default for Aligned<T> {
    fn default() -> Aligned<T> {
        Aligned::zeroed(0)
    }
}

impl<T> std::fmt::Debug for Aligned<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Aligned[{}]", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_zero_writable_and_aligned_at_any_size() {
        for len in [0, 1, 17, 1 << 20] {
            let mut values = Aligned::<f32>::zeroed(len);
            assert_eq!(values.len(), len);
            assert_eq!(values.as_ptr() as usize % LINE_BYTES, 0);
            assert!(values.iter().all(|&value| value == 0.0));
            values.fill(1.0);
            assert_eq!(values.iter().sum::<f32>(), len as f32);
        }
    }
}
