//! Which instruction set the kernels use: detected once, overridable by `FULCRUM_ISA`.

/// A set of kernels, worst to best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isa {
    /// Plain Rust: the definition.
    Scalar,
    /// AVX2, FMA, F16C.
    Avx2,
    /// AVX2 with `vpdpbusd` on 256 bits.
    AvxVnni,
    /// AVX-512 F/BW/VL/VNNI.
    Avx512Vnni,
    /// AVX-512 VNNI with BF16 dot products.
    Avx512Bf16,
}
