//! Running the binary, and tiny models to run it with.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;
pub use testkit::encode::Encoding;
use testkit::tiny;

/// The binary, blind to the environment's own settings, keeping its models in `folder`.
pub fn fulcrum(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fulcrum"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("FULCRUM_") {
            command.env_remove(name);
        }
    }
    command
        .env("FULCRUM_CACHE", folder)
        .stdin(std::process::Stdio::null());
    command
}

/// A folder with a tiny llama model in it.
pub struct Tiny {
    pub folder: TempDir,
    pub model: PathBuf,
}

impl Tiny {
    pub fn new() -> Tiny {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let model = folder.path().join("tiny.gguf");
        tiny::llama(Encoding::Q4_0).write(&model);
        Tiny { folder, model }
    }

    /// The binary with `arguments`, run to its end.
    pub fn run(&self, arguments: &[&str]) -> Output {
        fulcrum(self.folder.path())
            .args(arguments)
            .output()
            .expect("the binary starts")
    }

    /// A path in the folder, as text.
    pub fn path(&self, name: &str) -> String {
        self.folder
            .path()
            .join(name)
            .to_str()
            .expect("temporary folders are UTF-8")
            .to_owned()
    }

    pub fn model(&self) -> &str {
        self.model.to_str().expect("temporary folders are UTF-8")
    }
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("stdout is UTF-8")
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("stderr is UTF-8")
}
