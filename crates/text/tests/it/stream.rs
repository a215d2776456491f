//! The text stream under random bytes, splits and stop strings.

use proptest::prelude::*;
use text::{Pushed, TextStream};

/// Bytes that are often whole characters, sometimes parts of some, and often repeat.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        4 => Just(&b"a"[..]),
        4 => Just(&b"b"[..]),
        2 => Just("é".as_bytes()),
        2 => Just("€".as_bytes()),
        2 => Just("🙂".as_bytes()),
        1 => Just(&b"\xe2\x82"[..]),
        1 => Just(&b"\xf0\x9f\x99"[..]),
        1 => Just(&b"\x82"[..]),
        1 => Just(&b"\xff"[..]),
    ];
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

fn stops() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec("[abé€🙂\u{fffd}]{1,4}", 0..4)
}

/// Where the answer ends by definition: at the stop string that is complete first, the longest of those complete there.
fn cut(text: &str, stops: &[String]) -> String {
    for end in 1..=text.len() {
        let matching = stops
            .iter()
            .filter(|stop| text.as_bytes()[..end].ends_with(stop.as_bytes()));
        if let Some(longest) = matching.map(String::len).max() {
            return text[..end - longest].to_owned();
        }
    }
    text.to_owned()
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        rng_seed: proptest::test_runner::RngSeed::Fixed(22),
        cases: 4000,
        ..ProptestConfig::default()
    })]

    /// A2, A3: streaming equals not streaming.
    #[test]
    fn however_bytes_are_split_the_text_is_the_whole_text_cut_at_the_stop(
        bytes in bytes(),
        stops in stops(),
        sizes in prop::collection::vec(1_usize..6, 1..80),
    ) {
        let expected = cut(&String::from_utf8_lossy(&bytes), &stops);
        let mut stream = TextStream::new(stops.clone());
        let mut released = String::new();
        let mut rest: &[u8] = &bytes;
        for size in sizes.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (token, left) = rest.split_at((*size).min(rest.len()));
            rest = left;
            match stream.push(token) {
                Pushed::Text(text) => released.push_str(&text),
                Pushed::Stopped { text, stop_idx } => {
                    released.push_str(&text);
                    prop_assert!(String::from_utf8_lossy(&bytes)[released.len()..].starts_with(&stops[stop_idx]));
                }
            }
            prop_assert!(expected.starts_with(&released), "{released:?} of {expected:?} leaked");
        }
        let (Pushed::Text(rest) | Pushed::Stopped { text: rest, .. }) = stream.finish();
        released.push_str(&rest);
        prop_assert_eq!(released, expected);
    }

    /// A2: nothing is held back that no stop string begins with.
    #[test]
    fn only_the_longest_possible_beginning_of_a_stop_is_held_back(
        text in "[ab]{0,30}",
        stops in stops(),
    ) {
        let mut stream = TextStream::new(stops.clone());
        if let Pushed::Text(released) = stream.push(text.as_bytes()) {
            let is_tail = |at: &usize| stops.iter().any(|stop| stop.starts_with(&text[*at..]));
            let certain = (0..text.len()).find(is_tail).unwrap_or(text.len());
            prop_assert_eq!(released, &text[..certain]);
        }
    }
}
