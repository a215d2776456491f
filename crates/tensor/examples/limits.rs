//! What this machine can do at most, as a table or as JSON: `cargo xtask bench limits`.
//!
//! ```text
//! cargo run --release -p fulcrum-tensor --example limits [-- [--json] [THREADS]]
//! ```
//!
//! `FULCRUM_ISA` chooses the instruction set. Threads are the processors there are, unless given.

use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::time::Duration;

use tensor::isa::Isa;
use tensor::limits::{BUFFER_BYTES, MachineLimits, Probe, processor_name};
use tensor::pool::Pool;

/// For all four figures together.
const DURATION: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    let mut is_json = false;
    let mut num_threads = Pool::num_threads_available();
    for argument in std::env::args().skip(1) {
        match (argument.as_str(), argument.parse()) {
            ("--json", _) => is_json = true,
            (_, Ok(given)) => num_threads = given,
            _ => {
                eprintln!("usage: limits [--json] [THREADS]");
                return ExitCode::from(2);
            }
        }
    }
    let isa = match Isa::init() {
        Ok(isa) => isa,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::FAILURE;
        }
    };
    let pool = Pool::new(num_threads);
    let limits = Probe::new(&pool, isa, BUFFER_BYTES).measure(DURATION);
    match is_json {
        true => print_json(isa, num_threads, limits),
        false => print_table(isa, num_threads, limits),
    }
    ExitCode::SUCCESS
}

fn print_table(isa: Isa, num_threads: NonZeroUsize, limits: MachineLimits) {
    let processor = processor_name().unwrap_or_else(|| "a processor without a name".to_owned());
    println!("{processor}, {num_threads} threads, {isa}\n");
    println!("int8 multiply-adds  {:7.1} G/s", limits.int8_gmac_s);
    if let Some(bf16) = limits.bf16_gmac_s {
        println!("bf16 multiply-adds  {bf16:7.1} G/s");
    }
    println!("f32 multiply-adds   {:7.1} G/s", limits.f32_gmac_s);
    println!("memory read         {:7.1} GB/s", limits.read_gb_s);
}

/// By hand: this crate has no use for a JSON library, and no string here needs escaping but the name.
fn print_json(isa: Isa, num_threads: NonZeroUsize, limits: MachineLimits) {
    let processor = processor_name().map_or("null".to_owned(), |name| {
        let plain: String = name
            .chars()
            .filter(|&it| it != '"' && it != '\\' && !it.is_control())
            .collect();
        format!("\"{plain}\"")
    });
    let bf16 = limits
        .bf16_gmac_s
        .map_or("null".to_owned(), |rate| format!("{rate:.1}"));
    println!(
        "{{\"processor\":{processor},\"threads\":{num_threads},\"isa\":\"{isa}\",\"int8_gmac_s\":{:.1},\"bf16_gmac_s\":{bf16},\"f32_gmac_s\":{:.1},\"read_gb_s\":{:.1}}}",
        limits.int8_gmac_s, limits.f32_gmac_s, limits.read_gb_s,
    );
}
