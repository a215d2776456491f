//! The variables of the hub's own tools: where the hub is, who asks, where the cache is.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

/// The public hub.
const ENDPOINT: &str = "https://huggingface.co";
/// A token is a word of some forty letters; a longer file is something else.
const TOKEN_BYTES_MAX: u64 = 4096;

/// What the environment says.
#[derive(Clone)]
pub(super) struct Settings {
    /// Address without a slash at its end (`HF_ENDPOINT`).
    pub endpoint: String,
    /// Sent to the endpoint and to nobody else.
    pub token: Option<String>,
    /// Folder of all repositories.
    pub cache: PathBuf,
    /// Whether nothing may be asked of a network (`HF_HUB_OFFLINE`).
    pub is_offline: bool,
}

impl Settings {
    pub(super) fn from_environment() -> anyhow::Result<Settings> {
        Settings::from_variables(|name| {
            env::var(name).ok().filter(|value| !value.trim().is_empty())
        })
    }

    fn from_variables(variable: impl Fn(&str) -> Option<String>) -> anyhow::Result<Settings> {
        let endpoint = variable("HF_ENDPOINT").unwrap_or_else(|| ENDPOINT.to_owned());
        let endpoint = endpoint.trim().trim_end_matches('/').to_owned();
        if !(endpoint.starts_with("https://") || endpoint.starts_with("http://")) {
            bail!("HF_ENDPOINT {endpoint:?} is no http address");
        }
        let home = variable("HF_HOME")
            .map(PathBuf::from)
            .or_else(|| Some(PathBuf::from(variable("XDG_CACHE_HOME")?).join("huggingface")))
            .or_else(|| Some(PathBuf::from(variable("HOME")?).join(".cache/huggingface")));
        let cache = variable("HF_HUB_CACHE")
            .or_else(|| variable("HUGGINGFACE_HUB_CACHE"))
            .map(PathBuf::from)
            .or_else(|| Some(home.as_ref()?.join("hub")))
            .context("no folder for models of the hub: none of HF_HUB_CACHE, HF_HOME, XDG_CACHE_HOME and HOME is set")?;
        let is_set = |name: &str| {
            variable(name).is_some_and(|value| {
                ["1", "true", "yes", "on"].contains(&value.to_ascii_lowercase().as_str())
            })
        };
        let token_file = variable("HF_TOKEN_PATH")
            .map(PathBuf::from)
            .or_else(|| Some(home.as_ref()?.join("token")));
        let token = match variable("HF_TOKEN").or_else(|| variable("HUGGING_FACE_HUB_TOKEN")) {
            Some(token) => Some(token),
            None if is_set("HF_HUB_DISABLE_IMPLICIT_TOKEN") => None,
            None => token_file.as_deref().and_then(read_token),
        };
        let token = token.map(|token| token.trim().to_owned());
        if token
            .as_ref()
            .is_some_and(|token| token.bytes().any(|byte| !byte.is_ascii_graphic()))
        {
            bail!("the token of the hub (HF_TOKEN, or its file) is not one word of plain letters");
        }
        Ok(Settings {
            endpoint,
            token,
            cache,
            is_offline: is_set("HF_HUB_OFFLINE"),
        })
    }
}

/// The token that a login left, if there is one.
fn read_token(path: &Path) -> Option<String> {
    let is_short =
        fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() <= TOKEN_BYTES_MAX);
    let token = is_short.then(|| fs::read_to_string(path).ok())??;
    Some(token).filter(|token| !token.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(variables: &[(&str, &str)]) -> anyhow::Result<Settings> {
        Settings::from_variables(|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn the_cache_is_where_the_other_tools_of_the_hub_have_it() {
        let cache =
            |variables: &[(&str, &str)]| settings(variables).expect("a folder is named").cache;
        let home = ("HOME", "/h");
        assert_eq!(cache(&[home]), PathBuf::from("/h/.cache/huggingface/hub"));
        let xdg = ("XDG_CACHE_HOME", "/x");
        assert_eq!(cache(&[home, xdg]), PathBuf::from("/x/huggingface/hub"));
        let hf = ("HF_HOME", "/f");
        assert_eq!(cache(&[home, xdg, hf]), PathBuf::from("/f/hub"));
        assert_eq!(
            cache(&[home, xdg, hf, ("HF_HUB_CACHE", "/c")]),
            PathBuf::from("/c")
        );
        assert!(settings(&[]).is_err());
    }

    #[test]
    fn a_token_comes_from_its_variable_or_from_the_file_a_login_left() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        fs::write(folder.path().join("token"), "hf_filed\n").expect("it is writable");
        let home = (
            "HF_HOME",
            folder.path().to_str().expect("temporary folders are UTF-8"),
        );
        let token =
            |variables: &[(&str, &str)]| settings(variables).expect("a folder is named").token;
        assert_eq!(token(&[home]).as_deref(), Some("hf_filed"));
        assert_eq!(
            token(&[home, ("HF_TOKEN", "hf_named")]).as_deref(),
            Some("hf_named")
        );
        assert_eq!(token(&[home, ("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")]), None);
        assert!(settings(&[home, ("HF_TOKEN", "two words")]).is_err());
    }

    #[test]
    fn an_endpoint_is_an_http_address() {
        let endpoint = settings(&[("HOME", "/h"), ("HF_ENDPOINT", "http://127.0.0.1:1/")]);
        assert_eq!(endpoint.expect("it is one").endpoint, "http://127.0.0.1:1");
        assert!(settings(&[("HOME", "/h"), ("HF_ENDPOINT", "file:///etc")]).is_err());
    }
}
