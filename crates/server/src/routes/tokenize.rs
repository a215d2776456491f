//! `POST /tokenize` and `/detokenize`, in vLLM's and in llama.cpp's shape.

use std::sync::Arc;
use std::time::Instant;

use api::tokenize::{
    Bare, ControlText, Counted, DetokenizeRequest, Detokenized, Piece, PieceText, Pieces, Source,
    TokenizeRequest, TokenizeShape, Tokenized,
};
use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use text::{SpecialText, TokenId, Tokenizer};

use crate::admit::Admission;
use crate::errors::Refusal;
use crate::state::{Serving, Shared};
use crate::{body, offload};

pub(super) async fn encode(
    State(shared): State<Arc<Shared>>,
    request: Request,
) -> Result<Response, Refusal> {
    let serving = Arc::clone(shared.loaded()?);
    let body = body::receive(&shared, request).await?;
    let num_bytes = body.bytes.len();
    let work = {
        let shared = Arc::clone(&shared);
        move || encode_body(&shared, &serving, &body.bytes)
    };
    offload::run(&shared, num_bytes, work).await
}

pub(super) async fn decode(
    State(shared): State<Arc<Shared>>,
    request: Request,
) -> Result<Response, Refusal> {
    let serving = Arc::clone(shared.loaded()?);
    let body = body::receive(&shared, request).await?;
    let num_bytes = body.bytes.len();
    let work = {
        let shared = Arc::clone(&shared);
        move || decode_body(&shared, &serving, &body.bytes)
    };
    offload::run(&shared, num_bytes, work).await
}

fn encode_body(shared: &Shared, serving: &Serving, body: &[u8]) -> Result<Response, Refusal> {
    let limits = &shared.config.limits;
    let request = TokenizeRequest::parse(body, &limits.request)?;
    shared.served_name(request.model.as_deref())?;
    let admission = Admission {
        serving,
        limits,
        arrived: Instant::now(),
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
            admission.expect_text("content")?;
            admission.encode_text(text, *bos, special)
        }
    };
    let tokenized = match request.shape {
        TokenizeShape::Counted(pieces) => Tokenized::Counted(counted(serving, &tokens, pieces)),
        TokenizeShape::Bare(pieces) => Tokenized::Bare(bare(&serving.tokenizer, &tokens, pieces)),
    };
    Ok(Json(tokenized).into_response())
}

fn decode_body(shared: &Shared, serving: &Serving, body: &[u8]) -> Result<Response, Refusal> {
    let request = DetokenizeRequest::parse(body)?;
    shared.served_name(request.model.as_deref())?;
    let limits = &shared.config.limits;
    let admission = Admission {
        serving,
        limits,
        arrived: Instant::now(),
    };
    let tokens = admission.known_tokens("tokens", &request.tokens)?;
    admission.expect_text("tokens")?;
    let text = serving.tokenizer.decode(&tokens, SpecialText::Parse);
    Ok(Json(Detokenized {
        prompt: text.clone(),
        content: text,
    })
    .into_response())
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
