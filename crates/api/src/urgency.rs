//! What a request says about how urgent it is: OpenAI's tier, vLLM's priority, and how long its
//! sender will wait at most. What becomes of that is the server's business.

use std::time::Duration;

use crate::fields::Fields;

/// How urgent a request is, as far as its body says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Urgency {
    /// `service_tier`.
    pub service_tier: Option<ServiceTier>,
    /// vLLM's `priority`: lower goes first.
    pub priority: i32,
    /// The answer is worth nothing later than this after it was asked for.
    pub timeout: Option<Duration>,
}

/// The words of `service_tier`; `batch` is not OpenAI's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceTier {
    /// As the server sees fit.
    Auto,
    /// The same.
    Default,
    /// Somebody waits.
    Priority,
    /// It may take a while.
    Flex,
    /// Nobody waits.
    Batch,
}

/// The words, in the order of the reference.
pub(crate) const SERVICE_TIERS: &[&str] = &["auto", "default", "flex", "priority", "batch"];

impl ServiceTier {
    /// The tier of this name.
    pub fn from_word(word: &str) -> Option<ServiceTier> {
        Some(match word {
            "auto" => ServiceTier::Auto,
            "default" => ServiceTier::Default,
            "priority" => ServiceTier::Priority,
            "flex" => ServiceTier::Flex,
            "batch" => ServiceTier::Batch,
            _ => return None,
        })
    }
}

impl Urgency {
    /// Reads the fields, which are within the table's bounds.
    pub(crate) fn read(fields: &Fields) -> Urgency {
        let priority = fields.integer("priority").unwrap_or(0);
        let tier = fields.text("service_tier");
        Urgency {
            service_tier: tier.and_then(ServiceTier::from_word),
            priority: i32::try_from(priority).expect("the table bounds it"),
            timeout: fields.number("timeout").map(Duration::from_secs_f64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_of_the_table_is_a_tier() {
        for word in SERVICE_TIERS {
            assert!(ServiceTier::from_word(word).is_some(), "{word}");
        }
        assert_eq!(ServiceTier::from_word("scale"), None);
    }
}
