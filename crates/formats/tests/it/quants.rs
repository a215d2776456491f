//! Every block format against the values of the reference.

use formats::gguf::Gguf;
use formats::quant::{self, CodeBits, CodeLayout, CodesMut};
use formats::safetensors::Safetensors;
use formats::{GgmlType, quant::GroupLen};
use testkit::Random;

use super::walk;

const GOLDEN: &[u8] = include_bytes!("../golden/quants.safetensors");

#[test]
fn every_type_decodes_to_the_reference_values_bit_for_bit() {
    let golden = Safetensors::parse(GOLDEN.to_vec()).unwrap();
    for ty in GgmlType::all() {
        let blocks = golden.tensor(&format!("{ty}.blocks")).unwrap().bytes;
        let expected = golden.tensor(&format!("{ty}.values")).unwrap().bytes;
        assert_decodes_to(ty, blocks, expected);
    }
}

#[test]
fn every_type_decodes_to_the_reference_values_in_the_full_sweep() {
    let Some(folder) = testkit::fixtures() else {
        return;
    };
    let gguf = Gguf::open(&folder.join("quants/quants.gguf")).unwrap();
    let expected = Safetensors::open(&folder.join("quants/quants.expected.safetensors")).unwrap();
    let mut num_checked = 0;
    for tensor in gguf.tensors() {
        let Ok(ty) = tensor.ty else { continue };
        let view = gguf.tensor(&tensor.name).unwrap();
        assert_decodes_to(ty, view.bytes, expected.tensor(&tensor.name).unwrap().bytes);
        num_checked += 1;
    }
    assert_eq!(num_checked, GgmlType::all().count());
    assert_eq!(gguf.refused().count(), gguf.tensors().len() - num_checked);
}

fn assert_decodes_to(ty: GgmlType, blocks: &[u8], expected: &[u8]) {
    let expected: Vec<f32> = expected
        .as_chunks()
        .0
        .iter()
        .map(|&bytes: &[u8; 4]| f32::from_le_bytes(bytes))
        .collect();
    let mut values = vec![f32::NAN; expected.len()];
    quant::dequantize(ty, blocks, &mut values);
    for (idx, (value, expected)) in values.iter().zip(&expected).enumerate() {
        assert_eq!(
            value.to_bits(),
            expected.to_bits(),
            "{ty} value {idx}: {value} is not {expected}"
        );
    }
}

/// `walk::decode` holds the comparison and its bound: half a unit in the last place.
#[test]
fn codes_scales_and_minimums_give_the_same_values_as_decoding() {
    let mut random = Random::new(0xc0de);
    for ty in GgmlType::all() {
        for num_blocks in [0, 1, 2, 7, 64] {
            walk::decode(ty, &random.bytes(num_blocks * ty.block_bytes()));
        }
    }
}

#[test]
fn codes_of_four_bits_stay_below_16() {
    let mut random = Random::new(4);
    for ty in GgmlType::all() {
        let Some(layout) = CodeLayout::of(ty) else {
            continue;
        };
        let num_values = 16 * 256;
        let bytes = random.bytes(ty.bytes_of(num_values).unwrap());
        let mut codes = vec![0u8; num_values];
        let mut scales = vec![0f32; num_values / layout.group.get()];
        let mut mins = scales.clone();
        quant::codes(
            ty,
            &bytes,
            CodesMut {
                codes: &mut codes,
                scales: &mut scales,
                mins: &mut mins,
            },
        );
        let largest = codes.iter().max().unwrap();
        match layout.bits {
            CodeBits::Four => assert!(*largest < 16, "{ty}: {largest}"),
            CodeBits::Eight => assert!(*largest >= 16, "{ty} would fit 4 bits: {largest}"),
        }
        assert!(layout.codebook.is_none() || layout.group == GroupLen::ThirtyTwo);
    }
}

#[test]
fn the_smallest_and_largest_exponents_of_mxfp4_are_those_of_the_reference() {
    let value_of = |exponent: u8| {
        let mut block = [0x11; 17];
        block[0] = exponent;
        let mut values = [0f32; 32];
        quant::dequantize(GgmlType::MXFP4, &block, &mut values);
        values[0]
    };
    // Code 1 stands for 0.5.
    assert_eq!(value_of(127), 0.5);
    assert_eq!(value_of(0), 2f32.powi(-126) / 4.0);
    assert_eq!(value_of(1), 2f32.powi(-126) / 2.0);
    assert_eq!(value_of(2), 2f32.powi(-126));
    assert_eq!(value_of(255), 2f32.powi(127));
}

#[test]
#[should_panic(expected = "33 values of Q4_0")]
fn a_length_that_is_no_whole_block_is_a_mistake_of_the_caller() {
    quant::dequantize(GgmlType::Q4_0, &[0; 18], &mut [0.0; 33]);
}
