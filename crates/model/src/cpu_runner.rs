//! A decoder on this machine's processors: [`Runner`] for the engine.
//!
//! The one idea: check the whole batch, then compute; after the check nothing fails, so a
//! refused batch leaves the cache as it was.

use tensor::isa::Isa;
use tensor::kv::KvType;
use tensor::ops::attention::AttendSequence;
use tensor::pool::Pool;

use crate::decoder::{Decoder, Step};
use crate::kv_store::KvStore;
use crate::layout::Layout;
use crate::load::Precision;
use crate::runner::{Batch, Logits, Runner, RunnerError, RunnerShape};
use crate::work::Work;
use crate::workspace::Workspace;

/// A loaded model with its KV cache and compute threads.
#[derive(Debug)]
pub struct CpuRunner {
    shape: RunnerShape,
    decoder: Decoder,
    kv_store: KvStore,
    pool: Pool,
    layout: Layout,
    work: Workspace,
}

impl CpuRunner {
    pub(crate) fn new(
        decoder: Decoder,
        kv_store: KvStore,
        pool: Pool,
        precision: Precision,
    ) -> CpuRunner {
        let shape = RunnerShape {
            vocab: decoder.spec.vocab,
            hidden: decoder.spec.hidden,
            context_max: decoder.spec.context_max,
            num_blocks: kv_store.num_blocks,
            block_bytes: kv_store.block_bytes,
            fingerprint: fingerprint(&decoder, &kv_store, precision),
        };
        CpuRunner {
            shape,
            decoder,
            kv_store,
            pool,
            layout: Layout::default(),
            work: Workspace::default(),
        }
    }

    /// Bytes that the weights take in memory.
    pub fn weight_bytes(&self) -> usize {
        self.decoder.weights.bytes()
    }

    /// How its keys and values are stored.
    pub fn kv_type(&self) -> KvType {
        self.kv_store.element
    }

    /// What its steps ask of the machine.
    pub fn work(&self) -> Work {
        Work::of(&self.decoder.spec, &self.decoder.weights, &self.kv_store)
    }
}

/// Everything that the bits of an output depend on besides its own tokens: every byte of
/// the weights, the spec and the frequencies chosen (a 64-bit hash against accidents, not against forgers), the
/// code's version, the instruction set, and how weights, keys and values are held.
fn fingerprint(decoder: &Decoder, kv_store: &KvStore, precision: Precision) -> String {
    // The frequencies too: of LongRoPE's two sets the served context chooses one.
    let spec = format!("{:?} {:?}", decoder.spec, decoder.frequencies);
    let spec_hash = xxhash_rust::xxh3::xxh3_64(spec.as_bytes());
    let hash = decoder.weights.hash ^ spec_hash.rotate_left(1);
    let version = env!("CARGO_PKG_VERSION");
    let text = format!(
        "fp-{hash:016x}-{version}-{}-{}-{:?}",
        Isa::current().name(),
        precision.name(),
        kv_store.element
    );
    text.to_lowercase()
}

impl Runner for CpuRunner {
    fn shape(&self) -> &RunnerShape {
        &self.shape
    }

    fn forward(&mut self, batch: &Batch) -> Result<Logits<'_>, RunnerError> {
        self.layout.fill(batch, &self.shape)?;
        if batch.tokens.is_empty() {
            return Ok(Logits {
                values: &mut [],
                vocab: self.shape.vocab,
                states: &[],
                hidden: self.shape.hidden,
            });
        }
        let sequences = attend_sequences(batch);
        let step = Step {
            tokens: &batch.tokens,
            layout: &self.layout,
            sequences: &sequences,
        };
        self.decoder
            .forward(&self.pool, &step, &mut self.kv_store.layers, &mut self.work);
        Ok(Logits {
            values: &mut self.work.logits,
            vocab: self.shape.vocab,
            states: self.work.states.values(),
            hidden: self.shape.hidden,
        })
    }
}

fn attend_sequences(batch: &Batch) -> Vec<AttendSequence<'_>> {
    let mut sequences: Vec<AttendSequence<'_>> = Vec::with_capacity(batch.sequences.len());
    for sequence in &batch.sequences {
        sequences.push(AttendSequence {
            first_row: sequences
                .last()
                .map_or(0, |before| before.first_row + before.num_rows),
            num_rows: sequence.num_tokens,
            num_past: sequence.num_past,
            blocks: &sequence.blocks,
        });
    }
    sequences
}
