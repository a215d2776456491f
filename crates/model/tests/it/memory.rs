//! What loading a real model costs in memory, as the system counts it.
//!
//! Measured in a process of its own, because the peak of a process never falls again and
//! other tests would add theirs.

use std::process::Command;

use model::Precision;
use model::runner::{LogitRows, Runner};

use crate::support::{batch_of, options, real, sequence};

/// Names the model that the child process loads.
const MODEL_ENV: &str = "FULCRUM_TEST_MEMORY_OF";

/// Bytes of a line such as `VmHWM:  1234 kB` of `/proc/self/status`.
fn status_bytes(key: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with(key))
        .expect("the kernel says it");
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib * 1024
}

/// The child: loads, computes one token, prints the peak while loading and what is left.
/// Does nothing when run as an ordinary test.
#[test]
fn child_that_loads_a_model() {
    let Some(path) = std::env::var_os(MODEL_ENV) else {
        return;
    };
    let mut runner = model::open(path.as_ref(), &options(Precision::Packed)).unwrap();
    let peak = status_bytes("VmHWM");
    runner
        .forward(&batch_of(&[sequence(&[1], 0, LogitRows::Last, &[0])]))
        .unwrap();
    println!("measured {peak} {}", status_bytes("VmRSS"));
}

fn check(model: &str) {
    let Some(path) = real(model) else { return };
    let file_bytes = std::fs::metadata(&path).unwrap().len();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", "memory::child_that_loads_a_model"])
        .env(MODEL_ENV, &path)
        .output()
        .unwrap();
    let words = String::from_utf8(child.stdout).unwrap();
    let measured = words
        .split("measured ")
        .nth(1)
        .unwrap_or_else(|| panic!("{words}"));
    let bytes: Vec<f64> = measured
        .split_whitespace()
        .take(2)
        .map(|number| number.parse().unwrap())
        .collect();
    let ratio = |bytes: f64| bytes / file_bytes as f64;
    let (peak, after) = (ratio(bytes[0]), ratio(bytes[1]));
    println!("{model}: {peak:.2} times the file while loading, {after:.2} afterwards");
    assert!(peak <= 2.2, "{peak:.2} times the file while loading");
    assert!(after <= 1.3, "{after:.2} times the file afterwards");
}

#[test]
fn loading_smollm2_stays_within_its_memory() {
    check("smollm2-135m");
}

#[test]
fn loading_gemma3_stays_within_its_memory() {
    check("gemma3-270m");
}
