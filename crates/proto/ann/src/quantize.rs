//! Vectors of one byte a dimension: each dimension's range in 255 steps.

use crate::distance::squared_to_codes;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Quantizer {
    pub(crate) least: Vec<f32>,
    pub(crate) steps: Vec<f32>,
}

impl Quantizer {
    /// The ranges of vectors that lie one after another.
    pub(crate) fn train(vectors: &[f32], dimensions: usize) -> Quantizer {
        let mut least = vec![f32::INFINITY; dimensions];
        let mut most = vec![f32::NEG_INFINITY; dimensions];
        for vector in vectors.chunks_exact(dimensions.max(1)) {
            for ((least, most), x) in least.iter_mut().zip(&mut most).zip(vector) {
                *least = least.min(*x);
                *most = most.max(*x);
            }
        }
        let steps = least.iter().zip(&most).map(|(least, most)| {
            let range = most - least;
            if range.is_finite() && range > 0.0 { range / 255.0 } else { 0.0 }
        });
        let steps = steps.collect();
        least.iter_mut().filter(|x| !x.is_finite()).for_each(|x| *x = 0.0);
        Quantizer { least, steps }
    }

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
}
