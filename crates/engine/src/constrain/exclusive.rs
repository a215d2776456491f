//! Whether the branches of a `oneOf` evidently exclude each other: then it says what `anyOf` says, which
//! can be enforced.
//!
//! The one idea: two schemas exclude each other if what all of their values have in common differs: the
//! types, the constants, or, of objects, a property that one of them requires. What is not understood
//! here tells nothing, so an answer of "evident" is always true and one of "not evident" may not be.
//!
//! Source: JSON Schema 2020-12, "oneOf".

use serde_json::{Map, Value};

use super::schema::look_up;

/// Schemas within schemas, and references within references, that are looked into.
const DEPTH_MAX: usize = 16;

/// Types as bits. Integers are numbers; what is left of those has a bit of its own.
type Kinds = u8;
const OBJECT: Kinds = 1 << 5;
const ALL: Kinds = (1 << 7) - 1;

fn kinds_of_word(word: &str) -> Kinds {
    match word {
        "null" => 1,
        "boolean" => 1 << 1,
        "integer" => 1 << 2,
        "number" => 1 << 2 | 1 << 3,
        "string" => 1 << 4,
        "object" => OBJECT,
        "array" => 1 << 6,
        _ => ALL,
    }
}

fn kind_of_value(value: &Value) -> Kinds {
    match value {
        Value::Null => kinds_of_word("null"),
        Value::Bool(_) => kinds_of_word("boolean"),
        Value::Number(number) if number.as_f64().is_some_and(|value| value.fract() == 0.0) => {
            kinds_of_word("integer")
        }
        Value::Number(_) => 1 << 3,
        Value::String(_) => kinds_of_word("string"),
        Value::Array(_) => kinds_of_word("array"),
        Value::Object(_) => OBJECT,
    }
}

/// What every value of some schemas that bear on it together has.
#[derive(Clone)]
struct Facts<'a> {
    kinds: Kinds,
    /// It is one of these.
    values: Option<Vec<&'a Value>>,
    required: Vec<&'a str>,
    properties: Vec<&'a Map<String, Value>>,
    /// It has no other properties than these, of each.
    closed: Vec<Option<&'a Map<String, Value>>>,
    /// It keeps to one of each of these.
    alternatives: Vec<&'a Vec<Value>>,
}

/// Compares the branches of one schema's `oneOf`s.
pub(super) struct Comparison<'a> {
    /// Where references point.
    pub root: &'a Value,
    /// Comparisons that may still be made.
    pub num_left: usize,
}

/// Two branches that may accept the same value.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Overlap(pub usize, pub usize);

impl<'a> Comparison<'a> {
    /// The first two of `branches` that do not evidently exclude each other. `shared` bears on the same
    /// value as each of them.
    ///
    /// # Cost
    ///
    /// The square of the number of branches, up to `num_left`; beyond, nothing is evident.
    pub fn overlap(
        &mut self,
        shared: &'a Map<String, Value>,
        branches: &'a [Value],
    ) -> Option<Overlap> {
        let mut common = Facts::of_anything();
        self.absorb(&mut common, shared, 0);
        let facts: Vec<Facts<'a>> = branches
            .iter()
            .map(|branch| self.narrowed(&common, branch))
            .collect();
        for (idx, one) in facts.iter().enumerate() {
            for (before_idx, other) in facts[..idx].iter().enumerate() {
                if !self.exclude(one, other, 0) {
                    return Some(Overlap(before_idx, idx));
                }
            }
        }
        None
    }

    fn narrowed(&mut self, facts: &Facts<'a>, schema: &'a Value) -> Facts<'a> {
        let mut facts = facts.clone();
        self.take_in(&mut facts, schema, 0);
        facts
    }

    fn take_in(&mut self, facts: &mut Facts<'a>, schema: &'a Value, depth: usize) {
        match schema {
            Value::Bool(false) => facts.kinds = 0,
            Value::Object(schema) => self.absorb(facts, schema, depth),
            _ => (),
        }
    }

    fn absorb(&mut self, facts: &mut Facts<'a>, schema: &'a Map<String, Value>, depth: usize) {
        self.num_left = self.num_left.saturating_sub(1);
        if depth > DEPTH_MAX || self.num_left == 0 {
            return;
        }
        match schema.get("type") {
            Some(Value::String(word)) => facts.kinds &= kinds_of_word(word),
            Some(Value::Array(words)) => {
                let words = words.iter().filter_map(Value::as_str);
                facts.kinds &= words.fold(0, |kinds, word| kinds | kinds_of_word(word));
            }
            _ => (),
        }
        let constant = schema.get("const").map(std::slice::from_ref);
        let choices = schema.get("enum").and_then(Value::as_array);
        for values in constant.into_iter().chain(choices.map(Vec::as_slice)) {
            facts.kinds &= values
                .iter()
                .fold(0, |kinds, value| kinds | kind_of_value(value));
            // Both would have to hold: the first says enough.
            facts.values.get_or_insert_with(|| values.iter().collect());
        }
        let required = schema.get("required").and_then(Value::as_array);
        facts
            .required
            .extend(required.into_iter().flatten().filter_map(Value::as_str));
        let properties = schema.get("properties").and_then(Value::as_object);
        facts.properties.extend(properties);
        if schema.get("additionalProperties") == Some(&Value::Bool(false))
            && !schema.contains_key("patternProperties")
        {
            facts.closed.push(properties);
        }
        for keyword in ["anyOf", "oneOf"] {
            let branches = schema.get(keyword).and_then(Value::as_array);
            facts.alternatives.extend(branches);
        }
        if let Some(reference) = schema.get("$ref").and_then(Value::as_str)
            && let Some(target) = look_up(self.root, reference)
        {
            self.take_in(facts, target, depth + 1);
        }
        let together = schema.get("allOf").and_then(Value::as_array);
        for schema in together.into_iter().flatten() {
            self.take_in(facts, schema, depth + 1);
        }
    }

    fn exclude(&mut self, one: &Facts<'a>, other: &Facts<'a>, depth: usize) -> bool {
        self.num_left = self.num_left.saturating_sub(1);
        if depth > DEPTH_MAX || self.num_left == 0 {
            return false;
        }
        let kinds = one.kinds & other.kinds;
        kinds == 0
            || self.have_other_values(one, other)
            || kinds == OBJECT && self.have_other_properties(one, other, depth)
            || self.alternatives_exclude(one, other, depth)
            || self.alternatives_exclude(other, one, depth)
    }

    fn have_other_values(&mut self, one: &Facts<'a>, other: &Facts<'a>) -> bool {
        let (Some(values), Some(others)) = (&one.values, &other.values) else {
            return false;
        };
        let num_pairs = values.len().saturating_mul(others.len());
        self.num_left = self.num_left.saturating_sub(num_pairs);
        let is_other = |value: &&Value| others.iter().all(|other| !may_equal(value, other));
        self.num_left > 0 && values.iter().all(is_other)
    }

    /// Whether a property that one of them requires cannot be as the other wants it.
    fn have_other_properties(&mut self, one: &Facts<'a>, other: &Facts<'a>, depth: usize) -> bool {
        let keys = one.required.iter().chain(&other.required);
        keys.into_iter().any(|key| {
            if one.forbids(key) || other.forbids(key) {
                return true;
            }
            let value = self.property(one, key);
            let other = self.property(other, key);
            self.exclude(&value, &other, depth + 1)
        })
    }

    fn property(&mut self, facts: &Facts<'a>, key: &str) -> Facts<'a> {
        let mut value = Facts::of_anything();
        for properties in &facts.properties {
            if let Some(schema) = properties.get(key) {
                self.take_in(&mut value, schema, 0);
            }
        }
        value
    }

    /// Whether each of some alternatives of `one` excludes `other`.
    fn alternatives_exclude(&mut self, one: &Facts<'a>, other: &Facts<'a>, depth: usize) -> bool {
        one.alternatives.iter().enumerate().any(|(idx, branches)| {
            let mut rest = one.clone();
            rest.alternatives.swap_remove(idx);
            branches.iter().all(|branch| {
                let branch = self.narrowed(&rest, branch);
                self.exclude(&branch, other, depth + 1)
            })
        })
    }
}

impl<'a> Facts<'a> {
    fn of_anything() -> Facts<'a> {
        Facts {
            kinds: ALL,
            values: None,
            required: Vec::new(),
            properties: Vec::new(),
            closed: Vec::new(),
            alternatives: Vec::new(),
        }
    }

    /// Whether it has no property of this name.
    fn forbids(&self, key: &str) -> bool {
        let lacks = |properties: &Option<&Map<String, Value>>| {
            properties.is_none_or(|properties| !properties.contains_key(key))
        };
        self.closed.iter().any(lacks)
    }
}

/// Whether two values are the same to JSON Schema, for which 1.0 is 1. Integers beyond 2^53 may be taken
/// for their neighbours.
fn may_equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one.as_f64() == other.as_f64(),
        (Value::Array(one), Value::Array(other)) => {
            let mut pairs = one.iter().zip(other);
            one.len() == other.len() && pairs.all(|(one, other)| may_equal(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            let same = |(key, value)| {
                let other = other.get(key);
                other.is_some_and(|other| may_equal(value, other))
            };
            one.len() == other.len() && one.iter().all(same)
        }
        (one, other) => one == other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn overlap_within(num_left: usize, schema: &Value) -> Option<Overlap> {
        let mut shared = schema.as_object().expect("a schema").clone();
        let branches = shared.remove("oneOf").expect("branches");
        let branches = branches.as_array().expect("a list");
        let root = schema;
        Comparison { root, num_left }.overlap(&shared, branches)
    }

    fn overlap(schema: Value) -> Option<Overlap> {
        overlap_within(10_000, &schema)
    }

    fn tagged(tag: Value) -> Value {
        json!({"type": "object", "properties": {"tag": tag}, "required": ["tag"]})
    }

    #[test]
    fn what_differs_in_type_constants_or_a_required_property_is_exclusive() {
        let tags = |tags: [Value; 3]| json!({"oneOf": tags.map(tagged)});
        for exclusive in [
            json!({"oneOf": [{"const": 1}, {"const": 2}, {"enum": [3, 4.5]}]}),
            json!({"oneOf": [{"const": "a"}, {"const": 1}, {"const": null}, {"const": true}, {"const": false}]}),
            json!({"oneOf": [{"const": [1, 2]}, {"const": [1, 3]}, {"const": {"a": 1}}, {"const": {"a": 2}}]}),
            json!({"oneOf": [{"type": "integer"}, {"type": "string"}, {"type": ["null", "array"]}]}),
            json!({"oneOf": [{"const": 1.5}, {"type": "integer"}, false]}),
            tags([
                json!({"const": 1}),
                json!({"const": 2}),
                json!({"enum": ["a", "b"]}),
            ]),
            tags([
                json!({"type": "integer"}),
                json!({"type": "string"}),
                tagged(json!({"const": 1})),
            ]),
            // Only one of them has to have it.
            json!({"oneOf": [tagged(json!({"const": 1})), {"type": "object", "properties": {"tag": {"const": 2}}}]}),
            json!({"oneOf": [tagged(json!({})), {"type": "object", "additionalProperties": false}]}),
            // What stands beside it bears on the same value.
            json!({"type": "object", "required": ["tag"], "oneOf": [{"properties": {"tag": {"const": 1}}}, {"properties": {"tag": {"const": 2}}}]}),
            json!({"oneOf": [{"anyOf": [{"const": 1}, {"type": "null"}]}, {"$ref": "#/$defs/two"}, {"allOf": [{"type": "string"}, {}]}],
                "$defs": {"two": {"const": 2}}}),
        ] {
            assert_eq!(overlap(exclusive.clone()), None, "{exclusive}");
        }
    }

    #[test]
    fn what_may_accept_the_same_value_is_not() {
        let optional = |tag: i64| json!({"type": "object", "properties": {"tag": {"const": tag}}});
        let untyped =
            |tag: i64| json!({"properties": {"tag": {"const": tag}}, "required": ["tag"]});
        for overlapping in [
            json!({"oneOf": [{"const": 1}, {"const": 1.0}]}),
            json!({"oneOf": [{"const": [1]}, {"const": [1.0]}]}),
            json!({"oneOf": [{"type": "integer"}, {"type": "number"}]}),
            json!({"oneOf": [{"const": 7}, {"type": "number"}]}),
            json!({"oneOf": [{"type": "integer"}, {"minimum": 5}]}),
            json!({"oneOf": [true, {"type": "string"}]}),
            // `{}` keeps to both.
            json!({"oneOf": [optional(1), optional(2)]}),
            // `7` keeps to both.
            json!({"oneOf": [untyped(1), untyped(2)]}),
            json!({"oneOf": [tagged(json!({"const": 1})), tagged(json!({"type": "number"}))]}),
            json!({"oneOf": [{"anyOf": [{"const": 1}, {"const": 2}]}, {"const": 2}]}),
            json!({"oneOf": [tagged(json!({})), {"type": "object", "patternProperties": {"t": {}}, "additionalProperties": false}]}),
            // References that come back are refused elsewhere; here they tell nothing.
            json!({"oneOf": [{"$ref": "#/oneOf/1"}, {"$ref": "#/oneOf/0"}]}),
        ] {
            assert_eq!(
                overlap(overlapping.clone()),
                Some(Overlap(0, 1)),
                "{overlapping}"
            );
        }
    }

    /// Case F2.
    #[test]
    fn the_work_is_bounded() {
        let branches: Vec<Value> = (0..100).map(|number| json!({"const": number})).collect();
        let schema = json!({"oneOf": branches});
        assert_eq!(overlap_within(11_000, &schema), None);
        assert!(overlap_within(5_000, &schema).is_some());
    }
}
