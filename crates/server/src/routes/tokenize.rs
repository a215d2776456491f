//! `POST /tokenize` and `/detokenize`, in vLLM's and in llama.cpp's shape.

use std::sync::Arc;

use api::tokenize::{
    Bare, ControlText, Counted, DetokenizeRequest, Detokenized, Piece, PieceText, Pieces, Source,
    TokenizeRequest, TokenizeShape, Tokenized,
};
use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use text::{SpecialText, TokenId, Tokenizer};

use crate::answer::{Desk, at_desk};
use crate::errors::Refusal;
use crate::state::{Serving, Shared};

pub(super) async fn encode(
    State(shared): State<Arc<Shared>>,
    request: Request,
) -> Result<Response, Refusal> {
    at_desk(shared, request, encode_body).await
}

pub(super) async fn decode(
    State(shared): State<Arc<Shared>>,
    request: Request,
) -> Result<Response, Refusal> {
    at_desk(shared, request, decode_body).await
}

fn encode_body(desk: &Desk, body: &[u8]) -> Result<Response, Refusal> {
    let limits = &desk.shared.config.limits;
    let request = TokenizeRequest::parse(body, &limits.request)?;
    desk.shared.served_name(request.model.as_deref())?;
    let (serving, admission) = (&desk.serving, desk.admission());
    let param = match (&request.source, request.shape) {
        (Source::Messages { .. }, _) => "messages",
        (Source::Text { .. }, TokenizeShape::Counted(_)) => "prompt",
        (Source::Text { .. }, TokenizeShape::Bare(_)) => "content",
    };
    let tokens = match &request.source {
        Source::Messages {
            messages,
            turn,
            template_variables,
        } => admission.encode_chat(messages, *turn, template_variables)?,
        Source::Text {
            text,
            bos,
            control_text,
        } => {
            let special = match control_text {
                ControlText::Parsed => SpecialText::Parse,
                ControlText::Plain => SpecialText::AsText,
            };
            admission.expect_text(param)?;
            // So many it has at least.
            let num_tokens_min = text.len().div_ceil(serving.token_bytes_max);
            expect_bounded(desk, param, num_tokens_min)?;
            admission.encode_text(text, *bos, special)
        }
    };
    expect_bounded(desk, param, tokens.len())?;
    let tokenized = match request.shape {
        TokenizeShape::Counted(pieces) => Tokenized::Counted(counted(serving, &tokens, pieces)),
        TokenizeShape::Bare(pieces) => Tokenized::Bare(bare(&serving.tokenizer, &tokens, pieces)),
    };
    Ok(Json(tokenized).into_response())
}

fn decode_body(desk: &Desk, body: &[u8]) -> Result<Response, Refusal> {
    let request = DetokenizeRequest::parse(body)?;
    desk.shared.served_name(request.model.as_deref())?;
    let admission = desk.admission();
    expect_bounded(desk, "tokens", request.tokens.len())?;
    let tokens = admission.known_tokens("tokens", &request.tokens)?;
    admission.expect_text("tokens")?;
    let text = desk.serving.tokenizer.decode(&tokens, SpecialText::Parse);
    Ok(Json(Detokenized {
        prompt: text.clone(),
        content: text,
    })
    .into_response())
}

/// Refuses what no prompt could be.
fn expect_bounded(desk: &Desk, param: &str, num_tokens: usize) -> Result<(), Refusal> {
    let num_tokens_max = desk.shared.config.limits.tokenize_tokens_max;
    let num_tokens_max = num_tokens_max.max(desk.serving.sequence_tokens_max());
    if num_tokens <= num_tokens_max {
        return Ok(());
    }
    Err(Refusal::ForModel {
        param: param.to_owned(),
        reason: format!("has at least {num_tokens} tokens, at most {num_tokens_max} are told"),
    })
}

fn counted(serving: &Serving, tokens: &[TokenId], pieces: Pieces) -> Counted {
    let text = |token: &TokenId| {
        serving
            .tokenizer
            .token_text(*token)
            .unwrap_or("")
            .to_owned()
    };
    Counted {
        count: tokens.len(),
        max_model_len: serving.sequence_tokens_max(),
        tokens: tokens.iter().map(|token| token.0).collect(),
        token_strs: match pieces {
            Pieces::Told => Some(tokens.iter().map(text).collect()),
            Pieces::Left => None,
        },
    }
}

fn bare(tokenizer: &Tokenizer, tokens: &[TokenId], pieces: Pieces) -> Bare {
    match pieces {
        Pieces::Left => Bare::Ids {
            tokens: tokens.iter().map(|token| token.0).collect(),
        },
        Pieces::Told => {
            let piece = |token: &TokenId| Piece {
                id: token.0,
                piece: piece_text(tokenizer, *token),
            };
            Bare::Pieces {
                tokens: tokens.iter().map(piece).collect(),
            }
        }
    }
}

fn piece_text(tokenizer: &Tokenizer, token: TokenId) -> PieceText {
    if tokenizer.is_control(token) {
        return PieceText::Text(tokenizer.token_text(token).unwrap_or("").to_owned());
    }
    let bytes = tokenizer.token_bytes(token).unwrap_or(&[]);
    match std::str::from_utf8(bytes) {
        Ok(text) => PieceText::Text(text.to_owned()),
        Err(_part_of_a_character) => PieceText::Bytes(bytes.to_vec()),
    }
}
