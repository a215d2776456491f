//! How encoding time grows with unbroken text: `cargo run --release -p fulcrum-text --example encode_long_text -- MODEL.gguf`.
//!
//! Each line is one kind of text; each column doubles its length. Linear means that each time is about twice the one before.
#![allow(clippy::print_stdout)]

use std::time::Instant;

use text::{SpecialText, Tokenizer};

const NUM_CHARS: [usize; 4] = [50_000, 100_000, 200_000, 400_000];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args()
        .nth(1)
        .ok_or("usage: encode_long_text MODEL.gguf")?;
    let file = formats::gguf::Gguf::open(path.as_ref())?;
    let start = Instant::now();
    let tokenizer = Tokenizer::from_gguf(&file)?;
    let load_ms = start.elapsed().as_secs_f64() * 1e3;
    println!("{} tokens loaded in {load_ms:.0} ms", tokenizer.vocab());
    for unit in [
        "A",
        " ",
        "\n",
        ".",
        "7",
        "語",
        "\u{301}",
        "a\u{301}",
        "\t",
        "Zm9vYmFyYmF6cXV4",
        "a b",
    ] {
        let times = NUM_CHARS.map(|num_chars| {
            let text: String = unit.chars().cycle().take(num_chars).collect();
            let start = Instant::now();
            let num_tokens = tokenizer.encode(&text, SpecialText::AsText).len();
            let ms = start.elapsed().as_secs_f64() * 1e3;
            format!("{ms:8.1} ms {num_tokens:>8} tokens")
        });
        println!("{:>20}  {}", format!("{unit:?}"), times.join("  "));
    }
    Ok(())
}
