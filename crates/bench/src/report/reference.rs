//! `docs/reference/bench-summary.md` and the JSON schema beside it are made of the types of `summary`, so neither can
//! drift from what is written. `FULCRUM_BLESS=1 cargo test -p fulcrum-bench reference` writes them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::generate::SchemaSettings;
use serde_json::Value;

use super::example;
use crate::summary::{SCHEMA, Summary};

const HEAD: &str = "# `summary.json`

What `fulcrum bench` writes at the end of a run, schema `fulcrum.bench/1`; `fulcrum bench --format json` prints the same. The schema is only ever
extended: a key keeps its name, its unit and its meaning, and a reader must accept keys that it does not know. `null` stands where
too few requests support a figure, or where there is nothing to tell. Units are in the names (`_ms`, `_s`, `_per_s`, `_rps`,
`_bytes`); figures without one are counts or shares in [0, 1].

This page and [its JSON Schema](fulcrum.bench-1.schema.json) are made from the types in `crates/bench/src/summary.rs`;
`FULCRUM_BLESS=1 cargo test -p fulcrum-bench reference` writes them.

Beside it in the run directory:

- `requests.jsonl.zst` (schema `fulcrum.bench.requests/1`): one JSON object a line, compressed with zstd in frames that stand alone, so that
  a run that is killed leaves a readable file (`zstd -dc requests.jsonl.zst | jq`). The first line has `kind` `run`, each level begins with
  one of `kind` `level`, and each request that ends writes one of `kind` `request`: what was asked and when, how it ended, its latencies,
  its token counts, and in `events` when content arrived. Lines of other kinds may be added.
- `series.json` (schema `fulcrum.bench.series/1`): `timeline` (`at_s`, `tokens_per_s`, `requests_per_s`, `in_flight`) and `ecdf` (`level`,
  `metric`, `points` of milliseconds and share): what the page's curves are drawn from.
- `report.html`: the page; `fulcrum bench report DIR` makes it again.

`summary.json` is written last: a directory without it is of a run that did not end.
";

/// Sections in the order of reading, with the key that they are found under.
const SECTIONS: &[(&str, &str)] = &[
    ("Summary", "The whole file"),
    ("WorkloadSummary", "`workload`"),
    ("ClientSummary", "`client`"),
    ("Level", "`levels[]`"),
    ("Counts", "`requests`"),
    (
        "Figure",
        "Figures: `ttft_ms`, `tpot_ms`, `itl_ms` and all others of this kind",
    ),
    ("LittlesLaw", "`littles_law`"),
    ("CacheShare", "`cache`"),
    ("ClassFigures", "`classes.NAME`"),
    ("OperatingPoint", "`operating_point`"),
    ("StoppedBy", "`levels[].stopped_by`"),
    ("Verdict", "`operating_point.verdict`"),
    ("SloOutcome", "`slo`"),
    ("SloLevel", "`slo.levels[]`"),
    ("ServerSeries", "`server_metrics[]`"),
    ("Warning", "`warnings[]`"),
];

fn schema() -> Value {
    let generator = SchemaSettings::draft2020_12()
        .for_serialize()
        .into_generator();
    let mut schema = generator.into_root_schema_for::<Summary>().to_value();
    let root = schema.as_object_mut().expect("a schema is an object");
    root.insert("title".to_owned(), Value::from(SCHEMA));
    schema
}

/// The definition of a type by its name.
fn definition<'a>(schema: &'a Value, name: &str) -> &'a Value {
    match name {
        "Summary" => schema,
        name => &schema["$defs"][name],
    }
}

fn page(schema: &Value) -> String {
    let mut page = HEAD.to_owned();
    for (name, title) in SECTIONS {
        let definition = definition(schema, name);
        page += &format!("\n## {title}\n\n{}\n\n", said(definition));
        page += &match definition.get("oneOf") {
            Some(values) => values_table(values),
            None => keys_table(definition),
        };
    }
    page
}

fn keys_table(definition: &Value) -> String {
    let required: Vec<&str> = definition["required"]
        .as_array()
        .map_or(Vec::new(), |names| {
            names.iter().filter_map(Value::as_str).collect()
        });
    let properties = definition["properties"]
        .as_object()
        .expect("an object has keys");
    let rows = properties.iter().map(|(key, of)| {
        let optional = if required.contains(&key.as_str()) {
            ""
        } else {
            ", may be absent"
        };
        format!("| `{key}` | {}{optional} | {} |\n", kind(of), said(of))
    });
    format!(
        "| key | type | meaning |\n|---|---|---|\n{}",
        rows.collect::<String>()
    )
}

fn values_table(values: &Value) -> String {
    let values = values.as_array().expect("alternatives");
    let rows = values.iter().map(|value| {
        format!(
            "| `{}` | {} |\n",
            value["const"].as_str().unwrap_or_default(),
            said(value)
        )
    });
    format!(
        "| value | meaning |\n|---|---|\n{}",
        rows.collect::<String>()
    )
}

/// A type in words.
fn kind(of: &Value) -> String {
    if let Some(name) = of["$ref"].as_str() {
        let name = name.trim_start_matches("#/$defs/");
        let title = SECTIONS.iter().find(|(section, _)| *section == name);
        return match (name, title) {
            ("Figure", _) => "figure".to_owned(),
            (_, Some((_, title))) => format!("see {title}"),
            (name, None) => name.to_owned(),
        };
    }
    if let Some(some) = of["anyOf"].as_array() {
        let kinds: Vec<String> = some.iter().map(kind).collect();
        return kinds.join(" or ");
    }
    let kind_of = |name: &str| match name {
        "array" if of.get("prefixItems").is_some() => {
            let parts: Vec<String> = of["prefixItems"]
                .as_array()
                .into_iter()
                .flatten()
                .map(kind)
                .collect();
            format!("[{}]", parts.join(", "))
        }
        "array" if of["maxItems"] == 2 => format!("[{0}, {0}]", kind(&of["items"])),
        "array" => format!("list of {}", kind(&of["items"])).replace("of see", "of objects, see"),
        "object" => format!("object of {}", kind(&of["additionalProperties"]))
            .replace("of see", "by name, see"),
        name => name.to_owned(),
    };
    match &of["type"] {
        Value::String(name) => kind_of(name),
        Value::Array(names) => {
            let names: Vec<String> = names
                .iter()
                .filter_map(Value::as_str)
                .map(kind_of)
                .collect();
            names.join(" or ")
        }
        _ => "anything".to_owned(),
    }
}

/// What a type or key says of itself, in one line and without links into the code.
fn said(of: &Value) -> String {
    let text = of["description"].as_str().unwrap_or_default();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let text = text.replace("[`SCHEMA`]", &format!("`{SCHEMA}`"));
    // Links between types say nothing to a reader of files.
    let text = text
        .replace("[`Level`]", "`levels[]`")
        .replace("[`Level::", "`");
    text.replace("`]", "`").replace('|', "\\|")
}

fn stands(name: &str, meant: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs/reference")
        .join(name);
    if std::env::var_os("FULCRUM_BLESS").is_some() {
        std::fs::write(&path, meant).expect("the page can be written");
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        there == meant,
        "docs/reference/{name} is not what the types say; FULCRUM_BLESS=1 cargo test -p fulcrum-bench reference writes it"
    );
}

#[test]
fn the_reference_says_what_the_types_say() {
    stands("bench-summary.md", &page(&schema()));
}

#[test]
fn the_json_schema_is_that_of_the_types() {
    let text = serde_json::to_string_pretty(&schema()).expect("a schema is JSON");
    stands("fulcrum.bench-1.schema.json", &format!("{text}\n"));
}

#[test]
fn every_section_and_every_key_is_explained() {
    let schema = schema();
    let definitions = schema["$defs"].as_object().expect("definitions");
    for name in definitions.keys() {
        assert!(
            SECTIONS.iter().any(|(section, _)| section == name),
            "{name} has no section"
        );
    }
    for (name, _) in SECTIONS {
        let definition = definition(&schema, name);
        assert!(!said(definition).is_empty(), "{name}");
        for (key, of) in definition["properties"].as_object().into_iter().flatten() {
            assert!(!said(of).is_empty(), "{name}.{key}");
        }
    }
}

/// A key that a summary has and the schema lacks would be one that serde writes by itself.
#[test]
fn every_key_of_a_full_summary_is_in_the_reference() {
    let page = page(&schema());
    let summary = serde_json::to_value(example::summary()).expect("JSON");
    let mut keys = BTreeMap::new();
    walk(&summary, &mut keys);
    // Names of classes, percentiles and rates are no keys of the schema.
    let named = [
        "batch",
        "interactive",
        "output_tokens_per_s",
        "requests_per_s",
    ];
    for key in keys.keys().filter(|key| !named.contains(key)) {
        assert!(page.contains(&format!("| `{key}` |")), "{key}");
    }
    assert!(keys.len() > 90, "{} keys", keys.len());
}

fn walk<'a>(value: &'a Value, keys: &mut BTreeMap<&'a str, ()>) {
    match value {
        Value::Object(entries) => {
            for (key, value) in entries {
                keys.insert(key, ());
                walk(value, keys);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| walk(value, keys)),
        _ => (),
    }
}

/// The contract that scripts were given, key by key.
#[test]
fn the_keys_promised_to_scripts_are_there() {
    let summary = serde_json::to_value(example::summary()).expect("JSON");
    let promised = [
        "/schema",
        "/endpoint",
        "/workload/name",
        "/workload/hash",
        "/client/floor_ms_p99",
        "/client/bound",
        "/levels/0/users",
        "/levels/0/offered_rps",
        "/levels/0/steady_s",
        "/levels/0/requests/ok",
        "/levels/0/requests/truncated",
        "/levels/0/requests/error_event",
        "/levels/0/requests/http_error",
        "/levels/0/requests/timeout",
        "/levels/0/requests/connect",
        "/levels/0/requests/protocol",
        "/levels/0/requests/cancelled",
        "/levels/0/requests/empty",
        "/levels/0/requests_per_s",
        "/levels/0/output_tokens_per_s",
        "/levels/0/input_tokens_per_s",
        "/levels/0/goodput_rps",
        "/levels/0/attainment",
        "/levels/0/ttft_ms/n",
        "/levels/0/ttft_ms/mean",
        "/levels/0/ttft_ms/p50",
        "/levels/0/ttft_ms/p90",
        "/levels/0/ttft_ms/p95",
        "/levels/0/ttft_ms/p99",
        "/levels/0/ttft_ms/max",
        "/levels/0/ttft_ms/ci95/p50/1",
        "/levels/0/tpot_ms/n",
        "/levels/0/itl_ms/n",
        "/levels/0/e2e_ms/n",
        "/levels/0/classes/interactive",
        "/levels/0/flags/0",
        "/operating_point/users",
        "/operating_point/low",
        "/operating_point/high",
        "/operating_point/verdict",
        "/operating_point/n_star",
    ];
    for pointer in promised {
        assert!(summary.pointer(pointer).is_some(), "{pointer}");
    }
    assert_eq!(summary["schema"], SCHEMA);
}
