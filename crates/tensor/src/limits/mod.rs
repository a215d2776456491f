//! What this machine can do at most: multiply-adds and bytes a second, measured.
//!
//! The one idea: a step of a model multiplies every weight by something and reads every weight, so two rates of
//! the machine bound its speed from above, whatever the code. The loops here do nothing else: operands stay in registers,
//! or bytes are added up as they come. What a program reaches is then told as a share of that.
//!
//! ```text
//! products   sums[w][a] += weights[w] · activations[a]     a tile of independent sums, so that no
//!                                                          multiplier waits for the sum before
//! reading    sum += buffer[i]                              each thread its own slice
//! ```
//!
//! Each figure is the median of many short rounds on all threads: other work on the machine makes single rounds slower.
//! It is therefore what the machine gives now, and can be exceeded by a little when neighbours fall silent.
//!
//! Not here: bounds on input (other crates' `Limits`), and how far from these limits the kernels of [`crate::ops`] are.

// The definitions.
mod scalar;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;

use std::time::{Duration, Instant};

use crate::aligned::Aligned;
use crate::isa::Isa;
use crate::pool::{Pool, partition};

/// A buffer that no cache holds a good part of.
pub const BUFFER_BYTES: usize = 512 << 20;

/// Of the smallest pages there are.
const PAGE_WORDS: usize = 512;

/// How far ahead of a load its line is asked for: without it, one thread does not keep memory busy.
#[cfg(target_arch = "x86_64")]
const AHEAD_BYTES: usize = 4096;

/// Turns of a tile between two looks at anything else: as many as 16-bit sums of products of 4-bit codes allow.
const TURNS: usize = 8;

/// Time of one round: long beside the hand-over to the workers, short beside the disturbances.
const ROUND: Duration = Duration::from_millis(4);

/// Rounds of each figure, however short the time.
const NUM_ROUNDS_MIN: usize = 3;

/// Rates of a machine, of all threads together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MachineLimits {
    /// Billions of multiply-adds of 8-bit integers a second. Without VNNI, of 4-bit by 8-bit codes, which is what
    /// the fastest kernel multiplies there; 8-bit codes then take twice as long.
    pub int8_gmac_s: f64,
    /// The same of bfloat16, where there is an instruction for it.
    pub bf16_gmac_s: Option<f64>,
    /// The same of single precision.
    pub f32_gmac_s: f64,
    /// Billions of bytes read from memory a second.
    pub read_gb_s: f64,
}

/// Measures the limits of some threads, as often as wanted.
#[derive(Debug)]
pub struct Probe<'a> {
    pool: &'a Pool,
    isa: Isa,
    buffer: Aligned<u64>,
}

impl<'a> Probe<'a> {
    /// Measures with the threads of `pool` and the instructions of `isa`, reading `buffer_bytes` of memory
    /// ([`BUFFER_BYTES`], unless there is not so much).
    ///
    /// # Cost
    ///
    /// Holds the buffer until dropped, every page of it written.
    pub fn new(pool: &'a Pool, isa: Isa, buffer_bytes: usize) -> Probe<'a> {
        let mut buffer = Aligned::zeroed((buffer_bytes / size_of::<u64>()).max(1));
        // Untouched pages are all the same page of zeros, which the cache would hold.
        let whole = buffer.len() / PAGE_WORDS * PAGE_WORDS;
        pool.for_each_row(&mut buffer[..whole], PAGE_WORDS, |page_idx, page| {
            page.fill(page_idx as u64 + 1);
        });
        Probe { pool, isa, buffer }
    }

    /// Takes about `duration` in all, more if that is not enough for some rounds of each figure.
    pub fn measure(&self, duration: Duration) -> MachineLimits {
        let share = duration / 4;
        let operands = Operands::new();
        MachineLimits {
            int8_gmac_s: self.products(share, |num_rounds| codes(self.isa, &operands, num_rounds)),
            bf16_gmac_s: pairs(self.isa, &operands, 1).map(|_| {
                self.products(share, |num_rounds| {
                    pairs(self.isa, &operands, num_rounds).expect("it multiplied the first")
                })
            }),
            f32_gmac_s: self.products(share, |num_rounds| floats(self.isa, &operands, num_rounds)),
            read_gb_s: self.reading(share),
        }
    }

    /// Billions of products a second of a loop, which returns what it has multiplied.
    fn products<S>(
        &self,
        share: Duration,
        multiply: impl Fn(usize) -> Multiplied<S> + Sync,
    ) -> f64 {
        let timed = |num_rounds: usize| {
            let start = Instant::now();
            self.pool.run(&|_| {
                std::hint::black_box(multiply(num_rounds).sum);
            });
            start.elapsed()
        };
        let round = ROUND.min(share / NUM_ROUNDS_MIN as u32);
        let mut num_rounds = 1 << 10;
        while timed(num_rounds) < round / 2 {
            num_rounds *= 2;
        }
        let num_products = multiply(1).num_products * num_rounds * self.pool.num_threads();
        median_rate(share, num_products, || timed(num_rounds))
    }

    /// Billions of bytes a second.
    fn reading(&self, share: Duration) -> f64 {
        let num_threads = self.pool.num_threads();
        let timed = || {
            let start = Instant::now();
            self.pool.run(&|thread_idx| {
                let slice = &self.buffer[partition(self.buffer.len(), num_threads, thread_idx)];
                std::hint::black_box(read(self.isa, slice));
            });
            start.elapsed()
        };
        median_rate(share, size_of_val(&self.buffer[..]), timed)
    }
}

/// Billions of `units` a second: the median of as many rounds as there is time for.
fn median_rate(share: Duration, units: usize, timed: impl Fn() -> Duration) -> f64 {
    let start = Instant::now();
    let mut rates = Vec::new();
    while rates.len() < NUM_ROUNDS_MIN || start.elapsed() < share {
        rates.push(units as f64 / timed().as_secs_f64().max(1e-9) / 1e9);
    }
    let middle = rates.len() / 2;
    let (_, median, _) = rates.select_nth_unstable_by(middle, f64::total_cmp);
    *median
}

/// The processor's own name, where it can be asked for it.
pub fn processor_name() -> Option<String> {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::__cpuid;
        /// The leaf that tells how many there are, and the three with the name.
        const EXTENDED: u32 = 0x8000_0000;
        const NAME: std::ops::RangeInclusive<u32> = 0x8000_0002..=0x8000_0004;
        if __cpuid(EXTENDED).eax < *NAME.end() {
            return None;
        }
        let registers = NAME.flat_map(|leaf| {
            let answer = __cpuid(leaf);
            [answer.eax, answer.ebx, answer.ecx, answer.edx]
        });
        let bytes: Vec<u8> = registers.flat_map(u32::to_le_bytes).collect();
        let name = String::from_utf8_lossy(&bytes);
        let name = name.trim_matches(|character: char| character == '\0' || character == ' ');
        (!name.is_empty()).then(|| name.to_owned())
    }
    #[cfg(not(target_arch = "x86_64"))]
    None
}

/// How many operands of each side a loop holds in registers, and how long they are.
#[derive(Clone, Copy, Debug)]
struct Tile {
    num_weights: usize,
    num_activations: usize,
    /// Values of an operand: a whole multiple of 8.
    width: usize,
}

impl Tile {
    const fn num_products(self) -> usize {
        self.num_weights * self.num_activations * self.width
    }
}

/// What loops multiply: as many operands as the largest tile has. Small whole numbers, so that sums of
/// floats are exact.
#[derive(Debug)]
struct Operands {
    /// 4-bit codes.
    codes: [u8; LEN_MAX],
    bytes: [i8; LEN_MAX],
    weights: [f32; LEN_MAX],
    activations: [f32; LEN_MAX],
    /// `weights` and `activations` in bfloat16.
    half_weights: [u16; LEN_MAX],
    half_activations: [u16; LEN_MAX],
}

/// Values of the largest side of a tile: four registers of 64.
const LEN_MAX: usize = 4 * 64;

impl Operands {
    fn new() -> Operands {
        let code = |idx: usize| (idx * 7 % 16) as u8;
        let byte = |idx: usize| ((idx * 37 % 255) as i16 - 127) as i8;
        let weight = |idx: usize| (idx * 5 % 9) as f32 - 4.0;
        let activation = |idx: usize| (idx * 3 % 7) as f32 - 2.0;
        let half = |value: f32| half::bf16::from_f32(value).to_bits();
        Operands {
            codes: std::array::from_fn(code),
            bytes: std::array::from_fn(byte),
            weights: std::array::from_fn(weight),
            activations: std::array::from_fn(activation),
            half_weights: std::array::from_fn(|idx| half(weight(idx))),
            half_activations: std::array::from_fn(|idx| half(activation(idx))),
        }
    }
}

/// What a loop has done.
struct Multiplied<S> {
    /// Of all products. Integers wrap around.
    sum: S,
    /// Products of one round.
    num_products: usize,
}

impl<S> Multiplied<S> {
    fn new(sum: S, tile: Tile) -> Multiplied<S> {
        Multiplied {
            sum,
            num_products: tile.num_products() * TURNS,
        }
    }
}

/// Integers by the best loop of `isa`.
fn codes(isa: Isa, operands: &Operands, num_rounds: usize) -> Multiplied<i32> {
    let (codes, bytes) = (&operands.codes, &operands.bytes);
    match isa {
        Isa::Scalar => Multiplied::new(
            scalar::codes(scalar::CODES, operands, num_rounds),
            scalar::CODES,
        ),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2(proof) => {
            Multiplied::new(avx2::words(proof, codes, bytes, num_rounds), avx2::WORDS)
        }
        #[cfg(target_arch = "x86_64")]
        Isa::AvxVnni(proof) => {
            Multiplied::new(avx2::codes(proof, codes, bytes, num_rounds), avx2::CODES)
        }
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512Vnni(proof) => Multiplied::new(
            avx512::codes(proof, codes, bytes, num_rounds),
            avx512::CODES,
        ),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512Bf16(proof) => Multiplied::new(
            avx512::codes(proof.vnni(), codes, bytes, num_rounds),
            avx512::CODES,
        ),
    }
}

/// Single precision by the best loop of `isa`.
fn floats(isa: Isa, operands: &Operands, num_rounds: usize) -> Multiplied<f32> {
    use crate::isa::FloatIsa;
    match isa.floats() {
        FloatIsa::Scalar => Multiplied::new(
            scalar::floats(scalar::FLOATS, operands, num_rounds),
            scalar::FLOATS,
        ),
        #[cfg(target_arch = "x86_64")]
        FloatIsa::Avx2(proof) => {
            Multiplied::new(avx2::floats(proof, operands, num_rounds), avx2::FLOATS)
        }
        #[cfg(target_arch = "x86_64")]
        FloatIsa::Avx512(proof) => {
            Multiplied::new(avx512::floats(proof, operands, num_rounds), avx512::FLOATS)
        }
    }
}

/// bfloat16, if `isa` multiplies it.
fn pairs(isa: Isa, operands: &Operands, num_rounds: usize) -> Option<Multiplied<f32>> {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512Bf16(proof) => Some(Multiplied::new(
            avx512::pairs(proof, operands, num_rounds),
            avx512::PAIRS,
        )),
        _ => {
            let _ = (operands, num_rounds);
            None
        }
    }
}

/// The sum of all words, wrapping around.
fn read(isa: Isa, words: &[u64]) -> u64 {
    use crate::isa::FloatIsa;
    match isa.floats() {
        FloatIsa::Scalar => scalar::read(words),
        #[cfg(target_arch = "x86_64")]
        FloatIsa::Avx2(proof) => avx2::read(proof, words),
        #[cfg(target_arch = "x86_64")]
        FloatIsa::Avx512(proof) => avx512::read(proof, words),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroUsize;

    const NUM_ROUNDS: [usize; 4] = [0, 1, 2, 37];

    /// The tile whose products the loop of `isa` adds up.
    fn code_tile(isa: Isa) -> Tile {
        match isa {
            Isa::Scalar => scalar::CODES,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2(_) => avx2::WORDS,
            #[cfg(target_arch = "x86_64")]
            Isa::AvxVnni(_) => avx2::CODES,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512Vnni(_) | Isa::Avx512Bf16(_) => avx512::CODES,
        }
    }

    fn float_tile(isa: Isa) -> Tile {
        use crate::isa::FloatIsa;
        match isa.floats() {
            FloatIsa::Scalar => scalar::FLOATS,
            #[cfg(target_arch = "x86_64")]
            FloatIsa::Avx2(_) => avx2::FLOATS,
            #[cfg(target_arch = "x86_64")]
            FloatIsa::Avx512(_) => avx512::FLOATS,
        }
    }

    #[test]
    fn every_isa_multiplies_all_the_products_it_claims() {
        let operands = Operands::new();
        for isa in Isa::available() {
            for num_rounds in NUM_ROUNDS {
                let done = codes(isa, &operands, num_rounds);
                let tile = code_tile(isa);
                assert_eq!(
                    done.sum,
                    scalar::codes(tile, &operands, num_rounds),
                    "{isa}"
                );
                assert_eq!(done.num_products, tile.num_products() * TURNS);

                let done = floats(isa, &operands, num_rounds);
                let tile = float_tile(isa);
                assert_eq!(
                    done.sum,
                    scalar::floats(tile, &operands, num_rounds),
                    "{isa}"
                );
                assert_eq!(done.num_products, tile.num_products() * TURNS);

                #[cfg(target_arch = "x86_64")]
                if let Some(done) = pairs(isa, &operands, num_rounds) {
                    let tile = avx512::PAIRS;
                    assert_eq!(
                        done.sum,
                        scalar::floats(tile, &operands, num_rounds),
                        "{isa}"
                    );
                    assert_eq!(done.num_products, tile.num_products() * TURNS);
                }
            }
        }
    }

    #[test]
    fn sums_of_the_definition_are_those_of_a_loop_by_hand() {
        let operands = Operands::new();
        let tile = Tile {
            num_weights: 1,
            num_activations: 2,
            width: 8,
        };
        // Codes 0 7 14 5 12 3 10 1 with bytes -127 -90 -53 -16 21 58 95 -123: -199; with -86 -49 -12 25 62 99 -119 -82: -617.
        // Once a turn, 8 turns a round.
        assert_eq!(scalar::codes(tile, &operands, 2), 2 * 8 * (-199 - 617));
        // Weights -4 1 -3 2 -2 3 -1 4 with activations -2 1 4 0 3 -1 2 -2: -22; with 1 4 0 3 -1 2 -2 1: 20.
        assert_eq!(
            scalar::floats(tile, &operands, 2),
            2.0 * 8.0 * (-22.0 + 20.0)
        );
    }

    #[test]
    fn every_isa_reads_every_word_once() {
        let words: Vec<u64> = (0..5000)
            .map(|idx: u64| idx.wrapping_mul(0x9e37_79b9_7f4a_7c15))
            .collect();
        for isa in Isa::available() {
            for len in [0, 1, 7, 8, 63, 64, 65, 1000, 5000] {
                let expected = words[..len]
                    .iter()
                    .fold(0_u64, |sum, &word| sum.wrapping_add(word));
                assert_eq!(read(isa, &words[..len]), expected, "{isa}, {len} words");
            }
        }
    }

    #[test]
    fn a_measurement_has_a_positive_figure_for_all_there_is() {
        let pool = Pool::new(NonZeroUsize::new(2).expect("not zero"));
        for isa in Isa::available() {
            let limits = Probe::new(&pool, isa, 1 << 20).measure(Duration::from_millis(20));
            let bf16 = limits.bf16_gmac_s.into_iter();
            for rate in bf16.chain([limits.int8_gmac_s, limits.f32_gmac_s, limits.read_gb_s]) {
                assert!(rate.is_finite() && rate > 0.0, "{isa}: {limits:?}");
            }
            assert_eq!(limits.bf16_gmac_s.is_some(), isa.name() == "avx512bf16");
        }
    }

    #[test]
    fn the_processors_name_is_a_line_to_be_shown() {
        if let Some(name) = processor_name() {
            assert!(!name.is_empty() && !name.contains('\0'), "{name:?}");
        }
    }
}
