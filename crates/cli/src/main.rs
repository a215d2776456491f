//! The binary `fulcrum`: flags, subcommands, wording.
fn main() {}
