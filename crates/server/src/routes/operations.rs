//! What the OpenAPI document says of each route. A route is added together with its row here
//! (`routes`), so there is none without.

use api::answer::{
    Alive, ChatChoice, CompletionChoice, Described, Healthy, ModelCard, ModelList, Version,
};
use api::embeddings::EmbeddingList;
use api::fields::Endpoint;
use api::messages::answer as messages;
use api::openapi::{Answer, Body, Method, Operation, Told};
use api::render::{AppliedTemplate, Rendered};
use api::responses::answer as responses;
use api::timeline::SlowRequests;
use api::tokenize::{Detokenized, Tokenized};

pub(super) const CHAT: Operation = Operation {
    method: Method::Post,
    path: "/v1/chat/completions",
    summary: "An answer to a conversation.",
    query: &[],
    body: Body::Table(Endpoint::Chat),
    answer: Answer::Either(Told::choices_of::<ChatChoice<'_>>()),
};

pub(super) const COMPLETION: Operation = Operation {
    method: Method::Post,
    path: "/v1/completions",
    summary: "Answers to one or several prompts.",
    query: &[],
    body: Body::Table(Endpoint::Completion),
    answer: Answer::Either(Told::choices_of::<CompletionChoice<'_>>()),
};

pub(super) const EMBEDDINGS: Operation = Operation {
    method: Method::Post,
    path: "/v1/embeddings",
    summary: "Vectors of length 1 of one or several inputs.",
    query: &[],
    body: Body::Table(Endpoint::Embeddings),
    answer: Answer::Json(Told::of::<EmbeddingList<'_>>()),
};

pub(super) const CHAT_RENDER: Operation = Operation {
    method: Method::Post,
    path: "/v1/chat/completions/render",
    summary: "The tokens and settings of such a request.",
    query: &[],
    body: Body::Table(Endpoint::Chat),
    answer: Answer::Json(Told::of::<Rendered<'_>>()),
};

pub(super) const COMPLETION_RENDER: Operation = Operation {
    method: Method::Post,
    path: "/v1/completions/render",
    summary: "The tokens and settings of such a request's prompts.",
    query: &[],
    body: Body::Table(Endpoint::Completion),
    answer: Answer::Json(Told::list_of::<Rendered<'_>>()),
};

pub(super) const APPLY_TEMPLATE: Operation = Operation {
    method: Method::Post,
    path: "/apply-template",
    summary: "A conversation as the model's template writes it.",
    query: &[],
    body: Body::Table(Endpoint::Chat),
    answer: Answer::Json(Told::of::<AppliedTemplate>()),
};

pub(super) const RESPONSE: Operation = Operation {
    method: Method::Post,
    path: "/v1/responses",
    summary: "A response, whole, streamed or in the background.",
    query: &[],
    body: Body::Table(Endpoint::Responses),
    answer: Answer::Either(Told::of::<responses::Response>()),
};

pub(super) const RESPONSE_SHOWN: Operation = Operation {
    method: Method::Get,
    path: "/v1/responses/{response_id}",
    summary: "A kept response.",
    query: &[],
    body: Body::None,
    answer: Answer::Json(Told::of::<responses::Response>()),
};

pub(super) const RESPONSE_DELETED: Operation = Operation {
    method: Method::Delete,
    path: "/v1/responses/{response_id}",
    summary: "Forgets a kept response.",
    query: &[],
    body: Body::None,
    answer: Answer::Json(Told::of::<responses::Deleted<'_>>()),
};

pub(super) const RESPONSE_CANCELLED: Operation = Operation {
    method: Method::Post,
    path: "/v1/responses/{response_id}/cancel",
    summary: "Ends a background response's work.",
    query: &[],
    body: Body::None,
    answer: Answer::Json(Told::of::<responses::Response>()),
};

pub(super) const RESPONSE_INPUT: Operation = Operation {
    method: Method::Get,
    path: "/v1/responses/{response_id}/input_items",
    summary: "A kept response's own input.",
    query: &[
        ("limit", "1 to 100 items, 20 if absent"),
        ("order", "`asc` or `desc`, newest first if absent"),
        ("after", "the id of the item before the page"),
    ],
    body: Body::None,
    answer: Answer::Json(Told::of::<responses::ItemList<'_>>()),
};

pub(super) const MESSAGE: Operation = Operation {
    method: Method::Post,
    path: "/v1/messages",
    summary: "An answer in Anthropic's dialect.",
    query: &[],
    body: Body::Table(Endpoint::Messages),
    answer: Answer::Either(Told::of::<messages::Message<'_>>()),
};

pub(super) const MESSAGE_COUNT: Operation = Operation {
    method: Method::Post,
    path: "/v1/messages/count_tokens",
    summary: "How many tokens such a request's prompt has.",
    query: &[],
    body: Body::Table(Endpoint::Messages),
    answer: Answer::Json(Told::of::<messages::TokenCount>()),
};

pub(super) const MODELS: Operation = Operation {
    method: Method::Get,
    path: "/v1/models",
    summary: "The served names.",
    query: &[],
    body: Body::None,
    answer: Answer::Json(Told::of::<ModelList<'_>>()),
};

pub(super) const MODEL: Operation = Operation {
    method: Method::Get,
    path: "/v1/models/{*model}",
    summary: "One of them.",
    query: &[],
    body: Body::None,
    answer: Answer::Json(Told::of::<ModelCard<'_>>()),
};

pub(super) const TOKENIZE: Operation = Operation {
    method: Method::Post,
    path: "/tokenize",
    summary: "Text or messages to tokens, in vLLM's or llama.cpp's shape.",
    query: &[],
    body: Body::Keys(&[&["prompt"], &["messages"], &["content"]]),
    answer: Answer::Json(Told::of::<Tokenized>()),
};

pub(super) const DETOKENIZE: Operation = Operation {
    method: Method::Post,
    path: "/detokenize",
    summary: "Tokens to text.",
    query: &[],
    body: Body::Keys(&[&["tokens"]]),
    answer: Answer::Json(Told::of::<Detokenized>()),
};

pub(super) const VERSION: Operation = Operation {
    method: Method::Get,
    path: "/version",
    summary: "The version.",
    query: &[],
    body: Body::None,
    answer: Answer::Json(Told::of::<Version<'_>>()),
};

pub(super) const METRICS: Operation = Operation {
    method: Method::Get,
    path: "/metrics",
    summary: "Prometheus text.",
    query: &[],
    body: Body::None,
    answer: Answer::Text,
};

pub(super) const LIVE: Operation = Operation {
    method: Method::Get,
    path: "/livez",
    summary: "The process answers, and the engine's steps end.",
    query: &[],
    body: Body::None,
    answer: Answer::Json(Told::of::<Alive>()),
};

pub(super) const READY: Operation = Operation {
    method: Method::Get,
    path: "/readyz",
    summary: "Requests are taken now.",
    query: &[],
    body: Body::None,
    answer: Answer::Json(Told::of::<Healthy>()),
};

pub(super) const DEBUG_REQUESTS: Operation = Operation {
    method: Method::Get,
    path: "/debug/requests",
    summary: "Where the time of the slowest requests went.",
    query: &[],
    body: Body::None,
    answer: Answer::Json(Told::of::<SlowRequests>()),
};

pub(super) const OPENAPI: Operation = Operation {
    method: Method::Get,
    path: "/openapi.json",
    summary: "This document.",
    query: &[],
    body: Body::None,
    answer: Answer::Json(Told::of::<Described>()),
};
