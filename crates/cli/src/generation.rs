//! The sampling that a folder's authors recommend: `generation_config.json`.
//!
//! The one idea: only what the file states counts; what transformers would assume for an absent key is its own habit,
//! not the authors' advice. Not here: the tokens that end an answer (`text`), GGUF files (`open.rs`).
//!
//! Source: `transformers`, `generation/configuration_utils.py`.

use std::fs::File;
use std::path::Path;

use anyhow::{Context as _, bail};
use serde_json::{Map, Value};
use server::SamplingDefaults;

use crate::open::read_text;

/// Bytes of the file that are read; real ones have a few hundred.
const BYTES_MAX: u64 = 1 << 20;

/// Reads the recommendations in `folder`; none if it has no such file.
///
/// # Errors
///
/// If the file is no JSON object, or a value is of the wrong type or out of range.
pub fn defaults(folder: &Path) -> anyhow::Result<SamplingDefaults> {
    let path = folder.join("generation_config.json");
    if !path.is_file() {
        return Ok(SamplingDefaults::default());
    }
    let config = File::open(&path)
        .and_then(|file| read_text(file, BYTES_MAX))
        .map_err(anyhow::Error::from)
        .and_then(|text| Ok(serde_json::from_str(&text)?));
    let config = config.with_context(|| format!("cannot read {}", path.display()))?;
    from_config(&config).with_context(|| path.display().to_string())
}

fn from_config(config: &Map<String, Value>) -> anyhow::Result<SamplingDefaults> {
    let number = |key: &str, is_sound: fn(f64) -> bool| match config.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_f64().filter(|number| is_sound(*number)) {
            // Sampling works in single precision.
            Some(number) => Ok(Some(number as f32)),
            None => bail!("{key} = {value} is out of range"),
        },
    };
    let temperature = number("temperature", |value| (0.0..=2.0).contains(&value))?;
    let top_k = number("top_k", |value| {
        (0.0..=f64::from(u32::MAX)).contains(&value) && value.fract() == 0.0
    })?;
    let is_greedy = match config.get("do_sample") {
        None | Some(Value::Null) => false,
        Some(Value::Bool(samples)) => !samples,
        Some(value) => bail!("do_sample = {value} is neither true nor false"),
    };
    Ok(SamplingDefaults {
        // Authors who do not sample want the likeliest token, whatever the other keys say.
        temperature: if is_greedy { Some(0.0) } else { temperature },
        top_p: number("top_p", |value| value > 0.0 && value <= 1.0)?,
        // 0 is off.
        top_k: top_k.map(|value| value as u32).filter(|value| *value > 0),
        min_p: number("min_p", |value| (0.0..=1.0).contains(&value))?,
        repetition_penalty: number("repetition_penalty", |value| value > 0.0 && value <= 2.0)?,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(config: Value) -> anyhow::Result<SamplingDefaults> {
        from_config(config.as_object().expect("an object"))
    }

    #[test]
    fn what_the_authors_state_is_what_a_request_gets() {
        let config = json!({
            "do_sample": true, "temperature": 0.6, "top_p": 0.95, "top_k": 20, "min_p": null,
            "repetition_penalty": 1.05, "eos_token_id": [1, 2],
        });
        let expected = SamplingDefaults {
            temperature: Some(0.6),
            top_p: Some(0.95),
            top_k: Some(20),
            min_p: None,
            repetition_penalty: Some(1.05),
        };
        assert_eq!(read(config).unwrap(), expected);
        assert_eq!(
            read(json!({"top_k": 0})).unwrap(),
            SamplingDefaults::default()
        );
    }

    #[test]
    fn authors_who_do_not_sample_get_the_likeliest_token() {
        let config = json!({"do_sample": false, "temperature": 0.6});
        assert_eq!(read(config).unwrap().temperature, Some(0.0));
    }

    #[test]
    fn a_value_of_another_type_or_out_of_range_is_refused_by_its_key() {
        for (key, value) in [
            ("temperature", json!("hot")),
            ("temperature", json!(3)),
            ("top_p", json!(0)),
            ("top_k", json!(1.5)),
            ("top_k", json!(-1)),
            ("min_p", json!(1e300)),
            ("repetition_penalty", json!([])),
            ("do_sample", json!("yes")),
        ] {
            let refusal = read(json!({key: value})).expect_err("unsound").to_string();
            assert!(refusal.contains(key), "{refusal}");
        }
    }
}
