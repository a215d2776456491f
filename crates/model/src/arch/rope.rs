//! Rotations as `config.json` describes them.
//!
//! Two styles: `rope_parameters`, flat or by kind of layer, with the base in it; or `rope_theta` beside an
//! optional `rope_scaling`. What is not built is refused by its name.
//!
//! Source: transformers' `modeling_rope_utils.py`.

use std::f64::consts::TAU;
use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use super::keys::Keys;
use super::store::Fact;
use crate::spec::{LIMITS, RopeDivisors, RopePairing, RopeRounding, RopeScaling, RopeSpec, Yarn};

/// Kinds of scaling that are computed.
const KINDS: &str = "default, linear, llama3, yarn, longrope";

/// What a family knows of its rotation beyond the file.
pub(super) struct RopeDefaults {
    pub base: f32,
    /// Share of a head that rotates.
    pub partial: f32,
    pub head_dim: usize,
    pub context_max: usize,
}

/// The rotation of a kind of layer: `full_attention` or `sliding_attention`.
pub(super) fn read(keys: &mut Keys<'_>, kind_of_layer: &str, defaults: &RopeDefaults) -> RopeSpec {
    let mut rope = Section::of(keys, kind_of_layer);
    let base = rope
        .number(keys, "rope_theta", LIMITS.rope_base)
        .unwrap_or(defaults.base);
    let partial = rope
        .number(keys, "partial_rotary_factor", 0.0..=1.0)
        .unwrap_or(defaults.partial);
    // Rounded down, as the reference does; what remains passes.
    let num_dims = (defaults.head_dim as f64 * f64::from(partial)) as usize;
    if num_dims < 2 || !num_dims.is_multiple_of(2) {
        let expected = format!(
            "a share of {} that is an even number of values",
            defaults.head_dim
        );
        keys.refuse_value("partial_rotary_factor", expected, partial.to_string());
    }
    let mut spec = RopeSpec {
        pairing: RopePairing::Halves,
        num_dims: num_dims.max(2),
        base,
        scaling: RopeScaling::None,
        divisors: RopeDivisors::None,
        magnitude: 1.0,
        rounding: rounding(keys),
    };
    match rope.kind(keys).as_str() {
        "default" => {}
        "linear" => {
            let factor = rope.required(keys, "factor", LIMITS.rope_factor);
            spec.scaling = RopeScaling::Linear { factor };
        }
        "llama3" => spec.divisors = RopeDivisors::Given(llama3(keys, &mut rope, &spec)),
        "yarn" => spec.scaling = RopeScaling::Yarn(yarn(keys, &mut rope, defaults)),
        "longrope" | "su" => longrope(keys, &mut rope, &mut spec, defaults),
        other => keys.refuse_feature(&rope.kind_key, format!("{other:?}"), KINDS),
    }
    spec
}

/// A model that was cast to bfloat16 as a whole had its frequencies cast too, and the values it is compared with were
/// computed with them (docs/decisions/0007).
fn rounding(keys: &Keys<'_>) -> RopeRounding {
    let is_bf16 = |key: &str| keys.value(key) == Some(Fact::Text("bfloat16".to_owned()));
    match is_bf16("dtype") || is_bf16("torch_dtype") {
        true => RopeRounding::Bf16,
        false => RopeRounding::None,
    }
}

/// The object that describes a rotation, and the one around it.
struct Section<'a> {
    own: Option<&'a Map<String, Value>>,
    /// Words that older files keep outside.
    outer: &'a Map<String, Value>,
    kind_key: String,
    /// The outer base is another kind of layer's.
    base_key: &'static str,
}

impl<'a> Section<'a> {
    fn of(keys: &mut Keys<'a>, kind_of_layer: &str) -> Section<'a> {
        let outer = keys.store.config().expect("only asked of a config.json");
        let parameters = outer.get("rope_parameters").and_then(Value::as_object);
        let by_kind = parameters.and_then(|parameters| parameters.get(kind_of_layer)?.as_object());
        for key in [
            "rope_parameters",
            "rope_scaling",
            "rope_theta",
            "rope_local_base_freq",
            "partial_rotary_factor",
        ] {
            // Marks it as read.
            let _ = keys.value(key);
        }
        if parameters.is_some() && outer.get("rope_scaling").is_some_and(Value::is_object) {
            let same = outer.get("rope_scaling") == outer.get("rope_parameters");
            if !same {
                let expected = "absent, or what `rope_parameters` says".to_owned();
                keys.refuse_value("rope_scaling", expected, "something else".to_owned());
            }
        }
        // Old files have one rotation and a second base: local layers were never stretched.
        let is_local =
            kind_of_layer == "sliding_attention" && outer.contains_key("rope_local_base_freq");
        let legacy = match is_local {
            true => None,
            false => outer.get("rope_scaling").and_then(Value::as_object),
        };
        Section {
            own: by_kind.or(parameters).or(legacy),
            outer,
            kind_key: if parameters.is_some() {
                "rope_parameters"
            } else {
                "rope_scaling"
            }
            .to_owned(),
            base_key: if is_local {
                "rope_local_base_freq"
            } else {
                "rope_theta"
            },
        }
    }

    fn value(&self, key: &str) -> Option<&'a Value> {
        let outer_key = if key == "rope_theta" {
            self.base_key
        } else {
            key
        };
        let own = self.own.and_then(|own| own.get(key));
        own.or_else(|| self.outer.get(outer_key))
            .filter(|value| !value.is_null())
    }

    fn kind(&self, keys: &mut Keys<'_>) -> String {
        let own = self
            .own
            .and_then(|own| own.get("rope_type").or_else(|| own.get("type")));
        match own {
            None | Some(Value::Null) => "default".to_owned(),
            Some(Value::String(kind)) => kind.clone(),
            Some(other) => {
                keys.refuse_value(
                    &self.kind_key,
                    "a kind of scaling".to_owned(),
                    other.to_string(),
                );
                "default".to_owned()
            }
        }
    }

    fn number(
        &mut self,
        keys: &mut Keys<'_>,
        key: &str,
        bounds: RangeInclusive<f32>,
    ) -> Option<f32> {
        let value = self.value(key)?;
        let number = value.as_f64().map(|number| number as f32);
        if let Some(number) = number.filter(|number| bounds.contains(number)) {
            return Some(number);
        }
        let expected = format!("a number in {:?}..={:?}", bounds.start(), bounds.end());
        keys.refuse_value(
            &format!("{}.{key}", self.kind_key),
            expected,
            value.to_string(),
        );
        Some(*bounds.start())
    }

    fn required(&mut self, keys: &mut Keys<'_>, key: &str, bounds: RangeInclusive<f32>) -> f32 {
        let stand_in = *bounds.start();
        self.number(keys, key, bounds).unwrap_or_else(|| {
            keys.refuse_missing(&format!("{}.{key}", self.kind_key));
            stand_in
        })
    }

    /// Tokens of context before the stretch.
    fn original_context(&mut self, keys: &mut Keys<'_>, default: usize) -> usize {
        const KEY: &str = "original_max_position_embeddings";
        let Some(value) = self.value(KEY) else {
            return default;
        };
        let bounds = 1..=LIMITS.context_max as u64;
        match value.as_u64().filter(|number| bounds.contains(number)) {
            Some(number) => number as usize,
            None => {
                let expected = format!("a whole number in 1..={}", LIMITS.context_max);
                keys.refuse_value(KEY, expected, value.to_string());
                default
            }
        }
    }

    /// `[len]` divisors.
    fn divisors(&mut self, keys: &mut Keys<'_>, key: &str, len: usize) -> Vec<f32> {
        let list = self.value(key).and_then(Value::as_array);
        let values: Option<Vec<f32>> = list.map(|list| {
            let divisor = |value: &Value| value.as_f64().map(|value| value as f32);
            list.iter()
                .filter_map(divisor)
                .filter(|value| LIMITS.rope_divisor.contains(value))
                .collect()
        });
        match values
            .filter(|values| values.len() == len && list.is_some_and(|list| list.len() == len))
        {
            Some(values) => values,
            None => {
                let bounds = LIMITS.rope_divisor;
                let expected =
                    format!("{len} numbers in {:?}..={:?}", bounds.start(), bounds.end());
                keys.refuse_value(
                    &format!("{}.{key}", self.kind_key),
                    expected,
                    "something else".to_owned(),
                );
                vec![1.0; len]
            }
        }
    }
}

/// Long waves are divided by `factor`, short ones kept, a ramp between.
fn llama3(keys: &mut Keys<'_>, rope: &mut Section<'_>, spec: &RopeSpec) -> Vec<f32> {
    let factor = f64::from(rope.required(keys, "factor", LIMITS.rope_factor));
    let low = f64::from(rope.required(keys, "low_freq_factor", LIMITS.multiplier));
    let high = f64::from(rope.required(keys, "high_freq_factor", LIMITS.multiplier));
    let original = rope.original_context(keys, 8192) as f64;
    if low >= high {
        let expected = "less than high_freq_factor".to_owned();
        keys.refuse_value(
            &format!("{}.low_freq_factor", rope.kind_key),
            expected,
            low.to_string(),
        );
    }
    let divisor = |pair_idx: usize| {
        let exponent = (2 * pair_idx) as f64 / spec.num_dims as f64;
        let turns = original / (TAU * f64::from(spec.base).powf(exponent));
        match turns {
            turns if turns > high => 1.0,
            turns if turns < low => factor,
            turns => {
                let kept = (turns - low) / (high - low);
                1.0 / ((1.0 - kept) / factor + kept)
            }
        }
    };
    (0..spec.num_dims / 2)
        .map(|pair_idx| divisor(pair_idx) as f32)
        .collect()
}

fn yarn(keys: &mut Keys<'_>, rope: &mut Section<'_>, defaults: &RopeDefaults) -> Yarn {
    let original_context = rope.original_context(keys, defaults.context_max);
    let factor = rope.required(keys, "factor", LIMITS.rope_factor);
    if rope
        .value("truncate")
        .is_some_and(|value| value == &Value::Bool(false))
    {
        keys.refuse_feature("truncate", "false".to_owned(), "a ramp between whole pairs");
    }
    let mut multiplier = |key: &str| rope.number(keys, key, LIMITS.multiplier);
    let given = multiplier("attention_factor");
    let (mscale, mscale_all) = (multiplier("mscale"), multiplier("mscale_all_dim"));
    let grown = |scale: f32| {
        if factor <= 1.0 {
            1.0
        } else {
            0.1 * scale * factor.ln() + 1.0
        }
    };
    let attention = given.unwrap_or_else(|| match (mscale, mscale_all) {
        (Some(scale), Some(all)) => grown(scale) / grown(all),
        _ => grown(1.0),
    });
    Yarn {
        factor,
        original_context,
        beta_fast: multiplier("beta_fast").unwrap_or(32.0),
        beta_slow: multiplier("beta_slow").unwrap_or(1.0),
        magnitude: attention / (1.0 + 0.1 * factor.ln()),
    }
}

fn longrope(
    keys: &mut Keys<'_>,
    rope: &mut Section<'_>,
    spec: &mut RopeSpec,
    defaults: &RopeDefaults,
) {
    let num_pairs = spec.num_dims / 2;
    let original_context = rope.original_context(keys, defaults.context_max);
    let stretch = defaults.context_max as f32 / original_context as f32;
    let factor = rope
        .number(keys, "factor", LIMITS.rope_factor)
        .unwrap_or(stretch);
    spec.divisors = RopeDivisors::ByContext {
        original_context,
        short: rope.divisors(keys, "short_factor", num_pairs),
        long: rope.divisors(keys, "long_factor", num_pairs),
    };
    let given = rope.number(keys, "attention_factor", LIMITS.multiplier);
    spec.magnitude = given.unwrap_or_else(|| longrope_magnitude(factor, original_context));
}

/// The factor on rotated values that LongRoPE's authors give.
pub(super) fn longrope_magnitude(factor: f32, original_context: usize) -> f32 {
    match factor > 1.0 && original_context > 1 {
        true => (1.0 + factor.ln() / (original_context as f32).ln()).sqrt(),
        false => 1.0,
    }
}
