//! Text to token ids and ids to bytes.

/// A token's index in the vocabulary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TokenId(pub u32);

/// What to do with control-token text such as `<|im_end|>` inside the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpecialText {
    /// It is ordinary text: a user typed it.
    AsText,
    /// It is the control token: a template or an operator wrote it.
    Parse,
}

/// Why a vocabulary cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// A metadata key is absent or has the wrong type or size.
    #[error("tokenizer key {key}: {reason}")]
    BadKey {
        /// The metadata key.
        key: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A kind of tokenizer or pre-tokenizer we do not know; never approximated.
    #[error("{key} = {value:?} is not supported (known: {known})")]
    Unsupported {
        /// The metadata key.
        key: String,
        /// Its value.
        value: String,
        /// What is supported.
        known: String,
    },
}

/// A vocabulary with its splitting and merging rules.
#[derive(Debug)]
pub struct Tokenizer {}

impl Tokenizer {
    /// Builds the tokenizer that a GGUF file's `tokenizer.ggml.*` arrays describe.
    ///
    /// # Errors
    ///
    /// What [`TokenizerError`] lists.
    pub fn from_gguf(file: &formats::gguf::Gguf) -> Result<Tokenizer, TokenizerError> {
        let _ = file;
        unimplemented!()
    }
    /// Tokens of `text`, without BOS. Linear in `text.len()` (up to a logarithm).
    pub fn encode(&self, text: &str, special: SpecialText) -> Vec<TokenId> {
        let _ = (text, special);
        unimplemented!()
    }
    /// As [`Tokenizer::encode`], with the model's own BOS rule, never doubled.
    pub fn encode_with_bos(&self, text: &str, special: SpecialText) -> Vec<TokenId> {
        let _ = (text, special);
        unimplemented!()
    }
    /// The chat prompt of a rendered template: scaffolding parsed for control tokens,
    /// message content as ordinary text, exactly one BOS if the model uses one.
    pub fn encode_chat(&self, rendered: &crate::Rendered) -> Vec<TokenId> {
        let _ = rendered;
        unimplemented!()
    }
    /// Text of `tokens`; invalid UTF-8 becomes U+FFFD; control tokens are left out unless asked for (`Parse`).
    pub fn decode(&self, tokens: &[TokenId], special: SpecialText) -> String {
        let _ = (tokens, special);
        unimplemented!()
    }
    /// The bytes a token stands for; empty for control tokens. `None` if out of range.
    pub fn token_bytes(&self, token: TokenId) -> Option<&[u8]> {
        let _ = token;
        unimplemented!()
    }
    /// The token's own text as the vocabulary writes it (for `/tokenize` pieces). `None` if out of range.
    pub fn token_text(&self, token: TokenId) -> Option<&str> {
        let _ = token;
        unimplemented!()
    }
    /// Whether the token is a control token.
    pub fn is_control(&self, token: TokenId) -> bool {
        let _ = token;
        unimplemented!()
    }
    /// Tokens that end an answer (`eos`, `eot`, and the well-known end-of-turn texts).
    pub fn end_tokens(&self) -> &[TokenId] {
        unimplemented!()
    }
    /// The BOS token, whether or not prompts start with it.
    pub fn bos(&self) -> Option<TokenId> {
        unimplemented!()
    }
    /// The main end token.
    pub fn eos(&self) -> Option<TokenId> {
        unimplemented!()
    }
    /// Number of tokens.
    pub fn vocab(&self) -> usize {
        unimplemented!()
    }
}
