//! The three similarities of `StorageAttachedIndex`, each as the Euclidean distance of changed vectors, so that one graph
//! and one quantisation serve all: cosine by vectors of length 1, dot product by one more dimension that gives all
//! vectors the same length.

use crate::distance::{dot, squared};

/// Similarity of two vectors. Scores are Cassandra's: larger is nearer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Similarity {
    /// `(1 + cos(a, b)) / 2`.
    Cosine,
    /// `(1 + a * b) / 2`.
    DotProduct,
    /// `1 / (1 + |a - b|²)`.
    Euclidean,
}

impl Similarity {
    /// All of them.
    pub const ALL: [Similarity; 3] =
        [Similarity::Cosine, Similarity::DotProduct, Similarity::Euclidean];

    pub(crate) fn code(self) -> u8 {
        match self {
            Similarity::Cosine => 0,
            Similarity::DotProduct => 1,
            Similarity::Euclidean => 2,
        }
    }

    pub(crate) fn from_code(code: u8) -> Option<Similarity> {
        Similarity::ALL.into_iter().find(|similarity| similarity.code() == code)
    }

    /// The exact score of two vectors.
    pub fn score(self, a: &[f32], b: &[f32]) -> f32 {
        match self {
            Similarity::Cosine => {
                let lengths = (dot(a, a) * dot(b, b)).sqrt();
                let cosine = if lengths > 0.0 { dot(a, b) / lengths } else { 0.0 };
                (1.0 + cosine) / 2.0
            }
            Similarity::DotProduct => (1.0 + dot(a, b)) / 2.0,
            Similarity::Euclidean => 1.0 / (1.0 + squared(a, b)),
        }
    }

    /// Dimensions of changed vectors.
    pub(crate) fn dimensions(self, dimensions: usize) -> usize {
        dimensions + usize::from(self == Similarity::DotProduct)
    }

    /// Appends a stored vector, changed. `norm_max` is the largest sum of squares of all vectors.
    pub(crate) fn push_stored(self, vector: &[f32], norm_max: f32, out: &mut Vec<f32>) {
        self.push_query(vector, out);
        if self == Similarity::DotProduct {
            let missing = (norm_max - dot(vector, vector)).max(0.0).sqrt();
            out.last_mut().into_iter().for_each(|last| *last = missing);
        }
    }

    /// Appends a query, changed.
    pub(crate) fn push_query(self, vector: &[f32], out: &mut Vec<f32>) {
        match self {
            Similarity::Cosine => {
                let length = dot(vector, vector).sqrt();
                let factor = if length > 0.0 { 1.0 / length } else { 0.0 };
                out.extend(vector.iter().map(|x| x * factor));
            }
            Similarity::DotProduct => {
                out.extend_from_slice(vector);
                out.push(0.0);
            }
            Similarity::Euclidean => out.extend_from_slice(vector),
        }
    }
}
