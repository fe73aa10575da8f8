//! Reassigns the levels of leveled compaction. Source: `tools.SSTableOfflineRelevel`.

use stdx::Token;

use crate::SstableMeta;

/// The levels that a set of files should have: by position in `files` the new level.
///
/// Files are taken by their last partition; each pass collects those that do not overlap, and the
/// first pass makes the highest level. There are as many levels as the number of files has decimal
/// digits, roughly; what does not fit goes to level 0.
pub fn relevel(files: &[&SstableMeta]) -> Vec<i32> {
    let bounds: Vec<(Bound, Bound)> = files.iter().map(|meta| bounds_of(meta)).collect();
    let mut levels = plan(&bounds);
    let most = levels_expected(files.len());
    levels.truncate(most);
    let mut out = vec![0; files.len()];
    let count = levels.len();
    for (i, level) in levels.iter().enumerate() {
        for file in level {
            if let Some(slot) = out.get_mut(*file) {
                *slot = i32::try_from(count - i).unwrap_or(0);
            }
        }
    }
    out
}

type Bound = (Token, Vec<u8>);

fn bounds_of(meta: &SstableMeta) -> (Bound, Bound) {
    let (first, last) = meta.key_range();
    ((meta.first_token(), first.to_vec()), (meta.last_token(), last.to_vec()))
}

/// `ceil(log10(files))`.
fn levels_expected(files: usize) -> usize {
    let (mut levels, mut reach) = (0, 1usize);
    while reach < files {
        reach = reach.saturating_mul(10);
        levels += 1;
    }
    levels
}

fn plan(bounds: &[(Bound, Bound)]) -> Vec<Vec<usize>> {
    let mut left: Vec<usize> = (0..bounds.len()).collect();
    left.sort_by(|a, b| bounds.get(*a).map(|b| &b.1).cmp(&bounds.get(*b).map(|b| &b.1)));
    let mut levels = Vec::new();
    while !left.is_empty() {
        let mut level = Vec::new();
        let mut last: Option<&Bound> = None;
        left.retain(|file| {
            let Some((first, end)) = bounds.get(*file) else { return false };
            if last.is_some_and(|last| last >= first) {
                return true;
            }
            level.push(*file);
            last = Some(end);
            false
        });
        levels.push(level);
    }
    levels
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(from: i64, to: i64) -> (Bound, Bound) {
        ((Token(from), vec![1]), (Token(to), vec![1]))
    }

    #[test]
    fn files_that_do_not_overlap_share_a_level_and_the_first_choice_is_by_the_last_key() {
        let files = [file(0, 100), file(0, 10), file(11, 20), file(10, 15), file(21, 22)];
        assert_eq!(plan(&files), [vec![1, 2, 4], vec![3], vec![0]]);
        // A file that begins with the key another one ends with overlaps it.
        assert_eq!(plan(&[file(0, 5), file(5, 6)]), [vec![0], vec![1]]);
    }

    #[test]
    fn there_are_as_many_levels_as_the_logarithm_of_the_number_of_files() {
        let of: Vec<usize> = [0, 1, 2, 10, 11, 100, 101].into_iter().map(levels_expected).collect();
        assert_eq!(of, [0, 0, 1, 1, 2, 2, 3]);
    }
}
