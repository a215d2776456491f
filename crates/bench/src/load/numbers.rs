//! Which conversations a level asks: by its load, so that two runs ask the same at the same load, in whatever order; and
//! by how often that load came before, so that no level asks what another did. A replay begins at the beginning.
//!
//! ```text
//! bits 37..40: how often before | bits 20..37: the load | bits 0..20: the conversation
//! ```

use super::conduct::Pace;
use crate::arrival::Process;

/// The loads of a run so far.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    before: Vec<Option<u64>>,
}

impl Numbers {
    /// The first conversation of the next level.
    pub(super) fn first_of(&mut self, pace: &Pace) -> u64 {
        let key = load_key(pace);
        let num_before = self.before.iter().filter(|&&before| before == key).count() as u64;
        self.before.push(key);
        key.map_or(0, |load| (num_before % 8) << 37 | load << 20)
    }
}

/// A load in 17 bits: users, or hundredths of a request a second.
fn load_key(pace: &Pace) -> Option<u64> {
    match pace {
        Pace::Users(users) => Some(u64::from(*users) % (1 << 16)),
        Pace::Arrivals(Process::Replay { .. }) => None,
        Pace::Arrivals(process) => {
            let rate = process.mean_rate().unwrap_or(0.0);
            Some((1 << 16) + (rate * 100.0).round() as u64 % (1 << 16))
        }
    }
}
