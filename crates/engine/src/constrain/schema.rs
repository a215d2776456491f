//! JSON schemas before they are compiled: strict, bounded, tidied.
//!
//! The one idea: every keyword is in one of the lists below or is refused with its path. What only
//! describes is dropped, what is enforced is checked for its shape and size, and what is known but
//! cannot be enforced is refused, as is what nobody knows (a typing error would otherwise be a rule
//! that silently is none).
//!
//! One reading is narrower than a validator's, so that every answer passes every validator, in schemas
//! that do not combine (`allOf`; `$ref`, `anyOf` or `oneOf` beside other rules): properties make an
//! object, and what an object does not name it does not have, unless `additionalProperties` or
//! `patternProperties` says so.
//!
//! Source: JSON Schema 2020-12 (and 07's `definitions` and tuples); OpenAI's structured outputs.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::error::CompileError;
use super::exclusive::{Comparison, Overlap};
use super::grounded::Grounded;
use super::{Limits, WhiteSpace, pattern};

/// Say nothing about what is valid.
const ANNOTATIONS: &[&str] = &[
    "$schema",
    "$comment",
    "$anchor",
    "$id",
    "id",
    "title",
    "description",
    "default",
    "examples",
    "example",
    "readOnly",
    "writeOnly",
    "deprecated",
    "contentMediaType",
    "contentEncoding",
    "discriminator",
];

/// In a dialect of JSON Schema, and not enforced here.
const UNSUPPORTED: &[&str] = &[
    "if",
    "then",
    "else",
    "not",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "contains",
    "minContains",
    "maxContains",
    "uniqueItems",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
    "$dynamicRef",
    "$dynamicAnchor",
    "$recursiveRef",
    "$recursiveAnchor",
    "nullable",
];

const FORMATS: &[&str] = &[
    "date-time",
    "time",
    "date",
    "duration",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "uuid",
    "uri",
];

const TYPES: &[&str] = &[
    "null", "boolean", "number", "integer", "string", "array", "object",
];

/// Keywords that also bear on the same value: next to them an object is left as it is.
const COMBINING: &[&str] = &["anyOf", "oneOf", "allOf", "$ref", "enum", "const"];

/// How long a path in a message may get.
const PATH_BYTES_MAX: usize = 200;

/// `source` with everything checked, and nothing in it that only describes.
///
/// # Errors
///
/// [`CompileError::Schema`] with the path of the keyword at fault.
pub(super) fn tidy(source: &Value, limits: &Limits) -> Result<Value, CompileError> {
    let mut walk = Walk {
        root: source,
        limits,
        num_values: 0,
        num_bytes: 0,
        steps: BTreeSet::new(),
        num_comparisons_left: limits.comparisons_max,
        combines: combines(source),
    };
    let tidied = walk.schema(source, &Path::root(), 0)?;
    Grounded::new(source).check_all(source, &Path::root())?;
    Ok(tidied)
}

/// The schema with how its documents are spaced and read.
pub(super) fn with_options(schema: Value, white_space: WhiteSpace) -> Value {
    let mut schema = match schema {
        Value::Object(object) => object,
        Value::Bool(false) => Map::from_iter([("enum".to_owned(), json!([]))]),
        _ => Map::new(),
    };
    let mut options = llguidance::JsonCompileOptions::default();
    match white_space {
        WhiteSpace::Short => {
            options.whitespace_pattern = Some(r"[\x20\x09]|\x0A[\x20\x09]{0,32}".to_owned());
        }
        WhiteSpace::None => options.whitespace_flexible = false,
    }
    let options = serde_json::to_value(options).expect("options are JSON");
    schema.insert("x-guidance".to_owned(), options);
    Value::Object(schema)
}

/// Where in a schema, as messages tell it.
#[derive(Clone)]
pub(super) struct Path(String);

impl Path {
    fn root() -> Path {
        Path(String::new())
    }

    pub(super) fn key(&self, key: &str) -> Path {
        let dot = if self.0.is_empty() { "" } else { "." };
        Path(format!("{}{dot}{}", self.0, shortened(key)))
    }

    pub(super) fn idx(&self, idx: usize) -> Path {
        Path(format!("{}[{idx}]", self.0))
    }

    pub(super) fn refuse<T>(&self, reason: impl Into<String>) -> Result<T, CompileError> {
        let path = &self.0;
        // The end tells more than the beginning.
        let mut start = path.len().saturating_sub(PATH_BYTES_MAX);
        while !path.is_char_boundary(start) {
            start += 1;
        }
        Err(CompileError::Schema {
            path: path[start..].to_owned(),
            reason: reason.into(),
        })
    }
}

fn shortened(key: &str) -> String {
    key.chars().filter(|c| !c.is_control()).take(60).collect()
}

struct Walk<'a> {
    root: &'a Value,
    limits: &'a Limits,
    num_values: usize,
    num_bytes: usize,
    /// The steps of `multipleOf` so far, without their powers of ten.
    steps: BTreeSet<u64>,
    /// Of the branches of all `oneOf`s.
    num_comparisons_left: usize,
    /// Whether parts of the schema bear on the same value, so that nothing may be narrowed.
    combines: bool,
}

impl Walk<'_> {
    fn schema(&mut self, schema: &Value, path: &Path, depth: usize) -> Result<Value, CompileError> {
        self.count(0, path)?;
        if depth > self.limits.schema_depth_max {
            let max = self.limits.schema_depth_max;
            return path.refuse(format!("is nested more than {max} schemas deep"));
        }
        let object = match schema {
            Value::Bool(_) => return Ok(schema.clone()),
            Value::Object(object) => object,
            _ => return path.refuse("must be a schema: an object, true or false"),
        };
        let mut tidied = Map::new();
        for (keyword, value) in object {
            self.count(keyword.len(), path)?;
            let at = path.key(keyword);
            if let Some(value) = self.keyword(keyword, value, &at, depth)? {
                tidied.insert(keyword.clone(), value);
            }
        }
        untuple(&mut tidied, path)?;
        if !self.combines {
            close(&mut tidied);
        }
        self.expect_exclusive(&mut tidied, path)?;
        Ok(Value::Object(tidied))
    }

    /// The value of a keyword, tidied; `None` if it says nothing.
    fn keyword(
        &mut self,
        keyword: &str,
        value: &Value,
        at: &Path,
        depth: usize,
    ) -> Result<Option<Value>, CompileError> {
        let kept = match keyword {
            "properties" | "patternProperties" | "$defs" | "definitions" => {
                self.map(value, at, depth, keyword == "patternProperties")?
            }
            "additionalProperties" | "additionalItems" => self.schema(value, at, depth + 1)?,
            "items" if value.is_array() => self.list(value, at, depth)?,
            "items" => self.schema(value, at, depth + 1)?,
            "prefixItems" | "anyOf" | "oneOf" | "allOf" => self.list(value, at, depth)?,
            "enum" => self.choices(value, at)?,
            "const" => self.literal(value, at, 0)?,
            "type" => types(value, at)?,
            "required" => self.names(value, at)?,
            "minItems" | "maxItems" | "minLength" | "maxLength" | "minProperties"
            | "maxProperties" => self.size(value, at)?,
            "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" => {
                // Larger ones overflow the automaton's arithmetic, and a double does not tell their neighbours apart.
                const MAX: f64 = 9_007_199_254_740_992.0;
                match value.as_f64() {
                    None => return at.refuse("must be a number"),
                    Some(bound) if bound.abs() > MAX => {
                        return at.refuse("must be within 2^53 of zero");
                    }
                    Some(_) => value.clone(),
                }
            }
            "multipleOf" => self.step(value, at)?,
            "pattern" => self.pattern(value, at)?,
            "format" => format(value, at)?,
            "$ref" => {
                self.target(value, at)?;
                value.clone()
            }
            "uniqueItems" | "nullable" if value == &Value::Bool(false) => return Ok(None),
            _ if ANNOTATIONS.contains(&keyword) || keyword.starts_with("x-") => return Ok(None),
            _ if UNSUPPORTED.contains(&keyword) => return at.refuse("is not supported"),
            _ => return at.refuse("is no keyword of JSON Schema that is known here"),
        };
        Ok(Some(kept))
    }

    fn count(&mut self, num_bytes: usize, path: &Path) -> Result<(), CompileError> {
        self.num_values += 1;
        self.num_bytes += num_bytes;
        if self.num_values > self.limits.schema_values_max {
            let max = self.limits.schema_values_max;
            return path.refuse(format!("makes the schema larger than {max} values"));
        }
        if self.num_bytes > self.limits.schema_bytes_max {
            let max = self.limits.schema_bytes_max;
            return path.refuse(format!("makes the schema larger than {max} bytes of text"));
        }
        Ok(())
    }

    fn map(
        &mut self,
        value: &Value,
        at: &Path,
        depth: usize,
        keys_are_patterns: bool,
    ) -> Result<Value, CompileError> {
        let Value::Object(schemas) = value else {
            return at.refuse("must be an object of schemas");
        };
        let mut tidied = Map::new();
        for (name, schema) in schemas {
            self.count(name.len(), at)?;
            let at = at.key(name);
            if keys_are_patterns {
                self.pattern(&Value::from(name.as_str()), &at)?;
            }
            tidied.insert(name.clone(), self.schema(schema, &at, depth + 1)?);
        }
        Ok(Value::Object(tidied))
    }

    fn list(&mut self, value: &Value, at: &Path, depth: usize) -> Result<Value, CompileError> {
        let Some(schemas) = value.as_array().filter(|schemas| !schemas.is_empty()) else {
            return at.refuse("must be a list of schemas, not empty");
        };
        let tidied = schemas.iter().enumerate();
        tidied
            .map(|(idx, schema)| self.schema(schema, &at.idx(idx), depth + 1))
            .collect()
    }

    /// A `oneOf` whose branches exclude each other as an `anyOf`.
    fn expect_exclusive(
        &mut self,
        schema: &mut Map<String, Value>,
        path: &Path,
    ) -> Result<(), CompileError> {
        let Some(branches) = schema.remove("oneOf") else {
            return Ok(());
        };
        let mut comparison = Comparison {
            root: self.root,
            num_left: self.num_comparisons_left,
        };
        let list = branches.as_array().expect("it was just read as a list");
        let overlap = comparison.overlap(schema, list);
        self.num_comparisons_left = comparison.num_left;
        match overlap {
            Some(_) if self.num_comparisons_left == 0 => {
                return path
                    .key("oneOf")
                    .refuse("has too many branches to tell apart; say anyOf");
            }
            Some(Overlap(one, other)) => {
                return path.key("oneOf").refuse(format!(
                    "has branches [{one}] and [{other}] that may accept the same value; give them \
                     different types or constants, or a property that they require and that differs \
                     so, or say anyOf"
                ));
            }
            None => (),
        }
        if schema.contains_key("anyOf") {
            let all = schema.entry("allOf").or_insert_with(|| json!([]));
            let all = all.as_array_mut().expect("it was just read as a list");
            all.push(json!({"anyOf": branches}));
        } else {
            schema.insert("anyOf".to_owned(), branches);
        }
        Ok(())
    }

    fn choices(&mut self, value: &Value, at: &Path) -> Result<Value, CompileError> {
        let Some(choices) = value.as_array().filter(|choices| !choices.is_empty()) else {
            return at.refuse("must be a list, not empty");
        };
        if choices.len() > self.limits.num_choices_max {
            let max = self.limits.num_choices_max;
            return at.refuse(format!(
                "has {} values, at most {max} are allowed",
                choices.len()
            ));
        }
        let choices = choices.iter().enumerate();
        choices
            .map(|(idx, choice)| self.literal(choice, &at.idx(idx), 0))
            .collect()
    }

    /// A value that an answer may have, of `enum` or `const`.
    fn literal(&mut self, value: &Value, at: &Path, depth: usize) -> Result<Value, CompileError> {
        if depth > self.limits.schema_depth_max {
            return at.refuse("is nested too deep");
        }
        self.count(value.as_str().map_or(0, str::len), at)?;
        match value {
            Value::Array(items) => {
                for item in items {
                    self.literal(item, at, depth + 1)?;
                }
            }
            Value::Object(members) => {
                for (name, member) in members {
                    self.count(name.len(), at)?;
                    self.literal(member, at, depth + 1)?;
                }
            }
            _ => (),
        }
        Ok(value.clone())
    }

    fn names(&mut self, value: &Value, at: &Path) -> Result<Value, CompileError> {
        let names = value.as_array().map(Vec::as_slice);
        let Some(names) = names.filter(|names| names.iter().all(Value::is_string)) else {
            return at.refuse("must be a list of names");
        };
        for name in names {
            self.count(name.as_str().map_or(0, str::len), at)?;
        }
        Ok(value.clone())
    }

    fn size(&mut self, value: &Value, at: &Path) -> Result<Value, CompileError> {
        let max = self.limits.count_max;
        // `3.0` is an integer to JSON Schema.
        let whole = value
            .as_f64()
            .filter(|size| size.fract() == 0.0 && *size >= 0.0);
        match value.as_u64().or(whole.map(|size| size as u64)) {
            Some(size) if size <= max => Ok(size.into()),
            Some(_) => at.refuse(format!("must be at most {max}")),
            None => at.refuse("must be an integer, not negative"),
        }
    }

    /// A step becomes an automaton with a state for each remainder, and steps that meet multiply.
    fn step(&mut self, value: &Value, at: &Path) -> Result<Value, CompileError> {
        let Some(step) = value.as_f64().filter(|step| *step > 0.0) else {
            return at.refuse("must be a number above 0");
        };
        // The shortest decimal that reads as this number: `1.25e-3` has the digits 125.
        let digits: String = format!("{step:e}").split('e').take(1).collect();
        let digits = digits.replace('.', "");
        let step = digits.trim_end_matches('0').parse().unwrap_or(u64::MAX);
        self.steps.insert(step);
        let steps = self.steps.iter();
        let product = steps.fold(1, |product: u64, &step| product.saturating_mul(step));
        match product <= self.limits.steps_max {
            true => Ok(value.clone()),
            false => at.refuse("has too many digits, alone or with others of this schema"),
        }
    }

    fn pattern(&mut self, value: &Value, at: &Path) -> Result<Value, CompileError> {
        let Some(regex) = value.as_str() else {
            return at.refuse("must be a regular expression");
        };
        self.count(regex.len(), at)?;
        match pattern::expect_regex_bounded(regex, self.limits) {
            Ok(()) => Ok(value.clone()),
            Err(CompileError::Grammar { reason }) => at.refuse(reason),
            Err(other) => Err(other),
        }
    }

    /// What a `$ref` points at: something in this schema.
    fn target(&self, reference: &Value, at: &Path) -> Result<&Value, CompileError> {
        match reference.as_str() {
            None => at.refuse("must be a text"),
            Some(text) if !text.starts_with('#') => {
                at.refuse("points outside this schema; only '#' and '#/…' are followed")
            }
            Some(text) => match look_up(self.root, text) {
                Some(target) => Ok(target),
                None => at.refuse("points at nothing in this schema"),
            },
        }
    }
}

/// What a `$ref` within a schema points at.
pub(super) fn look_up<'a>(root: &'a Value, reference: &str) -> Option<&'a Value> {
    match reference.strip_prefix('#')? {
        "" => Some(root),
        pointer if pointer.starts_with('/') && !pointer.contains('%') => root.pointer(pointer),
        _ => None,
    }
}

fn types(value: &Value, at: &Path) -> Result<Value, CompileError> {
    let is_type = |value: &Value| value.as_str().is_some_and(|word| TYPES.contains(&word));
    let fits = match value {
        Value::Array(words) => !words.is_empty() && words.iter().all(is_type),
        word => is_type(word),
    };
    match fits {
        true => Ok(value.clone()),
        false => at.refuse("must be a type of JSON, or a list of them"),
    }
}

fn format(value: &Value, at: &Path) -> Result<Value, CompileError> {
    match value.as_str() {
        Some(word) if FORMATS.contains(&word) => Ok(value.clone()),
        _ => at.refuse(format!(
            "is not supported (only {} are)",
            FORMATS.join(", ")
        )),
    }
}

/// Tuples of draft 07 (`items` a list, the rest in `additionalItems`) as those of 2020-12.
fn untuple(schema: &mut Map<String, Value>, path: &Path) -> Result<(), CompileError> {
    let rest = schema.remove("additionalItems");
    if !schema.get("items").is_some_and(Value::is_array) {
        // Without a tuple it says nothing.
        return Ok(());
    }
    if schema.contains_key("prefixItems") {
        return path
            .key("items")
            .refuse("must be a schema beside 'prefixItems'");
    }
    if let Some(tuple) = schema.remove("items") {
        schema.insert("prefixItems".to_owned(), tuple);
    }
    if let Some(rest) = rest {
        schema.insert("items".to_owned(), rest);
    }
    Ok(())
}

/// Whether anything in `schema` bears on the same value from two places.
fn combines(schema: &Value) -> bool {
    match schema {
        Value::Object(object) => {
            let constrains = |keyword: &&String| {
                !ANNOTATIONS.contains(&keyword.as_str()) && !keyword.starts_with("x-")
            };
            let num_rules = object.keys().filter(constrains).count();
            let has = |keyword: &&&str| object.contains_key(**keyword);
            let num_harmless = ["type", "$defs", "definitions"].iter().filter(has).count();
            let mut elsewhere = ["$ref", "anyOf", "oneOf"].iter();
            let is_shared = elsewhere.any(|keyword| has(&keyword)) && num_rules > 1 + num_harmless;
            object.contains_key("allOf") || is_shared || object.values().any(combines)
        }
        Value::Array(items) => items.iter().any(combines),
        _ => false,
    }
}

/// Makes an object of what has properties, and one that has no others. See the module.
fn close(schema: &mut Map<String, Value>) {
    let Some(Value::Object(properties)) = schema.get("properties") else {
        return;
    };
    if COMBINING
        .iter()
        .any(|keyword| schema.contains_key(*keyword))
    {
        return;
    }
    let required = schema.get("required").and_then(Value::as_array);
    let mut names = required.into_iter().flatten().filter_map(Value::as_str);
    let is_self_contained = names.all(|name| properties.contains_key(name));
    let speaks_of_others = ["additionalProperties", "patternProperties", "minProperties"];
    let is_silent = !speaks_of_others
        .iter()
        .any(|keyword| schema.contains_key(*keyword));
    if is_self_contained && is_silent {
        schema.insert("additionalProperties".to_owned(), false.into());
    }
    schema.entry("type").or_insert_with(|| "object".into());
}
