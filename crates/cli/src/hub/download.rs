//! One file of the hub: fetched where an earlier attempt ended, checked, named.
//!
//! The one idea: bytes are hashed as they are written, and only a file whose hash is the one the hub told
//! gets its name. Large files are named by their SHA-256, small ones by git's hash of their content.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write as _};
use std::path::Path;

use anyhow::{Context as _, bail};
use indicatif::ProgressBar;
use sha1::Sha1;
use sha2::{Digest as _, Sha256};

use super::client::{Client, FileFacts, RangeRefused, Unreachable};
use super::layout::RepoFolder;
use super::name::HubName;
use super::select::Listed;
use crate::pull::{disk_hint, progress_bar};
use crate::words::{WithHint as _, megabytes, printable};

/// Answers in a row that may bring not a single byte.
const NUM_EMPTY_ANSWERS_MAX: u32 = 3;
/// Bytes read at once.
const BUFFER_BYTES: usize = 256 * 1024;

/// Says what is about to be fetched.
pub(super) fn announce(name: &HubName, num_files: usize, num_bytes: Option<u64>) {
    let files = if num_files == 1 {
        "1 file"
    } else {
        &format!("{num_files} files")
    };
    match num_bytes {
        Some(num_bytes) => eprintln!("{name}: {files}, {}", megabytes(num_bytes)),
        None => eprintln!("{name}: {files}"),
    }
}

/// Brings one file of a commit into the cache, unless it is there.
pub(super) fn fetch_file(
    client: &Client<'_>,
    name: &HubName,
    folder: &RepoFolder,
    (commit, file): (&str, &Listed),
) -> anyhow::Result<()> {
    let facts = client.facts(name, commit, &file.path)?;
    let _lock = folder.lock(&facts.etag)?;
    let blob = folder.blob(&facts.etag);
    let is_here = fs::metadata(&blob).is_ok_and(|found| found.len() == facts.num_bytes);
    if !is_here {
        let unfinished = folder.incomplete(&facts.etag);
        let download = Download {
            client,
            name,
            facts: &facts,
            path: &file.path,
        };
        download.run(&unfinished)?;
        fs::rename(&unfinished, &blob)
            .with_context(|| format!("cannot name {}", blob.display()))?;
    }
    folder.link(commit, &file.path, &facts.etag)
}

struct Download<'a> {
    client: &'a Client<'a>,
    name: &'a HubName,
    facts: &'a FileFacts,
    path: &'a str,
}

impl Download<'_> {
    /// Completes the file at `unfinished`. What an earlier attempt left there is used, unless it turns
    /// out to be of something else.
    fn run(&self, unfinished: &Path) -> anyhow::Result<()> {
        let was_begun = fs::metadata(unfinished).is_ok_and(|file| file.len() > 0);
        match self.complete(unfinished) {
            Err(error) if was_begun && is_about_content(&error) => {
                remove(unfinished)?;
                self.complete(unfinished)
            }
            result => result,
        }
        .inspect_err(|error| {
            // Bytes that are wrong would be wrong the next time too.
            if is_about_content(error) {
                let _ = fs::remove_file(unfinished);
            }
        })
    }

    fn complete(&self, unfinished: &Path) -> anyhow::Result<()> {
        let bar = progress_bar(self.facts.num_bytes, "downloading");
        let mut sink = Sink::open(unfinished, self.facts).hint(disk_hint(unfinished))?;
        let mut num_empty_answers = 0;
        while sink.num_bytes < self.facts.num_bytes {
            let before = sink.num_bytes;
            let outcome = self.append(&mut sink, &bar);
            if sink.num_bytes > before {
                num_empty_answers = 0;
            } else {
                num_empty_answers += 1;
            }
            match outcome {
                Ok(()) if num_empty_answers < NUM_EMPTY_ANSWERS_MAX => {}
                Ok(()) => bail!(
                    "{} of {} ends early, again and again",
                    printable(self.path),
                    self.name
                ),
                Err(error)
                    if num_empty_answers < NUM_EMPTY_ANSWERS_MAX
                        && error.downcast_ref::<Unreachable>().is_some() => {}
                Err(error) => return Err(error),
            }
        }
        bar.finish_and_clear();
        sink.finish(self.facts)
            .with_context(|| format!("{} of {}", printable(self.path), self.name))
    }

    /// Adds what one answer brings.
    fn append(&self, sink: &mut Sink, bar: &ProgressBar) -> anyhow::Result<()> {
        let (body, begins_at) = self.client.bytes(self.name, self.facts, sink.num_bytes)?;
        if begins_at != sink.num_bytes {
            // A server that knows no ranges sends all of it.
            sink.restart()?;
        }
        let mut buffer = vec![0; BUFFER_BYTES];
        // One byte more than is right tells a wrong size, and no server can fill the disk.
        let num_left = self.facts.num_bytes - sink.num_bytes + 1;
        let mut body = body.into_reader().take(num_left);
        loop {
            bar.set_position(sink.num_bytes);
            match body.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(num_read) => sink.write(&buffer[..num_read])?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.client.unreachable(&error).into()),
            }
        }
    }
}

/// What arrived is not what the hub told.
#[derive(Debug)]
struct WrongContent {
    reason: String,
}

impl std::fmt::Display for WrongContent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for WrongContent {}

fn is_about_content(error: &anyhow::Error) -> bool {
    error.downcast_ref::<WrongContent>().is_some() || error.downcast_ref::<RangeRefused>().is_some()
}

fn remove(path: &Path) -> anyhow::Result<()> {
    fs::remove_file(path).with_context(|| format!("cannot remove {}", path.display()))
}

/// Writes a file and hashes it as the hub does.
struct Sink {
    file: File,
    hash: Hash,
    num_bytes: u64,
    path: std::path::PathBuf,
    facts_num_bytes: u64,
}

impl Sink {
    /// Goes on with what is there.
    fn open(path: &Path, facts: &FileFacts) -> anyhow::Result<Sink> {
        let mut file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .open(path)
            .with_context(|| format!("cannot write {}", path.display()))?;
        let mut sink = Sink {
            hash: Hash::named_by(&facts.etag, facts.num_bytes),
            num_bytes: 0,
            path: path.to_owned(),
            facts_num_bytes: facts.num_bytes,
            file: file.try_clone().context("cannot open a file twice")?,
        };
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            let num_read = file
                .read(&mut buffer)
                .with_context(|| format!("cannot read {}", path.display()))?;
            if num_read == 0 {
                break;
            }
            sink.hash.update(&buffer[..num_read]);
            sink.num_bytes += num_read as u64;
        }
        if sink.num_bytes > facts.num_bytes {
            sink.restart()?;
        }
        Ok(sink)
    }

    fn restart(&mut self) -> anyhow::Result<()> {
        self.file
            .set_len(0)
            .with_context(|| format!("cannot write {}", self.path.display()))?;
        self.hash = self.hash.anew(self.facts_num_bytes);
        self.num_bytes = 0;
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        self.file
            .write_all(bytes)
            .with_context(|| format!("cannot write {}", self.path.display()))
            .hint(disk_hint(&self.path))?;
        self.hash.update(bytes);
        self.num_bytes += bytes.len() as u64;
        Ok(())
    }

    fn finish(self, facts: &FileFacts) -> anyhow::Result<()> {
        self.file
            .sync_all()
            .with_context(|| format!("cannot finish {}", self.path.display()))
            .hint(disk_hint(&self.path))?;
        let found = self.hash.hex();
        let is_named = found
            .as_deref()
            .is_none_or(|found| found.eq_ignore_ascii_case(&facts.etag));
        if self.num_bytes == facts.num_bytes && is_named {
            if found.is_none() {
                eprintln!("the hub tells no checksum for this file; only its size was compared");
            }
            return Ok(());
        }
        let reason = format!(
            "is not what the hub says it is: {} bytes with hash {}, expected {} bytes with {}",
            self.num_bytes,
            found.as_deref().unwrap_or("unknown"),
            facts.num_bytes,
            facts.etag
        );
        Err(WrongContent { reason }.into())
    }
}

/// The hash that an ETag is, if it is one.
enum Hash {
    /// Of a large file.
    Sha256(Sha256),
    /// Of a small one: git's, over a header and the content.
    Git(Sha1),
    /// A mirror's own ETag, which says nothing.
    Unknown,
}

impl Hash {
    fn named_by(etag: &str, num_bytes: u64) -> Hash {
        let is_hex = etag.bytes().all(|byte| byte.is_ascii_hexdigit());
        match etag.len() {
            64 if is_hex => Hash::Sha256(Sha256::new()),
            40 if is_hex => {
                let mut hash = Sha1::new();
                hash.update(format!("blob {num_bytes}\0"));
                Hash::Git(hash)
            }
            _ => Hash::Unknown,
        }
    }

    fn anew(&self, num_bytes: u64) -> Hash {
        match self {
            Hash::Sha256(_) => Hash::Sha256(Sha256::new()),
            Hash::Git(_) => Hash::named_by(&"0".repeat(40), num_bytes),
            Hash::Unknown => Hash::Unknown,
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            Hash::Sha256(hash) => hash.update(bytes),
            Hash::Git(hash) => hash.update(bytes),
            Hash::Unknown => {}
        }
    }

    fn hex(self) -> Option<String> {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        match self {
            Hash::Sha256(hash) => Some(hex(&hash.finalize())),
            Hash::Git(hash) => Some(hex(&hash.finalize())),
            Hash::Unknown => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_files_are_named_by_git_and_large_ones_by_their_sha256() {
        let hash = |etag: &str, content: &[u8]| {
            let mut hash = Hash::named_by(etag, content.len() as u64);
            hash.update(content);
            hash.hex()
        };
        // `printf 'hello\n' | git hash-object --stdin`
        assert_eq!(
            hash(&"0".repeat(40), b"hello\n").as_deref(),
            Some("ce013625030ba8dba906f756967f9e9ca394464a")
        );
        let sha256 = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
        assert_eq!(hash(sha256, b"hello").as_deref(), Some(sha256));
        assert_eq!(hash("mirror-1", b"hello"), None);
    }
}
