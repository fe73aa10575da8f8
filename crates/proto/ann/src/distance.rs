//! Sums of queries and quantised vectors, in the fixed order of additions of [`index_format::distance`].

use index_format::distance::{LANES, sum};

/// Sum of squared differences of `query` and `codes * steps`: a query against a quantised vector.
pub(crate) fn squared_to_codes(query: &[f32], steps: &[f32], codes: &[u8]) -> f32 {
    let mut lanes = [0f32; LANES];
    let (queries, rest_query) = query.as_chunks::<LANES>();
    let (all_steps, rest_steps) = steps.as_chunks::<LANES>();
    let (all_codes, rest_codes) = codes.as_chunks::<LANES>();
    for ((query, steps), codes) in queries.iter().zip(all_steps).zip(all_codes) {
        for (((lane, query), step), code) in lanes.iter_mut().zip(query).zip(steps).zip(codes) {
            let difference = query - step * f32::from(*code);
            *lane += difference * difference;
        }
    }
    for (((lane, query), step), code) in
        lanes.iter_mut().zip(rest_query).zip(rest_steps).zip(rest_codes)
    {
        let difference = query - step * f32::from(*code);
        *lane += difference * difference;
    }
    sum(lanes)
}
