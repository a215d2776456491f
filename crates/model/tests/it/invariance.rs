//! Batch invariance: a sequence's logits are the same bits alone or among others, in one
//! chunk or many, with its prefix computed by someone else, on any number of threads.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use formats::gguf::Gguf;
use model::runner::{BLOCK_TOKENS, LogitRows, Runner};
use model::{CpuRunner, KvBudget, KvType, LoadOptions, Precision};
use testkit::encode::Encoding;
use testkit::gguf::Builder;
use testkit::tiny;

use crate::support::{
    all_rows, batch_of, first_blocks, options, parse, random_tokens, real, sequence,
};

/// A way of computing a text that must not show in the result.
#[derive(Clone, Copy, Debug)]
struct Manner {
    chunk_len: usize,
    num_neighbours: usize,
    num_threads: usize,
}

const ALONE: Manner = Manner {
    chunk_len: usize::MAX,
    num_neighbours: 0,
    num_threads: 1,
};

/// The bits of the logits of every row of `tokens`, as a hash per row.
fn rows_in(runner: &mut CpuRunner, tokens: &[u32], manner: Manner) -> Vec<u64> {
    let num_blocks = tokens.len().div_ceil(BLOCK_TOKENS);
    // Blocks in an order of their own, with the neighbours' between them.
    let stride = manner.num_neighbours + 1;
    let table = |owner: usize| -> Vec<u32> {
        (0..num_blocks)
            .rev()
            .map(|idx| (idx * stride + owner) as u32)
            .collect()
    };
    let vocab = runner.shape().vocab;
    let mut hashes = Vec::new();
    let mut num_past = 0;
    while num_past < tokens.len() {
        let chunk = &tokens[num_past..tokens.len().min(num_past.saturating_add(manner.chunk_len))];
        let own_place = manner.num_neighbours / 2;
        let sequences: Vec<_> = (0..stride)
            .map(|place| match place == own_place {
                true => sequence(chunk, num_past, LogitRows::All, &table(place)),
                // Neighbours have texts of their own, each a little shorter than the one before, and start anew each time.
                false => {
                    let num_tokens = 1 + (tokens.len() - 1).saturating_sub(place) % 19;
                    let text = random_tokens(place as u64, num_tokens, vocab);
                    sequence(&text, 0, LogitRows::Last, &table(place))
                }
            })
            .collect();
        let mut logits = runner.forward(&batch_of(&sequences)).unwrap();
        // Every neighbour before it has one row of logits.
        hashes.extend((own_place..own_place + chunk.len()).map(|row| hash(logits.row_mut(row))));
        num_past += chunk.len();
    }
    hashes
}

fn hash(row: &[f32]) -> u64 {
    // FNV-1a over words.
    row.iter().fold(0xcbf2_9ce4_8422_2325, |hash, value| {
        (hash ^ u64::from(value.to_bits())).wrapping_mul(0x100_0000_01b3)
    })
}

fn check(file: &Gguf, options: LoadOptions, num_tokens: usize, manners: &[Manner]) {
    let load = |num_threads: usize| {
        let threads = NonZeroUsize::new(num_threads).unwrap();
        model::load(file, &LoadOptions { threads, ..options }).unwrap()
    };
    let mut runners = [load(1), load(2), load(3)];
    let tokens = random_tokens(7, num_tokens, runners[0].shape().vocab);
    let expected = rows_in(&mut runners[0], &tokens, ALONE);
    assert!(
        expected.windows(2).any(|pair| pair[0] != pair[1]),
        "all rows are equal"
    );
    for &manner in manners {
        let actual = rows_in(&mut runners[manner.num_threads - 1], &tokens, manner);
        let differing = (0..num_tokens).find(|&row| actual[row] != expected[row]);
        assert_eq!(
            differing, None,
            "first row that differs in {manner:?}, {options:?}"
        );
    }
}

/// Chunk lengths × neighbours × threads.
fn all_manners(chunk_lens: &[usize], neighbours: &[usize]) -> Vec<Manner> {
    let mut manners = Vec::new();
    for &chunk_len in chunk_lens {
        for &num_neighbours in neighbours {
            for num_threads in [1, 2, 3] {
                manners.push(Manner {
                    chunk_len,
                    num_neighbours,
                    num_threads,
                });
            }
        }
    }
    manners
}

fn check_tiny(builder: &Builder, options: LoadOptions) {
    let mut manners = all_manners(&[1, 7], &[0, 3]);
    manners.extend(all_manners(&[16, usize::MAX], &[0, 31]));
    let kv_budget = KvBudget::Blocks(32 * 8);
    check(
        &parse(builder),
        LoadOptions {
            kv_budget,
            context: None,
            ..options
        },
        100,
        &manners,
    );
}

#[test]
fn a_llama_answers_the_same_bits_in_any_company() {
    for encoding in Encoding::ALL {
        check_tiny(&tiny::llama(encoding), options(Precision::Packed));
    }
}

#[test]
fn a_gemma3_answers_the_same_bits_in_any_company() {
    for encoding in Encoding::ALL {
        check_tiny(&tiny::gemma3(encoding), options(Precision::Packed));
    }
}

/// Neighbours go to the same experts, in numbers that differ from manner to manner.
#[test]
fn a_mixture_of_experts_answers_the_same_bits_in_any_company() {
    for encoding in Encoding::ALL {
        check_tiny(&tiny::mixtral(encoding), options(Precision::Packed));
    }
}

#[test]
fn a_gpt2_answers_the_same_bits_in_any_company() {
    for encoding in Encoding::ALL {
        check_tiny(&tiny::gpt2(encoding), options(Precision::Packed));
    }
}

#[test]
fn exact_arithmetic_answers_the_same_bits_in_any_company() {
    check_tiny(&tiny::llama(Encoding::Q4_1), options(Precision::Exact));
    check_tiny(&tiny::gemma3(Encoding::Q8_0), options(Precision::Exact));
    check_tiny(&tiny::mixtral(Encoding::Q8_0), options(Precision::Exact));
    check_tiny(&tiny::gpt2(Encoding::Q8_0), options(Precision::Exact));
}

#[test]
fn every_kv_type_answers_the_same_bits_in_any_company() {
    for kv_type in [KvType::F32, KvType::F16, KvType::Bf16, KvType::Int8] {
        let options = LoadOptions {
            kv_type: Some(kv_type),
            ..options(Precision::Packed)
        };
        check_tiny(&tiny::gemma3(Encoding::Q4_0), options);
    }
}

#[test]
fn a_prefix_computed_by_another_sequence_gives_the_same_bits() {
    for kv_type in [KvType::F16, KvType::Int8] {
        check_prefix_of_another(kv_type);
    }
}

fn check_prefix_of_another(kv_type: KvType) {
    let options = LoadOptions {
        kv_type: Some(kv_type),
        ..options(Precision::Packed)
    };
    let file = parse(&tiny::gemma3(Encoding::Q4_1));
    let mut runner = model::load(&file, &options).unwrap();
    let tokens = random_tokens(3, 3 * BLOCK_TOKENS + 5, runner.shape().vocab);
    let expected = all_rows(&mut runner, &tokens);

    // Two sequences begin like it, in blocks 0 and 1, and go on in blocks of their own.
    let num_shared = 2 * BLOCK_TOKENS;
    let own = &tokens[num_shared..];
    let other = random_tokens(4, own.len(), runner.shape().vocab);
    let batch = batch_of(&[
        sequence(&other, num_shared, LogitRows::All, &[0, 1, 8, 9]),
        sequence(own, num_shared, LogitRows::All, &[0, 1, 5, 6]),
    ]);
    let mut logits = runner.forward(&batch).unwrap();
    for (idx, expected) in expected[num_shared..].iter().enumerate() {
        assert_eq!(logits.row_mut(other.len() + idx), expected);
    }
}

fn check_real(path: Option<PathBuf>, num_tokens: usize, manners: &[Manner]) {
    let Some(path) = path else { return };
    let options = LoadOptions {
        kv_budget: KvBudget::Blocks(32 * 33),
        context: None,
        ..options(Precision::Packed)
    };
    check(&Gguf::open(&path).unwrap(), options, num_tokens, manners);
}

#[test]
fn smollm2_answers_the_same_bits_in_any_company() {
    let mut manners = all_manners(&[16, 512, usize::MAX], &[0]);
    let lone = Manner {
        chunk_len: 1,
        num_neighbours: 0,
        num_threads: 2,
    };
    let crowded = Manner {
        chunk_len: 16,
        num_neighbours: 31,
        num_threads: 2,
    };
    manners.extend([
        lone,
        Manner {
            chunk_len: 7,
            ..lone
        },
        crowded,
    ]);
    check_real(real("smollm2-135m"), 520, &manners);
}

#[test]
fn gemma3_answers_the_same_bits_in_any_company() {
    let lone = Manner {
        chunk_len: 1,
        num_neighbours: 0,
        num_threads: 2,
    };
    let crowded = Manner {
        chunk_len: 16,
        num_neighbours: 3,
        num_threads: 2,
    };
    check_real(
        real("gemma3-270m"),
        40,
        &[
            lone,
            crowded,
            Manner {
                chunk_len: 7,
                ..lone
            },
        ],
    );
}

#[test]
fn the_order_of_blocks_in_the_pool_does_not_show() {
    let mut runner = crate::support::tiny(&tiny::llama(Encoding::Q8_0), Precision::Packed);
    let tokens = random_tokens(5, 40, runner.shape().vocab);
    let expected = all_rows(&mut runner, &tokens);
    let mut scattered = first_blocks(tokens.len());
    scattered.reverse();
    let batch = batch_of(&[sequence(&tokens, 0, LogitRows::All, &scattered)]);
    let mut logits = runner.forward(&batch).unwrap();
    for (row_idx, expected) in expected.iter().enumerate() {
        assert_eq!(logits.row_mut(row_idx), expected);
    }
}
