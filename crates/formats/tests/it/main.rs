//! What the readers promise about files, sound and hostile.
//!
//! The allocator of this binary refuses to go past [`MEMORY_MAX`]: if any file in any of these tests made a reader
//! allocate what it declares instead of what it holds, the whole run would abort.

#![forbid(unsafe_code)]

mod gguf_hostile;
mod gguf_sound;
mod quants;
mod safetensors_hostile;
mod safetensors_sound;
mod smoke;
mod walk;

/// For all tests of the binary together; they need about a tenth of it.
const MEMORY_MAX: usize = 96 << 20;

#[global_allocator]
static ALLOCATOR: cap::Cap<std::alloc::System> = cap::Cap::new(std::alloc::System, MEMORY_MAX);

/// An error with all its causes, as the binary tells it.
fn told(error: impl std::error::Error) -> String {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        message.push_str(&format!(": {error}"));
        cause = error.source();
    }
    message
}
