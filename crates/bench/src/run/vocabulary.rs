//! The words that prompts are made of, by the server's own count.

use serde_json::{Map, Value};

use crate::client::{Api, Client, ProbeError, Probed, Tokenizes, count_chats, count_tokens};
use crate::workload::{Source, Vocabulary};

/// Words of one token each by the server's count, and what its template adds; an estimate if it does not count.
pub async fn ask(
    client: &Client,
    probed: &Probed,
    body: &Map<String, Value>,
) -> Result<Vocabulary, ProbeError> {
    if probed.tokenizes == Tokenizes::No {
        return Ok(Vocabulary::estimate());
    }
    let probes = Vocabulary::probes();
    let Some(counts) = count_tokens(client, probed, &probes).await? else {
        return Ok(Vocabulary::estimate());
    };
    // A tokenizer of bytes has no words: lengths are then estimates, and the report says so.
    let Ok(vocabulary) = Vocabulary::from_counts(&counts, Source::Server) else {
        return Ok(Vocabulary::estimate());
    };
    if probed.dialect.api == Api::Completions {
        return Ok(vocabulary);
    }
    let chats = vocabulary.chat_probes();
    let counted = count_chats(client, probed, &chats, body).await?;
    let counts: Option<[u64; 3]> = counted.and_then(|counts| counts.try_into().ok());
    match counts.map(|counts| vocabulary.with_chat_counts(counts)) {
        Some(Ok(vocabulary)) => Ok(vocabulary),
        _ => Ok(Vocabulary::estimate()),
    }
}
