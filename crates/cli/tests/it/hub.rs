//! `fulcrum pull hf:…`, against a stand-in for the hub: nothing here touches a network.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use testkit::encode::Encoding;
use testkit::tiny;

use crate::hub_stand_in::{COMMIT, Hub, Script, etag};
use crate::support::{fulcrum, stderr, stdout};

/// A home for the cache, and a hub.
struct Scene {
    folder: tempfile::TempDir,
    hub: Hub,
}

impl Scene {
    fn new(script: Script) -> Scene {
        Scene {
            folder: tempfile::tempdir().expect("a folder can be made"),
            hub: Hub::start(script),
        }
    }

    fn run(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
        let mut command = fulcrum(self.folder.path());
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy().into_owned();
            if name.starts_with("HF_")
                || name.starts_with("HUGGING")
                || name.to_lowercase().ends_with("_proxy")
            {
                command.env_remove(name);
            }
        }
        command
            .args(arguments)
            .env("HF_HOME", self.folder.path())
            .env("HF_ENDPOINT", self.hub.endpoint())
            .envs(variables.iter().copied())
            .output()
            .expect("the binary starts")
    }

    fn pull(&self, name: &str) -> Output {
        self.run(&["pull", name], &[])
    }

    fn repo(&self) -> PathBuf {
        self.folder.path().join("hub/models--a--b")
    }

    fn snapshot(&self) -> PathBuf {
        self.repo().join("snapshots").join(COMMIT)
    }
}

fn content(num_bytes: usize) -> Vec<u8> {
    let mut random = testkit::Random::new(7);
    (0..num_bytes).map(|_| random.below(256) as u8).collect()
}

fn script(files: &[(&str, Vec<u8>)]) -> Script {
    Script {
        files: files
            .iter()
            .map(|(path, content)| ((*path).to_owned(), content.clone()))
            .collect(),
        ..Script::default()
    }
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn a_file_lands_where_every_tool_of_the_hub_looks_for_it() {
    let bytes = content(300_000);
    let scene = Scene::new(script(&[
        ("sub/m-Q8_0.gguf", bytes.clone()),
        ("m-Q4_0.gguf", content(10)),
    ]));
    let output = scene.pull("hf:a/b:Q8_0");
    assert!(output.status.success(), "{}", stderr(&output));
    let path = scene.snapshot().join("sub/m-Q8_0.gguf");
    assert_eq!(
        stdout(&output).trim(),
        path.to_str().expect("temporary folders are UTF-8")
    );
    assert_eq!(fs::read(&path).expect("the link leads to the blob"), bytes);
    let blob = scene.repo().join("blobs").join(etag("m.gguf", &bytes));
    assert_eq!(
        path.canonicalize().expect("it exists"),
        blob.canonicalize().expect("it exists")
    );
    assert_eq!(
        fs::read_to_string(scene.repo().join("refs/main")).expect("it is written"),
        COMMIT
    );
}

#[test]
fn a_folder_is_fetched_whole_and_what_is_there_is_not_fetched_again() {
    let files = [
        ("config.json", b"{}".to_vec()),
        ("model.safetensors", content(5000)),
        ("README.md", content(9)),
    ];
    let scene = Scene::new(script(&files));
    let output = scene.pull("hf:a/b");
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(
        stdout(&output).trim(),
        scene
            .snapshot()
            .to_str()
            .expect("temporary folders are UTF-8")
    );
    assert_eq!(
        names(&scene.snapshot()),
        ["config.json", "model.safetensors"]
    );
    let num_bodies = || {
        scene
            .hub
            .heads()
            .iter()
            .filter(|head| head.contains("GET /") && !head.contains("/api/"))
            .count()
    };
    let before = num_bodies();
    assert!(scene.pull("hf:a/b").status.success());
    assert_eq!(num_bodies(), before, "only facts are asked for");
}

#[test]
fn a_download_that_broke_off_goes_on_where_it_was() {
    let bytes = content(400_000);
    let scene = Scene::new(Script {
        cut_after: Some(150_000),
        ..script(&[("m.gguf", bytes.clone())])
    });
    let output = scene.pull("hf:a/b");
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(
        fs::read(scene.snapshot().join("m.gguf")).expect("it is there"),
        bytes
    );
    let heads = scene.hub.heads();
    assert!(
        heads
            .iter()
            .any(|head| head.to_lowercase().contains("range: bytes=150000-")),
        "{heads:#?}"
    );
}

#[test]
fn bytes_of_an_earlier_process_are_used() {
    let bytes = content(100_000);
    for without_ranges in [false, true] {
        let scene = Scene::new(Script {
            without_ranges,
            ..script(&[("m.gguf", bytes.clone())])
        });
        let unfinished = scene
            .repo()
            .join("blobs")
            .join(format!("{}.incomplete", etag("m.gguf", &bytes)));
        fs::create_dir_all(unfinished.parent().expect("it has one")).expect("it is writable");
        fs::write(&unfinished, &bytes[..60_000]).expect("it is writable");
        let output = scene.pull("hf:a/b");
        assert!(output.status.success(), "{}", stderr(&output));
        assert_eq!(
            fs::read(scene.snapshot().join("m.gguf")).expect("it is there"),
            bytes
        );
        assert!(!unfinished.exists());
    }
}

#[test]
fn leftovers_of_something_else_are_thrown_away() {
    let bytes = content(100_000);
    let scene = Scene::new(script(&[("m.gguf", bytes.clone())]));
    let unfinished = scene
        .repo()
        .join("blobs")
        .join(format!("{}.incomplete", etag("m.gguf", &bytes)));
    fs::create_dir_all(unfinished.parent().expect("it has one")).expect("it is writable");
    fs::write(&unfinished, vec![0; 60_000]).expect("it is writable");
    let output = scene.pull("hf:a/b");
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(
        fs::read(scene.snapshot().join("m.gguf")).expect("it is there"),
        bytes
    );
}

#[test]
fn a_file_that_is_not_what_the_hub_says_never_gets_a_name() {
    let bytes = content(5000);
    let mut forged = bytes.clone();
    forged[77] ^= 1;
    for forged in [forged, vec![1; 9000], Vec::new()] {
        let scene = Scene::new(Script {
            forged: Some(forged),
            ..script(&[("m.gguf", bytes.clone())])
        });
        let output = scene.pull("hf:a/b");
        assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
        assert!(names(&scene.snapshot()).is_empty());
        let blob = scene.repo().join("blobs").join(etag("m.gguf", &bytes));
        assert!(!blob.exists(), "{}", stderr(&output));
    }
}

#[test]
fn the_token_opens_the_hub_and_is_told_to_nobody_else() {
    let gated = Script {
        token: Some("hf_secret".into()),
        ..script(&[("m.gguf", content(100))])
    };
    let scene = Scene::new(gated);
    let refused = scene.pull("hf:a/b");
    assert_eq!(refused.status.code(), Some(1));
    let said = stderr(&refused);
    assert!(
        said.contains("Access to model a/b is restricted") && said.contains("HF_TOKEN"),
        "{said}"
    );
    let output = scene.run(&["pull", "hf:a/b"], &[("HF_TOKEN", "hf_secret")]);
    assert!(output.status.success(), "{}", stderr(&output));
    let heads = scene.hub.heads();
    let to_store: Vec<_> = heads
        .iter()
        .filter(|head| head.starts_with("STORE"))
        .collect();
    assert!(!to_store.is_empty());
    assert!(
        to_store.iter().all(|head| !head.contains("hf_secret")),
        "{to_store:#?}"
    );
}

#[test]
fn a_hub_in_trouble_is_asked_again() {
    let scene = Scene::new(Script {
        num_troubled: 2,
        ..script(&[("m.gguf", content(100))])
    });
    let output = scene.pull("hf:a/b");
    assert!(output.status.success(), "{}", stderr(&output));
}

#[test]
fn without_a_hub_the_cache_will_do() {
    let scene = Scene::new(script(&[("m.gguf", content(100))]));
    let path = stdout(&scene.pull("hf:a/b"));
    let nowhere = [("HF_ENDPOINT", "http://127.0.0.1:1")];
    let output = scene.run(&["pull", "hf:a/b"], &nowhere);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(stdout(&output), path);
    assert!(stderr(&output).contains("using what is in the cache"));
    let offline = scene.run(&["pull", "hf:a/b"], &[("HF_HUB_OFFLINE", "1")]);
    assert_eq!(stdout(&offline), path);
    let other = scene.run(&["pull", "hf:a/other"], &nowhere);
    assert_eq!(other.status.code(), Some(1));
    assert!(
        stderr(&other).contains("cannot reach http://127.0.0.1:1"),
        "{}",
        stderr(&other)
    );
}

#[test]
fn what_is_not_there_is_said_with_what_is() {
    let scene = Scene::new(script(&[
        ("m-Q4_0.gguf", content(10)),
        ("m-Q8_0.gguf", content(10)),
    ]));
    let which = scene.pull("hf:a/b");
    assert_eq!(which.status.code(), Some(1));
    assert!(stderr(&which).contains("m-Q8_0.gguf"), "{}", stderr(&which));
    let absent = scene.pull("hf:a/c");
    assert!(
        stderr(&absent).contains("is the name right?"),
        "{}",
        stderr(&absent)
    );
    let odd = scene.pull("hf:../..");
    assert!(stderr(&odd).contains("is not ORG/REPO"), "{}", stderr(&odd));
}

#[test]
fn a_model_of_the_hub_is_used_like_any_other() {
    let bytes = tiny::llama(Encoding::Q4_0).build().bytes;
    let scene = Scene::new(script(&[("tiny.gguf", bytes)]));
    let output = scene.run(&["inspect", "hf:a/b", "--json"], &[]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout(&output).contains("llama"), "{}", stdout(&output));
}
