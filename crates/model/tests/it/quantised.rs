//! Weights that are quantised while they are loaded.

use formats::gguf::Gguf;
use model::runner::Runner;
use model::{LoadError, Precision, WeightType};
use testkit::encode::Encoding;
use testkit::tiny;

use crate::support::{all_rows, options, random_tokens};

const QUANTISED: [(WeightType, Encoding); 2] = [
    (WeightType::Q8_0, Encoding::Q8_0),
    (WeightType::Bf16, Encoding::BF16),
];

fn load(encoding: Encoding, precision: Precision) -> Result<model::CpuRunner, LoadError> {
    let file = Gguf::parse(tiny::llama(encoding).build().bytes).unwrap();
    model::load(&file, &options(precision))
}

/// The tiny model's numbers are rounded to a type by an encoder of the tests, and by the loader.
#[test]
fn weights_that_are_quantised_on_the_way_compute_what_a_converted_file_does() {
    let tokens = random_tokens(5, 40, 64);
    for (wanted, encoding) in QUANTISED {
        let mut converted = load(encoding, Precision::Packed).unwrap();
        let mut loaded = load(Encoding::F32, Precision::Quantised(wanted)).unwrap();
        let expected = all_rows(&mut converted, &tokens);
        let actual = all_rows(&mut loaded, &tokens);
        for (actual, expected) in actual.iter().zip(&expected) {
            let scale = expected.iter().fold(0.0f32, |max, x| max.max(x.abs()));
            for (actual, expected) in actual.iter().zip(expected) {
                assert!(
                    (actual - expected).abs() <= 0.05 * scale,
                    "{wanted}: {actual} {expected}"
                );
            }
        }
    }
}

#[test]
fn each_type_has_a_fingerprint_of_its_own() {
    let mut seen = std::collections::HashSet::new();
    for wanted in [
        WeightType::Bf16,
        WeightType::Q8_0,
        WeightType::Q4_1,
        WeightType::Q4_0,
    ] {
        let runner = load(Encoding::F32, Precision::Quantised(wanted)).unwrap();
        let fingerprint = runner.shape().fingerprint.clone();
        assert!(fingerprint.contains(wanted.name()), "{fingerprint}");
        assert!(seen.insert(fingerprint), "{wanted}");
    }
}

#[test]
fn fewer_bits_take_less_memory_as_planned() {
    let file = Gguf::parse(tiny::llama(Encoding::F32).build().bytes).unwrap();
    let bytes = |wanted| {
        let precision = Precision::Quantised(wanted);
        let runner = model::load(&file, &options(precision)).unwrap();
        let planned = model::plan(&file, precision).unwrap().num_bytes() as f64;
        let held = runner.weight_bytes() as f64;
        // Panels of 16 rows are padded, and keep a power of two beside their scales.
        assert!(
            (0.9..1.2).contains(&(held / planned)),
            "{wanted}: {held} for {planned}"
        );
        held
    };
    let (wide, eight, four) = (
        bytes(WeightType::Bf16),
        bytes(WeightType::Q8_0),
        bytes(WeightType::Q4_0),
    );
    assert!(wide > eight && eight > four, "{wide} {eight} {four}");
}

#[test]
fn weights_that_are_quantised_already_are_refused_by_name() {
    let wanted = Precision::Quantised(WeightType::Q8_0);
    let refusal = load(Encoding::Q4_0, wanted).unwrap_err();
    assert!(
        matches!(&refusal, LoadError::AlreadyQuantised { stored: "Q4_0", .. }),
        "{refusal}"
    );
}
