//! Tokens to text as they come: whole UTF-8 characters, possible stop strings held back.
//!
//! The one idea: what a reader has been given can never be taken back, so a byte is released only
//! when nothing that may still come can change it. Two things can:
//!
//! ```text
//! bytes in ──► undecoded ──► held ──────────────► released
//!              (≤ 3 bytes)   (< longest stop)
//!              the start of   the longest tail of the text so far
//!              a character    that a stop string begins with
//! ```
//!
//! Whatever the tokens' borders, the released text is `String::from_utf8_lossy` of all bytes, cut
//! where the first stop string begins. A stop string is looked for with the Knuth-Morris-Pratt
//! automaton, one per string: each byte costs a constant amortised over the answer.
//!
//! Not here: stop *tokens* (the engine knows them) and what a stop means for the request.

/// What one more token released.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// This much text is now certain (may be empty).
    Text(String),
    /// A stop string matched; `text` is what precedes it and was not yet released.
    Stopped {
        /// Text before the match.
        text: String,
        /// Index of the stop string that matched.
        stop_idx: usize,
    },
}

/// The text of one answer.
///
/// Of several stop strings the one that is complete *first* ends the answer, since the answer ends
/// at that moment and nothing after it exists. If two are complete at the same character, one is the
/// end of the other and the longer one counts, so that no part of a match is ever shown; of two equal
/// strings the one listed first counts.
#[derive(Debug)]
pub struct TextStream {
    /// The first bytes of a character whose rest has not come: at most three.
    undecoded: Vec<u8>,
    /// Decoded text not yet released.
    held: String,
    /// Bytes released.
    num_released: usize,
    stops: Vec<StopSearch>,
    /// A stop string matched, or the answer was finished: nothing is released any more.
    ended: bool,
}

/// A match that ended at some byte of the held text.
struct Match {
    /// Where it begins in `held`.
    start: usize,
    stop_idx: usize,
}

impl TextStream {
    /// An empty answer that ends at any of `stops`.
    ///
    /// # Panics
    ///
    /// If a stop string is empty: it would match before the first character.
    pub fn new(stops: Vec<String>) -> TextStream {
        TextStream {
            undecoded: Vec::new(),
            held: String::new(),
            num_released: 0,
            stops: stops.into_iter().map(StopSearch::new).collect(),
            ended: false,
        }
    }

    /// Adds a token's bytes and gives back the text that became certain. After a stop string matched
    /// nothing is released any more.
    ///
    /// Cost: linear in `token_bytes`, times the number of stop strings, plus the length of the held text.
    pub fn push(&mut self, token_bytes: &[u8]) -> Pushed {
        self.push_if(token_bytes, |_| true)
    }

    /// As [`TextStream::push`], but a stop string counts only if `may_end` says so of the place where it
    /// begins, in bytes of the answer's text. One that does not count is text like any other.
    pub fn push_if(&mut self, token_bytes: &[u8], may_end: impl Fn(usize) -> bool) -> Pushed {
        if self.ended {
            return Pushed::Text(String::new());
        }
        let searched = self.held.len();
        self.decode(token_bytes);
        self.release(searched, may_end)
    }

    /// Releases what is held back; an incomplete character becomes one U+FFFD.
    ///
    /// That U+FFFD may itself complete a stop string.
    pub fn finish(&mut self) -> Pushed {
        if self.ended {
            return Pushed::Text(String::new());
        }
        let searched = self.held.len();
        if !self.undecoded.is_empty() {
            self.undecoded.clear();
            self.held.push(char::REPLACEMENT_CHARACTER);
        }
        let mut text = match self.release(searched, |_| true) {
            Pushed::Text(text) => text,
            stopped @ Pushed::Stopped { .. } => return stopped,
        };
        text.push_str(&std::mem::take(&mut self.held));
        self.ended = true;
        Pushed::Text(text)
    }

    /// Moves whole characters to `held`. What can no longer become a character turns into U+FFFD at
    /// once, one for each maximal beginning of a character, exactly as `String::from_utf8_lossy` does.
    fn decode(&mut self, token_bytes: &[u8]) {
        self.undecoded.extend_from_slice(token_bytes);
        let mut rest: &[u8] = &self.undecoded;
        loop {
            match std::str::from_utf8(rest) {
                Ok(text) => {
                    self.held.push_str(text);
                    rest = &[];
                    break;
                }
                Err(error) => {
                    let (valid, after) = rest.split_at(error.valid_up_to());
                    self.held
                        .push_str(std::str::from_utf8(valid).expect("valid up to here"));
                    rest = after;
                    let Some(num_invalid) = error.error_len() else {
                        break;
                    };
                    self.held.push(char::REPLACEMENT_CHARACTER);
                    rest = &rest[num_invalid..];
                }
            }
        }
        let num_decoded = self.undecoded.len() - rest.len();
        self.undecoded.drain(..num_decoded);
        debug_assert!(self.undecoded.len() <= 3);
    }

    /// Looks for stop strings in `held[searched..]` and releases what precedes any possible match.
    fn release(&mut self, searched: usize, may_end: impl Fn(usize) -> bool) -> Pushed {
        if let Some(found) = self.first_match(searched, may_end) {
            self.held.truncate(found.start);
            self.ended = true;
            return Pushed::Stopped {
                text: std::mem::take(&mut self.held),
                stop_idx: found.stop_idx,
            };
        }
        // The held text and the stop string agree on these bytes and both consist of whole
        // characters, so this is a character border.
        let num_possible = self.stops.iter().map(|stop| stop.matched).max();
        let num_certain = self.held.len() - num_possible.unwrap_or(0);
        self.num_released += num_certain;
        Pushed::Text(self.held.drain(..num_certain).collect())
    }

    fn first_match(&mut self, searched: usize, may_end: impl Fn(usize) -> bool) -> Option<Match> {
        let TextStream {
            held,
            stops,
            num_released,
            ..
        } = self;
        for (idx, &byte) in held.as_bytes().iter().enumerate().skip(searched) {
            let mut found: Option<Match> = None;
            for (stop_idx, stop) in stops.iter_mut().enumerate() {
                if stop.accept(byte) {
                    let start = idx + 1 - stop.text.len();
                    let is_first = found.as_ref().is_none_or(|other| start < other.start);
                    if is_first && may_end(*num_released + start) {
                        found = Some(Match { start, stop_idx });
                    }
                }
            }
            if found.is_some() {
                return found;
            }
        }
        None
    }
}

/// Search for one stop string, byte by byte.
#[derive(Debug)]
struct StopSearch {
    text: Vec<u8>,
    /// `fallback[n]`: of `text[..=n]`, the longest proper beginning that is also its end.
    fallback: Vec<usize>,
    /// How many bytes of `text` the bytes seen so far end with; less than all of it.
    matched: usize,
}

impl StopSearch {
    fn new(text: String) -> StopSearch {
        assert!(!text.is_empty(), "an empty stop string matches everywhere");
        let text = text.into_bytes();
        let mut fallback = vec![0; text.len()];
        let mut matched = 0;
        for idx in 1..text.len() {
            while matched > 0 && text[idx] != text[matched] {
                matched = fallback[matched - 1];
            }
            if text[idx] == text[matched] {
                matched += 1;
            }
            fallback[idx] = matched;
        }
        StopSearch {
            text,
            fallback,
            matched: 0,
        }
    }

    /// Takes the next byte and says whether the stop string ends with it.
    fn accept(&mut self, byte: u8) -> bool {
        while self.matched > 0 && self.text[self.matched] != byte {
            self.matched = self.fallback[self.matched - 1];
        }
        if self.text[self.matched] == byte {
            self.matched += 1;
        }
        let is_match = self.matched == self.text.len();
        if is_match {
            self.matched = self.fallback[self.matched - 1];
        }
        is_match
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pushes `pieces` and draws what each released, `!n` for a match of stop string `n`, then `.` and the rest.
    fn trace(stops: &[&str], pieces: &[&[u8]]) -> String {
        let mut stream = TextStream::new(stops.iter().map(|stop| stop.to_string()).collect());
        let mut drawn = String::new();
        for piece in pieces {
            match stream.push(piece) {
                Pushed::Text(text) => drawn.push_str(&format!("[{text}]")),
                Pushed::Stopped { text, stop_idx } => {
                    drawn.push_str(&format!("[{text}]!{stop_idx}"));
                }
            }
        }
        drawn.push('.');
        match stream.finish() {
            Pushed::Text(text) => drawn.push_str(&text),
            Pushed::Stopped { text, stop_idx } => drawn.push_str(&format!("{text}!{stop_idx}")),
        }
        drawn
    }

    /// A2.
    #[test]
    fn nothing_of_a_stop_string_that_spans_tokens_is_shown() {
        assert_eq!(
            trace(&["cdefghi"], &[b"ab", b"cd", b"ef", b"gh", b"ij"]),
            "[ab][][][][]!0."
        );
    }

    /// A2.
    #[test]
    fn a_stop_string_inside_one_token_cuts_that_token() {
        assert_eq!(trace(&["STOP"], &[b"one STOP two"]), "[one ]!0.");
    }

    /// A2.
    #[test]
    fn a_near_miss_loses_no_text() {
        assert_eq!(
            trace(&["cdefgX"], &[b"ab", b"cd", b"ef", b"gh"]),
            "[ab][][][cdefgh]."
        );
        assert_eq!(
            trace(&["\n\nEnd"], &[b"a\n", b"\n", b"\nE"]),
            "[a][][\n].\n\nE"
        );
    }

    /// A2.
    #[test]
    fn of_two_stops_where_one_begins_the_other_the_shorter_ends_the_answer() {
        assert_eq!(trace(&["abc", "ab"], &[b"xa", b"bc"]), "[x][]!1.");
    }

    #[test]
    fn of_two_stops_complete_at_the_same_character_the_longer_is_cut() {
        assert_eq!(trace(&["cd", "abcd"], &[b"xabcd"]), "[x]!1.");
        assert_eq!(trace(&["cd", "cd"], &[b"abcd"]), "[ab]!0.");
    }

    /// A2.
    #[test]
    fn a_stop_string_may_begin_and_end_inside_tokens_that_split_characters() {
        let text = "né€🙂.".as_bytes();
        let pieces: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(trace(&["€🙂"], &pieces), "[n][][é][][][][][][][]!0[].");
    }

    /// A3.
    #[test]
    fn a_character_split_over_tokens_is_released_whole() {
        assert_eq!(trace(&[], &[b"\xf0\x9f", b"\x99\x82!"]), "[][🙂!].");
    }

    /// A3.
    #[test]
    fn bytes_that_cannot_become_a_character_are_flushed_at_once() {
        assert_eq!(
            trace(&[], &[b"a\xff", b"\xf0\x9f", b"b", b"\xc3"]),
            "[a\u{fffd}][][\u{fffd}b][].\u{fffd}"
        );
    }

    #[test]
    fn a_replacement_character_at_the_end_can_complete_a_stop_string() {
        assert_eq!(trace(&["b\u{fffd}"], &[b"ab\xe2\x82"]), "[a].!0");
    }

    #[test]
    fn nothing_is_released_after_a_stop() {
        assert_eq!(trace(&["b"], &[b"ab", b"cd"]), "[a]!0[].");
    }

    #[test]
    #[should_panic(expected = "an empty stop string")]
    fn an_empty_stop_string_is_refused() {
        TextStream::new(vec![String::new()]);
    }
}
