//! x
pub fn inspect(_: crate::args::InspectArgs) -> anyhow::Result<std::process::ExitCode> {
    todo!()
}
