//! Numbers: quantised panels, SIMD kernels with scalar references, the thread pool.
#![deny(missing_docs)]
pub mod aligned;
pub mod isa;
pub mod kv;
pub mod limits;
pub mod matrix;
pub mod ops;
pub mod pool;
pub mod rows;
