//! x
pub fn run(_: crate::args::RunArgs) -> anyhow::Result<std::process::ExitCode> {
    todo!()
}
