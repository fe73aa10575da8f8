//! Vectors of one byte a dimension: each dimension's range in 255 steps.

use crate::distance::squared_to_codes;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Quantizer {
    pub(crate) least: Vec<f32>,
    pub(crate) steps: Vec<f32>,
}

/// Ranges of the dimensions of vectors.
#[derive(Debug)]
pub(crate) struct Ranges {
    least: Vec<f32>,
    most: Vec<f32>,
}

impl Ranges {
    pub(crate) fn new(dimensions: usize) -> Ranges {
        let (least, most) = (f32::INFINITY, f32::NEG_INFINITY);
        Ranges { least: vec![least; dimensions], most: vec![most; dimensions] }
    }

    pub(crate) fn add(&mut self, vector: &[f32]) {
        for ((least, most), x) in self.least.iter_mut().zip(&mut self.most).zip(vector) {
            *least = least.min(*x);
            *most = most.max(*x);
        }
    }

    pub(crate) fn quantizer(mut self) -> Quantizer {
        let steps = self.least.iter().zip(&self.most).map(|(least, most)| {
            let range = most - least;
            if range.is_finite() && range > 0.0 { range / 255.0 } else { 0.0 }
        });
        let steps = steps.collect();
        self.least.iter_mut().filter(|x| !x.is_finite()).for_each(|x| *x = 0.0);
        Quantizer { least: self.least, steps }
    }
}

impl Quantizer {
    pub(crate) fn encode(&self, vector: &[f32], out: &mut Vec<u8>) {
        for ((x, least), step) in vector.iter().zip(&self.least).zip(&self.steps) {
            let code =
                if *step > 0.0 { ((x - least) / step).round().clamp(0.0, 255.0) } else { 0.0 };
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
            out.push(code as u8);
        }
    }

    /// A query less the smallest values, for [`Quantizer::distance`].
    pub(crate) fn shift(&self, query: &mut [f32]) {
        query.iter_mut().zip(&self.least).for_each(|(x, least)| *x -= least);
    }

    pub(crate) fn distance(&self, shifted: &[f32], codes: &[u8]) -> f32 {
        squared_to_codes(shifted, &self.steps, codes)
    }

    /// Distance by which rounding moves a vector towards another, hardly ever more. Each dimension is off by half a step
    /// at most; the sum over all in one direction has the root mean square of the steps over the root of 12 as its
    /// standard deviation, of which this is seven.
    pub(crate) fn error(&self) -> f32 {
        let squares: f32 = self.steps.iter().map(|step| step * step).sum();
        let worst = squares.sqrt() / 2.0;
        #[expect(clippy::cast_precision_loss, reason = "a few thousand")]
        let mean = squares / self.steps.len().max(1) as f32;
        worst.min(2.0 * mean.sqrt())
    }
}
