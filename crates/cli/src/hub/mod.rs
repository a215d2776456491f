//! Models of the Hugging Face hub: `hf:ORG/REPO[@REVISION][:FILE]`.
//!
//! The one idea: the cache is the one that every other tool of the hub shares (layout, token,
//! environment variables as `huggingface_hub` and the `hf-hub` crate have them), and a file gets
//! its name there only after its checksum agreed; so whatever is in the cache is whole.
//!
//! Everything the hub says is hostile: names, sizes, lists and redirects are bounded and checked, and the
//! token goes to the hub alone.
//!
//! Source: the hub's description of its local cache, <https://huggingface.co/docs/hub/local-cache>.

// `hf:ORG/REPO@REVISION:FILE`, read and checked.
mod name;

// Variables and folders: where the hub is, who asks, where the cache is.
mod settings;

// Requests, redirects and the hub's errors.
mod client;

// Folders, links and locks of the cache.
mod layout;

// One file: resume, checksum, name.
mod download;

// Which files of a repository make up a model.
mod select;

use std::path::PathBuf;

use anyhow::{Context as _, bail};

use self::client::{Client, Unreachable};
use self::layout::RepoFolder;
pub use self::name::HubName;
use self::select::Selected;
use self::settings::Settings;

/// Begins the name of a model of the hub.
pub const PREFIX: &str = "hf:";

/// The path of a model of the hub, fetched first as far as it is not in the cache: a GGUF file, or the folder
/// of a snapshot.
///
/// # Errors
///
/// If the hub or the disk refuses, or the repository holds no model. If the hub cannot be reached,
/// what an earlier fetch left in the cache is used, and that is said.
pub fn fetch(name: &HubName) -> anyhow::Result<PathBuf> {
    let settings = Settings::from_environment()?;
    let folder = RepoFolder::new(&settings.cache, name);
    if settings.is_offline {
        return cached(name, &folder).with_context(|| {
            format!("HF_HUB_OFFLINE is set, and {name} is not (wholly) in the cache")
        });
    }
    match fetch_online(name, &settings, &folder) {
        Err(error) if error.downcast_ref::<Unreachable>().is_some() => {
            match cached(name, &folder) {
                Some(path) => {
                    eprintln!("{error:#}; using what is in the cache");
                    Ok(path)
                }
                None => Err(error),
            }
        }
        result => result,
    }
}

fn fetch_online(
    name: &HubName,
    settings: &Settings,
    folder: &RepoFolder,
) -> anyhow::Result<PathBuf> {
    let client = Client::new(settings);
    let listing = client.listing(name)?;
    let selected = select::select(name, &listing.files)?;
    let num_bytes: Option<u64> = selected
        .files()
        .iter()
        .map(|file| file.num_bytes)
        .try_fold(0u64, |sum, bytes| sum.checked_add(bytes?));
    download::announce(name, selected.files().len(), num_bytes);
    for file in selected.files() {
        download::fetch_file(&client, name, folder, (&listing.commit, file))?;
    }
    folder.write_ref(&name.revision, &listing.commit)?;
    Ok(path_of(folder, &listing.commit, &selected))
}

/// Where a selection lies: the file itself if there is one GGUF, else the folder of all of them.
fn path_of(folder: &RepoFolder, commit: &str, selected: &Selected) -> PathBuf {
    match selected {
        Selected::Gguf(file) => folder.snapshot(commit).join(&file.path),
        Selected::Folder(_) => folder.snapshot(commit),
    }
}

/// What an earlier fetch of the same name left. A folder of which shards are missing is told apart when it is loaded.
fn cached(name: &HubName, folder: &RepoFolder) -> Option<PathBuf> {
    let commit = folder.read_ref(&name.revision)?;
    let selected = select::select(name, &folder.files(&commit)).ok()?;
    Some(path_of(folder, &commit, &selected))
}

/// Reads what follows `hf:`.
///
/// # Errors
///
/// If it is no name that the hub could have.
pub fn parse(typed: &str) -> anyhow::Result<Option<HubName>> {
    let Some(name) = typed.strip_prefix(PREFIX) else {
        return Ok(None);
    };
    match HubName::parse(name) {
        Ok(name) => Ok(Some(name)),
        Err(reason) => bail!("{typed:?} is no model of the hub: {reason}"),
    }
}
