//! The three similarities of `StorageAttachedIndex`, each as the Euclidean distance of changed vectors, so that one graph
//! and one quantisation serve all: cosine by vectors of length 1, dot product by one more dimension that gives all
//! vectors the same length.

use index_format::distance::dot;
use index_format::vectors::Similarity;

/// Dimensions of changed vectors.
pub(crate) fn changed_dimensions(similarity: Similarity, dimensions: usize) -> usize {
    dimensions + usize::from(similarity == Similarity::DotProduct)
}

/// Changes a stored vector, whose places are those of a changed one. `norm_max` is the largest sum of squares of all.
pub(crate) fn change_stored(similarity: Similarity, norm_max: f32, vector: &mut [f32]) {
    match similarity {
        Similarity::Cosine => normalise(vector),
        Similarity::DotProduct => {
            if let Some((last, own)) = vector.split_last_mut() {
                *last = (norm_max - dot(own, own)).max(0.0).sqrt();
            }
        }
        Similarity::Euclidean => {}
    }
}

/// A query, changed.
pub(crate) fn changed_query(similarity: Similarity, vector: &[f32]) -> Vec<f32> {
    let mut changed = vector.to_vec();
    match similarity {
        Similarity::Cosine => normalise(&mut changed),
        Similarity::DotProduct => changed.push(0.0),
        Similarity::Euclidean => {}
    }
    changed
}

fn normalise(vector: &mut [f32]) {
    let length = dot(vector, vector).sqrt();
    let factor = if length > 0.0 { 1.0 / length } else { 0.0 };
    vector.iter_mut().for_each(|x| *x *= factor);
}
