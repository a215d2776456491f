//! Messages, prompts and tokenize requests.

use api::chat::{ChatRequest, Role, Turn};
use api::completion::{Bos, CompletionRequest, Prompt};
use api::tokenize::{
    ControlText, DetokenizeRequest, Pieces, Source, TokenizeRequest, TokenizeShape,
};

use crate::{LIMITS, chat, chat_refused};

fn messages(messages: &str) -> Result<ChatRequest, api::RequestError> {
    ChatRequest::parse(format!(r#"{{"messages":{messages}}}"#).as_bytes(), &LIMITS)
}

#[test]
fn content_parts_are_joined_and_developer_means_system() {
    let read = messages(
        r#"[{"role":"developer","content":"be brief"},
            {"role":"user","name":"ann","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
            {"role":"tool","tool_call_id":"call_1","content":"7"}]"#,
    )
    .unwrap();
    assert_eq!(read.messages[0].role, Role::System);
    assert_eq!(read.messages[1].content, "a\nb");
    assert_eq!(read.messages[1].name.as_deref(), Some("ann"));
    assert_eq!(read.messages[2].tool_call_id.as_deref(), Some("call_1"));
    assert_eq!(read.turn, Turn::Opened);
}

/// Cases A8, A10 and F7.
#[test]
fn a_bad_message_is_named_with_its_path() {
    for (body, param) in [
        ("null", "messages"),
        ("[]", "messages"),
        ("\"hi\"", "messages"),
        ("[7]", "messages[0]"),
        ("[{}]", "messages[0].role"),
        (r#"[{"role":"robot","content":"x"}]"#, "messages[0].role"),
        (r#"[{"role":"user"}]"#, "messages[0].content"),
        (r#"[{"role":"user","content":7}]"#, "messages[0].content"),
        (
            r#"[{"role":"user","content":[{"type":"text"}]}]"#,
            "messages[0].content[0].text",
        ),
        (
            r#"[{"role":"user","content":[{"type":"image_url","image_url":{}}]}]"#,
            "messages[0].content[0].type",
        ),
        (
            r#"[{"role":"user","content":"x","name":7}]"#,
            "messages[0].name",
        ),
        (
            r#"[{"role":"assistant","content":"x","tool_calls":[{}]}]"#,
            "messages[0].tool_calls[0].function.name",
        ),
    ] {
        let error = messages(body).expect_err(body);
        assert_eq!(error.param(), Some(param), "{error}");
    }
    let many = [r#"{"role":"user","content":"x"}"#; 9].join(",");
    assert_eq!(
        messages(&format!("[{many}]")).expect_err("9 of 8").param(),
        Some("messages")
    );
}

#[test]
fn an_answer_of_ours_can_be_sent_back_as_history() {
    let own = r#"[{"role":"assistant","content":"x","refusal":null,"tool_calls":[]},{"role":"user","content":""}]"#;
    assert_eq!(messages(own).unwrap().messages.len(), 2);
}

#[test]
fn template_variables_cannot_forge_the_conversation() {
    let kwargs = |name: &str| format!(r#","chat_template_kwargs":{{"{name}":1}}"#);
    assert!(
        chat(&kwargs("enable_thinking"))
            .unwrap()
            .template_variables
            .contains_key("enable_thinking")
    );
    for name in ["messages", "bos_token", "tools", "add_generation_prompt"] {
        assert_eq!(
            chat_refused(&kwargs(name)),
            format!("chat_template_kwargs.{name}")
        );
    }
}

fn prompts(prompt: &str) -> Result<Vec<Prompt>, api::RequestError> {
    let body = format!(r#"{{"prompt":{prompt}}}"#);
    CompletionRequest::parse(body.as_bytes(), &LIMITS).map(|read| read.prompts)
}

/// Case S2.
#[test]
fn the_four_forms_of_a_prompt_are_read() {
    let text = |text: &str| Prompt::Text(text.to_owned());
    assert_eq!(prompts(r#""a""#).unwrap(), [text("a")]);
    assert_eq!(prompts(r#"["a","b"]"#).unwrap(), [text("a"), text("b")]);
    assert_eq!(prompts("[1,2,3]").unwrap(), [Prompt::Ids(vec![1, 2, 3])]);
    assert_eq!(
        prompts("[[1,2],[3]]").unwrap(),
        [Prompt::Ids(vec![1, 2]), Prompt::Ids(vec![3])]
    );
}

/// Cases A8 and S2.
#[test]
fn an_empty_mixed_or_narrowed_prompt_is_named_with_its_path() {
    for (prompt, param) in [
        ("null", "prompt"),
        (r#""""#, "prompt"),
        ("[]", "prompt"),
        (r#"[""]"#, "prompt[0]"),
        ("[[]]", "prompt[0]"),
        (r#"["a",""]"#, "prompt[1]"),
        (r#"["a",1]"#, "prompt[1]"),
        (r#"[1,"a"]"#, "prompt[1]"),
        ("[[1],2]", "prompt[1]"),
        ("[1,[2]]", "prompt[1]"),
        ("[-1]", "prompt[0]"),
        ("[1.0]", "prompt[0]"),
        ("[4294967296]", "prompt[0]"),
        ("[[1,4294967301]]", "prompt[0][1]"),
        ("[null]", "prompt[0]"),
        ("7", "prompt"),
        (r#"["a","b","c","d","e"]"#, "prompt"),
    ] {
        let error = prompts(prompt).expect_err(prompt);
        assert_eq!(error.param(), Some(param), "{prompt}: {error}");
    }
}

#[test]
fn both_shapes_of_a_tokenize_request_are_told_apart() {
    let read = |body: &str| TokenizeRequest::parse(body.as_bytes(), &LIMITS);
    let vllm = read(r#"{"model":"m","prompt":"a","return_token_strs":true}"#).unwrap();
    assert_eq!(vllm.shape, TokenizeShape::Counted(Pieces::Told));
    assert!(matches!(
        vllm.source,
        Source::Text {
            bos: Bos::ModelRule,
            control_text: ControlText::Parsed,
            ..
        }
    ));
    let llama = read(r#"{"content":"a","with_pieces":true,"parse_special":false}"#).unwrap();
    assert_eq!(llama.shape, TokenizeShape::Bare(Pieces::Told));
    assert!(matches!(
        llama.source,
        Source::Text {
            bos: Bos::Never,
            control_text: ControlText::Plain,
            ..
        }
    ));
    let chat = read(r#"{"messages":[{"role":"user","content":"a"}]}"#).unwrap();
    assert!(matches!(chat.source, Source::Messages { .. }));
    assert_eq!(read("{}").expect_err("no text").param(), Some("prompt"));
    assert_eq!(
        read(r#"{"content":7}"#).expect_err("a number").param(),
        Some("content")
    );
}

#[test]
fn ids_to_be_made_into_text_are_never_narrowed() {
    let read =
        |tokens: &str| DetokenizeRequest::parse(format!(r#"{{"tokens":{tokens}}}"#).as_bytes());
    assert_eq!(read("[]").unwrap().tokens, Vec::<u32>::new());
    assert_eq!(read("[1,2]").unwrap().tokens, [1, 2]);
    for (tokens, param) in [
        ("[-1]", "tokens[0]"),
        ("[0,4294967301]", "tokens[1]"),
        ("\"1\"", "tokens"),
        ("null", "tokens"),
    ] {
        assert_eq!(read(tokens).expect_err(tokens).param(), Some(param));
    }
}

#[test]
fn what_a_tokenize_request_of_its_shape_would_ignore_is_refused() {
    let refused = |body: &str| {
        let error = TokenizeRequest::parse(body.as_bytes(), &LIMITS).expect_err(body);
        error.param().map(str::to_owned)
    };
    let messages = r#""messages":[{"role":"user","content":"a"}]"#;
    for (body, param) in [
        (r#"{"content":"a","prompt":"b"}"#.to_owned(), "prompt"),
        (
            r#"{"prompt":"a","add_special":false}"#.to_owned(),
            "add_special",
        ),
        (
            r#"{"content":"a","return_token_strs":true}"#.to_owned(),
            "return_token_strs",
        ),
        (format!(r#"{{{messages},"prompt":"b"}}"#), "messages"),
        (
            format!(r#"{{{messages},"add_special_tokens":true}}"#),
            "add_special_tokens",
        ),
        (
            format!(r#"{{{messages},"continue_final_message":true,"add_generation_prompt":true}}"#),
            "continue_final_message",
        ),
        (
            format!(r#"{{{messages},"chat_template":"x"}}"#),
            "chat_template",
        ),
    ] {
        assert_eq!(refused(&body).as_deref(), Some(param), "{body}");
    }
    for accepted in [
        r#""add_special_tokens":false"#,
        r#""tools":[]"#,
        r#""continue_final_message":false"#,
        r#""prompt":null"#,
        r#""of_no_dialect":1"#,
    ] {
        let body = format!("{{{messages},{accepted}}}");
        TokenizeRequest::parse(body.as_bytes(), &LIMITS).expect(accepted);
    }
}
