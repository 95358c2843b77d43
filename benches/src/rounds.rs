//! Measuring several loads against each other: in turns, round after round, so that whatever else the machine does falls on
//! all of them. What the figures are held to is `report`'s.

use std::time::Duration;

use crate::load::{Load, Round};

/// How long and how often is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) rounds: usize,
    pub(crate) time: Duration,
}

/// The rounds of one load.
pub(crate) struct Figures(Vec<Round>);

/// Runs the loads in turns, every other round backwards.
pub(crate) async fn compare<const N: usize>(plan: Plan, loads: [&Load; N]) -> anyhow::Result<[Figures; N]> {
    let mut figures = [const { Figures(Vec::new()) }; N];
    for round in 0..plan.rounds {
        let mut order: Vec<usize> = (0..N).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for index in order {
            figures[index].0.push(loads[index].round(plan.time).await?);
        }
    }
    Ok(figures)
}

impl Figures {
    /// Calls a second.
    pub(crate) fn rate(&self) -> f64 {
        median(self.0.iter().map(|round| round.per_second))
    }

    /// Microseconds of processor time of the watched process for a call, over all rounds: a clock tick is long.
    pub(crate) fn cpu(&self) -> f64 {
        self.mean_cpu(|round| round.cpu)
    }

    /// The same of the generator.
    pub(crate) fn own_cpu(&self) -> f64 {
        self.mean_cpu(|round| round.own_cpu)
    }

    fn mean_cpu(&self, of: impl Fn(&Round) -> Duration) -> f64 {
        let calls: u64 = self.0.iter().map(|round| round.calls).sum();
        let total: f64 = self.0.iter().map(|round| micros(of(round)) * round.calls as f64).sum();
        total / calls.max(1) as f64
    }

    /// The median call, in microseconds.
    pub(crate) fn median(&self) -> f64 {
        median(self.0.iter().map(|round| micros(round.median)))
    }

    /// The call that 99 of 100 are faster than, in microseconds.
    pub(crate) fn p99(&self) -> f64 {
        median(self.0.iter().map(|round| micros(round.p99)))
    }

    /// How many times as many calls a second as another load: the median of the rounds' ratios.
    pub(crate) fn rate_over(&self, other: &Self) -> f64 {
        median(self.0.iter().zip(&other.0).map(|(ours, theirs)| ours.per_second / theirs.per_second))
    }
}

pub(crate) fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

/// The middle one; of an even number the mean of the middle two.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        length if length % 2 == 1 => values[length / 2],
        length => f64::midpoint(values[length / 2 - 1], values[length / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(per_second: f64, cpu: u64, calls: u64) -> Round {
        let cpu = Duration::from_micros(cpu);
        Round { calls, per_second, cpu, own_cpu: cpu, median: cpu, p99: cpu }
    }

    #[test]
    fn medians() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0].into_iter()), 2.5);
        assert!(median(std::iter::empty()).is_nan());
    }

    #[test]
    fn ratios_are_taken_round_by_round_and_processor_time_over_all_calls() {
        let ours = Figures(vec![round(10.0, 1, 1), round(100.0, 3, 3), round(30.0, 1, 1)]);
        let theirs = Figures(vec![round(1.0, 1, 1), round(5.0, 1, 1), round(10.0, 1, 1)]);
        assert_eq!(ours.rate_over(&theirs), 10.0);
        assert_eq!(ours.cpu(), 11.0 / 5.0);
    }
}
