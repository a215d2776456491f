//! Checks of the tokenizer alone.

use text::{SpecialText, TokenId, Tokenizer};

use super::{Finding, Verdict};

/// Texts that must come back as they were. All are composed (NFC), since some families compose what they read.
const ROUND_TRIPS: [&str; 14] = [
    "The quick brown fox jumps over the lazy dog.",
    "  two spaces before, and behind  ",
    "a\tb\n\n\n    c\r\n",
    "1234567890 3.14159 1,000,000 0x1F",
    "fn main() {\n    println!(\"{}\", x[0]);\n}\n",
    "{\"key\": [1, 2.5, null, \"\\u00e9\"]}",
    "Größe, naïve, façade, Škoda, Łódź",
    "Привет, мир! Γειά σου Κόσμε",
    "你好，世界。こんにちは世界 안녕하세요",
    "שלום עולם مرحبا بالعالم नमस्ते दुनिया สวัสดี",
    "👋🏽 👩‍👩‍👧‍👦 🏳️‍🌈",
    "∀x∈ℝ: ⌈x⌉ = −⌊−x⌋ ≤ ½",
    "don't I'LL we've\u{a0}it’s “quoted”",
    "\u{200b}\u{feff}\u{1}\u{7f}",
];

/// Whether every token has a row in the embedding.
pub(super) fn vocabulary(tokenizer: &Tokenizer, num_embeddings: usize) -> Finding {
    let num_tokens = tokenizer.vocab();
    let (verdict, words) = if num_tokens > num_embeddings {
        let words =
            format!("{num_tokens} tokens, but the embedding has only {num_embeddings} rows");
        (Verdict::Failed, words)
    } else {
        let words = format!("{num_tokens} tokens, {num_embeddings} rows in the embedding");
        (Verdict::Ok, words)
    };
    Finding::new("vocabulary", verdict, words)
}

/// Whether text comes back from ids as it was.
pub(super) fn round_trips(tokenizer: &Tokenizer) -> Finding {
    for text in ROUND_TRIPS {
        let tokens = tokenizer.encode(text, SpecialText::AsText);
        let decoded = tokenizer.decode(&tokens, SpecialText::AsText);
        if decoded != text {
            let words = format!("{text:?} comes back from its ids as {decoded:?}");
            return Finding::new("round-trip", Verdict::Failed, words);
        }
    }
    let words = format!("{} texts come back as they were", ROUND_TRIPS.len());
    Finding::new("round-trip", Verdict::Ok, words)
}

/// Whether each control token's text is that one token where it may be one, and none where a user typed it.
pub(super) fn special_tokens(tokenizer: &Tokenizer) -> Finding {
    let controls = controls(tokenizer);
    for &(token, text) in &controls {
        let parsed = tokenizer.encode(text, SpecialText::Parse);
        if parsed != [token] {
            let words = format!(
                "{text:?} is token {}, but becomes {}",
                token.0,
                drawn(&parsed)
            );
            return Finding::new("special-tokens", Verdict::Failed, words);
        }
        let typed = tokenizer.encode(text, SpecialText::AsText);
        if typed.iter().any(|token| tokenizer.is_control(*token))
            && !is_all_unknown(&typed, tokenizer)
        {
            let words = format!("{text:?} as text becomes {}", drawn(&typed));
            return Finding::new("special-tokens", Verdict::Failed, words);
        }
    }
    let words = format!("{} control tokens are one token each", controls.len());
    Finding::new("special-tokens", Verdict::Ok, words)
}

/// Whether there is a token to stop at.
pub(super) fn end_tokens(tokenizer: &Tokenizer) -> Finding {
    let ends: Vec<&str> = tokenizer
        .end_tokens()
        .iter()
        .filter_map(|token| tokenizer.token_text(*token))
        .collect();
    if ends.is_empty() {
        let words = "no token ends an answer: each runs to its limit";
        return Finding::new("end-tokens", Verdict::Failed, words);
    }
    Finding::new("end-tokens", Verdict::Ok, ends.join(" "))
}

/// Whether each end token that a model without a tokenizer names can ever be chosen: one without a row in the
/// embedding has no logit, and answers would run past it.
pub(super) fn end_ids(end_tokens: &[TokenId], num_embeddings: usize) -> Finding {
    const CHECK: &str = "end-tokens";
    let is_outside = |token: &&TokenId| token.0 as usize >= num_embeddings;
    let outside: Vec<TokenId> = end_tokens.iter().filter(is_outside).copied().collect();
    if !outside.is_empty() {
        let words = format!(
            "answers end with {}, but the embedding has only {num_embeddings} rows",
            drawn(&outside)
        );
        return Finding::new(CHECK, Verdict::Failed, words);
    }
    if end_tokens.is_empty() {
        let words = "no token ends an answer: each runs to its limit, unless requests name `stop_token_ids`";
        return Finding::new(CHECK, Verdict::Warning, words);
    }
    Finding::new(CHECK, Verdict::Ok, drawn(end_tokens))
}

/// Control tokens with their texts.
pub(super) fn controls(tokenizer: &Tokenizer) -> Vec<(TokenId, &str)> {
    let tokens = (0..tokenizer.vocab()).filter_map(|id| {
        let token = TokenId(u32::try_from(id).ok()?);
        let text = tokenizer.token_text(token)?;
        (tokenizer.is_control(token) && !text.is_empty()).then_some((token, text))
    });
    tokens.collect()
}

/// A vocabulary without bytes writes what it does not know as its unknown token, which is no forged one.
fn is_all_unknown(tokens: &[TokenId], tokenizer: &Tokenizer) -> bool {
    tokens
        .iter()
        .filter(|token| tokenizer.is_control(**token))
        .all(|token| tokenizer.token_text(*token) == Some("<unk>"))
}

/// Ids as people write them.
pub(super) fn drawn(tokens: &[TokenId]) -> String {
    let ids: Vec<u32> = tokens.iter().map(|token| token.0).collect();
    format!("{ids:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_token_without_a_row_is_a_fault_and_none_at_all_a_warning() {
        let verdict = |ids: &[u32]| {
            let tokens: Vec<TokenId> = ids.iter().copied().map(TokenId).collect();
            let finding = end_ids(&tokens, 10);
            assert_eq!(finding.check, "end-tokens");
            (finding.verdict, finding.words)
        };
        assert_eq!(verdict(&[9, 0]), (Verdict::Ok, "[9, 0]".to_owned()));
        assert_eq!(verdict(&[]).0, Verdict::Warning);
        for ids in [&[10][..], &[2, 10], &[10, 2]] {
            let (verdict, words) = verdict(ids);
            assert_eq!(verdict, Verdict::Failed);
            // Those that are sound are not blamed.
            assert!(words.contains("end with [10],"), "{words}");
        }
    }
}
