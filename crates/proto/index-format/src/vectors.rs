//! Indexes of vectors: their definition, the similarity of two vectors, which vectors they have.

use std::fmt;

use schema::{ColumnKind, IndexMetadata, IndexRules, Table, TargetPart};
use types::CqlType;
use types::number::java_f32;

use crate::distance::{cosine, dot, squared};

/// Most dimensions of the vectors of an index.
pub const DIMENSIONS_MAX: usize = 8192;
/// Largest absolute value of a component of a vector. Source: `OnHeapGraph.MAX_FLOAT32_COMPONENT`.
const COMPONENT_MAX: f32 = 1e17;

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

    /// Its name as the value of the option `similarity_function`.
    pub fn name(self) -> &'static str {
        match self {
            Similarity::Cosine => "COSINE",
            Similarity::DotProduct => "DOT_PRODUCT",
            Similarity::Euclidean => "EUCLIDEAN",
        }
    }

    /// The similarity of that name, in any case.
    pub fn from_name(name: &str) -> Option<Similarity> {
        Similarity::ALL.into_iter().find(|similarity| similarity.name().eq_ignore_ascii_case(name))
    }

    /// Its code in a component.
    pub fn code(self) -> u8 {
        match self {
            Similarity::Cosine => 0,
            Similarity::DotProduct => 1,
            Similarity::Euclidean => 2,
        }
    }

    /// The similarity of that code.
    pub fn from_code(code: u8) -> Option<Similarity> {
        Similarity::ALL.into_iter().find(|similarity| similarity.code() == code)
    }

    /// The exact score of two vectors. The functions `similarity_…` return it too, so that an answer in the order of scores
    /// is in the order of the values that it shows.
    pub fn score(self, a: &[f32], b: &[f32]) -> f32 {
        match self {
            Similarity::Cosine => (1.0 + cosine(a, b).unwrap_or(0.0)) / 2.0,
            Similarity::DotProduct => (1.0 + dot(a, b)) / 2.0,
            Similarity::Euclidean => 1.0 / (1.0 + squared(a, b)),
        }
    }
}

/// Value of the option `optimize_for`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptimizeFor {
    /// Short searches.
    Latency,
    /// Searches that miss less.
    Recall,
}

impl OptimizeFor {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            OptimizeFor::Latency => "LATENCY",
            OptimizeFor::Recall => "RECALL",
        }
    }

    /// The value of that name, in any case.
    pub fn from_name(name: &str) -> Option<OptimizeFor> {
        [OptimizeFor::Latency, OptimizeFor::Recall]
            .into_iter()
            .find(|value| value.name().eq_ignore_ascii_case(name))
    }
}

/// Definition of an index of vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VectorIndex {
    /// Which vectors are near.
    pub similarity: Similarity,
    /// Dimensions of a vector.
    pub dimensions: usize,
    /// Breadth of its searches.
    pub optimize_for: OptimizeFor,
}

impl VectorIndex {
    /// The definition of an index. `None`: it is not a storage-attached one of a regular column of vectors of floats.
    /// Unknown values of options count as their defaults; `CREATE INDEX` refuses them.
    pub fn of(table: &Table, index: &IndexMetadata) -> Option<VectorIndex> {
        if index.rules != IndexRules::Sai {
            return None;
        }
        let column = table.column(&index.target.column)?;
        let CqlType::Vector { element, dimension } = &column.ty else { return None };
        let is_whole = matches!(index.target.part, TargetPart::Simple | TargetPart::Full);
        if !is_whole || column.kind != ColumnKind::Regular || **element != CqlType::Float {
            return None;
        }
        let dimensions = usize::try_from(*dimension).ok()?;
        let option = |name| index.options.get(name).map(String::as_str);
        let similarity = option("similarity_function").and_then(Similarity::from_name);
        let optimize_for = option("optimize_for").and_then(OptimizeFor::from_name);
        (1..=DIMENSIONS_MAX).contains(&dimensions).then_some(VectorIndex {
            similarity: similarity.unwrap_or(Similarity::Cosine),
            dimensions,
            optimize_for: optimize_for.unwrap_or(OptimizeFor::Latency),
        })
    }

    /// Returns an error for a vector that the index cannot have, and that cannot be searched for.
    ///
    /// # Errors
    /// The first defect, as Cassandra looks for them.
    pub fn check(&self, vector: &[f32]) -> Result<(), VectorDefect> {
        for (position, value) in vector.iter().copied().enumerate() {
            if !value.is_finite() {
                return Err(VectorDefect::NotFinite { position, value });
            }
            if value.abs() > COMPONENT_MAX {
                return Err(VectorDefect::TooLarge { position, value });
            }
        }
        if self.similarity == Similarity::Cosine && vector.iter().all(|x| *x == 0.0) {
            return Err(VectorDefect::Zero);
        }
        Ok(())
    }

    /// The vector of a value, if the index has such.
    pub fn vector_of(&self, value: &[u8]) -> Option<Vec<f32>> {
        floats_of(value, self.dimensions).filter(|vector| self.has(vector))
    }

    /// Returns true if the index has an entry for a value.
    pub(crate) fn has_value(&self, value: &[u8]) -> bool {
        self.vector_of(value).is_some()
    }

    /// Returns true if the index has such a vector. Beside [`VectorIndex::check`], one of tiny components whose length is 0
    /// in floats has no cosine.
    fn has(&self, vector: &[f32]) -> bool {
        let is_zero = || self.similarity == Similarity::Cosine && dot(vector, vector) == 0.0;
        self.check(vector).is_ok() && !is_zero()
    }
}

/// The components of a value of type `vector<float, n>`. `None`: it has another length.
pub fn floats_of(value: &[u8], dimensions: usize) -> Option<Vec<f32>> {
    let (floats, rest) = value.as_chunks::<4>();
    let is_whole = floats.len() == dimensions && rest.is_empty();
    is_whole.then(|| floats.iter().map(|bytes| f32::from_be_bytes(*bytes)).collect())
}

/// Reason why a vector can be neither in an index nor searched for, in Cassandra's words.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum VectorDefect {
    /// It has no direction, which the cosine compares.
    Zero,
    /// A component is infinite or no number.
    NotFinite {
        /// Position of the component.
        position: usize,
        /// The component.
        value: f32,
    },
    /// The sums over the vector could exceed a float.
    TooLarge {
        /// Position of the component.
        position: usize,
        /// The component.
        value: f32,
    },
}

impl fmt::Display for VectorDefect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            VectorDefect::Zero => {
                f.write_str("Zero vectors cannot be indexed or queried with cosine similarity")
            }
            VectorDefect::NotFinite { position, value } => {
                write!(f, "non-finite value at vector[{position}]={}", java_f32(*value))
            }
            VectorDefect::TooLarge { position, value } => {
                write!(f, "Out-of-bounds value at vector[{position}]={}", java_f32(*value))
            }
        }
    }
}

impl std::error::Error for VectorDefect {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_defect_is_told_as_cassandra_tells_it() {
        let of = |similarity| VectorIndex {
            similarity,
            dimensions: 2,
            optimize_for: OptimizeFor::Latency,
        };
        let told = |similarity, vector: [f32; 2]| {
            of(similarity).check(&vector).map_err(|defect| defect.to_string())
        };
        let error = |text: &str| Err(text.to_owned());
        let zero = "Zero vectors cannot be indexed or queried with cosine similarity";
        assert_eq!(told(Similarity::Cosine, [0.0, -0.0]), error(zero));
        assert_eq!(told(Similarity::Euclidean, [0.0, 0.0]), Ok(()));
        assert_eq!(told(Similarity::DotProduct, [1e17, -1e17]), Ok(()));
        let large = "Out-of-bounds value at vector[1]=-1.0E18";
        assert_eq!(told(Similarity::DotProduct, [1.0, -1e18]), error(large));
        let infinite = "non-finite value at vector[1]=Infinity";
        assert_eq!(told(Similarity::Euclidean, [1.0, f32::INFINITY]), error(infinite));
        let none = "non-finite value at vector[0]=NaN";
        assert_eq!(told(Similarity::Cosine, [f32::NAN, 1e18]), error(none));
        // Its length is 0 in floats: no error, and no entry.
        let tiny = [1e-30f32, 0.0].map(f32::to_be_bytes).concat();
        assert_eq!(told(Similarity::Cosine, [1e-30, 0.0]), Ok(()));
        assert_eq!(of(Similarity::Cosine).vector_of(&tiny), None);
        assert_eq!(of(Similarity::Euclidean).vector_of(&tiny), Some(vec![1e-30, 0.0]));
        assert_eq!(of(Similarity::Euclidean).vector_of(&tiny[1..]), None);
    }

    #[test]
    fn names_of_options_are_read_in_any_case() {
        for similarity in Similarity::ALL {
            assert_eq!(Similarity::from_name(&similarity.name().to_lowercase()), Some(similarity));
            assert_eq!(Similarity::from_code(similarity.code()), Some(similarity));
        }
        assert_eq!(Similarity::from_name("DOT"), None);
        assert_eq!(OptimizeFor::from_name("recall"), Some(OptimizeFor::Recall));
        assert_eq!(OptimizeFor::from_name("fast"), None);
    }
}
