//! Tools over HTTP: calls that are demanded, in each dialect and mode, and what is refused.
//!
//! The scripted model says the alphabet, so what makes it call is the grammar of the demand.

use serde_json::{Value, json};

use crate::harness::{Running, Setup, chat, refusal};
use crate::http::Frame;

fn weather() -> Value {
    json!({"type": "function", "function": {
        "name": "get_weather",
        "description": "Weather of a city",
        "strict": true,
        "parameters": {
            "type": "object",
            "properties": {"city": {"enum": ["Bonn"]}, "days": {"const": 3}},
            "required": ["city", "days"],
            "additionalProperties": false,
        },
    }})
}

fn now() -> Value {
    json!({"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}, "additionalProperties": false}}})
}

fn with(more: Value) -> Value {
    let mut body = chat();
    let object = body.as_object_mut().expect("a request");
    object.insert("max_tokens".to_owned(), json!(200));
    object.extend(more.as_object().expect("fields").clone());
    body
}

fn required() -> Value {
    with(json!({"tools": [weather()], "tool_choice": "required", "parallel_tool_calls": false}))
}

fn answer(running: &Running, body: &Value) -> Value {
    let reply = running.post("/v1/chat/completions", body);
    let status = reply.status;
    let answer = reply.json();
    assert_eq!(status, 200, "{answer}");
    answer
}

fn arguments(call: &Value) -> Value {
    let text = call["function"]["arguments"].as_str().expect("a text");
    serde_json::from_str(text).expect("arguments are JSON")
}

#[test]
fn a_demanded_call_comes_whole_with_arguments_that_keep_to_their_schema() {
    let running = Setup::new().with_endless_context().start();
    let answer = answer(&running, &required());
    let choice = &answer["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls");
    assert_eq!(choice["message"]["content"], Value::Null);
    let calls = choice["message"]["tool_calls"].as_array().expect("calls");
    assert_eq!(calls.len(), 1);
    assert_eq!(calls[0]["type"], "function");
    assert_eq!(calls[0]["function"]["name"], "get_weather");
    assert!(!calls[0]["id"].as_str().expect("an id").is_empty());
    assert_eq!(arguments(&calls[0]), json!({"city": "Bonn", "days": 3}));
}

#[test]
fn a_named_function_is_the_one_that_is_called() {
    let running = Setup::new().with_endless_context().start();
    let choice = json!({"type": "function", "function": {"name": "now"}});
    let body = with(json!({"tools": [weather(), now()], "tool_choice": choice}));
    let answer = answer(&running, &body);
    let call = &answer["choices"][0]["message"]["tool_calls"][0];
    assert_eq!(call["function"]["name"], "now");
    assert_eq!(arguments(call), json!({}));
}

#[test]
fn a_streamed_call_begins_with_its_name_and_goes_on_with_its_arguments() {
    let running = Setup::new().with_endless_context().start();
    let frames = running.stream("/v1/chat/completions", &required()).all();
    let (mut heads, mut text, mut reasons) = (Vec::new(), String::new(), Vec::new());
    for frame in &frames {
        let Frame::Json(chunk) = frame else { continue };
        let choice = &chunk["choices"][0];
        assert!(
            choice["delta"]["content"]
                .as_str()
                .is_none_or(str::is_empty),
            "{chunk}"
        );
        if let Some(call) = choice["delta"]["tool_calls"].get(0) {
            assert_eq!(call["index"], 0);
            if call.get("id").is_some() {
                heads.push(call["function"]["name"].clone());
            }
            text += call["function"]["arguments"]
                .as_str()
                .expect("always there");
        }
        reasons.extend(choice["finish_reason"].as_str().map(str::to_owned));
    }
    assert_eq!(heads, ["get_weather"]);
    let arguments: Value = serde_json::from_str(&text).expect("the pieces are one document");
    assert_eq!(arguments, json!({"city": "Bonn", "days": 3}));
    assert_eq!(reasons, ["tool_calls"]);
    assert_eq!(frames.last(), Some(&Frame::Done));
}

/// Names and arguments of a stream's calls, and its finish reason.
fn streamed(running: &Running, body: &Value) -> (Vec<(String, String)>, String) {
    let (mut calls, mut reason) = (Vec::<(String, String)>::new(), String::new());
    for frame in running.stream("/v1/chat/completions", body).all() {
        let Frame::Json(chunk) = frame else { continue };
        let choice = &chunk["choices"][0];
        if let Some(call) = choice["delta"]["tool_calls"].get(0) {
            let function = &call["function"];
            if let Some(name) = function["name"].as_str() {
                calls.push((name.to_owned(), String::new()));
            }
            let index = call["index"].as_u64().expect("a place") as usize;
            calls[index].1 += function["arguments"].as_str().expect("always there");
        }
        reason += choice["finish_reason"].as_str().unwrap_or("");
    }
    (calls, reason)
}

#[test]
fn an_answer_cut_within_a_call_says_the_same_whole_and_streamed() {
    let running = Setup::new().with_endless_context().start();
    let named = json!({"type": "function", "function": {"name": "get_weather"}});
    let mut num_cut_within = 0;
    for choice in [json!("required"), named] {
        for max_tokens in [1, 10, 20, 30, 40, 50, 60, 70] {
            let mut body = required();
            body["tool_choice"] = choice.clone();
            body["max_tokens"] = json!(max_tokens);
            let answer = answer(&running, &body);
            let whole = &answer["choices"][0];
            let calls = whole["message"]["tool_calls"].as_array();
            let text = |call: &Value, key: &str| call["function"][key].as_str().unwrap().to_owned();
            let calls = calls.into_iter().flatten();
            let calls: Vec<(String, String)> = calls
                .map(|call| (text(call, "name"), text(call, "arguments")))
                .collect();
            let (told, reason) = streamed(&running, &body);
            assert_eq!(
                (&calls, &whole["finish_reason"]),
                (&told, &json!(reason)),
                "{max_tokens}"
            );
            let is_whole = |arguments: &str| serde_json::from_str::<Value>(arguments).is_ok();
            match calls.first() {
                Some((_, arguments)) if is_whole(arguments) => {}
                Some(_) => {
                    num_cut_within += 1;
                    assert_eq!(reason, "length", "{max_tokens}");
                }
                None => assert_eq!(reason, "length", "{max_tokens}"),
            }
        }
    }
    assert!(
        num_cut_within > 0,
        "some of the limits are within the arguments"
    );
}

#[test]
fn a_cut_call_is_an_unfinished_item_or_an_empty_block_in_the_other_dialects() {
    let running = Setup::new().with_endless_context().start();
    let schema = weather()["function"]["parameters"].clone();
    let message = json!({
        "model": "tiny", "max_tokens": 40, "messages": [{"role": "user", "content": "x"}],
        "tools": [{"name": "get_weather", "input_schema": schema.clone()}],
        "tool_choice": {"type": "any", "disable_parallel_tool_use": true},
    });
    let whole = running.post("/v1/messages", &message).json();
    assert_eq!(whole["stop_reason"], "max_tokens", "{whole}");
    let block = &whole["content"][0];
    assert_eq!(
        (&block["type"], &block["input"]),
        (&json!("tool_use"), &json!({}))
    );
    let frames = running.stream("/v1/messages", &message).all();
    let begun = frames.iter().find_map(|frame| match frame {
        Frame::Event(name, event) if name == "content_block_start" => {
            Some(event["content_block"].clone())
        }
        _ => None,
    });
    assert_eq!(begun.expect("a block")["name"], block["name"]);
    let response = json!({
        "input": "x", "max_output_tokens": 40, "parallel_tool_calls": false,
        "tools": [{"type": "function", "name": "get_weather", "parameters": schema, "strict": true}],
        "tool_choice": "required",
    });
    let whole = running.post("/v1/responses", &response).json();
    assert_eq!(whole["status"], "incomplete", "{whole}");
    assert_eq!(whole["output"][0]["type"], "function_call");
    assert_eq!(whole["output"][0]["status"], "incomplete");
}

#[test]
fn tools_that_need_not_be_called_leave_the_answer_as_it_is() {
    let running = Setup::new().with_endless_context().start();
    for more in [
        json!({"tools": [now()]}),
        json!({"tools": [now()], "tool_choice": "auto"}),
        json!({"tools": [now()], "tool_choice": "none"}),
        json!({"tool_choice": "auto"}),
    ] {
        let answer = answer(&running, &with(more));
        let choice = &answer["choices"][0];
        assert_eq!(choice["finish_reason"], "stop");
        assert!(
            choice["message"]["content"]
                .as_str()
                .expect("a text")
                .ends_with('z')
        );
        assert_eq!(choice["message"].get("tool_calls"), None);
    }
}

#[test]
fn calls_and_results_may_stand_in_the_history() {
    let running = Setup::new().with_endless_context().start();
    let body = with(json!({"tools": [now()], "messages": [
        {"role": "user", "content": "when?"},
        {"role": "assistant", "content": null, "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "now", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "call_1", "content": "noon"},
    ]}));
    answer(&running, &body);
}

/// Case A10.
#[test]
fn arguments_in_the_history_are_an_object_or_the_json_of_one() {
    let running = Setup::new().with_endless_context().start();
    let body = |arguments: Value| {
        with(json!({"messages": [
            {"role": "user", "content": "when?"},
            {"role": "assistant", "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "now"}},
                {"id": "call_2", "type": "function", "function": {"name": "now", "arguments": arguments}}]},
            {"role": "tool", "tool_call_id": "call_1", "content": "noon"},
        ]}))
    };
    for sound in [
        json!({"a": 1}),
        json!("{\"a\": 1}"),
        json!(""),
        json!(" "),
        Value::Null,
    ] {
        answer(&running, &body(sound));
    }
    for wrong in [
        json!("{oops"),
        json!("[1]"),
        json!("null"),
        json!("5"),
        json!(7),
        json!([]),
    ] {
        let (status, place, _) = refusal(running.post("/v1/chat/completions", &body(wrong)));
        let expected = "messages[1].tool_calls[1].function.arguments";
        assert_eq!((status, place.as_deref()), (400, Some(expected)));
    }
    let item =
        json!({"type": "function_call", "call_id": "c", "name": "now", "arguments": "{oops"});
    let input = json!([{"role": "user", "content": "x"}, item]);
    let (status, place, _) = refusal(running.post("/v1/responses", &json!({"input": input})));
    assert_eq!((status, place.as_deref()), (400, Some("input[1]")));
    running.canary();
}

/// Case F2.
#[test]
fn what_cannot_be_enforced_is_refused_with_its_place() {
    let running = Setup::new().with_endless_context().start();
    let mut tool = weather();
    tool["function"]["parameters"]["properties"]["city"] =
        json!({"$ref": "http://example.org/city"});
    let refused = refusal(running.post("/v1/chat/completions", &with(json!({"tools": [tool]}))));
    let param = refused.1.expect("a place");
    assert!(
        param.starts_with("tools[0].function.parameters.properties.city"),
        "{param}"
    );
    for (more, place) in [
        (json!({"tools": [{"type": "web_search"}]}), "tools[0].type"),
        (json!({"tool_choice": "required"}), "tool_choice"),
        (
            json!({"tools": [weather()], "tool_choice": "required", "response_format": {"type": "json_object"}}),
            "response_format",
        ),
    ] {
        let refused = refusal(running.post("/v1/chat/completions", &with(more)));
        assert_eq!(refused.1.as_deref(), Some(place));
    }
    running.canary();
}

/// Case F2.
#[test]
fn the_tool_whose_schema_does_not_compile_is_named() {
    let running = Setup::new().with_endless_context().start();
    let impossible = json!({"type": "integer", "minimum": 5, "maximum": 4});
    let complex = json!({"type": "number", "minimum": 0.125, "maximum": 9.5, "multipleOf": 0.0007});
    for property in [impossible, complex] {
        let schema = json!({"type": "object", "properties": {"x": property}, "required": ["x"]});
        let heavy =
            json!({"type": "function", "function": {"name": "heavy", "parameters": schema}});
        for (tools, idx) in [(json!([heavy]), 0), (json!([now(), heavy, weather()]), 1)] {
            let body = with(json!({"tools": tools, "tool_choice": "required"}));
            let reply = running.post("/v1/chat/completions", &body);
            let status = reply.status;
            let error = reply.json()["error"].clone();
            assert_eq!(status, 400, "{error}");
            assert_eq!(
                error["param"],
                format!("tools[{idx}].function.parameters"),
                "{error}"
            );
            let message = error["message"].as_str().expect("a text");
            assert!(message.contains("of \"heavy\""), "{message}");
            assert!(
                !message.contains("at 5("),
                "no places of a text that nobody sent: {message}"
            );
        }
        let message = json!({
            "model": "tiny", "max_tokens": 9, "messages": [{"role": "user", "content": "x"}],
            "tools": [{"name": "heavy", "input_schema": schema.clone()}], "tool_choice": {"type": "any"},
        });
        let error = running.post("/v1/messages", &message).json()["error"]["message"].clone();
        assert!(
            error
                .as_str()
                .expect("a text")
                .contains("'tools[0].input_schema"),
            "{error}"
        );
    }
    running.canary();
}

#[test]
fn the_other_dialects_name_what_cannot_be_enforced_by_their_own_names() {
    let running = Setup::new().with_endless_context().start();
    let schema = json!({"type": "object", "properties": {"x": {"not": {}}}});
    let tool = json!({"type": "function", "name": "f", "strict": true, "parameters": schema});
    let format = json!({"type": "json_schema", "name": "n", "schema": schema});
    for (more, place) in [
        (
            json!({"tools": [tool]}),
            "tools[0].parameters.properties.x.not",
        ),
        (
            json!({"text": {"format": format}}),
            "text.format.schema.properties.x.not",
        ),
    ] {
        let mut body = json!({"input": "x"});
        let object = body.as_object_mut().expect("a request");
        object.extend(more.as_object().expect("fields").clone());
        let (status, told, _) = refusal(running.post("/v1/responses", &body));
        assert_eq!((status, told.as_deref()), (400, Some(place)));
    }
    let tool = json!({"name": "f", "strict": true, "input_schema": schema});
    let format = json!({"format": {"type": "json_schema", "schema": schema}});
    for (more, place) in [
        (
            json!({"tools": [tool]}),
            "'tools[0].input_schema.properties.x.not'",
        ),
        (
            json!({"output_config": format}),
            "'output_config.format.schema.properties.x.not'",
        ),
    ] {
        let mut body = json!({"model": "tiny", "max_tokens": 9, "messages": [{"role": "user", "content": "x"}]});
        let object = body.as_object_mut().expect("a request");
        object.extend(more.as_object().expect("fields").clone());
        let error = running.post("/v1/messages", &body).json()["error"]["message"].clone();
        assert!(error.as_str().expect("a text").contains(place), "{error}");
    }
}

#[test]
fn arguments_are_an_object_whatever_their_schema_leaves_open() {
    let running = Setup::new().with_endless_context().start();
    let tool = |parameters: Value| json!({"type": "function", "function": {"name": "f", "parameters": parameters}});
    let body =
        |parameters: Value| with(json!({"tools": [tool(parameters)], "tool_choice": "required"}));
    for parameters in [
        json!({"type": "string"}),
        json!({"type": ["object", "null"]}),
    ] {
        let refused = refusal(running.post("/v1/chat/completions", &body(parameters)));
        assert_eq!(
            refused.1.as_deref(),
            Some("tools[0].function.parameters.type")
        );
    }
    let open = json!({"properties": {"a": {"const": 1}}, "required": ["a"], "additionalProperties": false});
    let answer = answer(&running, &body(open));
    let call = &answer["choices"][0]["message"]["tool_calls"][0];
    assert_eq!(arguments(call), json!({"a": 1}));
}

#[test]
fn a_template_without_calls_gets_those_of_earlier_turns_in_words() {
    let running = Setup::new().with_endless_context().start();
    let body = json!({"messages": [
        {"role": "user", "content": "when?"},
        {"role": "assistant", "content": null, "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "now", "arguments": "{\"zone\": 1}"}}]},
        {"role": "tool", "tool_call_id": "call_1", "content": "noon"},
    ]});
    let prompt = running.post("/apply-template", &body).json()["prompt"].clone();
    let prompt = prompt.as_str().expect("a text");
    assert!(
        prompt.contains(r#"{"name": "now", "arguments": {"zone": 1}}"#),
        "{prompt}"
    );
}

#[test]
fn the_other_dialects_have_the_same_calls_in_their_own_words() {
    let running = Setup::new().with_endless_context().start();
    let schema = weather()["function"]["parameters"].clone();
    let message = running.post(
        "/v1/messages",
        &json!({
            "model": "tiny", "max_tokens": 200, "messages": [{"role": "user", "content": "x"}],
            "tools": [{"name": "get_weather", "input_schema": schema.clone()}],
            "tool_choice": {"type": "any", "disable_parallel_tool_use": true},
        }),
    );
    let message = message.json();
    assert_eq!(message["stop_reason"], "tool_use", "{message}");
    assert_eq!(message["content"][0]["type"], "tool_use");
    assert_eq!(
        message["content"][0]["input"],
        json!({"city": "Bonn", "days": 3})
    );
    let response = running.post("/v1/responses", &json!({
        "input": "x", "max_output_tokens": 200, "parallel_tool_calls": false,
        "tools": [{"type": "function", "name": "get_weather", "parameters": schema, "strict": true}],
        "tool_choice": "required",
    }));
    let response = response.json();
    assert_eq!(response["status"], "completed", "{response}");
    let item = &response["output"][0];
    assert_eq!(
        (&item["type"], &item["name"]),
        (&json!("function_call"), &json!("get_weather"))
    );
    let arguments: Value =
        serde_json::from_str(item["arguments"].as_str().expect("a text")).expect("JSON");
    assert_eq!(arguments, json!({"city": "Bonn", "days": 3}));
}
