//! Which images of a cut to look at: all of them when they are few, else a sample with the likely
//! culprits first.
//!
//! The sample, in order: nothing arrived; everything; each line alone; everything but one line; the
//! first lines in the order they were stored; the last lines; then random ones, where each line is
//! absent, whole, or torn by word. With many lines each group is itself a random selection. About
//! half of a large budget goes to the random ones. A sector of a device counts as a line of its
//! own, which is never torn.
//!
//! Invariants: never more than asked for; the same seed and pending words give the same images.

use fastrand::Rng;

use super::player::PendingWord;
use crate::LINE;

/// For each pending word, and then each pending sector, what it shows: 0 its durable value, n its
/// nth version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Choice {
    pub(crate) versions: Vec<u16>,
}

impl Choice {
    /// Per pending word, and then per pending sector: 0 its durable value, n its nth version.
    pub fn versions(&self) -> &[u16] {
        &self.versions
    }
}

/// The choices to look at, one after the other.
#[derive(Clone, Debug)]
pub struct Images {
    /// Versions of each word, and then of each sector.
    counts: Vec<u16>,
    plan: Plan,
    left: usize,
}

#[derive(Clone, Debug)]
enum Plan {
    /// The next choice, until every digit has run over.
    Every(Option<Vec<u16>>),
    Sample(Sample),
}

#[derive(Clone, Debug)]
struct Sample {
    rng: Rng,
    /// The words of each line, lines in the order of their first word; then each sector.
    lines: Vec<Vec<u32>>,
    /// Shapes still to give, last first; when none is left, random ones.
    shapes: Vec<Shape>,
}

#[derive(Clone, Copy, Debug)]
enum Shape {
    Nothing,
    Everything,
    Alone(u32),
    Without(u32),
    First(u32),
    Last(u32),
}

impl Images {
    /// `counts` has the versions of `words` and then those of each pending sector.
    pub(crate) fn new(words: &[PendingWord], counts: Vec<u16>, max: usize, seed: u64) -> Images {
        let all = counts
            .iter()
            .try_fold(1_usize, |product, &count| product.checked_mul(usize::from(count) + 1));
        let plan = match all {
            Some(all) if all <= max => Plan::Every(Some(vec![0; counts.len()])),
            _ => Plan::Sample(Sample::new(words, counts.len(), max, seed)),
        };
        Images { counts, plan, left: max }
    }

    /// Whether these are all images there are.
    pub fn is_exhaustive(&self) -> bool {
        matches!(self.plan, Plan::Every(_))
    }

    /// As `next`, into a choice of the caller's, without allocating; false when there is none left.
    pub fn next_into(&mut self, choice: &mut Choice) -> bool {
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        match &mut self.plan {
            Plan::Every(next) => {
                let Some(digits) = next else { return false };
                choice.versions.clone_from(digits);
                let done = digits.iter_mut().zip(&self.counts).all(|(digit, &count)| {
                    let over = *digit == count;
                    *digit = if over { 0 } else { *digit + 1 };
                    over
                });
                if done {
                    *next = None;
                }
            }
            Plan::Sample(sample) => sample.next_into(&self.counts, &mut choice.versions),
        }
        true
    }
}

impl Iterator for Images {
    type Item = Choice;

    fn next(&mut self) -> Option<Choice> {
        let mut choice = Choice::default();
        self.next_into(&mut choice).then_some(choice)
    }
}

impl Sample {
    fn new(words: &[PendingWord], places: usize, max: usize, seed: u64) -> Sample {
        let mut rng = Rng::with_seed(seed);
        let mut lines: Vec<Vec<u32>> = Vec::new();
        let mut known = std::collections::HashMap::new();
        for (index, word) in words.iter().enumerate() {
            let line = *known.entry((word.mapping, word.at / LINE as u64)).or_insert_with(|| {
                lines.push(Vec::new());
                lines.len() - 1
            });
            lines[line].push(index as u32);
        }
        lines.extend((words.len()..places).map(|sector| vec![sector as u32]));
        let count = lines.len() as u32;
        let mut shapes = Vec::new();
        shapes.extend(some(&mut rng, 1..count, max / 16).map(Shape::Last));
        shapes.extend(some(&mut rng, 1..count, max / 8).map(Shape::First));
        shapes.extend(some(&mut rng, 0..count, max / 6).map(Shape::Without));
        shapes.extend(some(&mut rng, 0..count, max / 6).map(Shape::Alone));
        shapes.extend([Shape::Everything, Shape::Nothing]);
        Sample { rng, lines, shapes }
    }

    fn next_into(&mut self, counts: &[u16], versions: &mut Vec<u16>) {
        versions.clear();
        let Some(shape) = self.shapes.pop() else { return self.random(counts, versions) };
        let everything = matches!(shape, Shape::Everything | Shape::Without(_));
        if everything {
            versions.extend_from_slice(counts);
        } else {
            versions.resize(counts.len(), 0);
        }
        let (from, to, arrived) = match shape {
            Shape::Nothing | Shape::Everything => (0, 0, false),
            Shape::Alone(line) => (line, line + 1, true),
            Shape::Without(line) => (line, line + 1, false),
            Shape::First(lines) => (0, lines, true),
            Shape::Last(lines) => (self.lines.len() as u32 - lines, self.lines.len() as u32, true),
        };
        for &word in self.lines[from as usize..to as usize].iter().flatten() {
            versions[word as usize] = if arrived { counts[word as usize] } else { 0 };
        }
    }

    /// Each line absent, whole or torn; how likely each is differs between images, so that nearly
    /// empty and nearly whole ones come up too.
    fn random(&mut self, counts: &[u16], versions: &mut Vec<u16>) {
        versions.resize(counts.len(), 0);
        let torn_below = self.rng.u8(..) / 2;
        let absent_below = torn_below.saturating_add(self.rng.u8(..=255 - torn_below));
        for line in &self.lines {
            let die = self.rng.u8(..);
            if die < torn_below {
                // One throw for the line: as many bits for each word as a line has words.
                let mut dice = self.rng.u64(..);
                for &word in line {
                    let sides = u64::from(counts[word as usize]) + 1;
                    versions[word as usize] = (((dice & 0xff) * sides) >> 8) as u16;
                    dice = dice.rotate_right(8);
                }
            } else if die >= absent_below {
                for &word in line {
                    versions[word as usize] = counts[word as usize];
                }
            }
        }
    }
}

/// At most `most` of the numbers in `range`, in random order when they are not all.
fn some(
    rng: &mut Rng,
    range: std::ops::Range<u32>,
    most: usize,
) -> impl Iterator<Item = u32> + use<> {
    let mut numbers: Vec<u32> = range.collect();
    if numbers.len() > most {
        for index in 0..most {
            let other = rng.usize(index..numbers.len());
            numbers.swap(index, other);
        }
        numbers.truncate(most);
    }
    numbers.into_iter()
}
