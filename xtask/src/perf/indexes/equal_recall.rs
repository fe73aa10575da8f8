//! CPU of two databases at equal recall.

use serde::Serialize;

/// One LIMIT of a database.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Point {
    /// LIMIT of the query.
    pub limit: u32,
    /// Part of the ten nearest that is among the first ten rows.
    pub recall: f64,
    /// CPU of a query.
    pub cpu: f64,
}

/// The recall at which both are compared: the higher one of their smallest LIMITs.
pub fn target(ours: &[Point], theirs: &[Point]) -> Option<f64> {
    let (ours, theirs) = (ours.first()?, theirs.first()?);
    Some(ours.recall.max(theirs.recall))
}

/// CPU at which a recall is reached, interpolated between the LIMITs around it; `None` if no LIMIT reaches it.
pub fn cpu_at(points: &[Point], recall: f64) -> Option<f64> {
    let at = points.iter().position(|point| point.recall >= recall)?;
    let above = points.get(at)?;
    let Some(below) = at.checked_sub(1).and_then(|at| points.get(at)) else {
        return Some(above.cpu);
    };
    let part = (recall - below.recall) / (above.recall - below.recall);
    Some(below.cpu + part * (above.cpu - below.cpu))
}

/// CPU of the largest LIMIT: what a database needs at least for a recall that it does not reach.
pub fn cpu_of_largest(points: &[Point]) -> Option<f64> {
    points.last().map(|point| point.cpu)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(all: &[(f64, f64)]) -> Vec<Point> {
        all.iter().map(|(recall, cpu)| Point { limit: 10, recall: *recall, cpu: *cpu }).collect()
    }

    #[test]
    fn cpu_is_interpolated_between_the_limits_around_the_recall() {
        let theirs = points(&[(0.80, 1.0), (0.90, 2.0), (0.98, 6.0)]);
        let ours = points(&[(0.94, 1.0), (0.99, 3.0)]);
        let at = target(&ours, &theirs).unwrap();
        assert!((at - 0.94).abs() < 1e-9);
        assert!((cpu_at(&theirs, at).unwrap() - 4.0).abs() < 1e-9);
        assert!((cpu_at(&ours, at).unwrap() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_recall_that_is_not_reached_has_no_cpu() {
        let theirs = points(&[(0.80, 1.0), (0.90, 2.0)]);
        assert_eq!(cpu_at(&theirs, 0.95), None);
        assert_eq!(cpu_of_largest(&theirs), Some(2.0));
        assert_eq!(target(&[], &theirs), None);
    }
}
