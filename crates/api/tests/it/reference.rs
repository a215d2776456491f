//! `docs/reference/parameters.md` is the table of `api::fields`, made readable.

use api::fields::{Endpoint, FIELDS, Field, On, Rule};

/// The page as the table has it.
fn page() -> String {
    let mut page = String::from(
        "# Request parameters\n\
         \n\
         What `/v1/chat/completions` and `/v1/completions` do with every field that clients are known to send. Nothing is\n\
         silently ignored: a field is obeyed, or it is a label or hint by its own definition, or it is refused with status 400,\n\
         `error.param` naming it. `null` is the same as absent. Fields in no dialect we know are passed over and named once in\n\
         the server's log.\n\
         \n\
         This page is made from the table in `crates/api/src/fields.rs`; `FULCRUM_BLESS=1 cargo test -p fulcrum-api` writes it.\n\
         \n\
         Rules between fields: `max_completion_tokens` wins over `max_tokens`; without either the answer may fill the context, up\n\
         to the server's own limit. Prompt plus answer limit must fit the context, else 400 `context_length_exceeded`: nothing is\n\
         clamped. What a request leaves open comes from the model file's own defaults, then from OpenAI's (temperature 1,\n\
         top_p 1). A `seed` is a signed 64-bit number. Messages have `role`, `content` (a string, or text parts, which are\n\
         joined by line breaks), `name` and `tool_call_id`; `developer` means `system`. Text inside messages never becomes\n\
         control tokens; a raw prompt of `/v1/completions` is read as its author wrote it, control tokens included.\n",
    );
    type Belongs = fn(&Field) -> bool;
    let tables: [(&str, Belongs); 3] = [
        ("Obeyed", |field| matches!(field.rule, Rule::Obeyed(_))),
        (
            "Accepted without effect, by their own definition",
            |field| matches!(field.rule, Rule::Hint(_)),
        ),
        (
            "Not built: refused, unless the value asks for nothing",
            |field| matches!(field.rule, Rule::Neutral(_) | Rule::Refused),
        ),
    ];
    for (title, belongs) in tables {
        page += &format!("\n## {title}\n\n| field | accepted | what it does |\n|---|---|---|\n");
        for field in FIELDS.iter().filter(|field| belongs(field)) {
            page += &row(field);
        }
    }
    for (endpoint, path) in [
        (Endpoint::Responses, "/v1/responses"),
        (Endpoint::Messages, "/v1/messages"),
    ] {
        page += &dialect(endpoint, path);
    }
    page
}

/// The table of an endpoint that has one of its own.
fn dialect(endpoint: Endpoint, path: &str) -> String {
    let mut page = format!(
        "\n## `{path}`\n\nThe same rules: obeyed, a hint, or refused.\n\n\
         | field | accepted | what it does |\n|---|---|---|\n"
    );
    for field in endpoint.table() {
        page += &row(field);
    }
    let shared: Vec<String> = endpoint
        .shared()
        .map(|field| format!("`{}`", field.name))
        .collect();
    if !shared.is_empty() {
        page += &format!(
            "\nAs in the tables above: {}. Their other fields are refused here.\n",
            shared.join(", ")
        );
    }
    page
}

fn row(field: &Field) -> String {
    let accepted = match field.rule {
        Rule::Obeyed(shape) | Rule::Hint(shape) => shape.says(),
        Rule::Neutral(values) => {
            let words: Vec<String> = values
                .iter()
                .map(|value| format!("`{}`", value.says()))
                .collect();
            words.join(" or ")
        }
        Rule::Refused => "nothing".to_owned(),
    };
    let place = match field.on {
        On::Both | On::Own => "",
        On::Chat => " (chat only)",
        On::Completion => " (completions only)",
    };
    format!(
        "| `{}`{place} | {accepted} | {} |\n",
        field.name, field.note
    )
}

#[test]
fn the_reference_page_is_the_table() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/reference/parameters.md"
    );
    if std::env::var_os("FULCRUM_BLESS").is_some() {
        std::fs::write(path, page()).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap();
    assert!(
        written == page(),
        "docs/reference/parameters.md is out of date; see its third paragraph"
    );
}
