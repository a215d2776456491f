//! Which instruction set the kernels use: detected once, overridable by `FULCRUM_ISA`.
//!
//! The one idea: a value of [`Isa`] is a *proof*. Each variant but `Scalar` carries a token that
//! only detection can make, so a kernel that takes the token may use the instructions without
//! asking again, and safe code cannot reach instructions that this machine lacks.
//!
//! Not here: the kernels. A kernel matches on [`Isa`] (or on [`Isa::floats`] if it only cares for
//! the width of float vectors) and hands the token to the file of that instruction set.

use std::fmt;
use std::sync::OnceLock;

/// A set of instructions that this machine can run, worst to best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isa {
    /// Plain Rust: the definition.
    Scalar,
    /// AVX2, FMA, F16C.
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    /// AVX2 with `vpdpbusd` on 256 bits.
    #[cfg(target_arch = "x86_64")]
    AvxVnni(AvxVnni),
    /// AVX-512 F/BW/DQ/VL/VNNI.
    #[cfg(target_arch = "x86_64")]
    Avx512Vnni(Avx512Vnni),
    /// AVX-512 VNNI with BF16 dot products.
    #[cfg(target_arch = "x86_64")]
    Avx512Bf16(Avx512Bf16),
}

/// What an [`Isa`] means for kernels that compute in floats only: three widths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FloatIsa {
    /// One lane.
    Scalar,
    /// 8 lanes, FMA, F16C.
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    /// 16 lanes, masks.
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512Vnni),
}

/// The name of the environment variable that overrides detection.
pub const ISA_ENV: &str = "FULCRUM_ISA";

/// Why [`ISA_ENV`] was not accepted. The caller's fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IsaError {
    /// No instruction set has that name.
    #[error(
        "{ISA_ENV}={given}: no such instruction set; this machine has {}",
        Names(available)
    )]
    Unknown {
        /// What the variable holds.
        given: String,
        /// What it may hold on this machine.
        available: Vec<Isa>,
    },
    /// The instruction set exists, but not here.
    #[error(
        "{ISA_ENV}={given}: this machine cannot run it; it has {}",
        Names(available)
    )]
    Unavailable {
        /// What the variable holds.
        given: String,
        /// What it may hold on this machine.
        available: Vec<Isa>,
    },
}

impl Isa {
    /// All names, worst to best.
    pub const NAMES: [&'static str; 5] = ["scalar", "avx2", "avxvnni", "avx512vnni", "avx512bf16"];

    /// The instruction set that kernels use: the best available, or what [`ISA_ENV`] says.
    /// Decided at the first call.
    ///
    /// # Panics
    ///
    /// If [`ISA_ENV`] is not acceptable. A program calls [`Isa::init`] first, which gives the error
    /// as a value.
    pub fn current() -> Isa {
        match Isa::init() {
            Ok(isa) => isa,
            Err(error) => panic!("{error}"),
        }
    }

    /// Decides what [`Isa::current`] answers from then on.
    ///
    /// # Errors
    ///
    /// [`IsaError`] if [`ISA_ENV`] names a set that is unknown or that this machine lacks.
    pub fn init() -> Result<Isa, IsaError> {
        static CURRENT: OnceLock<Result<Isa, IsaError>> = OnceLock::new();
        CURRENT
            .get_or_init(|| match std::env::var_os(ISA_ENV) {
                Some(name) if !name.is_empty() => Isa::by_name(&name.to_string_lossy()),
                _ => Ok(Isa::best()),
            })
            .clone()
    }

    /// The set with that name (see [`Isa::NAMES`]), in any case.
    ///
    /// # Errors
    ///
    /// [`IsaError`] if there is none, or not on this machine.
    pub fn by_name(name: &str) -> Result<Isa, IsaError> {
        let given = name.trim().to_ascii_lowercase();
        let available: Vec<Isa> = Isa::available().collect();
        if let Some(isa) = available.iter().find(|isa| isa.name() == given) {
            return Ok(*isa);
        }
        let given = name.to_owned();
        if Isa::NAMES.contains(&given.trim().to_ascii_lowercase().as_str()) {
            return Err(IsaError::Unavailable { given, available });
        }
        Err(IsaError::Unknown { given, available })
    }

    /// All that this machine can run, worst to best. Never empty; tests walk over it.
    pub fn available() -> impl Iterator<Item = Isa> {
        #[cfg(target_arch = "x86_64")]
        let detected = [
            Some(Isa::Scalar),
            Avx2::detect().map(Isa::Avx2),
            AvxVnni::detect().map(Isa::AvxVnni),
            Avx512Vnni::detect().map(Isa::Avx512Vnni),
            Avx512Bf16::detect().map(Isa::Avx512Bf16),
        ];
        #[cfg(not(target_arch = "x86_64"))]
        let detected = [Some(Isa::Scalar)];
        detected.into_iter().flatten()
    }

    fn best() -> Isa {
        Isa::available().last().expect("scalar is always available")
    }

    /// Its name in [`ISA_ENV`] and in logs.
    pub fn name(self) -> &'static str {
        match self {
            Isa::Scalar => Isa::NAMES[0],
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2(_) => Isa::NAMES[1],
            #[cfg(target_arch = "x86_64")]
            Isa::AvxVnni(_) => Isa::NAMES[2],
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512Vnni(_) => Isa::NAMES[3],
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512Bf16(_) => Isa::NAMES[4],
        }
    }

    /// The float vectors that come with it.
    pub fn floats(self) -> FloatIsa {
        match self {
            Isa::Scalar => FloatIsa::Scalar,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2(avx2) => FloatIsa::Avx2(avx2),
            #[cfg(target_arch = "x86_64")]
            Isa::AvxVnni(vnni) => FloatIsa::Avx2(vnni.avx2()),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512Vnni(vnni) => FloatIsa::Avx512(vnni),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512Bf16(bf16) => FloatIsa::Avx512(bf16.vnni()),
        }
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Names side by side in an error message.
struct Names<'a>(&'a [Isa]);

impl fmt::Display for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (idx, isa) in self.0.iter().enumerate() {
            let comma = if idx == 0 { "" } else { ", " };
            write!(f, "{comma}{isa}")?;
        }
        Ok(())
    }
}

#[cfg(target_arch = "x86_64")]
pub use tokens::{Avx2, Avx512Bf16, Avx512Vnni, AvxVnni};

#[cfg(target_arch = "x86_64")]
mod tokens {
    /// Proof that this machine has AVX2, FMA and F16C. Only [`Avx2::detect`] makes one.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub struct Avx2(());

    /// Proof of [`Avx2`] and `vpdpbusd` in its VEX form (AVX-VNNI).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub struct AvxVnni(Avx2);

    /// Proof of [`Avx2`] and AVX-512 F, BW, DQ, VL and VNNI.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub struct Avx512Vnni(Avx2);

    /// Proof of [`Avx512Vnni`] and AVX-512 BF16.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub struct Avx512Bf16(Avx512Vnni);

    impl Avx2 {
        /// Asks the processor (and the operating system, which must save the registers).
        pub fn detect() -> Option<Avx2> {
            (is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("fma")
                && is_x86_feature_detected!("f16c"))
            .then_some(Avx2(()))
        }
    }

    impl AvxVnni {
        /// Asks the processor.
        pub fn detect() -> Option<AvxVnni> {
            let avx2 = Avx2::detect()?;
            is_x86_feature_detected!("avxvnni").then_some(AvxVnni(avx2))
        }

        /// What it implies.
        pub fn avx2(self) -> Avx2 {
            self.0
        }
    }

    impl Avx512Vnni {
        /// Asks the processor. Valgrind hides AVX-512, so under it the answer is `None`.
        pub fn detect() -> Option<Avx512Vnni> {
            let avx2 = Avx2::detect()?;
            (is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512vnni"))
            .then_some(Avx512Vnni(avx2))
        }

        /// What it implies.
        pub fn avx2(self) -> Avx2 {
            self.0
        }
    }

    impl Avx512Bf16 {
        /// Asks the processor.
        pub fn detect() -> Option<Avx512Bf16> {
            let vnni = Avx512Vnni::detect()?;
            is_x86_feature_detected!("avx512bf16").then_some(Avx512Bf16(vnni))
        }

        /// What it implies.
        pub fn vnni(self) -> Avx512Vnni {
            self.0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalar_is_the_first_of_the_available_and_names_lead_back() {
        let available: Vec<Isa> = Isa::available().collect();
        assert_eq!(available[0], Isa::Scalar);
        assert!(available.is_sorted());
        for isa in available {
            assert_eq!(Isa::by_name(isa.name()), Ok(isa));
            assert_eq!(Isa::by_name(&isa.name().to_uppercase()), Ok(isa));
        }
    }

    #[test]
    fn an_unknown_name_is_an_error_that_lists_what_this_machine_has() {
        let error = Isa::by_name("sse9").expect_err("there is no such set");
        let words = error.to_string();
        assert!(matches!(error, IsaError::Unknown { .. }));
        assert!(words.contains("FULCRUM_ISA=sse9"), "{words}");
        assert!(words.contains("scalar"), "{words}");
    }

    #[test]
    fn a_set_that_this_machine_lacks_is_an_error_and_not_a_silent_fallback() {
        for name in Isa::NAMES {
            match Isa::by_name(name) {
                Ok(isa) => assert!(Isa::available().any(|available| available == isa)),
                Err(error) => assert!(matches!(error, IsaError::Unavailable { .. })),
            }
        }
    }
}
