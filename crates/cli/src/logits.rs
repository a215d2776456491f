//! x
pub fn logits(_: crate::args::LogitsArgs) -> anyhow::Result<std::process::ExitCode> {
    todo!()
}
