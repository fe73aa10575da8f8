//! Histograms of Statistics.db: sizes in exponential buckets, tombstones over time.

use codec::{Reader, Writer};

use crate::{Result, Version};

/// Counts in buckets that grow by 1.2. Source: `utils.EstimatedHistogram`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EstimatedHistogram {
    /// Upper bounds (inclusive) of all buckets but the last.
    pub offsets: Vec<u64>,
    /// One count more than offsets; the last is that of values beyond.
    pub buckets: Vec<u64>,
}

/// Most buckets accepted; Cassandra writes 156 and 119.
const BUCKETS_MAX: usize = 4096;

impl EstimatedHistogram {
    /// With that many bounds: 155 for partition sizes, 118 for cells per partition.
    pub fn new(count: usize) -> EstimatedHistogram {
        let mut offsets = Vec::with_capacity(count);
        let mut last = 1u64;
        for _ in 0..count {
            offsets.push(last);
            // Math.round(last * 1.2), in integers: floor(last * 1.2 + 0.5).
            let next = u128::from(last).saturating_mul(12).saturating_add(5) / 10;
            let next = u64::try_from(next).unwrap_or(u64::MAX);
            last = next.max(last.saturating_add(1));
        }
        EstimatedHistogram { buckets: vec![0; count.saturating_add(1)], offsets }
    }

    /// Counts a value.
    pub fn add(&mut self, value: u64) {
        self.add_times(value, 1);
    }

    /// Counts a value that many times.
    pub fn add_times(&mut self, value: u64, times: u64) {
        let index = self.bucket_of(value);
        self.add_to(index, times);
    }

    /// The bucket that a value is counted in.
    pub(crate) fn bucket_of(&self, value: u64) -> usize {
        self.offsets.partition_point(|o| *o < value)
    }

    /// The same, when it is often the one that is named: then nothing is searched.
    #[inline]
    pub(crate) fn bucket_near(&self, value: u64, often: usize) -> usize {
        let is_below = self.offsets.get(often).is_none_or(|most| value <= *most);
        let before = often.checked_sub(1).and_then(|before| self.offsets.get(before));
        match is_below && before.is_none_or(|most| *most < value) {
            true => often,
            false => self.bucket_of(value),
        }
    }

    /// Counts values of a bucket.
    #[inline]
    pub(crate) fn add_to(&mut self, index: usize, times: u64) {
        if let Some(bucket) = self.buckets.get_mut(index) {
            *bucket = bucket.saturating_add(times);
        }
    }

    /// Sum of all counts.
    pub fn count(&self) -> u64 {
        self.buckets.iter().fold(0, |sum, b| sum.saturating_add(*b))
    }

    /// Mean of the values, each taken as its bucket's bound and rounded up; 0 when empty.
    pub fn mean(&self) -> u64 {
        let (mut elements, mut sum) = (0u128, 0u128);
        for (bucket, offset) in self.buckets.iter().zip(&self.offsets) {
            elements = elements.saturating_add(u128::from(*bucket));
            sum = sum.saturating_add(u128::from(*bucket).saturating_mul(u128::from(*offset)));
        }
        match elements {
            0 => 0,
            n => u64::try_from(sum.div_ceil(n)).unwrap_or(u64::MAX),
        }
    }

    /// The bound below which that share (0..=1) of the values lies.
    pub fn percentile(&self, share: f64) -> u64 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
        let wanted = (self.count() as f64 * share).ceil() as u64;
        if wanted == 0 {
            return 0;
        }
        let mut seen = 0u64;
        for (bucket, offset) in self.buckets.iter().zip(&self.offsets) {
            seen = seen.saturating_add(*bucket);
            if seen >= wanted {
                return *offset;
            }
        }
        0
    }

    /// Smallest value that the lowest filled bucket can hold.
    pub fn min(&self) -> u64 {
        match self.buckets.iter().position(|b| *b > 0) {
            None | Some(0) => 0,
            Some(i) => self.offsets.get(i.saturating_sub(1)).map_or(0, |o| o.saturating_add(1)),
        }
    }

    /// Bound of the highest filled bucket; `u64::MAX` when something lies beyond all bounds.
    pub fn max(&self) -> u64 {
        match self.buckets.iter().rposition(|b| *b > 0) {
            None => 0,
            Some(i) => self.offsets.get(i).copied().unwrap_or(u64::MAX),
        }
    }

    /// Appends the histogram.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u32(u32::try_from(self.buckets.len()).unwrap_or(u32::MAX));
        for (i, bucket) in self.buckets.iter().enumerate() {
            out.put_u64(self.offsets.get(i.saturating_sub(1)).copied().unwrap_or(0));
            out.put_u64(*bucket);
        }
    }

    /// Reads a histogram.
    ///
    /// # Errors
    /// `Decode`, also for fewer than 2 or more than 4096 buckets.
    pub fn decode(r: &mut Reader<'_>) -> Result<EstimatedHistogram> {
        let count = r.len_i32()?;
        if !(2..=BUCKETS_MAX).contains(&count) {
            return Err(r.invalid(i64::try_from(count).unwrap_or(i64::MAX)).into());
        }
        let count = r.check_count(count, 16)?;
        let (mut offsets, mut buckets) = (Vec::with_capacity(count), Vec::with_capacity(count));
        for i in 0..count {
            let offset = r.u64()?;
            if i > 0 {
                offsets.push(offset);
            }
            buckets.push(r.u64()?);
        }
        Ok(EstimatedHistogram { offsets, buckets })
    }
}

/// Most points kept, as Cassandra's `SSTable.TOMBSTONE_HISTOGRAM_BIN_SIZE`.
const POINTS_MAX: usize = 100;
/// Times are rounded up to whole minutes (`TOMBSTONE_HISTOGRAM_TTL_ROUND_SECONDS`).
const ROUND_SECONDS: i64 = 60;
/// Points collected before nearest ones are merged; merging is quadratic in [`POINTS_MAX`].
const SPOOL_MAX: usize = 4096;

/// When how many tombstones and expiring cells may be dropped.
/// Source: `utils.streamhist.TombstoneHistogram`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TombstoneHistogram {
    /// (local deletion time in seconds, count), ascending.
    pub points: Vec<(i64, u64)>,
}

impl TombstoneHistogram {
    /// Appends the histogram: doubles and longs, since `oa` longs and ints. Before `oa` points
    /// after the last time are merged into one at that time.
    pub fn encode(&self, out: &mut Vec<u8>, version: Version) {
        let uint = version.has_uint_times();
        let last = if uint { i64::MAX } else { crate::DELETION_SECONDS_MAX };
        let fitting = self.points.partition_point(|(point, _)| *point < last);
        let (fit, late) = self.points.split_at_checked(fitting).unwrap_or_default();
        let late = late.iter().fold(0u64, |sum, (_, value)| sum.saturating_add(*value));
        let late = (late > 0).then_some((last, late));
        let count = fit.len().saturating_add(usize::from(late.is_some()));
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        out.put_u32(count);
        out.put_u32(count);
        for (point, value) in fit.iter().chain(&late) {
            if uint {
                out.put_i64(*point);
                out.put_u32(u32::try_from((*value).min(i32::MAX as u64)).unwrap_or(0));
            } else {
                out.put_f64(*point as f64);
                out.put_u64(*value);
            }
        }
    }

    /// Reads a histogram.
    ///
    /// # Errors
    /// `Decode`.
    pub fn decode(r: &mut Reader<'_>, version: Version) -> Result<TombstoneHistogram> {
        let uint = version.has_uint_times();
        r.u32()?;
        let count = r.len_i32()?;
        let count = r.check_count(count, if uint { 12 } else { 16 })?;
        let mut points = Vec::with_capacity(count);
        for _ in 0..count {
            if uint {
                let point = r.i64()?.clamp(0, crate::DELETION_SECONDS_UINT_MAX);
                points.push((point, u64::try_from(r.i32()?).unwrap_or(0)));
                continue;
            }
            let point = r.f64()?;
            #[expect(clippy::cast_possible_truncation, reason = "float casts saturate")]
            let point = (point as i64).clamp(0, crate::DELETION_SECONDS_MAX);
            points.push((point, r.u64()?));
        }
        Ok(TombstoneHistogram { points })
    }

    /// Estimated count of points at or before `time`. Source: `DataHolder.sum`.
    pub fn sum(&self, time: i64) -> f64 {
        let mut sum = 0.0;
        for (i, (point, value)) in self.points.iter().enumerate() {
            if *point > time {
                let Some((before, left)) = i.checked_sub(1).and_then(|j| self.points.get(j)) else {
                    return 0.0;
                };
                let span = point.saturating_sub(*before) as f64;
                let share = time.saturating_sub(*before) as f64 / span;
                let at = *left as f64 + (*value as f64 - *left as f64) * share;
                sum -= *left as f64;
                return sum + (*left as f64 + at) * share / 2.0 + *left as f64 / 2.0;
            }
            sum += *value as f64;
        }
        sum
    }
}

/// Collects tombstone times.
#[derive(Debug, Default)]
pub struct TombstoneHistogramBuilder {
    spool: std::collections::BTreeMap<i64, u64>,
    last: Option<(i64, u64)>,
}

impl TombstoneHistogramBuilder {
    /// Counts one tombstone or expiry.
    #[inline]
    pub fn add(&mut self, local: i64) {
        let point = local
            .max(0)
            .saturating_add(ROUND_SECONDS - 1)
            .checked_div(ROUND_SECONDS)
            .unwrap_or(0)
            .saturating_mul(ROUND_SECONDS)
            .min(crate::DELETION_SECONDS_UINT_MAX);
        // Neighbours mostly fall into the same minute: one comparison instead of a map look-up.
        match &mut self.last {
            Some((p, n)) if *p == point => *n = n.saturating_add(1),
            _ => {
                self.spill();
                self.last = Some((point, 1));
            }
        }
    }

    fn spill(&mut self) {
        if let Some((point, count)) = self.last.take() {
            let slot = self.spool.entry(point).or_insert(0);
            *slot = slot.saturating_add(count);
            if self.spool.len() > SPOOL_MAX {
                let points = std::mem::take(&mut self.spool).into_iter().collect();
                self.spool = merge_nearest(points).into_iter().collect();
            }
        }
    }

    /// The finished histogram.
    pub fn finish(mut self) -> TombstoneHistogram {
        self.spill();
        TombstoneHistogram { points: merge_nearest(self.spool.into_iter().collect()) }
    }
}

/// Merges neighbours in order of distance until at most [`POINTS_MAX`] points are left.
fn merge_nearest(mut points: Vec<(i64, u64)>) -> Vec<(i64, u64)> {
    while points.len() > POINTS_MAX {
        let mut gaps: Vec<i64> = points
            .windows(2)
            .map(|w| match w {
                [a, b] => b.0.saturating_sub(a.0),
                _ => i64::MAX,
            })
            .collect();
        let excess = points.len().saturating_sub(POINTS_MAX);
        let nth = excess.min(gaps.len()).saturating_sub(1);
        let (_, limit, _) = gaps.select_nth_unstable(nth);
        let limit = *limit;
        let mut merged: Vec<(i64, u64)> = Vec::with_capacity(points.len());
        let mut left = excess;
        let mut just_merged = false;
        for (point, count) in points {
            match merged.last_mut() {
                Some(last) if left > 0 && !just_merged && point.saturating_sub(last.0) <= limit => {
                    let sum = last.1.saturating_add(count).max(1);
                    let total = i128::from(last.0)
                        .saturating_mul(i128::from(last.1))
                        .saturating_add(i128::from(point).saturating_mul(i128::from(count)));
                    let mean = total.checked_div(i128::from(sum)).unwrap_or(0);
                    *last = (i64::try_from(mean).unwrap_or(point), sum);
                    left = left.saturating_sub(1);
                    just_merged = true;
                }
                _ => {
                    merged.push((point, count));
                    just_merged = false;
                }
            }
        }
        points = merged;
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_grow_as_cassandras() {
        let h = EstimatedHistogram::new(12);
        assert_eq!(h.offsets, [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 17]);
        let mut h = EstimatedHistogram::new(155);
        assert_eq!(h.offsets[154], 3_520_571_548_412);
        h.add(1);
        h.add(9);
        h.add(u64::MAX);
        assert_eq!((h.buckets[0], h.buckets[8], h.buckets[155]), (1, 1, 1));
        let mut out = Vec::new();
        h.encode(&mut out);
        assert_eq!(EstimatedHistogram::decode(&mut Reader::new(&out, "h")).unwrap(), h);
    }

    #[test]
    fn tombstone_times_are_rounded_up_to_minutes_and_kept_to_a_hundred_points() {
        let mut b = TombstoneHistogramBuilder::default();
        b.add(61);
        b.add(120);
        b.add(121);
        assert_eq!(b.finish().points, [(120, 2), (180, 1)]);
        let mut b = TombstoneHistogramBuilder::default();
        for i in 0..20_000 {
            b.add(1_600_000_000 + i * 977 % 100_000_000);
        }
        let h = b.finish();
        assert!(h.points.len() <= 100 && h.points.is_sorted());
        assert_eq!(h.points.iter().map(|(_, n)| n).sum::<u64>(), 20_000);
        for version in [Version::Nb, Version::Oa] {
            let mut out = Vec::new();
            h.encode(&mut out, version);
            let mut r = Reader::new(&out, "h");
            assert_eq!(TombstoneHistogram::decode(&mut r, version).unwrap(), h);
            r.finish().unwrap();
        }
        assert_eq!(h.sum(0), 0.0);
        assert_eq!(h.sum(i64::MAX), 20_000.0);
    }

    #[test]
    fn tombstone_times_behind_2038_are_kept_where_the_version_can_say_them() {
        let mut b = TombstoneHistogramBuilder::default();
        let times = [2_147_483_580, 2_147_483_646, 2_400_000_000, 4_294_967_293, i64::MAX - 1];
        for time in times {
            b.add(time);
        }
        let h = b.finish();
        // Minutes, but for the last time that there is.
        let exact =
            [(2_147_483_580, 1), (2_147_483_700, 1), (2_400_000_000, 1), (4_294_967_293, 2)];
        assert_eq!(h.points, exact);
        let read_back = |version| {
            let mut out = Vec::new();
            h.encode(&mut out, version);
            let mut r = Reader::new(&out, "h");
            let read = TombstoneHistogram::decode(&mut r, version).unwrap();
            r.finish().unwrap();
            read.points
        };
        assert_eq!(read_back(Version::Da), exact);
        assert_eq!(read_back(Version::Nb), [(2_147_483_580, 1), (2_147_483_646, 4)]);
    }
}
