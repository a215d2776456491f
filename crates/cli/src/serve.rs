//! x
pub fn serve(_: crate::args::ServeArgs) -> anyhow::Result<std::process::ExitCode> {
    todo!()
}
