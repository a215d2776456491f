//! Checks of the chat template, and of template and tokenizer together.

use serde_json::{Map, Value, json};
use text::{
    ChatTemplate, Conversation, PromptEnding, Rendered, SpecialText, TemplateError, TokenId,
    Tokenizer,
};

use super::tokens::{controls, drawn};
use super::{Finding, Verdict};

/// A word that no template contains by chance.
const NEEDLE: &str = "zebra-n33dle";

/// Control tokens that the injection check types, at most; vocabularies have hundreds that are reserved.
const INJECTED_MAX: usize = 64;

/// Everything there is to say about `template`.
pub(super) fn findings(template: &ChatTemplate, tokenizer: &Tokenizer) -> Vec<Finding> {
    let lint = Lint {
        template,
        tokenizer,
    };
    let question = [user(NEEDLE)];
    let rendered = match lint.render(&question, &[], PromptEnding::OpenTurn) {
        Ok(rendered) if rendered.text.contains(NEEDLE) => rendered,
        Ok(_) => {
            let words = "drops the message of the user";
            return vec![Finding::new("template", Verdict::Failed, words)];
        }
        Err(error) => {
            let words = format!("refuses a single question: {error}");
            return vec![Finding::new("template", Verdict::Failed, words)];
        }
    };
    let mut findings = vec![Finding::new(
        "template",
        Verdict::Ok,
        "renders a single question",
    )];
    findings.extend(lint.conversations());
    findings.push(lint.opening(&question, &rendered));
    findings.push(lint.thinking(&question));
    findings.push(lint.bos(&rendered));
    findings.push(lint.split_markers(&rendered));
    findings.push(lint.end_of_turn());
    findings.push(lint.injection());
    findings
}

struct Lint<'a> {
    template: &'a ChatTemplate,
    tokenizer: &'a Tokenizer,
}

impl Lint<'_> {
    fn render(
        &self,
        messages: &[Value],
        tools: &[Value],
        ending: PromptEnding,
    ) -> Result<Rendered, TemplateError> {
        self.template.render_conversation(&Conversation {
            messages,
            tools,
            ending,
            variables: &Map::new(),
        })
    }

    /// The standard conversations. All but the plainest may be refused: not every model was made for them. But what
    /// is rendered must hold what was said.
    fn conversations(&self) -> Vec<Finding> {
        let tools = [tool()];
        let none: &[Value] = &[];
        let cases: [(&'static str, Vec<Value>, &[Value], Verdict); 6] = [
            (
                "template-system",
                vec![message("system", NEEDLE), user("hi")],
                none,
                Verdict::Note,
            ),
            (
                "template-turns",
                vec![user("hi"), message("assistant", "hello"), user(NEEDLE)],
                none,
                Verdict::Failed,
            ),
            (
                "template-consecutive",
                vec![user("hi"), user(NEEDLE)],
                none,
                Verdict::Note,
            ),
            (
                "template-empty",
                vec![user(""), message("assistant", "?"), user(NEEDLE)],
                none,
                Verdict::Warning,
            ),
            (
                "template-unicode",
                vec![user("zebra-n33dle 你好 👋🏽 é")],
                none,
                Verdict::Failed,
            ),
            ("template-tools", tool_turns(), &tools, Verdict::Note),
        ];
        let check = |(check, messages, tools, refused): (_, Vec<Value>, &[Value], _)| match self
            .render(&messages, tools, PromptEnding::OpenTurn)
        {
            Ok(rendered) if holds_all(&rendered.text, tools) => {
                Finding::new(check, Verdict::Ok, "is rendered")
            }
            Ok(_) if !tools.is_empty() => Finding::new(
                check,
                Verdict::Note,
                "the template leaves calls or results of tools out",
            ),
            Ok(_) => Finding::new(check, Verdict::Failed, "a message is dropped"),
            Err(error) => Finding::new(check, refused, format!("is refused: {error}")),
        };
        cases.into_iter().map(check).collect()
    }

    /// Whether a prompt can end with the opening of the assistant's turn.
    fn opening(&self, question: &[Value], open: &Rendered) -> Finding {
        const CHECK: &str = "generation-prompt";
        match self.render(question, &[], PromptEnding::AfterMessages) {
            Err(error) => Finding::new(CHECK, Verdict::Warning, error.to_string()),
            Ok(closed) if closed.text == open.text => {
                let words =
                    "add_generation_prompt changes nothing: the model must open its turn itself";
                Finding::new(CHECK, Verdict::Warning, words)
            }
            Ok(closed) => match open.text.strip_prefix(&closed.text) {
                Some(opening) => Finding::new(CHECK, Verdict::Ok, format!("{opening:?}")),
                None => {
                    let words = "add_generation_prompt changes more than the end of the prompt";
                    Finding::new(CHECK, Verdict::Warning, words)
                }
            },
        }
    }

    fn thinking(&self, question: &[Value]) -> Finding {
        const CHECK: &str = "thinking";
        let render = |enable: bool| {
            let variables = Map::from_iter([("enable_thinking".to_owned(), enable.into())]);
            let rendered = self.template.render_conversation(&Conversation {
                messages: question,
                tools: &[],
                ending: PromptEnding::OpenTurn,
                variables: &variables,
            })?;
            Ok::<String, TemplateError>(rendered.text)
        };
        match (render(true), render(false)) {
            (Ok(on), Ok(off)) if on != off => {
                Finding::new(CHECK, Verdict::Ok, "enable_thinking switches it on and off")
            }
            (Ok(_), Ok(_)) => Finding::new(CHECK, Verdict::Ok, "enable_thinking changes nothing"),
            (Err(error), _) | (_, Err(error)) => {
                let words = format!("enable_thinking makes the template fail: {error}");
                Finding::new(CHECK, Verdict::Failed, words)
            }
        }
    }

    /// Whether prompts begin with BOS once.
    fn bos(&self, rendered: &Rendered) -> Finding {
        const CHECK: &str = "double-bos";
        let Some(bos) = self.tokenizer.bos() else {
            return Finding::new(CHECK, Verdict::Ok, "there is no BOS");
        };
        let tokens = self.tokenizer.encode_chat(rendered);
        let num_bos = tokens.iter().take_while(|token| **token == bos).count();
        let adds = self.tokenizer.prompt_prefix().contains(&bos);
        let bos_text = self.tokenizer.token_text(bos).unwrap_or_default();
        let writes = !bos_text.is_empty() && rendered.text.starts_with(bos_text);
        match (num_bos, writes, adds) {
            (2.., ..) => {
                let words = format!("prompts begin with {num_bos} times {bos_text:?}");
                Finding::new(CHECK, Verdict::Failed, words)
            }
            (1, true, true) => {
                let words = "the template writes BOS and the tokenizer adds it: prompts get one";
                Finding::new(CHECK, Verdict::Ok, words)
            }
            (1, ..) => Finding::new(CHECK, Verdict::Ok, "prompts begin with one BOS"),
            (0, ..) => Finding::new(CHECK, Verdict::Ok, "prompts begin without BOS"),
        }
    }

    /// Whether what looks like a control token in the template's own text is one.
    fn split_markers(&self, rendered: &Rendered) -> Finding {
        const CHECK: &str = "template-tokens";
        for marker in markers(&rendered.text) {
            let tokens = self.tokenizer.encode(marker, SpecialText::Parse);
            if tokens.len() != 1 {
                let words = format!(
                    "the template writes {marker:?}, which is no token but split into {}",
                    drawn(&tokens)
                );
                return Finding::new(CHECK, Verdict::Failed, words);
            }
        }
        Finding::new(
            CHECK,
            Verdict::Ok,
            "what the template writes like tokens are tokens",
        )
    }

    /// Whether the server stops where the template ends the assistant's turn.
    fn end_of_turn(&self) -> Finding {
        const CHECK: &str = "end-tokens";
        let without_template = super::tokens::end_tokens(self.tokenizer);
        if without_template.verdict == Verdict::Failed {
            return without_template;
        }
        let messages = [user("hi"), message("assistant", NEEDLE)];
        let Ok(rendered) = self.render(&messages, &[], PromptEnding::AfterMessages) else {
            return without_template;
        };
        let Some((_, tail)) = rendered.text.rsplit_once(NEEDLE) else {
            let words = "the template drops the assistant's message";
            return Finding::new(CHECK, Verdict::Warning, words);
        };
        let tokens = self.tokenizer.encode(tail.trim_start(), SpecialText::Parse);
        match tokens.first() {
            Some(end) if self.tokenizer.end_tokens().contains(end) => without_template,
            Some(end) if self.tokenizer.is_control(*end) => {
                let text = self.tokenizer.token_text(*end).unwrap_or_default();
                let words = format!(
                    "the template ends turns with {text:?}, which is not among the end tokens: {}",
                    without_template.words
                );
                Finding::new(CHECK, Verdict::Failed, words)
            }
            _ => {
                let words = format!("the template ends turns with no control token ({tail:?})");
                Finding::new(CHECK, Verdict::Warning, words)
            }
        }
    }

    /// Whether control tokens that a user types stay text.
    fn injection(&self) -> Finding {
        const CHECK: &str = "injection";
        let controls_in = |content: &str| -> Option<Vec<TokenId>> {
            let rendered = self
                .render(&[user(content)], &[], PromptEnding::OpenTurn)
                .ok()?;
            let tokens = self.tokenizer.encode_chat(&rendered);
            let is_control = |token: &TokenId| {
                self.tokenizer.is_control(*token)
                    && self.tokenizer.token_text(*token) != Some("<unk>")
            };
            Some(tokens.into_iter().filter(is_control).collect())
        };
        let honest = controls_in("a b");
        for (_, text) in controls(self.tokenizer).into_iter().take(INJECTED_MAX) {
            if controls_in(&format!("a{text}b")) != honest {
                let words =
                    format!("{text:?} in a message becomes a control token, or changes others");
                return Finding::new(CHECK, Verdict::Failed, words);
            }
        }
        Finding::new(CHECK, Verdict::Ok, "control tokens in messages stay text")
    }
}

fn message(role: &str, content: &str) -> Value {
    json!({"role": role, "content": content})
}

fn user(content: &str) -> Value {
    message("user", content)
}

fn tool() -> Value {
    json!({"type": "function", "function": {
        "name": "weather",
        "description": "Tells the weather.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    }})
}

/// A question, a call, its result.
fn tool_turns() -> Vec<Value> {
    let call = json!({
        // Some templates demand nine letters or digits.
        "id": "abcdefghi",
        "type": "function",
        "function": {"name": "weather", "arguments": "{\"city\": \"Bonn\"}"},
    });
    vec![
        user("Is it raining?"),
        json!({"role": "assistant", "content": null, "tool_calls": [call]}),
        json!({"role": "tool", "tool_call_id": "abcdefghi", "name": "weather", "content": NEEDLE}),
    ]
}

/// Whether `text` holds the message with the needle and, in a conversation with tools, the call of one.
fn holds_all(text: &str, tools: &[Value]) -> bool {
    text.contains(NEEDLE) && (tools.is_empty() || text.contains("Bonn"))
}

/// Everything of the form `<|…|>`, without white space within.
fn markers(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find("<|") {
        rest = &rest[start..];
        let Some(end) = rest.find("|>") else { break };
        let marker = &rest[..end + 2];
        if !marker.contains(char::is_whitespace) {
            found.push(marker);
        }
        rest = &rest[end + 2..];
    }
    found
}
