//! A cache of 8-bit keys and values: how much more it holds, and how little it changes.
//!
//! Weights are dequantised and everything else is computed in 32-bit floats, so that what is measured is the cache
//! alone. Real models are in `fidelity.rs`, batch invariance in `invariance.rs`.

use model::runner::Runner as _;
use model::{KvBudget, KvType, LoadOptions, Precision, Source};
use testkit::encode::Encoding;

use crate::folders::{each_fixture, in_chunks};
use crate::support::{log_softmax, options, parse};

/// Bound on the mean divergence KL(reference || ours) of a family's positions, in nats.
const KL_MAX: f64 = 5e-4;
/// Where a router of random weights chooses: the smallest change sends some token to other experts.
const KL_OF_EXPERTS_MAX: f64 = 1e-2;

fn with_cache(kv_type: KvType) -> LoadOptions {
    LoadOptions {
        kv_type: Some(kv_type),
        ..options(Precision::Exact)
    }
}

/// Windows, soft caps, learned positions and experts are among the families.
#[test]
fn every_family_stays_close_to_transformers() {
    each_fixture(|name, folder, reference| {
        let source = Source::open(folder).unwrap();
        let kl = |kv_type| {
            let mut runner = model::load(&source, &with_cache(kv_type)).unwrap();
            let whole = in_chunks(&mut runner, &reference.ids, reference.ids.len());
            assert_eq!(in_chunks(&mut runner, &reference.ids, 7), whole, "{name}");
            divergence(&reference.logits, &whole)
        };
        let (half, int8) = (kl(KvType::F16), kl(KvType::Int8));
        println!("{name}: KL {half:.1e} with f16, {int8:.1e} with int8");
        let has_experts = model::inspect(&source).spec.unwrap().experts.is_some();
        let kl_max = if has_experts {
            KL_OF_EXPERTS_MAX
        } else {
            KL_MAX
        };
        assert!(int8 < kl_max, "{name}: KL {int8}");
        assert!(int8 > half, "{name}: 8 bits were to be less exact than 16");
    });
}

/// Mean over the positions of KL(theirs || ours).
fn divergence(theirs: &[Vec<f32>], ours: &[Vec<f32>]) -> f64 {
    let of_row = |(theirs, ours): (&Vec<f32>, &Vec<f32>)| -> f64 {
        let wide = |row: &Vec<f32>| log_softmax(row.iter().map(|&logit| f64::from(logit)));
        let (theirs, ours) = (wide(theirs), wide(ours));
        let terms = theirs.iter().zip(&ours);
        terms.map(|(p, q)| p.exp() * (p - q)).sum()
    };
    let sum: f64 = theirs.iter().zip(ours).map(of_row).sum();
    sum / theirs.len() as f64
}

#[test]
fn the_same_bytes_hold_nearly_twice_the_blocks() {
    let file = parse(&testkit::tiny::llama(Encoding::Q4_0));
    let shape = |kv_type| {
        let options = LoadOptions {
            kv_budget: KvBudget::Bytes(1 << 20),
            ..with_cache(kv_type)
        };
        model::load(&file, &options).unwrap().shape().clone()
    };
    let (half, int8) = (shape(KvType::F16), shape(KvType::Int8));
    // Two layers of two heads: 16 positions of 16 keys and 16 values each. Scales take 4 bytes a position and head.
    assert_eq!(half.block_bytes, 2 * 2 * 16 * (16 + 16) * 2);
    assert_eq!(int8.block_bytes, 2 * 2 * 16 * (16 + 16 + 4));
    for shape in [&half, &int8] {
        assert_eq!(shape.num_blocks, (1 << 20) / shape.block_bytes);
    }
    // Wider heads, as trained models have them, come closer to twice: 1.94 times for 64 values, 1.97 for 128.
    assert!(int8.num_blocks as f64 > 1.7 * half.num_blocks as f64);
    assert!(int8.fingerprint.ends_with("int8"), "{}", int8.fingerprint);
}
