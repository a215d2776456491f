//! How fast attention is, against the limit of the arithmetic.
//!
//! ```text
//! cargo run --release -p fulcrum-tensor --example attention_speed [threads]
//! ```
//!
//! Each line is the best of several runs, cache hot; `GMAC/s` counts multiply-adds of scores and
//! outputs, visible positions only. The limit is measured first: chains of multiply-adds that
//! touch no memory. Not a benchmark of serving: that is `fulcrum bench`.

use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use tensor::isa::{FloatIsa, Isa};
use tensor::kv::{BLOCK_TOKENS, KvPages, KvShape, KvSlot, KvType};
use tensor::ops::attention::{AttendInput, AttendSequence, AttendSpec, attend};
use tensor::pool::Pool;

/// One measured workload.
struct Load {
    name: &'static str,
    num_sequences: usize,
    /// New positions of each sequence.
    num_rows: usize,
    num_past: usize,
    num_heads: usize,
    shape: KvShape,
}

fn main() {
    let num_threads = std::env::args()
        .nth(1)
        .map_or(1, |arg| arg.parse().expect("a number of threads"));
    let pool = Pool::new(NonZeroUsize::new(num_threads).expect("at least one thread"));
    println!("{} threads, {}", pool.num_threads(), Isa::current());
    let limit = multiply_adds_per_s(&pool);
    println!("limit of multiply-adds {:28.1} GMAC/s", limit / 1e9);

    let smol = |element| KvShape {
        num_kv_heads: 3,
        head_dim: 64,
        element,
    };
    let gemma = KvShape {
        num_kv_heads: 1,
        head_dim: 256,
        element: KvType::F16,
    };
    let wide = KvShape {
        num_kv_heads: 8,
        head_dim: 128,
        element: KvType::F16,
    };
    let loads = [
        Load {
            name: "decode 32 x 512, 9/3 x 64, f16",
            num_sequences: 32,
            num_rows: 1,
            num_past: 511,
            num_heads: 9,
            shape: smol(KvType::F16),
        },
        Load {
            name: "decode 32 x 512, 9/3 x 64, bf16",
            num_sequences: 32,
            num_rows: 1,
            num_past: 511,
            num_heads: 9,
            shape: smol(KvType::Bf16),
        },
        Load {
            name: "decode 32 x 512, 9/3 x 64, int8",
            num_sequences: 32,
            num_rows: 1,
            num_past: 511,
            num_heads: 9,
            shape: smol(KvType::Int8),
        },
        Load {
            name: "decode 64 x 8192, 9/3 x 64, f16",
            num_sequences: 64,
            num_rows: 1,
            num_past: 8191,
            num_heads: 9,
            shape: smol(KvType::F16),
        },
        Load {
            name: "decode 64 x 8192, 9/3 x 64, int8",
            num_sequences: 64,
            num_rows: 1,
            num_past: 8191,
            num_heads: 9,
            shape: smol(KvType::Int8),
        },
        Load {
            name: "decode 32 x 512, 9/3 x 64, f32",
            num_sequences: 32,
            num_rows: 1,
            num_past: 511,
            num_heads: 9,
            shape: smol(KvType::F32),
        },
        Load {
            name: "decode 1 x 512, 9/3 x 64, f16",
            num_sequences: 1,
            num_rows: 1,
            num_past: 511,
            num_heads: 9,
            shape: smol(KvType::F16),
        },
        Load {
            name: "decode 1 x 512, 9/3 x 64, int8",
            num_sequences: 1,
            num_rows: 1,
            num_past: 511,
            num_heads: 9,
            shape: smol(KvType::Int8),
        },
        Load {
            name: "decode 1 x 8192, 9/3 x 64, f16",
            num_sequences: 1,
            num_rows: 1,
            num_past: 8191,
            num_heads: 9,
            shape: smol(KvType::F16),
        },
        Load {
            name: "decode 1 x 8192, 9/3 x 64, int8",
            num_sequences: 1,
            num_rows: 1,
            num_past: 8191,
            num_heads: 9,
            shape: smol(KvType::Int8),
        },
        Load {
            name: "prefill 512, 9/3 x 64, f16",
            num_sequences: 1,
            num_rows: 512,
            num_past: 0,
            num_heads: 9,
            shape: smol(KvType::F16),
        },
        Load {
            name: "prefill 512 after 7680, f16",
            num_sequences: 1,
            num_rows: 512,
            num_past: 7680,
            num_heads: 9,
            shape: smol(KvType::F16),
        },
        Load {
            name: "prefill 512 after 7680, int8",
            num_sequences: 1,
            num_rows: 512,
            num_past: 7680,
            num_heads: 9,
            shape: smol(KvType::Int8),
        },
        Load {
            name: "decode 32 x 512, 4/1 x 256, f16",
            num_sequences: 32,
            num_rows: 1,
            num_past: 511,
            num_heads: 4,
            shape: gemma,
        },
        Load {
            name: "decode 32 x 512, 4/1 x 256, int8",
            num_sequences: 32,
            num_rows: 1,
            num_past: 511,
            num_heads: 4,
            shape: KvShape {
                element: KvType::Int8,
                ..gemma
            },
        },
        Load {
            name: "prefill 512, 4/1 x 256, f16",
            num_sequences: 1,
            num_rows: 512,
            num_past: 0,
            num_heads: 4,
            shape: gemma,
        },
        Load {
            name: "decode 8 x 512, 32/8 x 128, f16",
            num_sequences: 8,
            num_rows: 1,
            num_past: 511,
            num_heads: 32,
            shape: wide,
        },
        Load {
            name: "decode 8 x 512, 8/8 x 128, f16",
            num_sequences: 8,
            num_rows: 1,
            num_past: 511,
            num_heads: 8,
            shape: wide,
        },
        Load {
            name: "decode 8 x 512, 8/8 x 128, int8",
            num_sequences: 8,
            num_rows: 1,
            num_past: 511,
            num_heads: 8,
            shape: KvShape {
                element: KvType::Int8,
                ..wide
            },
        },
    ];
    for load in &loads {
        let (elapsed, multiply_adds) = measure(&pool, load);
        let rate = multiply_adds as f64 / elapsed.as_secs_f64();
        println!(
            "{:32} {:9.1} µs {:7.1} GMAC/s {:5.0} % of the limit",
            load.name,
            elapsed.as_secs_f64() * 1e6,
            rate / 1e9,
            100.0 * rate / limit
        );
    }
}

/// The best time of one call, and what it computes.
fn measure(pool: &Pool, load: &Load) -> (Duration, usize) {
    let num_positions = load.num_past + load.num_rows;
    let blocks_each = num_positions.div_ceil(BLOCK_TOKENS);
    let mut pages =
        KvPages::new(load.shape, blocks_each * load.num_sequences).expect("memory for the cache");
    let tables: Vec<Vec<u32>> = (0..load.num_sequences)
        .map(|idx| {
            (0..blocks_each)
                .map(|block| (block * load.num_sequences + idx) as u32)
                .collect()
        })
        .collect();
    let row_len = load.shape.num_kv_heads * load.shape.head_dim;
    for table in &tables {
        let slots: Vec<_> = (0..num_positions)
            .map(|position| KvSlot::of(table, position))
            .collect();
        let rows: Vec<f32> = (0..num_positions * row_len)
            .map(|idx| (idx * 37 % 101) as f32 / 101.0 - 0.5)
            .collect();
        pages.write(pool, &slots, &rows, &rows);
    }
    let spec = AttendSpec {
        num_heads: load.num_heads,
        scale: 0.125,
        window: None,
        softcap: None,
    };
    let sequences: Vec<_> = tables
        .iter()
        .enumerate()
        .map(|(idx, blocks)| AttendSequence {
            first_row: idx * load.num_rows,
            num_rows: load.num_rows,
            num_past: load.num_past,
            blocks,
        })
        .collect();
    let query_len = load.num_sequences * load.num_rows * load.num_heads * load.shape.head_dim;
    let query: Vec<f32> = (0..query_len)
        .map(|idx| (idx * 53 % 97) as f32 / 97.0 - 0.5)
        .collect();
    let mut out = vec![0.0; query_len];
    let input = AttendInput {
        query: &query,
        pages: &pages,
        sequences: &sequences,
    };
    let best = best_of(|| attend(pool, &spec, input, &mut out));
    let seen: usize = (0..load.num_rows).map(|row| load.num_past + row + 1).sum();
    (
        best,
        seen * load.num_sequences * load.num_heads * load.shape.head_dim * 2,
    )
}

/// The shortest of as many runs as fit in a third of a second.
fn best_of(mut run: impl FnMut()) -> Duration {
    let start = Instant::now();
    let mut best = Duration::MAX;
    while start.elapsed() < Duration::from_millis(300) {
        let before = Instant::now();
        run();
        best = best.min(before.elapsed());
    }
    best
}

/// What all threads together can do with the widest registers there are.
fn multiply_adds_per_s(pool: &Pool) -> f64 {
    const TURNS: usize = 100_000;
    let lanes = std::sync::atomic::AtomicUsize::new(0);
    let best = best_of(|| {
        pool.run(&|_| lanes.store(spin(TURNS), std::sync::atomic::Ordering::Relaxed));
    });
    (lanes.into_inner() * TURNS * pool.num_threads()) as f64 / best.as_secs_f64()
}

/// Runs `turns` times over independent chains; returns the multiply-adds of one turn.
fn spin(turns: usize) -> usize {
    match Isa::current().floats() {
        FloatIsa::Scalar => chains::<8>(turns),
        // SAFETY: the token is a proof that the machine has these features.
        #[cfg(target_arch = "x86_64")]
        FloatIsa::Avx2(_) => unsafe { spin_avx2(turns) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        FloatIsa::Avx512(_) => unsafe { spin_avx512(turns) },
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn spin_avx512(turns: usize) -> usize {
    use std::arch::x86_64::*;
    let mut sums = [_mm512_set1_ps(1.0); 16];
    let (factor, term) = (
        std::hint::black_box(_mm512_set1_ps(0.999)),
        std::hint::black_box(_mm512_set1_ps(0.001)),
    );
    for _ in 0..turns {
        for sum in &mut sums {
            *sum = _mm512_fmadd_ps(*sum, factor, term);
        }
    }
    std::hint::black_box(sums);
    16 * 16
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn spin_avx2(turns: usize) -> usize {
    chains::<96>(turns)
}

#[inline(always)]
fn chains<const LANES: usize>(turns: usize) -> usize {
    let (factor, term) = (
        std::hint::black_box(0.999_f32),
        std::hint::black_box(0.001_f32),
    );
    let mut sums = [1.0_f32; LANES];
    for _ in 0..turns {
        for sum in &mut sums {
            *sum = sum.mul_add(factor, term);
        }
    }
    std::hint::black_box(sums);
    LANES
}
