//! What single choices of a file change, on tiny models built for it.

use model::runner::{LogitRows, Runner, RunnerError};
use model::{Precision, inspect};
use testkit::encode::Encoding;
use testkit::gguf::Builder;
use testkit::tiny;

use crate::support::{all_rows, argmax, batch_of, parse, random_tokens, sequence, tiny as load};

fn llama() -> Builder {
    tiny::llama(Encoding::Q8_0)
}

fn logits(builder: &Builder, precision: Precision) -> Vec<Vec<f32>> {
    let mut runner = load(builder, precision);
    let tokens = random_tokens(1, 50, runner.shape().vocab);
    all_rows(&mut runner, &tokens)
}

/// Case B6.
#[test]
fn without_an_output_matrix_the_embedding_is_used() {
    let tied = llama().without_tensor("output.weight");
    let copied = tied
        .clone()
        .copy_tensor("token_embd.weight", "output.weight");
    assert_eq!(
        logits(&tied, Precision::Packed),
        logits(&copied, Precision::Packed)
    );
}

/// Case B6.
#[test]
fn an_output_matrix_of_its_own_is_used() {
    let tied = llama().without_tensor("output.weight");
    assert_ne!(
        logits(&tied, Precision::Packed),
        logits(&llama(), Precision::Packed)
    );
}

#[test]
fn exact_and_packed_arithmetic_agree_closely() {
    for builder in [llama(), tiny::gemma3(Encoding::Q8_0)] {
        let exact = logits(&builder, Precision::Exact);
        let packed = logits(&builder, Precision::Packed);
        let energy = |values: &mut dyn Iterator<Item = f32>| -> f32 {
            values.map(|value| value * value).sum::<f32>().sqrt()
        };
        let size = energy(&mut exact.iter().flatten().copied());
        let apart = exact
            .iter()
            .flatten()
            .zip(packed.iter().flatten())
            .map(|(a, b)| a - b);
        let apart = energy(&mut { apart });
        assert!(apart < 0.05 * size, "{apart} apart, size is {size}");
    }
}

#[test]
fn biases_of_the_attention_are_added_where_the_file_has_them() {
    let bias = |values: usize, value: f32| -> Vec<u8> { value.to_le_bytes().repeat(values) };
    let with_biases = |value: f32| {
        (0..2).fold(llama(), |builder, layer| {
            [("q", 64), ("k", 32), ("v", 32), ("output", 64)]
                .iter()
                .fold(builder, |builder, &(name, len)| {
                    let name = format!("blk.{layer}.attn_{name}.bias");
                    builder.tensor(&name, &[len], 0, bias(len as usize, value))
                })
        })
    };
    assert_eq!(
        logits(&with_biases(0.0), Precision::Packed),
        logits(&llama(), Precision::Packed)
    );
    assert_ne!(
        logits(&with_biases(0.5), Precision::Packed),
        logits(&llama(), Precision::Packed)
    );
}

#[test]
fn linear_rope_scaling_is_the_same_as_slower_positions() {
    let scaled = llama()
        .with("llama.rope.scaling.type", "linear")
        .with("llama.rope.scaling.factor", 4.0f32);
    let old_style = llama().with("llama.rope.scale_linear", 4.0f32);
    let divisors = 4.0f32.to_le_bytes().repeat(8);
    let divided = llama().tensor("rope_freqs.weight", &[8], 0, divisors);
    assert_eq!(
        logits(&scaled, Precision::Packed),
        logits(&old_style, Precision::Packed)
    );
    assert_eq!(
        logits(&scaled, Precision::Packed),
        logits(&divided, Precision::Packed)
    );
    assert_ne!(
        logits(&scaled, Precision::Packed),
        logits(&llama(), Precision::Packed)
    );
}

#[test]
fn a_short_window_changes_only_rows_that_reach_beyond_it() {
    let whole = logits(&llama(), Precision::Packed);
    let windowed = logits(
        &llama().with("llama.attention.sliding_window", 20u32),
        Precision::Packed,
    );
    assert_eq!(whole[..20], windowed[..20]);
    assert!((20..50).all(|row| whole[row] != windowed[row]));
}

#[test]
fn a_soft_cap_bounds_the_logits_and_keeps_their_order() {
    let model = tiny::gemma3(Encoding::Q8_0);
    let capped = model.clone().with("gemma3.final_logit_softcapping", 3.0f32);
    for (plain, capped) in logits(&model, Precision::Packed)
        .iter()
        .zip(logits(&capped, Precision::Packed))
    {
        assert!(capped.iter().all(|logit| logit.abs() <= 3.0));
        assert_eq!(argmax(plain), argmax(&capped));
    }
}

#[test]
fn equal_files_have_equal_fingerprints_and_one_changed_weight_another() {
    let fingerprint =
        |builder: &Builder, precision| load(builder, precision).shape().fingerprint.clone();
    let model = llama();
    assert_eq!(
        fingerprint(&model, Precision::Packed),
        fingerprint(&model, Precision::Packed)
    );
    assert_ne!(
        fingerprint(&model, Precision::Packed),
        fingerprint(&model, Precision::Exact)
    );

    let mut changed = model.build();
    let last = changed.field("tensor[blk.1.ffn_down.weight].data").end - 1;
    changed.bytes[last] ^= 1;
    let file = formats::gguf::Gguf::parse(changed.bytes).unwrap();
    let changed = model::load(&file, &crate::support::options(Precision::Packed)).unwrap();
    assert_ne!(
        fingerprint(&model, Precision::Packed),
        changed.shape().fingerprint
    );

    let other_base = model.clone().with("llama.rope.freq_base", 20_000.0f32);
    assert_ne!(
        fingerprint(&model, Precision::Packed),
        fingerprint(&other_base, Precision::Packed)
    );
}

#[test]
fn a_batch_that_contradicts_itself_is_refused_and_changes_nothing() {
    let mut runner = load(&llama(), Precision::Packed);
    let vocab = runner.shape().vocab;
    let num_blocks = runner.shape().num_blocks as u32;
    let context_max = runner.shape().context_max;
    let text = random_tokens(2, 20, vocab);
    let expected = all_rows(&mut runner, &text);

    let mut too_many_tokens = batch_of(&[sequence(&[1, 2], 0, LogitRows::Last, &[0])]);
    too_many_tokens.tokens.push(3);
    let one = |tokens: &[u32], num_past, blocks: &[u32]| {
        batch_of(&[sequence(tokens, num_past, LogitRows::Last, blocks)])
    };
    let two = |first: &[u32], second: &[u32]| {
        batch_of(&[
            sequence(&[1], 16, LogitRows::Last, first),
            sequence(&[1], 16, LogitRows::Last, second),
        ])
    };
    for (batch, expected) in [
        (one(&[vocab as u32], 0, &[0]), "token"),
        (one(&[u32::MAX], 0, &[0]), "token"),
        (one(&[1], 0, &[num_blocks]), "names block"),
        (one(&[1], 16, &[0]), "needs 2"),
        (one(&[1], 0, &[]), "needs 1"),
        (one(&[], 0, &[0]), "no tokens"),
        (one(&[1], context_max, &vec![0; 1000]), "context"),
        (one(&[1], usize::MAX, &[0]), "context"),
        (one(&[1; 20], 0, &[0, 0]), "written twice"),
        (two(&[0, 1], &[0, 1]), "written twice"),
        (two(&[0, 1], &[1, 2]), "is read by"),
        (too_many_tokens, "3 tokens"),
    ] {
        let Err(RunnerError::BadBatch { reason }) = runner.forward(&batch) else {
            panic!("computed, although {expected}");
        };
        assert!(reason.contains(expected), "{reason}, expected {expected}");
    }

    // The first row of the text's second block still sees the first.
    let batch = batch_of(&[sequence(&text[16..], 16, LogitRows::All, &[0, 1])]);
    let mut logits = runner.forward(&batch).unwrap();
    for (idx, expected) in expected[16..].iter().enumerate() {
        assert_eq!(logits.row_mut(idx), expected);
    }
}

#[test]
fn only_wanted_rows_have_logits() {
    let mut runner = load(&llama(), Precision::Packed);
    let vocab = runner.shape().vocab;
    let none = batch_of(&[sequence(&[1, 2, 3], 0, LogitRows::None, &[0])]);
    assert_eq!(runner.forward(&none).unwrap().values.len(), 0);
    let last = batch_of(&[sequence(&[1, 2, 3], 0, LogitRows::Last, &[0])]);
    assert_eq!(runner.forward(&last).unwrap().values.len(), vocab);
    let empty = batch_of(&[]);
    assert_eq!(runner.forward(&empty).unwrap().values.len(), 0);
}

#[test]
fn an_inspection_counts_what_is_in_the_file() {
    let inspection = inspect(&parse(&llama()));
    assert_eq!(inspection.architecture.as_deref(), Some("llama"));
    let spec = inspection.spec.unwrap();
    assert_eq!(
        (spec.hidden, spec.num_layers(), spec.context_max),
        (64, 2, 2048)
    );
    let matrices = 2 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 128) + 2 * 64 * spec.vocab;
    let norms = 5 * 64;
    assert_eq!(inspection.num_parameters, (matrices + norms) as u64);
    assert_eq!(
        inspection.types["Q8_0"].num_bytes,
        matrices as u64 / 32 * 34
    );
    assert_eq!(inspection.types["F32"].num_tensors, 5);
    assert_eq!(inspection.unread_keys, [] as [&str; 0]);
}
