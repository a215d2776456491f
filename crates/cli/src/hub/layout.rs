//! Folders, links and locks of the hub's cache:
//!
//! ```text
//! HUB/models--ORG--REPO/blobs/ETAG              a file's bytes, once, whatever revisions have it
//!                      /blobs/ETAG.incomplete   the same while it is fetched
//!                      /snapshots/COMMIT/PATH   a link to the blob
//!                      /refs/REVISION           the commit that a branch or tag means
//! HUB/.locks/models--ORG--REPO/ETAG.lock        held while a blob is fetched
//! ```

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::name::{HubName, is_file_path};
use super::select::Listed;

/// Files of a snapshot that are looked at; a model has a few dozen.
const NUM_FILES_MAX: usize = 4096;

/// One repository in the cache.
#[derive(Debug)]
pub(super) struct RepoFolder {
    root: PathBuf,
    locks: PathBuf,
}

impl RepoFolder {
    /// Creates nothing.
    pub(super) fn new(cache: &Path, name: &HubName) -> RepoFolder {
        let folder = format!("models--{}", name.repo.replace('/', "--"));
        RepoFolder {
            root: cache.join(&folder),
            locks: cache.join(".locks").join(&folder),
        }
    }

    /// Where a blob lies, or would.
    pub(super) fn blob(&self, etag: &str) -> PathBuf {
        self.root.join("blobs").join(etag)
    }

    /// Where a blob lies while it is fetched.
    pub(super) fn incomplete(&self, etag: &str) -> PathBuf {
        self.root.join("blobs").join(format!("{etag}.incomplete"))
    }

    /// The folder of a commit's files.
    pub(super) fn snapshot(&self, commit: &str) -> PathBuf {
        self.root.join("snapshots").join(commit)
    }

    /// Waits until nobody else fetches the blob; until the file is dropped nobody else will.
    pub(super) fn lock(&self, etag: &str) -> anyhow::Result<File> {
        let path = self.locks.join(format!("{etag}.lock"));
        create_parent(&path)?;
        create_parent(&self.blob(etag))?;
        let file =
            File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
        if file.try_lock().is_err() {
            eprintln!("waiting for another download of the same file");
            file.lock()
                .with_context(|| format!("cannot lock {}", path.display()))?;
        }
        Ok(file)
    }

    /// Names a blob as a file of a commit.
    pub(super) fn link(&self, commit: &str, path: &str, etag: &str) -> anyhow::Result<()> {
        let link = self.snapshot(commit).join(path);
        create_parent(&link)?;
        // Up from the file's folder, its commit and `snapshots`.
        let up = "../".repeat(2 + path.split('/').count() - 1);
        let target = PathBuf::from(format!("{up}blobs/{etag}"));
        if fs::read_link(&link).is_ok_and(|known| known == target) {
            return Ok(());
        }
        let unfinished = link.with_extension(format!("{}.unfinished", std::process::id()));
        symlink(&target, &unfinished)
            .or_else(|_no_links_here| fs::hard_link(self.blob(etag), &unfinished))
            .and_then(|()| fs::rename(&unfinished, &link))
            .with_context(|| format!("cannot make the link {}", link.display()))
    }

    /// Notes which commit a branch or tag means.
    pub(super) fn write_ref(&self, revision: &str, commit: &str) -> anyhow::Result<()> {
        if revision == commit {
            return Ok(());
        }
        let path = self.root.join("refs").join(revision);
        create_parent(&path)?;
        let unfinished = path.with_extension(format!("{}.unfinished", std::process::id()));
        fs::write(&unfinished, commit)
            .and_then(|()| fs::rename(&unfinished, &path))
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// The commit that a branch or tag meant when it was last fetched; a commit means itself.
    pub(super) fn read_ref(&self, revision: &str) -> Option<String> {
        let commit = match fs::read_to_string(self.root.join("refs").join(revision)) {
            Ok(text) => text.trim().to_owned(),
            Err(_never_fetched) => revision.to_owned(),
        };
        (is_commit(&commit) && self.snapshot(&commit).is_dir()).then_some(commit)
    }

    /// The files of a commit that are in the cache.
    pub(super) fn files(&self, commit: &str) -> Vec<Listed> {
        let root = self.snapshot(commit);
        let mut files = Vec::new();
        let mut folders = vec![root.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                let Ok(kind) = entry.file_type() else {
                    continue;
                };
                if kind.is_dir() {
                    folders.push(entry.path());
                } else if let Some(file) = listed(&root, &entry.path()) {
                    files.push(file);
                }
                if files.len() + folders.len() > NUM_FILES_MAX {
                    return Vec::new();
                }
            }
        }
        files.sort_by(|one, other| one.path.cmp(&other.path));
        files
    }
}

/// A file below `root`; links whose blob is gone are no files.
fn listed(root: &Path, path: &Path) -> Option<Listed> {
    let num_bytes = fs::metadata(path).ok().filter(fs::Metadata::is_file)?.len();
    let path = path.strip_prefix(root).ok()?.to_str()?.to_owned();
    is_file_path(&path).then_some(Listed {
        path,
        num_bytes: Some(num_bytes),
    })
}

/// A commit's hash, as part of a path and of an address.
pub(super) fn is_commit(text: &str) -> bool {
    (7..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

fn create_parent(path: &Path) -> anyhow::Result<()> {
    let folder = path.parent().expect("every path here is below the cache");
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))
}

#[cfg(unix)]
fn symlink(target: &Path, link: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(target, link)
}

#[cfg(not(unix))]
fn symlink(_target: &Path, _link: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
