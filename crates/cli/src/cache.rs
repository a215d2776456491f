//! Where models are kept: `$FULCRUM_CACHE`, else `$XDG_CACHE_HOME/fulcrum`, else `~/.cache/fulcrum`.

use std::env;
use std::path::PathBuf;

use anyhow::Context as _;

/// The folder that holds model files; not created by asking.
pub fn models_folder() -> anyhow::Result<PathBuf> {
    Ok(cache_folder(|name| env::var_os(name).map(PathBuf::from))
        .context("no folder for models: none of FULCRUM_CACHE, XDG_CACHE_HOME and HOME is set")?
        .join("models"))
}

fn cache_folder(variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    // An empty or relative variable counts as unset, as the XDG specification says.
    let absolute = |name: &str| variable(name).filter(|path| path.is_absolute());
    absolute("FULCRUM_CACHE")
        .or_else(|| absolute("XDG_CACHE_HOME").map(|path| path.join("fulcrum")))
        .or_else(|| absolute("HOME").map(|path| path.join(".cache/fulcrum")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_absolute_variable_wins() {
        let all = |name: &str| Some(PathBuf::from(format!("/{name}")));
        assert_eq!(cache_folder(all), Some(PathBuf::from("/FULCRUM_CACHE")));
        let home_only = |name: &str| (name == "HOME").then(|| PathBuf::from("/home/a"));
        assert_eq!(
            cache_folder(home_only),
            Some(PathBuf::from("/home/a/.cache/fulcrum"))
        );
        let relative = |name: &str| Some(PathBuf::from(name));
        assert_eq!(cache_folder(relative), None);
    }
}
