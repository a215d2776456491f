//! The operations of a forward pass. Each is one parallel region of the pool.
