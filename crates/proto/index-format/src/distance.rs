//! Sums over vectors, in a fixed order of additions: eight accumulators, one for each position modulo eight, then
//! their sum from the first to the last. The compiler turns them into vector instructions; the result is the same on
//! every machine. The cosine has an order of its own.

/// Accumulators.
pub const LANES: usize = 8;

/// Sum of the accumulators, from the first to the last.
pub fn sum(lanes: [f32; LANES]) -> f32 {
    lanes.iter().sum()
}

/// Sum of squared differences. The shorter length counts.
pub fn squared(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0f32; LANES];
    let (chunks_a, rest_a) = a.as_chunks::<LANES>();
    let (chunks_b, rest_b) = b.as_chunks::<LANES>();
    for (a, b) in chunks_a.iter().zip(chunks_b) {
        for ((lane, a), b) in lanes.iter_mut().zip(a).zip(b) {
            let difference = a - b;
            *lane += difference * difference;
        }
    }
    for ((lane, a), b) in lanes.iter_mut().zip(rest_a).zip(rest_b) {
        let difference = a - b;
        *lane += difference * difference;
    }
    sum(lanes)
}

/// Sum of products. The shorter length counts.
pub fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0f32; LANES];
    let (chunks_a, rest_a) = a.as_chunks::<LANES>();
    let (chunks_b, rest_b) = b.as_chunks::<LANES>();
    for (a, b) in chunks_a.iter().zip(chunks_b) {
        for ((lane, a), b) in lanes.iter_mut().zip(a).zip(b) {
            *lane += a * b;
        }
    }
    for ((lane, a), b) in lanes.iter_mut().zip(rest_a).zip(rest_b) {
        *lane += a * b;
    }
    sum(lanes)
}

/// Cosine of the angle between two vectors. Its sums run from the first component to the last, as Cassandra's do, which
/// differs from [`dot`] in the last bits beyond eight components. `None`: the length of one is 0 in floats.
pub fn cosine(a: &[f32], b: &[f32]) -> Option<f32> {
    let (mut product, mut square_a, mut square_b) = (0f32, 0f32, 0f32);
    for (a, b) in a.iter().zip(b) {
        product += a * b;
        square_a += a * a;
        square_b += b * b;
    }
    let lengths = (f64::from(square_a) * f64::from(square_b)).sqrt();
    #[expect(clippy::cast_possible_truncation, reason = "the result is a float")]
    (lengths > 0.0).then(|| (f64::from(product) / lengths) as f32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_near_those_of_doubles_at_every_length() {
        let mut random = testkit::Random::new(3);
        for length in 0..70 {
            let mut vector = || -> Vec<f32> {
                (0..length).map(|_| random.byte()).map(|x| f32::from(x) / 64.0 - 2.0).collect()
            };
            let (a, b) = (vector(), vector());
            let exact = |f: fn(f64, f64) -> f64| -> f64 {
                a.iter().zip(&b).map(|(a, b)| f(f64::from(*a), f64::from(*b))).sum()
            };
            assert!((f64::from(dot(&a, &b)) - exact(|a, b| a * b)).abs() < 1e-4);
            let squares = exact(|a, b| (a - b) * (a - b));
            assert!((f64::from(squared(&a, &b)) - squares).abs() < 1e-4 * (1.0 + squares));
        }
    }

    /// Replicas must agree: the order of additions is part of the format.
    #[test]
    fn sums_have_these_bits() {
        let a: Vec<f32> = (0..21u8).map(|n| 0.1 * f32::from(n) - 0.77).collect();
        let b: Vec<f32> = (0..21u8).map(|n| 1.0 / (1.0 + f32::from(n))).collect();
        assert_eq!(
            [dot(&a, &b).to_bits(), squared(&a, &b).to_bits()],
            [GOLDEN_DOT, GOLDEN_SQUARED],
            "{:#x} {:#x}",
            dot(&a, &b).to_bits(),
            squared(&a, &b).to_bits()
        );
    }

    /// With this order `similarity_cosine` returns the bits of Cassandra 5.0.9 at every length.
    #[test]
    fn a_cosine_sums_from_the_first_component() {
        let a: Vec<f32> = (0..40u8).map(|n| 0.1 * f32::from(n) - 1.77).collect();
        let b: Vec<f32> = (0..40u8).map(|n| 1.0 / (1.0 + f32::from(n))).collect();
        let sum = |a: &[f32], b: &[f32]| a.iter().zip(b).fold(0f32, |sum, (a, b)| sum + a * b);
        let lengths = (f64::from(sum(&a, &a)) * f64::from(sum(&b, &b))).sqrt();
        assert_eq!(cosine(&a, &b), Some((f64::from(sum(&a, &b)) / lengths) as f32));
        assert_eq!(cosine(&[1e-30, 0.0], &[1.0, 1.0]), None);
        assert_eq!(cosine(&[], &[]), None);
    }

    const GOLDEN_DOT: u32 = 0xbf89_25ab;
    const GOLDEN_SQUARED: u32 = 0x4148_d609;
}
