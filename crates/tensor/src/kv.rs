//! The bytes of one layer's KV cache: blocks of 16 positions, laid out for SIMD.
//!
//! The one idea: keys are stored *transposed* within a block, so that the scores of 16
//! positions are 16 lanes of one register and no score needs a horizontal sum; values are
//! stored as rows, because an output is a sum over positions. Both are read front to back.
//!
//! ```text
//! keys    [num_blocks][num_kv_heads][head_dim][16 positions]
//! values  [num_blocks][num_kv_heads][16 positions][value_stride]
//!                                                  └ head_dim, up to a multiple of 16
//!
//! one block, one head:      keys                     values
//!                     d0 | p0 p1 .. p15         p0 | d0 d1 d2 ..
//!                     d1 | p0 p1 .. p15         p1 | d0 d1 d2 ..
//!                     .. |                      .. |
//! ```
//!
//! 8-bit elements have scales beside them: one for a head's key at a position, one for its value
//! (`elements`). Those of a block and head are one cache line.
//!
//! ```text
//! scales  [num_blocks][num_kv_heads][16 of keys, 16 of values]      bfloat16
//! ```
//!
//! Not here: who owns a block (the scheduler's accounting), and reading (`ops::attention`).
//!
//! Source: paged attention, Kwon et al. 2023, <https://arxiv.org/abs/2309.06180>.

mod elements;

use std::ops::Range;
use std::ptr::NonNull;

use half::{bf16, f16};

use crate::ops::split_work;
use crate::pool::{Disjoint, Pool};
use elements::CHUNK;
pub(crate) use elements::{KvElement, widen};

/// Positions that one block holds: the lanes of a 512-bit register of floats.
pub const BLOCK_TOKENS: usize = 16;

/// How a key or value element is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvType {
    /// 32 bits: exact.
    F32,
    /// IEEE half: 11 significant bits, magnitudes up to 65504.
    F16,
    /// bfloat16: 8 significant bits, the range of f32.
    Bf16,
    /// 8-bit integers times a scale of their own for each head's key and value at each position.
    Int8,
}

impl KvType {
    /// A word for it, as flags and metrics write it.
    pub fn name(self) -> &'static str {
        match self {
            KvType::F32 => "f32",
            KvType::F16 => "f16",
            KvType::Bf16 => "bf16",
            KvType::Int8 => "int8",
        }
    }
}

/// Everything that fixes the size of one layer's block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvShape {
    /// Heads that have keys and values of their own.
    pub num_kv_heads: usize,
    /// Elements of one head's key, and of its value.
    pub head_dim: usize,
    /// Storage of an element.
    pub element: KvType,
}

impl KvShape {
    /// Bytes that one block of one layer takes, keys and values together; `usize::MAX` if they are
    /// more than can be counted.
    pub fn block_bytes(&self) -> usize {
        self.block_bytes_checked().unwrap_or(usize::MAX)
    }

    fn block_bytes_checked(&self) -> Option<usize> {
        let value_stride = self.head_dim.checked_next_multiple_of(BLOCK_TOKENS)?;
        let elements = self
            .head_dim
            .checked_add(value_stride)?
            .checked_mul(BLOCK_TOKENS)?;
        elements
            .checked_mul(self.element_bytes())?
            .checked_add(self.head_scales() * size_of::<bf16>())?
            .checked_mul(self.num_kv_heads)
    }

    /// Scales of one head in one block: of its keys, then of its values.
    fn head_scales(&self) -> usize {
        match self.element {
            KvType::F32 | KvType::F16 | KvType::Bf16 => 0,
            KvType::Int8 => 2 * BLOCK_TOKENS,
        }
    }

    /// Elements between two positions of a head's values.
    pub(crate) fn value_stride(&self) -> usize {
        self.head_dim.next_multiple_of(BLOCK_TOKENS)
    }

    /// Elements of one head's keys in one block.
    pub(crate) fn key_block_len(&self) -> usize {
        self.head_dim * BLOCK_TOKENS
    }

    /// Elements of one head's values in one block.
    pub(crate) fn value_block_len(&self) -> usize {
        self.value_stride() * BLOCK_TOKENS
    }

    fn element_bytes(&self) -> usize {
        match self.element {
            KvType::F32 => 4,
            KvType::F16 | KvType::Bf16 => 2,
            KvType::Int8 => 1,
        }
    }
}

/// Where one position of one sequence is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvSlot {
    /// Index of the block.
    pub block: u32,
    /// Position within it, `0..BLOCK_TOKENS`.
    pub offset: u32,
}

impl KvSlot {
    /// The slot of `position` in a sequence with the block table `blocks`.
    ///
    /// # Panics
    ///
    /// If the table is too short.
    pub fn of(blocks: &[u32], position: usize) -> KvSlot {
        KvSlot {
            block: blocks[position / BLOCK_TOKENS],
            offset: (position % BLOCK_TOKENS) as u32,
        }
    }
}

/// Why a cache could not be made.
#[derive(Debug, thiserror::Error)]
pub enum KvError {
    /// `num_blocks` blocks of this shape exceed the address space.
    #[error("{num_blocks} KV blocks of {block_bytes} bytes are more than can be addressed")]
    TooLarge {
        /// Blocks asked for.
        num_blocks: usize,
        /// Bytes of each.
        block_bytes: usize,
    },
    /// The system refused the memory.
    #[error("no memory for {bytes} bytes of KV cache")]
    NoMemory {
        /// Bytes asked for.
        bytes: usize,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
}

/// One layer's keys and values.
///
/// Memory is reserved at once but taken from the system only when a block is first written:
/// a large pool costs nothing until it is used.
#[derive(Debug)]
pub struct KvPages {
    shape: KvShape,
    num_blocks: usize,
    keys: ZeroPages,
    values: ZeroPages,
    /// Of the storage types that have some.
    scales: Option<ZeroPages>,
}

impl KvPages {
    /// Room for `num_blocks` blocks, all zero.
    ///
    /// # Errors
    ///
    /// [`KvError`] if the size overflows or the system refuses it.
    ///
    /// # Panics
    ///
    /// If a dimension is zero.
    pub fn new(shape: KvShape, num_blocks: usize) -> Result<KvPages, KvError> {
        assert!(
            shape.num_kv_heads > 0 && shape.head_dim > 0 && num_blocks > 0,
            "an empty KV cache: {shape:?}, {num_blocks} blocks"
        );
        let block_bytes = shape.block_bytes();
        let all_bytes = block_bytes.checked_mul(num_blocks);
        if all_bytes.is_none_or(|bytes| bytes > isize::MAX as usize) {
            return Err(KvError::TooLarge {
                num_blocks,
                block_bytes,
            });
        }
        let part = |block_len: usize| {
            ZeroPages::new(num_blocks * shape.num_kv_heads * block_len * shape.element_bytes())
        };
        let scale_bytes = shape.head_scales() * size_of::<bf16>();
        let scales = (scale_bytes > 0)
            .then(|| ZeroPages::new(num_blocks * shape.num_kv_heads * scale_bytes));
        Ok(KvPages {
            shape,
            num_blocks,
            keys: part(shape.key_block_len())?,
            values: part(shape.value_block_len())?,
            scales: scales.transpose()?,
        })
    }

    /// The shape given to [`KvPages::new`].
    pub fn shape(&self) -> KvShape {
        self.shape
    }

    /// Blocks there is room for; block ids are `0..num_blocks`.
    pub fn num_blocks(&self) -> usize {
        self.num_blocks
    }

    /// Stores the keys and values of a step's rows; row `r` goes to `slots[r]`. One parallel
    /// region.
    ///
    /// Elements are rounded to nearest even. Magnitudes beyond the storage type become its largest
    /// finite value, because an infinity would turn every later answer that reads it into NaN. With
    /// 8 bits, an element is off by at most 1/252 of its head's largest magnitude at that position.
    /// If two rows name one slot, the later row stays.
    ///
    /// # Shapes
    ///
    /// `keys`, `values`: `[slots.len(), num_kv_heads, head_dim]`.
    ///
    /// # Panics
    ///
    /// If a slice has another length or a slot is out of range; nothing is stored then.
    pub fn write(&mut self, pool: &Pool, slots: &[KvSlot], keys: &[f32], values: &[f32]) {
        let row_len = self.shape.num_kv_heads * self.shape.head_dim;
        assert_eq!(
            keys.len(),
            slots.len() * row_len,
            "keys are [{}, {row_len}]",
            slots.len()
        );
        assert_eq!(
            values.len(),
            slots.len() * row_len,
            "values are [{}, {row_len}]",
            slots.len()
        );
        for slot in slots {
            assert!(
                (slot.block as usize) < self.num_blocks,
                "{slot:?} of {} blocks",
                self.num_blocks
            );
            assert!(
                (slot.offset as usize) < BLOCK_TOKENS,
                "{slot:?} is outside its block"
            );
        }
        let rows = NewRows {
            slots,
            keys,
            values,
        };
        match self.shape.element {
            KvType::F32 => self.write_as::<f32>(pool, &rows),
            KvType::F16 => self.write_as::<f16>(pool, &rows),
            KvType::Bf16 => self.write_as::<bf16>(pool, &rows),
            KvType::Int8 => self.write_as::<i8>(pool, &rows),
        }
    }

    /// Workers share the columns, not the rows: so no two write one element, whatever the slots are.
    /// Who writes a head's first column writes its scales.
    fn write_as<E: KvElement>(&mut self, pool: &Pool, rows: &NewRows<'_>) {
        /// See [`split_work`]: a column is two conversions and two scattered stores a row.
        const UNITS_PER_ELEMENT: usize = 20;
        let KvShape {
            num_kv_heads,
            head_dim,
            ..
        } = self.shape;
        let stride = self.shape.value_stride();
        let keys = Disjoint::new(bytemuck::cast_slice_mut::<u8, E>(self.keys.bytes_mut()));
        let values = Disjoint::new(bytemuck::cast_slice_mut::<u8, E>(self.values.bytes_mut()));
        let scales = self.scales.as_mut().map(ZeroPages::bytes_mut);
        let scales = scales.map(|bytes| Disjoint::new(bytemuck::cast_slice_mut::<u8, bf16>(bytes)));
        let num_cols = num_kv_heads * head_dim;
        split_work(
            pool,
            num_cols,
            rows.slots.len() * UNITS_PER_ELEMENT,
            &|cols| {
                let mut elements = [E::zeroed(); CHUNK];
                for (row_idx, slot) in rows.slots.iter().enumerate() {
                    let (block, offset) = (slot.block as usize, slot.offset as usize);
                    for (head, dims) in chunks_of_heads(cols.clone(), head_dim) {
                        let elements = &mut elements[..dims.len()];
                        let new = row_idx * num_cols + head * head_dim;
                        let (new_key, new_value) = (
                            &rows.keys[new..][..head_dim],
                            &rows.values[new..][..head_dim],
                        );
                        let (key_scale, value_scale) =
                            (E::scale_of(new_key), E::scale_of(new_value));
                        let head = block * num_kv_heads + head;
                        if let (Some(scales), 0) = (&scales, dims.start) {
                            let of_keys = head * 2 * BLOCK_TOKENS + offset;
                            // SAFETY: the head's first column belongs to this worker alone, and
                            // with it the head's scales.
                            unsafe {
                                scales.pointer(of_keys).write(key_scale);
                                scales.pointer(of_keys + BLOCK_TOKENS).write(value_scale);
                            }
                        }

                        E::convert(&new_key[dims.clone()], key_scale, elements);
                        let start = (head * head_dim + dims.start) * BLOCK_TOKENS;
                        // SAFETY: columns `cols` belong to this worker alone.
                        let stored =
                            unsafe { keys.slice(start..start + dims.len() * BLOCK_TOKENS) };
                        for (positions, &key) in
                            stored.chunks_exact_mut(BLOCK_TOKENS).zip(&*elements)
                        {
                            positions[offset] = key;
                        }

                        E::convert(&new_value[dims.clone()], value_scale, elements);
                        let start = (head * BLOCK_TOKENS + offset) * stride + dims.start;
                        // SAFETY: as above.
                        unsafe { values.slice(start..start + dims.len()) }
                            .copy_from_slice(elements);
                    }
                }
            },
        );
    }

    /// All keys, `[num_blocks][num_kv_heads][head_dim][16]`.
    ///
    /// # Panics
    ///
    /// If the elements are not of type `E`.
    pub(crate) fn keys<E: KvElement>(&self) -> &[E] {
        assert_eq!(self.shape.element, E::TYPE);
        bytemuck::cast_slice(self.keys.bytes())
    }

    /// All values, `[num_blocks][num_kv_heads][16][value_stride]`.
    ///
    /// # Panics
    ///
    /// If the elements are not of type `E`.
    pub(crate) fn values<E: KvElement>(&self) -> &[E] {
        assert_eq!(self.shape.element, E::TYPE);
        bytemuck::cast_slice(self.values.bytes())
    }

    /// All scales, `[num_blocks][num_kv_heads]` of those of 16 keys and of 16 values, if the storage
    /// type has some.
    pub(crate) fn scales(&self) -> Option<&[[[bf16; BLOCK_TOKENS]; 2]]> {
        let scales = self.scales.as_ref()?;
        Some(bytemuck::cast_slice(scales.bytes()))
    }
}

/// What [`KvPages::write`] stores.
struct NewRows<'a> {
    slots: &'a [KvSlot],
    keys: &'a [f32],
    values: &'a [f32],
}

/// Cuts `cols` of `[num_kv_heads, head_dim]` into heads and pieces of at most [`CHUNK`] dimensions.
fn chunks_of_heads(
    cols: Range<usize>,
    head_dim: usize,
) -> impl Iterator<Item = (usize, Range<usize>)> {
    let mut next = cols.start;
    std::iter::from_fn(move || {
        let (head, dim) = (next / head_dim, next % head_dim);
        let len = CHUNK.min(head_dim - dim).min(cols.end - next);
        next += len;
        (len > 0).then_some((head, dim..dim + len))
    })
}

/// Zeroed memory that the system hands out page by page, on first touch.
///
/// `alloc_zeroed` is not enough: an allocation aligned to a cache line is zeroed by writing it.
#[derive(Debug)]
struct ZeroPages {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the memory is owned by this value alone, and plain bytes.
unsafe impl Send for ZeroPages {}
// SAFETY: shared access only reads.
unsafe impl Sync for ZeroPages {}

impl ZeroPages {
    /// `bytes` is at least 1.
    fn new(bytes: usize) -> Result<ZeroPages, KvError> {
        use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
        // SAFETY: a new private mapping at an address the system chooses touches no other memory.
        let mapped = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        };
        match mapped {
            Ok(start) => Ok(ZeroPages {
                start: NonNull::new(start.cast()).expect("a mapping is never at address 0"),
                bytes,
            }),
            Err(errno) => Err(KvError::NoMemory {
                bytes,
                source: errno.into(),
            }),
        }
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping is readable, zero-initialised, `bytes` long and lives as long as
        // `self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }
}

impl Drop for ZeroPages {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping that `new` made; nothing borrows it any more.
        // Unmapping one's own mapping cannot fail, and a destructor could not say so.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroUsize;

    const SHAPE: KvShape = KvShape {
        num_kv_heads: 3,
        head_dim: 22,
        element: KvType::F32,
    };

    fn pool(num_threads: usize) -> Pool {
        Pool::new(NonZeroUsize::new(num_threads).expect("not zero"))
    }

    /// One row's keys and values, each element another number.
    fn numbered(num_rows: usize, shape: KvShape) -> (Vec<f32>, Vec<f32>) {
        let len = num_rows * shape.num_kv_heads * shape.head_dim;
        (
            (0..len).map(|idx| idx as f32 + 1.0).collect(),
            (0..len).map(|idx| -(idx as f32) - 1.0).collect(),
        )
    }

    #[test]
    fn a_row_is_found_where_the_drawing_says() {
        for num_threads in [1, 2, 3] {
            let mut pages = KvPages::new(SHAPE, 4).expect("memory");
            let slots = [
                KvSlot {
                    block: 2,
                    offset: 5,
                },
                KvSlot {
                    block: 0,
                    offset: 15,
                },
            ];
            let (keys, values) = numbered(slots.len(), SHAPE);
            pages.write(&pool(num_threads), &slots, &keys, &values);
            let (stored_keys, stored_values) = (pages.keys::<f32>(), pages.values::<f32>());
            for (row, slot) in slots.iter().enumerate() {
                let (block, offset) = (slot.block as usize, slot.offset as usize);
                for head in 0..3 {
                    for dim in 0..22 {
                        let source = (row * 3 + head) * 22 + dim;
                        assert_eq!(
                            stored_keys[((block * 3 + head) * 22 + dim) * 16 + offset],
                            keys[source]
                        );
                        assert_eq!(
                            stored_values[((block * 3 + head) * 16 + offset) * 32 + dim],
                            values[source]
                        );
                    }
                }
            }
            let num_stored =
                |elements: &[f32]| elements.iter().filter(|&&element| element != 0.0).count();
            assert_eq!(
                num_stored(stored_keys),
                keys.len(),
                "nothing else was written"
            );
            assert_eq!(
                num_stored(stored_values),
                values.len(),
                "nothing else was written"
            );
        }
    }

    #[test]
    fn many_rows_are_stored_as_one_by_one() {
        assert_stored_as_one_by_one::<f16>();
        assert_stored_as_one_by_one::<i8>();
    }

    fn assert_stored_as_one_by_one<E: KvElement + PartialEq>() {
        let shape = KvShape {
            num_kv_heads: 2,
            head_dim: 128,
            element: E::TYPE,
        };
        let slots: Vec<_> = (0..200)
            .map(|position| KvSlot::of(&[3, 0, 7, 1, 2, 9, 4, 8, 5, 6, 10, 11, 12], position))
            .collect();
        let (keys, values) = numbered(slots.len(), shape);
        let mut together = KvPages::new(shape, 13).expect("memory");
        together.write(&pool(3), &slots, &keys, &values);
        let mut alone = KvPages::new(shape, 13).expect("memory");
        for (row, slot) in slots.iter().enumerate() {
            alone.write(
                &pool(1),
                &[*slot],
                &keys[row * 256..][..256],
                &values[row * 256..][..256],
            );
        }
        assert!(
            together.keys::<E>() == alone.keys::<E>()
                && together.values::<E>() == alone.values::<E>()
                && together.scales() == alone.scales()
        );
    }

    /// Stores one value as key and as value and reads both back.
    fn stored<E: KvElement>(value: f32) -> f32 {
        let shape = KvShape {
            num_kv_heads: 1,
            head_dim: 2,
            element: E::TYPE,
        };
        let mut pages = KvPages::new(shape, 1).expect("memory");
        pages.write(
            &pool(1),
            &[KvSlot {
                block: 0,
                offset: 0,
            }],
            &[value, 0.0],
            &[value, 0.0],
        );
        let (key, value) = (
            pages.keys::<E>()[0].to_f32(),
            pages.values::<E>()[0].to_f32(),
        );
        assert_eq!(key.to_bits(), value.to_bits());
        key
    }

    #[test]
    fn elements_are_rounded_to_nearest_even() {
        // f16 has 10 bits after the point, bf16 has 7: halfway cases go to the even neighbour.
        let half_step = |bits: i32| 2.0_f32.powi(-bits - 1);
        assert_eq!(stored::<f16>(1.0 + half_step(10)), 1.0);
        assert_eq!(
            stored::<f16>(1.0 + 3.0 * half_step(10)),
            1.0 + 4.0 * half_step(10)
        );
        assert_eq!(stored::<bf16>(1.0 + half_step(7)), 1.0);
        assert_eq!(
            stored::<bf16>(1.0 + 3.0 * half_step(7)),
            1.0 + 4.0 * half_step(7)
        );
        assert_eq!(
            stored::<f16>(6e-8),
            2.0_f32.powi(-24),
            "the smallest subnormal"
        );
        assert_eq!(stored::<f32>(0.1), 0.1);
    }

    #[test]
    fn what_is_too_large_becomes_the_largest_finite() {
        for value in [65519.0, 65520.0, 1e6, f32::MAX, f32::INFINITY] {
            assert_eq!(stored::<f16>(value), 65504.0, "{value}");
            assert_eq!(stored::<f16>(-value), -65504.0, "-{value}");
        }
        assert_eq!(stored::<bf16>(f32::MAX), bf16::MAX.to_f32());
        assert_eq!(stored::<bf16>(f32::NEG_INFINITY), bf16::MIN.to_f32());
        assert_eq!(stored::<f32>(f32::INFINITY), f32::MAX);
        assert!(stored::<f16>(f32::NAN).is_nan(), "a fault stays visible");
    }

    #[test]
    fn a_block_is_as_large_as_said() {
        let elements = 3 * 16 * (22 + 32);
        for (element, bytes) in [
            (KvType::F32, 4 * elements),
            (KvType::F16, 2 * elements),
            (KvType::Bf16, 2 * elements),
            // Each head and position has two scales of 2 bytes.
            (KvType::Int8, elements + 3 * 16 * 4),
        ] {
            let shape = KvShape { element, ..SHAPE };
            assert_eq!(shape.block_bytes(), bytes);
            let pages = KvPages::new(shape, 5).expect("memory");
            let scales = pages.scales.as_ref().map_or(0, |scales| scales.bytes);
            assert_eq!(
                pages.keys.bytes + pages.values.bytes + scales,
                5 * shape.block_bytes()
            );
        }
    }

    #[test]
    fn each_head_of_each_position_has_scales_of_its_own() {
        for num_threads in [1, 2, 3] {
            let shape = KvShape {
                element: KvType::Int8,
                ..SHAPE
            };
            let mut pages = KvPages::new(shape, 2).expect("memory");
            let slots = [3, 4].map(|offset| KvSlot { block: 1, offset });
            // Scales of 1, 2, 4, … for keys, and of their negative powers for values.
            let largest = |row: usize, head: usize| 127.0 * (1 << (row * 3 + head)) as f32;
            let (mut keys, mut values) = (vec![0.0; 2 * 66], vec![0.0; 2 * 66]);
            for (row, head) in (0..2).flat_map(|row| (0..3).map(move |head| (row, head))) {
                keys[(row * 3 + head) * 22 + 21] = -largest(row, head);
                values[(row * 3 + head) * 22 + 1] = 127.0 * 127.0 / largest(row, head);
            }
            pages.write(&pool(num_threads), &slots, &keys, &values);
            for (row, head) in (0..2).flat_map(|row| (0..3).map(move |head| (row, head))) {
                let [of_keys, of_values] = pages.scales().expect("int8 has scales")[3 + head];
                let scale = largest(row, head) / 127.0;
                assert_eq!(of_keys[3 + row].to_f32(), scale);
                assert_eq!(of_values[3 + row].to_f32(), 1.0 / scale);
            }
        }
    }

    #[test]
    fn a_size_beyond_the_address_space_is_an_error() {
        for num_blocks in [usize::MAX, usize::MAX / 4000] {
            assert!(matches!(
                KvPages::new(SHAPE, num_blocks),
                Err(KvError::TooLarge { .. })
            ));
        }
        let shape = KvShape {
            head_dim: usize::MAX / 2,
            ..SHAPE
        };
        assert!(matches!(
            KvPages::new(shape, 1),
            Err(KvError::TooLarge { .. })
        ));
        assert!(matches!(
            KvPages::new(SHAPE, (1 << 56) / 4000),
            Err(KvError::NoMemory { .. })
        ));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn memory_is_taken_only_when_written() {
        let mut pages = KvPages::new(SHAPE, 100_000).expect("memory");
        assert_eq!(resident_pages(&pages.keys), 0);
        let (keys, values) = numbered(1, SHAPE);
        pages.write(
            &pool(1),
            &[KvSlot {
                block: 777,
                offset: 0,
            }],
            &keys,
            &values,
        );
        // One block's keys are 4224 bytes; huge pages, where they are forced on, are 2 MiB.
        assert!((1..=1024).contains(&resident_pages(&pages.keys)));
    }

    #[cfg(target_os = "linux")]
    fn resident_pages(memory: &ZeroPages) -> usize {
        let page_bytes = rustix::param::page_size();
        let mut flags = vec![0_u8; memory.bytes.div_ceil(page_bytes)];
        // SAFETY: the range is our own mapping, and there is a flag for each of its pages.
        let status = unsafe {
            libc::mincore(
                memory.start.as_ptr().cast(),
                memory.bytes,
                flags.as_mut_ptr(),
            )
        };
        assert_eq!(status, 0, "the mapping is known");
        flags.iter().filter(|&&flag| flag & 1 == 1).count()
    }

    #[test]
    #[should_panic(expected = "of 4 blocks")]
    fn a_block_that_is_not_there_is_refused() {
        let mut pages = KvPages::new(SHAPE, 4).expect("memory");
        let (keys, values) = numbered(1, SHAPE);
        pages.write(
            &pool(1),
            &[KvSlot {
                block: 4,
                offset: 0,
            }],
            &keys,
            &values,
        );
    }
}
