//! Summaries of a few values: median, MAD, minimum, quantile.

use super::StatisticsError;

/// The values in ascending order, or what is wrong with them.
pub(super) fn sorted(values: &[f64]) -> Result<Vec<f64>, StatisticsError> {
    if values.is_empty() {
        return Err(StatisticsError::Empty);
    }
    if let Some((index, &value)) = values.iter().enumerate().find(|(_, v)| !v.is_finite()) {
        return Err(StatisticsError::NotFinite { index, value });
    }
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    Ok(sorted)
}

/// The median of sorted values, of which there is at least one.
pub(super) fn median_of_sorted(sorted: &[f64]) -> f64 {
    let half = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[half] } else { f64::midpoint(sorted[half - 1], sorted[half]) }
}

/// The median, in the values' unit: the middle value, or the mean of the two in the middle.
/// `None` where there are no values or one of them is not finite.
pub fn median(values: &[f64]) -> Option<f64> {
    Some(median_of_sorted(&sorted(values).ok()?))
}

/// The median absolute deviation from the median, in the values' unit. It is raw: not multiplied by
/// 1.4826, which would make it a standard deviation only if the values were normal.
/// `None` where there are no values or one of them is not finite.
pub fn mad(values: &[f64]) -> Option<f64> {
    let centre = median(values)?;
    let deviations: Vec<f64> = values.iter().map(|value| (value - centre).abs()).collect();
    median(&deviations)
}

/// The smallest value. `None` where there are no values or one of them is not finite.
pub fn minimum(values: &[f64]) -> Option<f64> {
    Some(sorted(values).ok()?[0])
}

/// The quantile `q` (0 to 1) of values in ascending order, interpolated linearly between
/// neighbours (type 7 of Hyndman and Fan, 1996: R's and NumPy's default).
/// `None` where there are no values or `q` is outside 0 to 1.
pub fn quantile(sorted: &[f64], q: f64) -> Option<f64> {
    if sorted.is_empty() || !(0.0..=1.0).contains(&q) {
        return None;
    }
    let place = q * (sorted.len() - 1) as f64;
    let below = sorted[place.floor() as usize];
    let above = sorted[place.ceil() as usize];
    Some(below + (above - below) * place.fract())
}
