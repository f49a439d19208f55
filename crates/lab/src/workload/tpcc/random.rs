//! Chance as the specification wants it (clauses 2.1.6 and 4.3.2).

use fastrand::Rng;

/// The syllables that last names are made of.
const SYLLABLES: [&str; 10] =
    ["BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"];
/// `A` of NURand for last names, customers and items.
const LAST: u32 = 255;
const CUSTOMER: u32 = 1023;
const ITEM: u32 = 8191;
/// Last names there are.
pub(super) const NAMES: u32 = 1000;

/// A generator with the constants `C` of a run.
pub(super) struct Random {
    rng: Rng,
    last: u32,
    customer: u32,
    item: u32,
}

impl Random {
    /// Of one session or one part of the tables; the constants are those of the seed alone.
    ///
    /// The constant for last names may be another when the tables are loaded than in a run, but not
    /// any other (clause 2.1.6.1): here it is the same in both.
    pub(super) fn new(seed: u64, part: u64) -> Random {
        let mut of_seed = Rng::with_seed(seed ^ 0x7063_6300);
        let (last, customer, item) =
            (of_seed.u32(..=LAST), of_seed.u32(..=CUSTOMER), of_seed.u32(..=ITEM));
        let rng = Rng::with_seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ part.rotate_left(24));
        Random { rng, last, customer, item }
    }

    /// Uniform, both ends included.
    pub(super) fn number(&mut self, from: u32, to: u32) -> u32 {
        self.rng.u32(from..=to.max(from))
    }

    /// Whether something happens that happens so many times in a hundred.
    pub(super) fn percent(&mut self, share: u32) -> bool {
        self.number(1, 100) <= share
    }

    fn uneven(&mut self, a: u32, c: u32, from: u32, to: u32) -> u32 {
        let either = self.number(0, a) | self.number(from, to);
        (either + c) % (to - from + 1) + from
    }

    /// An item.
    pub(super) fn item(&mut self, items: u32) -> u32 {
        let c = self.item;
        self.uneven(ITEM, c, 1, items)
    }

    /// A customer of a district.
    pub(super) fn customer(&mut self, customers: u32) -> u32 {
        let c = self.customer;
        self.uneven(CUSTOMER, c, 1, customers)
    }

    /// The last name of one customer of a district or more; every name up to the last is
    /// somebody's.
    pub(super) fn last_name(&mut self, customers: u32) -> String {
        let c = self.last;
        last_name(self.uneven(LAST, c, 0, customers.min(NAMES) - 1))
    }

    /// Letters and digits.
    pub(super) fn letters(&mut self, least: u32, most: u32) -> String {
        (0..self.number(least, most)).map(|_| self.rng.alphanumeric()).collect()
    }

    /// Digits.
    pub(super) fn digits(&mut self, count: u32) -> String {
        (0..count).map(|_| char::from(b'0' + self.rng.u8(..10))).collect()
    }

    /// Letters with ORIGINAL among them in one of ten.
    pub(super) fn data(&mut self) -> String {
        let mut text = self.letters(26, 50);
        if self.percent(10) {
            let at = self.rng.usize(..=text.len() - 8);
            text.replace_range(at..at + 8, "ORIGINAL");
        }
        text
    }

    /// Mixes a list up.
    pub(super) fn shuffle<T>(&mut self, list: &mut [T]) {
        self.rng.shuffle(list);
    }

    /// A time with so many seconds as its mean, negative exponential, ten means at most.
    pub(super) fn think_s(&mut self, mean_s: f64) -> f64 {
        (-(1.0 - self.rng.f64()).ln() * mean_s).min(10.0 * mean_s)
    }
}

/// The last name of this number: three syllables, by its digits.
pub(super) fn last_name(number: u32) -> String {
    let syllable = |digit: u32| SYLLABLES[digit as usize % SYLLABLES.len()];
    [number / 100, number / 10, number].map(syllable).concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_made_of_the_digits_of_its_number() {
        assert_eq!(last_name(371), "PRICALLYOUGHT");
        assert_eq!(last_name(40), "BARPRESBAR");
        assert_eq!(last_name(999), "EINGEINGEING");
    }

    #[test]
    fn uneven_choices_stay_in_their_range_and_some_come_more_often() {
        let mut random = Random::new(7, 1);
        let mut seen = vec![0u32; 1001];
        for _ in 0..100_000 {
            seen[random.item(1000) as usize] += 1;
        }
        assert_eq!(seen[0], 0);
        let most = seen.iter().max().copied().unwrap_or(0);
        assert!(most > 200, "uniform would be 100 each: {most}");
    }

    #[test]
    fn the_same_seed_and_part_draw_the_same_and_another_part_draws_others() {
        let draw = |seed, part| {
            let mut random = Random::new(seed, part);
            (0..8).map(|_| random.customer(3000)).collect::<Vec<_>>()
        };
        assert_eq!(draw(1, 2), draw(1, 2));
        assert_ne!(draw(1, 2), draw(1, 3));
        assert_ne!(draw(1, 2), draw(2, 2));
    }
}
