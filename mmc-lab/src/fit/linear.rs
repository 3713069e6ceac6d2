//! Lines through points: least absolute residuals, then least squares over what is no outlier.

use super::Value;

/// Coefficients of `N` columns.
#[derive(Clone, Debug)]
pub(super) struct Fit<const N: usize> {
    /// The coefficients; 0 for a column that is not used.
    at: [f64; N],
    /// Its standard error; `None` where the data do not tell the coefficient.
    error: [Option<f64>; N],
    /// Sum of the absolute residuals.
    pub(super) cost: f64,
    /// What is further away is no noise.
    pub(super) limit: f64,
}

/// Resolution of the clocks that logs are made with, in microseconds.
const TICK: f64 = 1.0;

/// Fits `times` to `rows` in `rounds` rounds of reweighting; `None` where there is nothing to fit.
pub(super) fn fit<const N: usize>(rows: &[[f64; N]], times: &[f64], rounds: usize) -> Option<Fit<N>> {
    if rows.is_empty() {
        return None;
    }
    let mut weights = vec![1.0; rows.len()];
    let mut best = Fit { at: [0.0; N], error: [None; N], cost: f64::MAX, limit: f64::MAX };
    for _ in 0..rounds {
        let mut f = solve(rows, times, &weights);
        f.cost = 0.0;
        for ((row, time), w) in rows.iter().zip(times).zip(&mut weights) {
            let left = (time - f.predict(row)).abs();
            f.cost += left;
            *w = 1.0 / left.max(TICK);
        }
        if f.cost < best.cost {
            best = f;
        }
    }
    Some(best)
}

impl<const N: usize> Fit<N> {
    /// The time of a row.
    pub(super) fn predict(&self, row: &[f64; N]) -> f64 {
        row.iter().zip(&self.at).map(|(x, a)| x * a).sum()
    }
    /// Column `i`, where the data tell it.
    pub(super) fn value(&self, i: usize) -> Option<Value> {
        let half = 3.0 * self.error[i]?;
        let value = self.at[i];
        Some(Value { value, low: value - half, high: value + half })
    }
    /// Least squares without the outliers, with errors: an outlier is off by 20 ticks and by ten times what is usual.
    pub(super) fn refine(self, rows: &[[f64; N]], times: &[f64]) -> Self {
        let left = |f: &Self| -> Vec<f64> {
            rows.iter().zip(times).map(|(r, t)| (t - f.predict(r)).abs()).collect()
        };
        let mut sorted = left(&self);
        sorted.sort_by(f64::total_cmp);
        let usual = sorted.get(sorted.len() / 2).copied().unwrap_or(0.0);
        // Far enough out to be a pause, and far enough out to be no help.
        let (limit, noise) = ((10.0 * usual).max(2000.0), (10.0 * usual).max(20.0 * TICK));
        let weights: Vec<f64> = left(&self).iter().map(|l| f64::from(u8::from(*l <= noise))).collect();
        let mut f = solve(rows, times, &weights);
        let n: f64 = weights.iter().sum();
        let squares: f64 = left(&f).iter().zip(&weights).map(|(l, w)| w * l * l).sum();
        // Times are rounded to whole ticks, which alone makes an error of a third of one.
        let sigma = (squares / (n - N as f64).max(1.0)).sqrt().max(TICK / 3.0);
        f.error = f.error.map(|e| e.map(|e| e * sigma));
        (f.cost, f.limit) = (self.cost, limit);
        f
    }
}

/// Weighted least squares by sweeping the normal equations. `error` is that of residuals of 1.
fn solve<const N: usize>(rows: &[[f64; N]], times: &[f64], weights: &[f64]) -> Fit<N> {
    let mut a = [[0.0_f64; N]; N];
    let mut b = [0.0_f64; N];
    for ((row, time), w) in rows.iter().zip(times).zip(weights) {
        for i in 0..N {
            b[i] += w * row[i] * time;
            for j in 0..N {
                a[i][j] += w * row[i] * row[j];
            }
        }
    }
    // Columns scaled to length 1, so that one tolerance serves all.
    let scale: [f64; N] = std::array::from_fn(|i| a[i][i].sqrt());
    let mut used = [false; N];
    for i in 0..N {
        for j in 0..N {
            a[i][j] = if scale[i] > 0.0 && scale[j] > 0.0 { a[i][j] / (scale[i] * scale[j]) } else { 0.0 };
        }
        b[i] = if scale[i] > 0.0 { b[i] / scale[i] } else { 0.0 };
    }
    for k in 0..N {
        // What is left of a column that the ones before it do not explain.
        let d = a[k][k];
        if d < 1e-8 {
            continue;
        }
        used[k] = true;
        let pivot = a[k].map(|x| x / d);
        a[k] = pivot;
        b[k] /= d;
        for i in (0..N).filter(|&i| i != k) {
            let x = a[i][k];
            for (to, from) in a[i].iter_mut().zip(pivot) {
                *to -= x * from;
            }
            a[i][k] = -x / d;
            b[i] -= x * b[k];
        }
        a[k][k] = 1.0 / d;
    }
    // A column that says nothing new makes those it repeats ambiguous.
    let told = |i: usize| used[i] && (0..N).all(|k| used[k] || scale[k] == 0.0 || a[i][k].abs() < 1e-6);
    Fit {
        at: std::array::from_fn(|i| if used[i] { b[i] / scale[i] } else { 0.0 }),
        error: std::array::from_fn(|i| told(i).then(|| a[i][i].max(0.0).sqrt() / scale[i])),
        cost: f64::MAX,
        limit: f64::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_in_spite_of_outliers() {
        let rows: Vec<[f64; 2]> = (0..100).map(|i| [1.0, f64::from(i)]).collect();
        let times: Vec<f64> =
            (0..100).map(|i| 700.0 + 3.0 * f64::from(i) + if i % 10 == 0 { 90_000.0 } else { 0.0 }).collect();
        let f = fit(&rows, &times, 30).unwrap().refine(&rows, &times);
        let (a, b) = (f.value(0).unwrap(), f.value(1).unwrap());
        assert!(a.holds(700.0) && b.holds(3.0) && (a.value - 700.0).abs() < 0.01, "{a:?} {b:?}");
    }

    #[test]
    fn columns_that_say_the_same_are_not_told() {
        let rows: Vec<[f64; 3]> = (0..9).map(|i| [1.0, 2.0, f64::from(i * i)]).collect();
        let times: Vec<f64> = (0..9).map(|i| 10.0 + f64::from(i * i)).collect();
        let f = fit(&rows, &times, 10).unwrap().refine(&rows, &times);
        assert!(f.value(0).is_none() && f.value(1).is_none());
        assert!((f.value(2).unwrap().value - 1.0).abs() < 1e-6);
    }
}
