//! The random numbers of CPython's `random.Random(seed)`, so that a seed gives the same schedule here and there
//! (contract 7.4).

use rand_mt::Mt;

/// Most decimal digits of a seed.
pub(crate) const MAX_SEED_DIGITS: usize = 4_300;

/// A seed: an integer of any size and sign. Its sign does not matter, as in CPython.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seed(Vec<u32>);

impl Seed {
    /// From decimal digits with or without a sign; none for anything else, or more than [`MAX_SEED_DIGITS`].
    pub(crate) fn from_decimal(text: &str) -> Option<Self> {
        let digits = text.strip_prefix('-').unwrap_or(text);
        if digits.is_empty() || digits.len() > MAX_SEED_DIGITS {
            return None;
        }
        // Least significant word first.
        let mut words: Vec<u32> = vec![0];
        for digit in digits.bytes() {
            let mut carry = u64::from(digit.is_ascii_digit().then(|| digit - b'0')?);
            for word in &mut words {
                let value = u64::from(*word) * 10 + carry;
                *word = value as u32;
                carry = value >> 32;
            }
            if carry > 0 {
                words.push(carry as u32);
            }
        }
        Some(Self(words))
    }
}

/// A generator in some state.
#[derive(Debug, Clone)]
pub(crate) struct Random(Mt);

impl Random {
    /// As `random.Random(seed)` starts.
    pub(crate) fn new(seed: &Seed) -> Self {
        Self(Mt::new_with_key(seed.0.iter().copied()))
    }

    /// `random()`: from 0 up to 1, with 53 bits.
    fn unit(&mut self) -> f64 {
        let high = f64::from(self.0.next_u32() >> 5);
        let low = f64::from(self.0.next_u32() >> 6);
        (high * 67_108_864.0 + low) / 9_007_199_254_740_992.0
    }

    /// `expovariate(1 / mean)`: a random gap, in the unit of the mean.
    pub(crate) fn exponential(&mut self, mean: f64) -> f64 {
        -(1.0 - self.unit()).ln() / (1.0 / mean)
    }
}

/// Seconds as microseconds, rounded as CPython's `timedelta` does: the fraction to the nearest, a half to the even sum.
/// None when it is more than an `i64` holds.
pub(crate) fn micros_from_seconds(seconds: f64) -> Option<i64> {
    let whole = seconds.trunc() * 1e6;
    if !seconds.is_finite() || whole.abs() > 9e18 {
        return None;
    }
    let fraction = seconds.fract() * 1e6;
    let sum = whole as i64 + fraction.trunc() as i64;
    let rest = fraction.fract();
    let up = match rest.abs().partial_cmp(&0.5) {
        Some(std::cmp::Ordering::Greater) => true,
        Some(std::cmp::Ordering::Equal) => sum % 2 != 0,
        _ => false,
    };
    sum.checked_add(if up { rest.signum() as i64 } else { 0 })
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// Schedules of CPython 3.11: seed, mean in seconds, and the running sum of the gaps in microseconds.
    #[test]
    fn schedules_are_those_of_cpython() {
        let table: Value = serde_json::from_str(include_str!("../../tests/data/python_random.json")).unwrap();
        let rows = table.as_array().unwrap();
        assert!(rows.len() >= 100);
        for row in rows {
            let seed = row["seed"].as_str().unwrap();
            let mean = row["mean"].as_f64().unwrap();
            let mut random = Random::new(&Seed::from_decimal(seed).unwrap());
            let mut at = 0;
            for want in row["marks"].as_array().unwrap() {
                at += micros_from_seconds(random.exponential(mean)).unwrap();
                assert_eq!(Some(at), want.as_i64(), "seed {seed}, mean {mean}");
            }
        }
    }

    #[test]
    fn what_is_not_a_seed() {
        for text in ["", "-", "1.0", "+1", "1e3", "0x1", " 1", "--1"] {
            assert_eq!(Seed::from_decimal(text), None, "{text}");
        }
        assert_eq!(Seed::from_decimal(&"9".repeat(MAX_SEED_DIGITS + 1)), None);
        assert_eq!(Seed::from_decimal("4294967296"), Some(Seed(vec![0, 1])));
        assert_eq!(Seed::from_decimal("-5"), Seed::from_decimal("5"));
        assert_eq!(Seed::from_decimal("0"), Some(Seed(vec![0])));
    }

    #[test]
    fn halves_go_to_the_even_microsecond() {
        for (seconds, micros) in [
            (0.0000005, 0),
            (0.0000015, 2),
            (0.0000025, 2),
            (1.0000005, 1_000_001),
            (0.123_456_7, 123_457),
            (3600.0, 3_600_000_000),
        ] {
            assert_eq!(micros_from_seconds(seconds), Some(micros), "{seconds}");
        }
        assert_eq!(micros_from_seconds(f64::INFINITY), None);
        assert_eq!(micros_from_seconds(1e18), None);
    }
}
