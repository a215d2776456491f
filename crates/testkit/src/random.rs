//! Seeded randomness for test data: SplitMix64 (Steele, Lea, Flood 2014), the same on every machine for ever.

/// A generator whose whole future follows from its seed.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// Starts from a seed.
    pub fn new(seed: u64) -> Random {
        Random { state: seed }
    }

    /// Starts from a seed and a name, so that adding a tensor to a model leaves all others as they were.
    pub fn named(seed: u64, name: &str) -> Random {
        // FNV-1a.
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        Random::new(seed ^ hash)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which must not be 0.
    pub fn below(&mut self, bound: usize) -> usize {
        assert!(bound > 0, "nothing is below 0");
        (self.bits() % bound as u64) as usize
    }

    /// `len` random bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.bits() as u8).collect()
    }

    /// Uniform in `0.0..1.0`.
    pub fn uniform(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1u64 << 24) as f32
    }

    /// About normal, mean 0, deviation 1: the sum of twelve uniforms, which needs no library function whose last
    /// bit differs between machines.
    pub fn normal(&mut self) -> f32 {
        (0..12).map(|_| self.uniform()).sum::<f32>() - 6.0
    }

    /// `len` normals of deviation `deviation`.
    pub fn normals(&mut self, len: usize, deviation: f32) -> Vec<f32> {
        (0..len).map(|_| self.normal() * deviation).collect()
    }
}
