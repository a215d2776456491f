//! Prompts without answers: what the render routes say is what a request is made of.

use serde_json::json;

use crate::harness::{MODEL, Setup, chat, refusal};

#[test]
fn a_rendered_conversation_has_the_tokens_its_answer_is_made_from() {
    let running = Setup::new().start();
    let mut body = chat();
    body["return_token_ids"] = json!(true);
    body["max_tokens"] = json!(3);
    body["stop"] = json!("z");
    let answer = running.post("/v1/chat/completions", &body).json();
    let rendered = running.post("/v1/chat/completions/render", &body).json();
    assert_eq!(rendered["token_ids"], answer["prompt_token_ids"]);
    assert_eq!(rendered["model"], MODEL);
    assert!(
        rendered["request_id"]
            .as_str()
            .unwrap()
            .starts_with("chatcmpl-")
    );
    let settings = &rendered["sampling_params"];
    assert_eq!(settings["max_tokens"], 3);
    assert_eq!(settings["temperature"], 0.0);
    assert_eq!(settings["stop"], json!(["z"]));
}

#[test]
fn rendered_prompts_are_a_list_one_for_each() {
    let running = Setup::new().start();
    let body = json!({"prompt": ["x5", "3"], "return_token_ids": true});
    let answer = running.post("/v1/completions", &body).json();
    let rendered = running.post("/v1/completions/render", &body).json();
    assert_eq!(rendered.as_array().unwrap().len(), 2);
    for idx in 0..2 {
        assert_eq!(
            rendered[idx]["token_ids"],
            answer["choices"][idx]["prompt_token_ids"]
        );
    }
}

#[test]
fn the_applied_template_is_the_text_the_tokens_spell() {
    let running = Setup::new().start();
    let mut body = chat();
    let applied = running.post("/apply-template", &body).json();
    body["return_prompt_text"] = json!(true);
    let answer = running.post("/v1/chat/completions", &body).json();
    let (text, told) = (applied["prompt"].as_str().unwrap(), &answer["prompt_text"]);
    assert!(text.contains("say the alphabet"));
    assert!(told.as_str().unwrap().ends_with(text), "{told} and {text}");
}

#[test]
fn what_an_endpoint_refuses_its_render_route_refuses() {
    let running = Setup::new().start();
    let chat =
        |more: &str| format!("{{\"messages\":[{{\"role\":\"user\",\"content\":\"a\"}}]{more}}}");
    for (path, body, param) in [
        ("/v1/chat/completions/render", chat(",\"n\":0"), "n"),
        (
            "/v1/chat/completions/render",
            chat(",\"model\":\"x\""),
            "model",
        ),
        ("/apply-template", chat(",\"model\":\"x\""), "model"),
        (
            "/apply-template",
            "{\"messages\":[]}".to_owned(),
            "messages",
        ),
        (
            "/v1/completions/render",
            "{\"prompt\":[]}".to_owned(),
            "prompt",
        ),
        (
            "/v1/completions/render",
            "{\"prompt\":[1000000]}".to_owned(),
            "prompt",
        ),
    ] {
        let (_, told, _) = refusal(running.post_bytes(path, body.as_bytes()));
        assert_eq!(told.as_deref(), Some(param), "{path} {body}");
    }
}

#[test]
fn an_answer_can_go_on_with_the_last_message() {
    let running = Setup::new().start();
    let body = |last: &str| {
        json!({
            "messages": [{"role": "user", "content": "say it"}, {"role": "assistant", "content": last}],
            "continue_final_message": true, "temperature": 0, "max_tokens": 3,
        })
    };
    let answer = running.post("/v1/chat/completions", &body("abcd")).json();
    assert_eq!(answer["choices"][0]["message"]["content"], "efg");
    let applied = running.post("/apply-template", &body("abcd")).json();
    assert!(applied["prompt"].as_str().unwrap().ends_with("abcd"));
    for (body, param) in [
        (body(" "), "continue_final_message"),
        (
            {
                let mut body = body("a");
                body["add_generation_prompt"] = json!(true);
                body
            },
            "continue_final_message",
        ),
    ] {
        let (status, told, _) = refusal(running.post("/v1/chat/completions", &body));
        assert_eq!((status, told.as_deref()), (400, Some(param)));
    }
}
