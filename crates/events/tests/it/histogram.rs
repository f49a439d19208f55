//! Property tests of the histogram: the error bound, and that splitting, merging and subtracting
//! lose nothing.

use proptest::prelude::*;
use tiersmith_events::{Histogram, HistogramError};

const HOUR_NS: u64 = 3_600_000_000_000;

/// Durations of every size, as many small as large ones.
fn waits() -> impl Strategy<Value = u64> {
    (0u32..42, any::<u64>()).prop_map(|(bits, value)| value % (1u64 << bits).max(1))
}

fn histogram_of(values: &[u64]) -> Histogram {
    let mut histogram = Histogram::new();
    for value in values {
        histogram.record(*value);
    }
    histogram
}

/// The value of nearest rank, from the values themselves.
fn exact_quantile(values: &[u64], q: f64) -> u64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted[((q * sorted.len() as f64).ceil() as usize).max(1) - 1]
}

proptest! {
    #[test]
    fn a_quantile_is_within_one_128th_of_the_exact_one(
        values in prop::collection::vec(waits(), 1..200), q in 0.0f64..=1.0
    ) {
        let found = histogram_of(&values).quantile_ns(q).unwrap();
        let exact = exact_quantile(&values, q);
        prop_assert!(found.abs_diff(exact) * 128 <= exact, "found {found}, exact {exact}");
    }

    #[test]
    fn count_sum_and_maximum_are_exact(values in prop::collection::vec(waits(), 1..200)) {
        let histogram = histogram_of(&values);
        prop_assert_eq!(histogram.count(), values.len() as u64);
        prop_assert_eq!(histogram.total_ns(), values.iter().sum::<u64>());
        prop_assert_eq!(histogram.max_ns(), values.iter().max().copied());
    }

    #[test]
    fn the_minimum_is_at_most_one_64th_too_small(values in prop::collection::vec(waits(), 1..200)) {
        let (found, exact) = (histogram_of(&values).min_ns().unwrap(),
        *values.iter().min().unwrap());
        prop_assert!(found <= exact && (exact - found) * 64 <= exact, "found {found}, exact \
            {exact}");
    }

    #[test]
    fn every_value_lies_in_a_bucket_no_wider_than_one_64th(value in waits()) {
        let histogram = histogram_of(&[value]);
        let bucket = histogram.buckets().next().unwrap();
        prop_assert!(bucket.low_ns <= value && value < bucket.end_ns);
        let wide = bucket.end_ns - bucket.low_ns;
        prop_assert!(wide == 1 || wide * 64 <= bucket.low_ns);
    }

    #[test]
    fn powers_of_two_of_a_microsecond_are_counted_exactly(
        values in prop::collection::vec(waits(), 1..200),
    ) {
        let rows = histogram_of(&values).powers_of_two_us();
        let mut below_us = 1;
        for row in 0..rows.len() {
            let exact = values.iter().filter(|value| **value < below_us * 1_000).count() as u64;
            prop_assert_eq!(rows[..=row].iter().sum::<u64>(), exact, "below {} us", below_us);
            below_us *= 2;
        }
        prop_assert_eq!(rows.iter().sum::<u64>(), values.len() as u64);
    }

    #[test]
    fn merging_the_parts_gives_the_whole(
        a in prop::collection::vec(waits(), 0..100), b in prop::collection::vec(waits(), 0..100)
    ) {
        let mut merged = histogram_of(&a);
        merged.merge(&histogram_of(&b));
        prop_assert_eq!(merged, histogram_of(&[a, b].concat()));
    }

    #[test]
    fn a_difference_has_the_counts_of_what_came_between(
        a in prop::collection::vec(waits(), 0..100), b in prop::collection::vec(waits(), 0..100)
    ) {
        let difference = histogram_of(&[a.clone(), b.clone()].concat()).since(&histogram_of(&a));
        let between = histogram_of(&b);
        prop_assert!(difference.buckets().eq(between.buckets()));
        prop_assert_eq!(difference.total_ns(), between.total_ns());
        let (found, exact) = (difference.max_ns().unwrap_or(0), between.max_ns().unwrap_or(0));
        prop_assert!(found >= exact && (found - exact) * 64 <= exact, "found {}, exact {}", found,
        exact);
    }

    #[test]
    fn buckets_written_and_read_again_are_the_same_histogram(
        values in prop::collection::vec(waits(), 0..100),
    ) {
        let histogram = histogram_of(&values);
        let buckets: Vec<(u64, u64)> = histogram.buckets().map(|bucket| (bucket.low_ns,
        bucket.count)).collect();
        let again = Histogram::from_buckets(buckets, histogram.total_ns(),
        histogram.max_ns().unwrap_or(0)).unwrap();
        prop_assert_eq!(again, histogram);
    }
}

#[test]
fn an_empty_histogram_has_no_mean_no_quantile_and_no_extremes() {
    let empty = Histogram::new();
    assert_eq!(
        (empty.count(), empty.quantile_ns(0.5), empty.min_ns(), empty.max_ns()),
        (0, None, None, None)
    );
    assert!(empty.mean_ns().is_none());
    assert!(empty.powers_of_two_us().is_empty());
}

#[test]
fn an_hour_has_a_bucket_of_its_own() {
    let histogram = histogram_of(&[HOUR_NS]);
    let bucket = histogram.buckets().next().unwrap();
    assert!(bucket.low_ns <= HOUR_NS && HOUR_NS < bucket.end_ns);
}

#[test]
fn a_wait_beyond_the_range_is_counted_and_its_length_kept() {
    let histogram = histogram_of(&[u64::MAX / 4]);
    assert_eq!((histogram.count(), histogram.max_ns()), (1, Some(u64::MAX / 4)));
    assert_eq!(histogram.quantile_ns(1.0), Some(u64::MAX / 4));
    assert_eq!(histogram.since(&Histogram::new()), histogram);
}

#[test]
fn a_bucket_that_begins_between_borders_is_refused_with_the_border() {
    let error = Histogram::from_buckets([(8_001, 1)], 8_001, 8_001).unwrap_err();
    assert_eq!(error, HistogramError::NotABorder { low_ns: 8_001, border_ns: 8_000 });
    assert!(error.to_string().contains("8001 ns is not the lower border"));
    let error = Histogram::from_buckets([(1, u64::MAX), (2, 1)], 0, 0).unwrap_err();
    assert_eq!(error, HistogramError::TooMany);
}
