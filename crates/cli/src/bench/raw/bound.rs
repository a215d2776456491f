//! What a machine's limits allow a model, in tokens a second.
//!
//! The one idea: a step cannot be faster than its multiplications at the machine's best rate, nor than reading what it
//! must read; the slower of the two is the limit, as if the other were free.
//!
//! ```text
//! seconds of a step = max( sum over types of multiply-adds / rate,  bytes / read rate )
//!
//!              multiply-adds               bytes                     tokens
//! prefill      512 x layers + head         weights                   512
//! decode of N  N x (layers + head)         weights + N x KV cache    N
//! ```
//!
//! Only weights count as multiplications, and the cache is taken half way through the measured answers. Attention's own
//! arithmetic, norms and sampling come on top, so no code reaches the whole of it.

use model::{MultiplyAdds, Work};
use tensor::limits::MachineLimits;

use super::stand::{DECODE_STEPS, PROMPT_TOKENS};
use super::{DECODE_LEVELS, PREFILL_TOKENS};

/// The most tokens a second that could be, and why not more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Bound {
    pub(super) tokens_per_s: f64,
    pub(super) cause: Cause,
}

/// What is slower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    Multiplying,
    Reading,
}

impl Cause {
    pub(super) fn words(self) -> &'static str {
        match self {
            Cause::Multiplying => "multiply-adds",
            Cause::Reading => "reading memory",
        }
    }
}

/// One for each figure.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Bounds {
    pub(super) prefill: Bound,
    /// By level.
    pub(super) decode: [Bound; DECODE_LEVELS.len()],
}

impl Bounds {
    pub(super) fn new(work: &Work, limits: &MachineLimits) -> Bounds {
        let multiplying = |multiply_adds: MultiplyAdds| {
            // Where there is no instruction for bfloat16, nothing counts as such.
            let bf16_rate = limits.bf16_gmac_s.unwrap_or(limits.f32_gmac_s);
            (multiply_adds.int8 as f64 / limits.int8_gmac_s
                + multiply_adds.bf16 as f64 / bf16_rate
                + multiply_adds.f32 as f64 / limits.f32_gmac_s)
                / 1e9
        };
        let (layers, head) = (multiplying(work.layers), multiplying(work.head));
        let reading = |num_bytes: u64| num_bytes as f64 / 1e9 / limits.read_gb_s;
        let cache_bytes = work.kv_bytes(PROMPT_TOKENS + DECODE_STEPS / 2);
        Bounds {
            prefill: bound(
                PREFILL_TOKENS,
                PREFILL_TOKENS as f64 * layers + head,
                reading(work.weight_bytes),
            ),
            decode: DECODE_LEVELS.map(|num_answers| {
                bound(
                    num_answers,
                    num_answers as f64 * (layers + head),
                    reading(work.weight_bytes + num_answers as u64 * cache_bytes),
                )
            }),
        }
    }
}

fn bound(num_tokens: usize, multiplying_s: f64, reading_s: f64) -> Bound {
    Bound {
        tokens_per_s: num_tokens as f64 / multiplying_s.max(reading_s),
        cause: match reading_s > multiplying_s {
            true => Cause::Reading,
            false => Cause::Multiplying,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Near enough: the last bits depend on the order of divisions.
    fn check(bound: Bound, tokens_per_s: f64, cause: Cause) {
        assert!(
            (bound.tokens_per_s / tokens_per_s - 1.0).abs() < 1e-9,
            "{bound:?}, not {tokens_per_s}"
        );
        assert_eq!(bound.cause, cause);
    }

    #[test]
    fn the_slower_of_multiplying_and_reading_is_the_limit() {
        let limits = MachineLimits {
            int8_gmac_s: 100.0,
            bf16_gmac_s: Some(50.0),
            f32_gmac_s: 25.0,
            read_gb_s: 10.0,
        };
        let work = Work {
            // 1 + 1 + 2 ms a token, and half a millisecond more for a row of logits.
            layers: MultiplyAdds {
                int8: 100_000_000,
                bf16: 50_000_000,
                f32: 50_000_000,
            },
            head: MultiplyAdds {
                int8: 50_000_000,
                bf16: 0,
                f32: 0,
            },
            // 10 ms, and 10 bytes a position: 192 of them in one layer, 99 in the other, for each answer.
            weight_bytes: 100_000_000,
            kv_layer_bytes: 10_000,
            windows: vec![None, Some(100)],
        };
        let bounds = Bounds::new(&work, &limits);
        check(
            bounds.prefill,
            512.0 / (512.0 * 0.004 + 0.0005),
            Cause::Multiplying,
        );
        let cache_s = (192.0 + 99.0) * 10_000.0 / 10e9;
        check(bounds.decode[0], 1.0 / (0.010 + cache_s), Cause::Reading);
        check(bounds.decode[1], 8.0 / (8.0 * 0.0045), Cause::Multiplying);
        check(bounds.decode[3], 1.0 / 0.0045, Cause::Multiplying);
    }

    #[test]
    fn without_bfloat16_instructions_nothing_is_divided_by_nothing() {
        let limits = MachineLimits {
            int8_gmac_s: 1.0,
            bf16_gmac_s: None,
            f32_gmac_s: 1.0,
            read_gb_s: 1e9,
        };
        let none = MultiplyAdds::default();
        let work = Work {
            layers: MultiplyAdds {
                f32: 1_000_000,
                ..none
            },
            head: none,
            weight_bytes: 1,
            kv_layer_bytes: 0,
            windows: Vec::new(),
        };
        check(
            Bounds::new(&work, &limits).decode[0],
            1000.0,
            Cause::Multiplying,
        );
    }
}
