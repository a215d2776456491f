//! The table, walked: every field clients are known to send is in it, and each row does
//! what its rule says.

use serde_json::json;

use super::*;

/// Every field that the contract of the API surface names, by dialect.
const OPENAI: &str = "model messages max_tokens max_completion_tokens temperature top_p n stream stream_options stop \
    presence_penalty frequency_penalty logit_bias logprobs top_logprobs seed response_format tools tool_choice \
    parallel_tool_calls reasoning_effort user metadata store service_tier safety_identifier prompt_cache_key";
const VLLM: &str = "use_beam_search top_k min_p repetition_penalty length_penalty stop_token_ids include_stop_str_in_output \
    ignore_eos min_tokens skip_special_tokens spaces_between_special_tokens truncate_prompt_tokens truncation_side \
    prompt_logprobs logprob_token_ids allowed_token_ids bad_words echo add_generation_prompt continue_final_message \
    add_special_tokens documents chat_template chat_template_kwargs mm_processor_kwargs structured_outputs priority \
    request_id session_id return_tokens_as_token_ids return_token_ids return_prompt_text cache_salt kv_transfer_params \
    vllm_xargs thinking_token_budget include_reasoning repetition_detection stream_interval";
const LLAMA_CPP: &str = "cache_prompt id_slot n_predict grammar json_schema mirostat mirostat_tau mirostat_eta \
    dry_multiplier dry_base dry_allowed_length dry_penalty_last_n dry_sequence_breakers xtc_probability xtc_threshold \
    timings_per_token reasoning_format reasoning_control n_probs samplers";
const MORE: &str = "best_of functions function_call suffix audio modalities prediction prompt";

/// Reads a body of one field where its row belongs.
fn read(field: &Field, value: Value) -> Result<Fields, RequestError> {
    let endpoint = match field.on {
        On::Completion => Endpoint::Completion,
        On::Both | On::Own | On::Chat => Endpoint::Chat,
    };
    Fields::read(Map::from_iter([(field.name.to_owned(), value)]), endpoint)
}

#[test]
fn every_field_that_clients_send_is_in_the_table() {
    let named = [OPENAI, VLLM, LLAMA_CPP, MORE]
        .into_iter()
        .flat_map(str::split_whitespace);
    let missing: Vec<&str> = named
        .filter(|name| !FIELDS.iter().any(|field| field.name == *name))
        .collect();
    assert_eq!(missing, Vec::<&str>::new());
}

/// Every field of the other endpoints' public references.
const RESPONSES: &str = "background conversation include input instructions max_output_tokens max_tool_calls metadata \
    model parallel_tool_calls previous_response_id prompt prompt_cache_key reasoning safety_identifier service_tier store \
    stream stream_options temperature text tool_choice tools top_logprobs top_p truncation user";
const MESSAGES: &str = "model messages max_tokens system stop_sequences stream temperature top_p top_k tools tool_choice \
    thinking metadata service_tier container context_management mcp_servers";
const EMBEDDINGS: &str = "model input encoding_format dimensions user";

#[test]
fn every_field_of_the_other_endpoints_is_in_their_tables() {
    for (endpoint, names) in [
        (Endpoint::Responses, RESPONSES),
        (Endpoint::Messages, MESSAGES),
        (Endpoint::Embeddings, EMBEDDINGS),
    ] {
        for name in names.split_whitespace() {
            assert!(endpoint.field(name).is_some(), "{endpoint:?} {name}");
        }
        for field in endpoint.fields() {
            let rows = endpoint.fields().filter(|other| other.name == field.name);
            assert_eq!(rows.count(), 1, "{endpoint:?} {}", field.name);
        }
    }
}

#[test]
fn no_field_has_two_rows_at_one_endpoint() {
    for endpoint in [Endpoint::Chat, Endpoint::Completion] {
        let rows: Vec<&str> = FIELDS
            .iter()
            .filter(|field| field.on.includes(endpoint))
            .map(|field| field.name)
            .collect();
        for (idx, name) in rows.iter().enumerate() {
            assert!(!rows[..idx].contains(name), "{name}");
        }
    }
}

#[test]
fn null_is_absent_for_every_field() {
    for field in FIELDS {
        let fields = read(field, Value::Null).unwrap_or_else(|error| panic!("{error}"));
        assert!(fields.get(field.name).is_none());
        assert!(fields.unknown.is_empty());
    }
}

#[test]
fn what_is_not_built_is_refused_by_name_and_its_neutral_value_is_not() {
    // No neutral value of any row is one of these.
    let asking = [json!(7), json!("x"), json!({"x": 1}), json!(["x"])];
    for field in FIELDS {
        let accepted = match field.rule {
            Rule::Obeyed(_) | Rule::Hint(_) => continue,
            Rule::Neutral(accepted) => accepted,
            Rule::Refused => &[],
        };
        for value in &asking {
            let error = read(field, value.clone()).expect_err(field.name);
            assert!(matches!(error, RequestError::Unsupported { .. }), "{error}");
            assert_eq!(error.param(), Some(field.name));
        }
        for neutral in accepted {
            let value = serde_json::from_str(&neutral.says()).expect("neutral values are JSON");
            read(field, value).unwrap_or_else(|error| panic!("{error}"));
        }
    }
}

/// Case F7.
#[test]
fn numbers_outside_their_bounds_are_refused_by_name() {
    let hostile = [
        json!(1e30),
        json!(-1e30),
        json!("1"),
        json!([1]),
        json!({}),
        json!(true),
        json!("NaN"),
    ];
    for field in FIELDS {
        let (Rule::Obeyed(shape) | Rule::Hint(shape)) = field.rule else {
            continue;
        };
        let outside = match shape {
            Shape::Number { min, max, .. } => vec![json!(max + 0.001), json!(min - 0.001)],
            Shape::Integer { max: i64::MAX, .. } => {
                vec![
                    json!(9_223_372_036_854_775_808_u64),
                    json!(18_446_744_073_709_551_616_f64),
                    json!(1.5),
                ]
            }
            Shape::Integer { min, max } => {
                vec![json!(min - 1), json!(max + 1), json!(1.5), json!(1.0)]
            }
            _ => continue,
        };
        for value in outside.into_iter().chain(hostile.clone()) {
            let error = read(field, value.clone()).expect_err(field.name);
            assert!(
                matches!(error, RequestError::Invalid { .. }),
                "{value}: {error}"
            );
            assert_eq!(error.param(), Some(field.name));
        }
    }
}

#[test]
fn bounds_themselves_are_accepted() {
    for field in FIELDS {
        let (Rule::Obeyed(shape) | Rule::Hint(shape)) = field.rule else {
            continue;
        };
        let values = match shape {
            Shape::Number { min, max, .. } => vec![json!(min), json!(max), json!(1)],
            Shape::Integer { min, max } => vec![json!(min), json!(max)],
            Shape::Flag => vec![json!(true), json!(false)],
            Shape::Text { .. } => vec![json!("x")],
            Shape::OneOf(words) => words.iter().map(|word| json!(word)).collect(),
            Shape::Object => vec![json!({})],
            Shape::Structured(_) => continue,
        };
        for value in values {
            read(field, value).unwrap_or_else(|error| panic!("{error}"));
        }
    }
}

#[test]
fn a_field_of_the_other_endpoint_is_refused_here() {
    let object = |name: &str| Map::from_iter([(name.to_owned(), json!(true))]);
    for field in FIELDS {
        let other = match field.on {
            On::Both | On::Own => continue,
            On::Chat => Endpoint::Completion,
            On::Completion => Endpoint::Chat,
        };
        let has_row = |row: &&Field| row.name == field.name && row.on.includes(other);
        if FIELDS.iter().any(|row| has_row(&row)) {
            continue;
        }
        let error = Fields::read(object(field.name), other).expect_err(field.name);
        assert_eq!(error.param(), Some(field.name));
    }
}

#[test]
fn a_field_in_no_dialect_is_passed_over_and_reported() {
    let object = Map::from_iter([("frobnicate".to_owned(), json!({"x": 1}))]);
    let fields = Fields::read(object, Endpoint::Chat).unwrap();
    assert_eq!(fields.unknown, ["frobnicate"]);
}
