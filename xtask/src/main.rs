//! Project automation: `cargo xtask ci`, `cargo xtask tidy`.
fn main() {}
