//! The work of a step, counted by hand for the tiny models.

use model::runner::Runner as _;
use model::{MultiplyAdds, Precision};
use testkit::encode::Encoding;
use testkit::tiny as models;

use crate::support::tiny;

/// Attention of a tiny llama's layer: query and output 64 x 64, key and value 64 x 32.
const ATTENTION: u64 = 2 * 64 * 64 + 2 * 64 * 32;
/// A gate, an up and a down matrix of 64 x 128.
const FEED_FORWARD: u64 = 3 * 64 * 128;

#[test]
fn quantised_weights_are_integers_and_each_is_multiplied_once_for_a_token() {
    let runner = tiny(&models::llama(Encoding::Q4_0), Precision::Packed);
    let vocab = runner.shape().vocab as u64;
    let work = runner.work();
    assert_eq!(work.layers.int8, 2 * (ATTENTION + FEED_FORWARD));
    assert_eq!(work.head.int8, 64 * vocab);
    assert_eq!(work.layers.total(), work.layers.int8);
    // Half a byte a code and two for the scale of 32, for all but the embedding; panels may be padded by some rows.
    let held = (work.layers.int8 + work.head.int8) * 18 / 32;
    assert!(
        (held..held + held / 20).contains(&work.weight_bytes),
        "{work:?}"
    );
    assert!(work.weight_bytes < runner.weight_bytes() as u64);
    // Two heads of 16 keys and 16 values of two bytes.
    assert_eq!(work.kv_layer_bytes, 2 * (16 + 16) * 2);
    assert_eq!(work.kv_bytes(10), 2 * 10 * work.kv_layer_bytes);
}

#[test]
fn a_tied_head_is_read_and_a_window_bounds_what_is_seen() {
    let runner = tiny(&models::gemma3(Encoding::Q4_0), Precision::Packed);
    let work = runner.work();
    assert_eq!(work.weight_bytes, runner.weight_bytes() as u64);
    // 24 positions, itself included, in 5 of 6 layers.
    assert_eq!(work.kv_bytes(100), (5 * 23 + 100) * work.kv_layer_bytes);
    assert_eq!(work.kv_bytes(5), 6 * 5 * work.kv_layer_bytes);
}

#[test]
fn of_experts_only_those_count_that_a_token_uses() {
    let runner = tiny(&models::mixtral(Encoding::Q4_0), Precision::Packed);
    let work = runner.work();
    let expected = MultiplyAdds {
        int8: 2 * (ATTENTION + 2 * FEED_FORWARD),
        bf16: 0,
        // A router of 64 x 4 in each layer.
        f32: 2 * 64 * u64::from(models::NUM_EXPERTS),
    };
    assert_eq!(work.layers, expected);
}

#[test]
fn single_precision_is_told_apart_from_integers() {
    let work = tiny(&models::llama(Encoding::F32), Precision::Exact).work();
    assert_eq!((work.layers.int8, work.layers.bf16), (0, 0));
    assert_eq!(work.layers.f32, 2 * (ATTENTION + FEED_FORWARD));
}
