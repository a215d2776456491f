//! Memory for numbers: zeroed, aligned to a cache line, in huge pages where there is much of it.
//!
//! Weights are read once per step from end to end; with 4 KiB pages the translation of addresses
//! would be a good part of that (8 % of the time of a lone row). Most matrices are smaller than a huge page,
//! so those that stay are laid one behind the other ([`Aligned::zeroed_lasting`]). Not here: growing by pushing;
//! sizes are known.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use bytemuck::Pod;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// A cache line, and the width of a 512-bit register.
const LINE_BYTES: usize = 64;
/// From here on memory is mapped for itself, in huge pages.
const HUGE_PAGE_BYTES: usize = 2 << 20;
/// What lasting allocations are cut from. What is not touched costs nothing but addresses.
const ARENA_BYTES: usize = 64 << 20;

/// A fixed number of elements, zero at first, the first of which is on a cache line's border.
pub struct Aligned<T> {
    start: NonNull<T>,
    len: usize,
    memory: Memory,
    owns: PhantomData<T>,
}

/// Where the elements are, and what frees them.
enum Memory {
    Heap(Layout),
    /// All of it or, for lasting ones, a part that nobody else has.
    Mapped {
        _keeps: Arc<Mapping>,
    },
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
        let bytes = bytes_of::<T>(len);
        if bytes >= HUGE_PAGE_BYTES {
            let mapping = Arc::new(Mapping::new(bytes));
            let start = mapping.start;
            return Aligned::mapped(start, len, mapping);
        }
        // At least a line: an allocation of zero bytes is not allowed.
        let layout = Layout::from_size_align(bytes.max(LINE_BYTES), LINE_BYTES)
            .expect("the size fits the address space");
        // SAFETY: the layout's size is not zero.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start.cast::<T>()) else {
            handle_alloc_error(layout)
        };
        Aligned {
            start,
            len,
            memory: Memory::Heap(layout),
            owns: PhantomData,
        }
    }

    /// `len` zeros that will stay, with others, for as long as the process needs any of them: they share
    /// huge pages, which are given back when the last goes.
    ///
    /// # Panics
    ///
    /// As [`Aligned::zeroed`].
    pub fn zeroed_lasting(len: usize) -> Aligned<T> {
        let bytes = bytes_of::<T>(len);
        if bytes > ARENA_BYTES / 2 {
            return Aligned::zeroed(len);
        }
        let (start, mapping) = ARENA
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .cut(bytes);
        Aligned::mapped(start, len, mapping)
    }

    /// At least `len` elements, holding anything: makes a new one if this is shorter.
    pub(crate) fn grow(&mut self, len: usize) {
        if self.len < len {
            // The old goes first: both together would be the peak of memory.
            *self = Aligned::default();
            *self = Aligned::zeroed(len);
        }
    }

    fn mapped(start: NonNull<u8>, len: usize, mapping: Arc<Mapping>) -> Aligned<T> {
        const { assert!(align_of::<T>() <= LINE_BYTES) };
        Aligned {
            start: start.cast(),
            len,
            memory: Memory::Mapped { _keeps: mapping },
            owns: PhantomData,
        }
    }
}

fn bytes_of<T>(len: usize) -> usize {
    let bytes = len.checked_mul(size_of::<T>());
    bytes
        .filter(|&bytes| bytes < isize::MAX as usize / 2)
        .expect("the size fits the address space")
}

/// The mapping that lasting allocations are cut from at present.
static ARENA: Mutex<Arena> = Mutex::new(Arena {
    mapping: Weak::new(),
    used_bytes: 0,
});

struct Arena {
    /// Kept alive by what was cut from it.
    mapping: Weak<Mapping>,
    used_bytes: usize,
}

impl Arena {
    /// At most [`ARENA_BYTES`].
    fn cut(&mut self, bytes: usize) -> (NonNull<u8>, Arc<Mapping>) {
        let mapping = match self.mapping.upgrade() {
            Some(mapping) if self.used_bytes + bytes <= ARENA_BYTES => mapping,
            _ => {
                let mapping = Arc::new(Mapping::new(ARENA_BYTES));
                self.mapping = Arc::downgrade(&mapping);
                self.used_bytes = 0;
                mapping
            }
        };
        // SAFETY: `used_bytes <= ARENA_BYTES`, which is the mapping's length.
        let start = unsafe { mapping.start.add(self.used_bytes) };
        // `ARENA_BYTES` is whole lines, so this stays within.
        self.used_bytes = (self.used_bytes + bytes).next_multiple_of(LINE_BYTES);
        (start, mapping)
    }
}

/// Zeroed memory from the operating system, which begins with a huge page.
struct Mapping {
    start: NonNull<u8>,
    /// What was mapped: more, so that an aligned start is inside.
    whole: NonNull<u8>,
    whole_bytes: usize,
}

// SAFETY: it owns its memory and gives access to none of it.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(bytes: usize) -> Mapping {
        let whole_bytes = bytes + HUGE_PAGE_BYTES;
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new mapping at an address of the kernel's choice touches nobody's memory.
        let whole = unsafe { mmap_anonymous(std::ptr::null_mut(), whole_bytes, protection, flags) };
        let whole = whole
            .ok()
            .and_then(|whole| NonNull::new(whole.cast::<u8>()));
        let Some(whole) = whole else {
            let layout = Layout::from_size_align(bytes, LINE_BYTES);
            handle_alloc_error(layout.expect("the size was checked"))
        };
        let to_start = whole.as_ptr().align_offset(HUGE_PAGE_BYTES);
        // SAFETY: less than a huge page, by which the mapping is longer.
        let start = unsafe { whole.add(to_start) };
        // A wish: without huge pages it is slower, not wrong.
        // SAFETY: inside the mapping, and this advice never changes contents.
        let _ = unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxHugepage) };
        Mapping {
            start,
            whole,
            whole_bytes,
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`; whoever had a part of it kept it alive.
        let unmapped = unsafe { munmap(self.whole.as_ptr().cast(), self.whole_bytes) };
        debug_assert!(unmapped.is_ok());
    }
}

impl<T> Drop for Aligned<T> {
    fn drop(&mut self) {
        if let Memory::Heap(layout) = self.memory {
            // SAFETY: allocated with this layout by `zeroed`; `T: Pod` has no destructor.
            unsafe { dealloc(self.start.as_ptr().cast(), layout) }
        }
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

    fn check(mut values: Aligned<f32>, len: usize) {
        assert_eq!(values.len(), len);
        assert_eq!(values.as_ptr() as usize % LINE_BYTES, 0);
        assert!(values.iter().all(|&value| value == 0.0));
        values.fill(1.0);
        assert!(values.iter().all(|&value| value == 1.0));
    }

    #[test]
    fn elements_are_zero_writable_and_aligned_at_any_size() {
        for len in [0, 1, 17, 1 << 19, (1 << 20) + 3, ARENA_BYTES / 8 + 1] {
            check(Aligned::zeroed(len), len);
            check(Aligned::zeroed_lasting(len), len);
        }
    }

    #[test]
    fn lasting_ones_do_not_overlap_and_survive_one_another() {
        // Together more than one arena; every third goes early.
        let mut kept = Vec::new();
        for idx in 0..40_usize {
            let mut values = Aligned::<u32>::zeroed_lasting(1_000_003);
            assert!(values.iter().all(|&value| value == 0));
            values.fill(idx as u32);
            if idx % 3 != 0 {
                kept.push((idx as u32, values));
            }
        }
        for (idx, values) in kept {
            assert!(values.iter().all(|&value| value == idx));
        }
    }

    #[test]
    #[should_panic(expected = "fits the address space")]
    fn a_size_beyond_the_address_space_is_refused_before_anything_is_allocated() {
        let _ = Aligned::<f32>::zeroed(usize::MAX / 2);
    }
}
