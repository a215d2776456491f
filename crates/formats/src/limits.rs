//! Every bound on what a file may ask of us, in one place.
//!
//! A model file is untrusted input. Each count and length in it is compared with a limit here, and with the
//! bytes that are really left in the file, before anything is allocated or walked. The limits are far above
//! every model published so far and far below what would hurt; they are not tuning knobs.

/// Upper bounds on a model file's header. Sizes of tensor data need no limit of their own: they are bounded by
/// the file's length, and no two tensors may share bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Tensors in a file. Mixture models that keep each expert apart reach some 50 000.
    pub num_tensors_max: u64,
    /// Metadata keys in a file. Real files have 20 to 80.
    pub num_keys_max: u64,
    /// Bytes of a metadata key or tensor name. The GGUF specification says 65 535 and 64; names of a few
    /// hundred bytes exist in safetensors files.
    pub name_bytes_max: u64,
    /// Bytes of one metadata string. Some files embed a whole `tokenizer.json`, about 35 MB.
    pub string_bytes_max: u64,
    /// Elements of one metadata array. The largest vocabularies have 262 144 tokens and twice as many merges.
    pub array_len_max: u64,
    /// Axes of a GGUF tensor: what GGML itself allows.
    pub num_dims_max: u32,
    /// Bytes that tensor data may be aligned to. Files use 32; a page of the largest common size is 64 KiB.
    pub alignment_max: u32,
    /// Bytes of the JSON in a safetensors header or index. 50 000 tensors with long names take 8 MB; the reference
    /// implementation allows 100 MB, which parsed would take several times that in memory.
    pub json_bytes_max: u64,
    /// Files a sharded safetensors index may name. The largest published models have a few hundred.
    pub num_shards_max: usize,
}

impl Limits {
    /// Axes of a safetensors tensor. Video models have five. A constant, because it bounds the parsing of each
    /// list in a JSON text, which knows of no other limit.
    pub const SHAPE_LEN_MAX: usize = 8;

    /// The limits in force unless a test narrows them.
    pub const STANDARD: Limits = Limits {
        num_tensors_max: 1 << 17,
        num_keys_max: 1 << 12,
        name_bytes_max: 1 << 12,
        string_bytes_max: 64 << 20,
        array_len_max: 1 << 24,
        num_dims_max: 4,
        alignment_max: 1 << 16,
        json_bytes_max: 32 << 20,
        num_shards_max: 4096,
    };
}
