//! The requests of a level's steady window, and what they have in common.

use crate::stats::{CONFIDENCE, share_interval};
use crate::summary::{CacheShare, Figure};

use super::book::{Answer, Book, Failure};
use super::figure::{Missing, figure_of};
use super::gaps::Pool;
use super::window::Window;

/// What a distribution is of.
pub(super) type ValueOf = fn(&Answer) -> Option<f64>;

/// The requests of a level that were asked for in its window: of one class, or of all.
pub(super) struct View<'a> {
    /// In the order in which they were asked for.
    pub answers: Vec<&'a Answer>,
    pub failures: Vec<&'a Failure>,
    /// Requests that were due and never sent.
    num_dropped: usize,
    /// How many requests each of them stands for.
    pub answer_weight: f64,
    pub failure_weight: f64,
    dropped_weight: f64,
}

impl<'a> View<'a> {
    pub fn of(book: &'a Book, window: &Window, class: Option<usize>) -> View<'a> {
        let is_in = |of: usize, due, sent| {
            class.is_none_or(|class| class == of) && window.holds(book.asked(due, sent))
        };
        let answers = book.answers.kept().iter();
        let mut answers: Vec<&Answer> = answers
            .filter(|Answer { row, .. }| is_in(usize::from(row.class.0), row.due, row.sent))
            .collect();
        answers.sort_by(|left, right| {
            let asked = |answer: &Answer| book.asked(answer.row.due, answer.row.sent);
            asked(left).total_cmp(&asked(right))
        });
        let failures = book.failures.kept().iter();
        let dropped = book.dropped.kept().iter();
        let dropped = dropped.filter(|dropped| is_in(dropped.class, dropped.due, dropped.due));
        View {
            num_dropped: dropped.count(),
            answers,
            failures: failures
                .filter(|failure| is_in(failure.class, failure.due, failure.sent))
                .collect(),
            answer_weight: book.answers.weight(),
            failure_weight: book.failures.weight(),
            dropped_weight: book.dropped.weight(),
        }
    }

    /// Whole answers that were asked for in the window.
    pub fn answers(&self) -> impl Iterator<Item = &Answer> {
        self.answers.iter().copied()
    }

    pub fn figure(&self, value: impl Fn(&Answer) -> Option<f64>) -> Figure {
        let values: Vec<f64> = self
            .answers
            .iter()
            .filter_map(|answer| value(answer))
            .collect();
        figure_of(&values, self.missing())
    }

    /// Of all requests, however they ended.
    pub fn figure_of_all(
        &self,
        of_answer: impl Fn(&Answer) -> Option<f64>,
        of_failure: impl Fn(&Failure) -> Option<f64>,
    ) -> Figure {
        let answers = self.answers.iter();
        let answers = answers.filter_map(|answer| Some((answer.row.sent, of_answer(answer)?)));
        let failures = self.failures.iter();
        let failures = failures.filter_map(|failure| Some((failure.sent, of_failure(failure)?)));
        let mut values: Vec<(f64, f64)> = answers.chain(failures).collect();
        values.sort_by(|left, right| left.0.total_cmp(&right.0));
        let values: Vec<f64> = values.into_iter().map(|(_, value)| value).collect();
        figure_of(&values, Missing::default())
    }

    pub fn pool(&self) -> Pool<'_> {
        Pool::of(self.answers.iter().map(|answer| &answer.row.gaps))
    }

    pub fn num_cancelled(&self) -> f64 {
        let cancelled = self.failures.iter().filter(|failure| failure.is_cancelled);
        cancelled.count() as f64 * self.failure_weight
    }

    /// What was cancelled was not waited for; what was dropped had waited longest.
    pub fn missing(&self) -> Missing {
        let missing = self.num_cancelled() + self.num_dropped as f64 * self.dropped_weight;
        let all = missing + self.answers.len() as f64 * self.answer_weight;
        Missing(if all > 0.0 { missing / all } else { 0.0 })
    }

    /// Good over attempted, and its interval.
    pub fn attainment(&self) -> Option<(f64, [f64; 2])> {
        let num_good = self.answers.iter().filter(|answer| answer.is_good).count();
        let failed = self.failures.iter().filter(|failure| !failure.is_cancelled);
        let num_failed = failed.count();
        let good = num_good as f64 * self.answer_weight;
        let attempted = self.answers.len() as f64 * self.answer_weight
            + num_failed as f64 * self.failure_weight
            + self.num_dropped as f64 * self.dropped_weight;
        let share = (attempted > 0.0).then(|| good / attempted)?;
        let num_attempted = (self.answers.len() + num_failed + self.num_dropped) as u64;
        let num = (share * num_attempted as f64).round() as u64;
        Some((share, share_interval(num, num_attempted, CONFIDENCE)?))
    }

    /// From sent to the end, whatever came of it; none of nothing.
    pub fn mean_time(&self) -> Option<f64> {
        let answers = self
            .answers
            .iter()
            .map(|answer| answer.row.ended - answer.row.sent);
        let failures = self
            .failures
            .iter()
            .map(|failure| failure.ended - failure.sent);
        let time =
            answers.sum::<f64>() * self.answer_weight + failures.sum::<f64>() * self.failure_weight;
        let num = self.answers.len() as f64 * self.answer_weight
            + self.failures.len() as f64 * self.failure_weight;
        (num > 0.0).then(|| time / num)
    }

    /// Prompt tokens found in a cache, measured and declared.
    pub fn cache(&self, declared_of: impl Fn(usize) -> Option<f64>) -> Option<CacheShare> {
        let (mut prompt, mut cached, mut shared) = (0.0, 0.0, Some(0.0));
        let mut is_told = false;
        for Answer { row, .. } in &self.answers {
            let Some(num_prompt) = row.num_prompt else {
                continue;
            };
            prompt += num_prompt as f64;
            is_told |= row.num_cached.is_some();
            // Servers leave it out where it is 0.
            cached += row.num_cached.unwrap_or(0) as f64;
            let of_row = row.num_prompt_wanted.filter(|&wanted| wanted > 0);
            let of_row = of_row.map(|wanted| row.num_prompt_shared as f64 / wanted as f64);
            let share = declared_of(usize::from(row.class.0)).or(of_row);
            shared = shared
                .zip(share)
                .map(|(sum, share)| sum + share * num_prompt as f64);
        }
        (is_told && prompt > 0.0).then(|| CacheShare {
            declared: shared.map(|shared| shared / prompt),
            measured: cached / prompt,
        })
    }
}
