//! From the hidden states of a prompt to one vector.
//!
//! The one idea: a mean is a sum in the order of positions, each added once, in numbers so wide
//! that no chunk, preemption or neighbour can show: position `n` is added when exactly those
//! before it were, and what is computed again after a preemption is passed over.
//!
//! Not here: a vector's length (a front normalises it), or which rows are computed (`sched`).

use sched::PromptRows;

use crate::request::Pooling;

/// The vector of one prompt in the making.
#[derive(Debug)]
pub(crate) struct Pool {
    pooling: Pooling,
    /// Of a mean the sums so far; of the last token nothing, then its state.
    sums: Vec<f64>,
    /// Leading positions that `sums` has.
    num_added: usize,
}

/// Why there is no vector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PoolError {
    /// Weights or a forward pass gone wrong.
    #[error("value {value_idx} of the {hidden} of an embedding is no finite number")]
    NoNumber { value_idx: usize, hidden: usize },
}

impl Pool {
    pub(crate) fn new(pooling: Pooling) -> Pool {
        Pool {
            pooling,
            sums: Vec::new(),
            num_added: 0,
        }
    }

    /// Which states it needs.
    pub(crate) fn prompt_rows(&self) -> PromptRows {
        match self.pooling {
            Pooling::Mean => PromptRows::EachState,
            Pooling::Last => PromptRows::Last,
        }
    }

    /// Takes the state of `position` of a prompt of `num_prompt` tokens.
    pub(crate) fn add(&mut self, position: usize, num_prompt: usize, state: &[f32]) {
        let is_wanted = match self.pooling {
            Pooling::Mean => position == self.num_added,
            Pooling::Last => position + 1 == num_prompt,
        };
        if !is_wanted {
            return;
        }
        self.sums.resize(state.len(), 0.0);
        for (sum, &value) in self.sums.iter_mut().zip(state) {
            *sum += f64::from(value);
        }
        self.num_added += 1;
    }

    /// The vector, once the last position was added.
    pub(crate) fn vector(&self, num_prompt: usize) -> Result<Vec<f32>, PoolError> {
        let num_wanted = match self.pooling {
            Pooling::Mean => num_prompt,
            Pooling::Last => 1,
        };
        assert_eq!(self.num_added, num_wanted, "a position is missing or twice");
        let hidden = self.sums.len();
        let vector: Vec<f32> = self
            .sums
            .iter()
            .map(|sum| (sum / num_wanted as f64) as f32)
            .collect();
        match vector.iter().position(|value| !value.is_finite()) {
            None => Ok(vector),
            Some(value_idx) => Err(PoolError::NoNumber { value_idx, hidden }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_adds_each_position_once_however_often_it_is_computed() {
        let mut pool = Pool::new(Pooling::Mean);
        for position in [0, 1, 0, 1, 2, 1, 2, 3] {
            pool.add(position, 4, &[position as f32, 1.0]);
        }
        assert_eq!(pool.vector(4), Ok(vec![1.5, 1.0]));
    }

    #[test]
    fn the_last_token_is_its_state_to_the_bit() {
        let mut pool = Pool::new(Pooling::Last);
        pool.add(0, 2, &[9.0, 9.0]);
        pool.add(1, 2, &[0.1, -0.0]);
        let bits = |values: &[f32]| values.iter().map(|it| it.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&pool.vector(2).unwrap())[0], 0.1f32.to_bits());
    }

    #[test]
    fn what_is_no_number_is_an_error_and_no_vector() {
        let mut pool = Pool::new(Pooling::Mean);
        pool.add(0, 1, &[1.0, f32::NAN]);
        let expected = PoolError::NoNumber {
            value_idx: 1,
            hidden: 2,
        };
        assert_eq!(pool.vector(1), Err(expected));
    }

    #[test]
    #[should_panic(expected = "a position is missing")]
    fn a_mean_of_part_of_a_prompt_is_never_told() {
        let mut pool = Pool::new(Pooling::Mean);
        pool.add(0, 2, &[1.0]);
        drop(pool.vector(2));
    }
}
