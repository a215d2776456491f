//! Which level comes next.

use crate::ledger::Ledger;
use crate::load::{LevelPlan, Pace, Stop};
use crate::operating_point::{self, Criteria, next_level, next_level_for_slo};

use super::Order;

/// How much load, in which order.
#[derive(Clone, Debug, PartialEq)]
pub enum Levels {
    /// These and no others.
    Listed(Vec<LevelPlan>),
    /// A closed loop that goes on as the results say.
    Search {
        /// Users of the first levels, ascending.
        first: Vec<u32>,
        /// The end of each level.
        stop: Stop,
        /// Users, at most.
        users_max: u32,
    },
}

/// Levels of a search: enough to bracket a knee and to narrow it, few enough for a reader.
const LEVELS_MAX: usize = 14;

/// A run's levels as they come.
#[derive(Debug)]
pub(super) struct Search<'a> {
    order: &'a Order,
    tested: Vec<f64>,
}

impl<'a> Search<'a> {
    pub(super) fn new(order: &'a Order) -> Search<'a> {
        Search {
            order,
            tested: Vec::new(),
        }
    }

    /// Levels so far.
    pub(super) fn num_levels(&self) -> usize {
        self.tested.len()
    }

    pub(super) fn next(&mut self, ledger: &Ledger, now: f64) -> Option<LevelPlan> {
        let plan = match &self.order.levels {
            Levels::Listed(plans) => plans.get(self.tested.len()).cloned(),
            Levels::Search {
                first,
                stop,
                users_max,
            } => {
                let users = self.search(ledger, first, *stop, *users_max, now)?;
                Some(LevelPlan {
                    pace: Pace::Users(users),
                    stop: *stop,
                })
            }
        }?;
        self.tested.push(plan.pace.load().value());
        Some(plan)
    }

    fn search(
        &self,
        ledger: &Ledger,
        first: &[u32],
        stop: Stop,
        users_max: u32,
        now: f64,
    ) -> Option<u32> {
        let search = operating_point::Search {
            first: first.iter().map(|&users| f64::from(users)).collect(),
            load_max: f64::from(users_max),
            levels_max: LEVELS_MAX,
            level_s: stop.precision_from_s,
            budget_s: self.order.rules.budget_s.map(|budget_s| budget_s - now),
            narrow_ratio: 1.25,
        };
        let slo = &self.order.slo;
        let next = if slo.objectives.is_empty() {
            let points: Vec<_> = ledger.level_ids().map(|id| ledger.points(id)).collect();
            let seed = self.order.seed;
            next_level(&points, &self.tested, &search, &Criteria::STANDARD, seed)
        } else {
            let levels: Vec<_> = ledger.level_ids().map(|id| ledger.level(id)).collect();
            next_level_for_slo(&levels, &self.tested, slo, &search)
        };
        next.map(|next| next.load.round().max(1.0) as u32)
    }
}
