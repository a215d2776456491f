//! Touches everything a reader offers, as a user who trusts it would. The tests with damaged files and the fuzz targets
//! share it: what they look for is a panic in here.

use formats::gguf::{Gguf, Value};
use formats::quant::{self, CodeLayout, CodesMut, Offset};
use formats::safetensors::Safetensors;
use formats::{GgmlType, Limits};

/// Values of a tensor that are decoded; the rest would only cost time.
const NUM_VALUES_MAX: usize = 4096;

/// Opens `bytes` as GGUF and reads all of it. Whether it was accepted.
pub fn gguf(bytes: Vec<u8>, limits: &Limits) -> bool {
    let gguf = match Gguf::parse_within(bytes, limits) {
        Ok(gguf) => gguf,
        Err(error) => {
            assert_presentable(&error.to_string());
            return false;
        }
    };
    for (key, value) in gguf.metadata() {
        assert!(!value.describe().is_empty());
        if let Value::Array(array) = value {
            assert_eq!(array.iter().count(), array.len());
        }
        let _ = gguf.find::<u32>(key);
        let _ = gguf.find::<&str>(key);
        let _ = gguf.find::<Vec<f32>>(key);
    }
    for tensor in gguf.tensors() {
        match gguf.tensor(&tensor.name) {
            Ok(view) => {
                let num_rows = view.num_rows();
                assert_eq!(view.row(num_rows - 1).len() * num_rows, view.bytes.len());
                let block_len = view.ty.block_len();
                let num_blocks = (tensor.num_values() / block_len).min(NUM_VALUES_MAX / block_len);
                decode(view.ty, &view.bytes[..num_blocks * view.ty.block_bytes()]);
                gguf.forget(&view);
            }
            Err(error) => {
                let message = error.to_string();
                assert_presentable(&message);
                assert!(message.contains(&format!("{:?}", tensor.name)), "{message}");
            }
        }
    }
    assert_eq!(
        gguf.refused().next().is_some(),
        gguf.check_supported().is_err()
    );
    true
}

/// Opens `bytes` as safetensors and reads all of it. Whether it was accepted.
pub fn safetensors(bytes: Vec<u8>, limits: &Limits) -> bool {
    let file = match Safetensors::parse_within(bytes, limits) {
        Ok(file) => file,
        Err(error) => {
            assert_presentable(&error.to_string());
            return false;
        }
    };
    for tensor in file.tensors() {
        let view = file.tensor(&tensor.name).expect("it is listed");
        let num_values: usize = view.shape.iter().product();
        assert_eq!(num_values * view.dtype.value_bytes(), view.bytes.len());
        if let Some(ty) = view.dtype.ggml_type() {
            let num_values = num_values.min(NUM_VALUES_MAX);
            decode(ty, &view.bytes[..num_values * ty.block_bytes()]);
        }
        file.forget(&view);
    }
    true
}

/// Decodes whole blocks both ways, and compares.
pub fn decode(ty: GgmlType, bytes: &[u8]) {
    let num_values = bytes.len() / ty.block_bytes() * ty.block_len();
    let mut values = vec![0f32; num_values];
    quant::dequantize(ty, bytes, &mut values);
    let Some(layout) = CodeLayout::of(ty) else {
        return;
    };
    let group_len = layout.group.get();
    let mut codes = vec![0u8; num_values];
    let mut scales = vec![0f32; num_values / group_len];
    let mut mins = scales.clone();
    quant::codes(
        ty,
        bytes,
        CodesMut {
            codes: &mut codes,
            scales: &mut scales,
            mins: &mut mins,
        },
    );
    for (idx, &value) in values.iter().enumerate() {
        let scale = f64::from(scales[idx / group_len]);
        let code = match layout.codebook {
            Some(steps) => f64::from(steps[usize::from(codes[idx])]),
            None => f64::from(codes[idx]),
        };
        let min = match layout.offset {
            Offset::Zero(zero) => -scale * f64::from(zero),
            Offset::PerGroup => f64::from(mins[idx / group_len]),
        };
        // Exact but for one addition in f32: half a unit in the last place of the result.
        let exact = scale * code + min;
        let bound = exact.abs() * f64::from(f32::EPSILON) / 2.0;
        let overflows = exact.abs() > f64::from(f32::MAX);
        let agrees = (f64::from(value) - exact).abs() <= bound;
        assert!(
            agrees || overflows || !exact.is_finite(),
            "{ty} value {idx}: {value} is not {exact}"
        );
    }
}

/// A message is one line of bearable length, whatever the file holds.
fn assert_presentable(message: &str) {
    assert!(!message.is_empty() && !message.contains('\n'), "{message}");
    assert!(
        message.len() < 64 << 10,
        "a message of {} bytes",
        message.len()
    );
}
