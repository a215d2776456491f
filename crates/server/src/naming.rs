//! Log-probabilities in the words of the wire: what a token is called, where it stands.
//!
//! A token is bytes, and need not be whole characters. Chat tells the bytes beside a
//! readable name; completions have a name only, so there it must be exact (`bytes:\xf0`).
//! Control tokens are called by their names, although they have no text in an answer.
//!
//! Source: the OpenAI API reference; vLLM for `token_id:…` and a prompt's list.

use std::sync::Arc;

use api::answer::Never;
use api::logprobs::{
    ChatLogprobs, ChatToken, CompletionLogprobs, Logprob, PromptPlace, PromptToken, TopMap,
    TopToken,
};
use api::params::ControlNames;
use api::report::TokenNames;
use engine::TokenLogprobs;
use text::TokenId;

use crate::state::Serving;

/// Names tokens of one model, for one request.
pub(crate) struct Naming {
    pub serving: Arc<Serving>,
    pub names: TokenNames,
    /// Whether control tokens have text in the answer.
    pub control_names: ControlNames,
}

impl Naming {
    /// `logprobs` of a chat choice, with the `num_top` likeliest in each place.
    pub fn chat(&self, logprobs: &[TokenLogprobs], num_top: u32) -> ChatLogprobs {
        let token = |each: &TokenLogprobs| {
            let bytes = self.bytes(each.token);
            ChatToken {
                token: self.name(each.token, escaped),
                logprob: Logprob::new(each.logprob),
                bytes: bytes.to_vec(),
                top_logprobs: first(&each.top, num_top)
                    .iter()
                    .map(|top| self.top(top))
                    .collect(),
            }
        };
        ChatLogprobs {
            content: logprobs.iter().map(token).collect(),
            refusal: Never,
        }
    }

    fn top(&self, &(token, logprob): &(TokenId, f32)) -> TopToken {
        TopToken {
            token: self.name(token, escaped),
            logprob: Logprob::new(logprob),
            bytes: self.bytes(token).to_vec(),
        }
    }

    /// Adds tokens to `logprobs` of a completion choice, with the `num_top` likeliest in each
    /// place.
    pub fn completion(
        &self,
        (logprobs, num_top): (&[TokenLogprobs], u32),
        offsets: &mut Offsets,
        told: &mut CompletionLogprobs,
    ) {
        for each in logprobs {
            let name = self.name(each.token, exact);
            let mut top = TopMap::default();
            for &(token, logprob) in first(&each.top, num_top) {
                let other = self.name(token, exact);
                // Of another token with the same name only one can be told.
                if token == each.token || other != name {
                    top.add(other, Logprob::new(logprob));
                }
            }
            top.add(name.clone(), Logprob::new(each.logprob));
            told.tokens.push(name);
            told.token_logprobs.push(Some(Logprob::new(each.logprob)));
            told.top_logprobs.push(Some(top));
            told.text_offset.push(offsets.pass(self.text(each.token)));
        }
    }

    /// A prompt's tokens: its first has no probability.
    pub fn echo(
        &self,
        first: TokenId,
        (logprobs, num_top): (&[TokenLogprobs], u32),
        offsets: &mut Offsets,
    ) -> CompletionLogprobs {
        let mut told = CompletionLogprobs::default();
        told.tokens.push(self.name(first, exact));
        told.token_logprobs.push(None);
        told.top_logprobs.push(None);
        told.text_offset.push(offsets.pass(self.text(first)));
        self.completion((logprobs, num_top), offsets, &mut told);
        told
    }

    /// vLLM's `prompt_logprobs`: the token that stands there first, then the likeliest.
    pub fn prompt(&self, logprobs: &[TokenLogprobs], num_top: u32) -> Vec<Option<PromptPlace>> {
        let place = |each: &TokenLogprobs| {
            let mut place = PromptPlace::default();
            let stands = (each.token, each.logprob);
            let mut add = |rank, (token, logprob): (TokenId, f32)| {
                let told = PromptToken {
                    logprob: Logprob::new(logprob),
                    rank,
                    decoded_token: String::from_utf8_lossy(self.bytes(token)).into_owned(),
                };
                place.add(token.0, told);
            };
            add(each.rank, stands);
            for (rank, &top) in (1..).zip(first(&each.top, num_top)) {
                add(rank, top);
            }
            Some(place)
        };
        std::iter::once(None)
            .chain(logprobs.iter().map(place))
            .collect()
    }

    fn name(&self, token: TokenId, write: fn(&[u8]) -> String) -> String {
        match self.names {
            TokenNames::Text => write(self.bytes(token)),
            TokenNames::Ids => format!("token_id:{}", token.0),
        }
    }

    /// What a token is called: its bytes, or a control token's name.
    fn bytes(&self, token: TokenId) -> &[u8] {
        let tokenizer = &self.serving.tokenizer;
        if tokenizer.is_control(token) {
            return tokenizer.token_text(token).unwrap_or("").as_bytes();
        }
        tokenizer.token_bytes(token).unwrap_or(&[])
    }

    /// What a token adds to the text.
    fn text(&self, token: TokenId) -> &[u8] {
        if self.control_names == ControlNames::Shown {
            return self.bytes(token);
        }
        self.serving.tokenizer.token_bytes(token).unwrap_or(&[])
    }
}

fn first(top: &[(TokenId, f32)], num_top: u32) -> &[(TokenId, f32)] {
    &top[..top.len().min(num_top as usize)]
}

/// Text as it is, and other bytes as `\xf0`.
fn escaped(bytes: &[u8]) -> String {
    let mut name = String::new();
    for chunk in bytes.utf8_chunks() {
        name.push_str(chunk.valid());
        for byte in chunk.invalid() {
            name += &format!("\\x{byte:02x}");
        }
    }
    name
}

/// Text as it is; if there are other bytes, `bytes:` and all of them, printable ASCII as it
/// is.
fn exact(bytes: &[u8]) -> String {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return text.to_owned();
    }
    let mut name = "bytes:".to_owned();
    for &byte in bytes {
        match byte {
            b' '..=b'~' if byte != b'\\' => name.push(char::from(byte)),
            _ => name += &format!("\\x{byte:02x}"),
        }
    }
    name
}

/// Where the next token of a text begins, in characters.
#[derive(Clone, Debug, Default)]
pub(crate) struct Offsets {
    num_chars: usize,
    /// The first bytes of a character whose rest has not come.
    undecoded: Vec<u8>,
    /// Characters that the tokens have before the text and the text has not.
    num_absent: usize,
}

impl Offsets {
    /// Behind a text.
    pub fn behind(text: &str) -> Offsets {
        Offsets {
            num_chars: text.chars().count(),
            ..Offsets::default()
        }
    }

    /// Before a text whose first token has the bytes `begins`: with a space that the text has
    /// not, where encoding puts one before it.
    pub fn of(text: &str, begins: &[u8]) -> Offsets {
        let has_more = begins.starts_with(b" ") && !text.starts_with(' ');
        Offsets {
            num_absent: usize::from(has_more),
            ..Offsets::default()
        }
    }

    /// Where a token of these bytes begins; the next begins behind it.
    pub fn pass(&mut self, bytes: &[u8]) -> usize {
        let begins = self.num_chars.saturating_sub(self.num_absent);
        self.undecoded.extend_from_slice(bytes);
        let mut num_decoded = 0;
        for chunk in self.undecoded.utf8_chunks() {
            self.num_chars += chunk.valid().chars().count();
            num_decoded += chunk.valid().len();
            let ends = num_decoded + chunk.invalid().len() == self.undecoded.len();
            let may_go_on = ends
                && std::str::from_utf8(chunk.invalid())
                    .is_err_and(|error| error.error_len().is_none());
            if may_go_on {
                break;
            }
            // What can no longer become a character is one replacement character.
            self.num_chars += usize::from(!chunk.invalid().is_empty());
            num_decoded += chunk.invalid().len();
        }
        self.undecoded.drain(..num_decoded);
        begins
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_partial_characters_are_readable_or_exact() {
        assert_eq!(escaped(b" \xf0\x9f"), " \\xf0\\x9f");
        assert_eq!(escaped("é".as_bytes()), "é");
        assert_eq!(exact(b" \xf0\x9f"), "bytes: \\xf0\\x9f");
        assert_eq!(exact("a\\é".as_bytes()), "a\\é");
    }

    /// Case A3.
    #[test]
    fn tokens_of_one_character_begin_where_it_does() {
        let mut offsets = Offsets::default();
        let pieces: [&[u8]; 6] = [b"a", b"\xf0\x9f", b"\x98\x80", b"b\xff", b"", b"c"];
        let begins: Vec<usize> = pieces.iter().map(|piece| offsets.pass(piece)).collect();
        assert_eq!(begins, [0, 1, 1, 2, 4, 4]);
    }

    #[test]
    fn a_space_that_only_the_tokens_have_moves_nothing() {
        let mut offsets = Offsets::of("Hi you", b" Hi");
        assert_eq!((offsets.pass(b" Hi"), offsets.pass(b" you")), (0, 2));
    }
}
