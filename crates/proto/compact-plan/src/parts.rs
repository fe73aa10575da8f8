//! A compaction in parts: inputs that have no token in common with others are merged apart from them.
//!
//! Each part is a compaction like any other: its outputs are durable, and its inputs removed, before
//! the next part begins. So a compaction needs space for its largest part only, and completed parts
//! stay when it ends early. A part may purge a tombstone as any compaction may: the data it shadows
//! is in inputs of the same part, which are purged with it, or in files that the purge rule checks.
//!
//! INV-parts-1: the parts have all inputs of the plan, each once; no two of them have a token in common.

use stdx::{Generation, Token};

use crate::{Cut, Plan, SstableInfo};

/// The parts of a plan, ascending by token; the plan itself when it must not be split. `files` are
/// those that it was planned from.
pub fn parts(plan: &Plan, files: &[SstableInfo]) -> Vec<Plan> {
    let mut inputs: Vec<&SstableInfo> =
        files.iter().filter(|f| plan.inputs.contains(&f.generation)).collect();
    if !plan.apart || inputs.len() != plan.inputs.len() {
        return vec![plan.clone()];
    }
    inputs.sort_by_key(|f| (f.first_token, f.generation));
    let mut sets: Vec<(Token, Token, Vec<Generation>)> = Vec::new();
    for file in inputs {
        match sets.last_mut() {
            Some((_, last, set)) if file.first_token <= *last => {
                *last = file.last_token.max(*last);
                set.push(file.generation);
            }
            _ => sets.push((file.first_token, file.last_token, vec![file.generation])),
        }
    }
    let part = |(first, last, inputs): (Token, Token, Vec<Generation>)| {
        let cut = match &plan.cut {
            Cut::AtTokens(tokens) => {
                let inside = |t: &Token| first <= *t && *t < last;
                match tokens.iter().copied().filter(inside).collect::<Vec<Token>>() {
                    tokens if tokens.is_empty() => Cut::Never,
                    tokens => Cut::AtTokens(tokens),
                }
            }
            cut => cut.clone(),
        };
        let expired = plan.expired.iter().copied().filter(|g| inputs.contains(g)).collect();
        Plan { expired, inputs, cut, ..plan.clone() }
    };
    let parts: Vec<Plan> = sets.into_iter().map(part).collect();
    stdx::invariant!(
        parts.iter().map(|part| part.inputs.len()).sum::<usize>() == plan.inputs.len(),
        "INV-parts-1: {} parts lose or double inputs of {:?}",
        parts.len(),
        plan.inputs
    );
    stdx::invariant!(
        parts.iter().map(|part| part.expired.len()).sum::<usize>() == plan.expired.len(),
        "INV-parts-1: {} parts lose or double expired inputs {:?}",
        parts.len(),
        plan.expired
    );
    parts
}

#[cfg(test)]
mod tests {
    use crate::testing::*;
    use crate::{Reason, TableState, major};

    use super::*;

    #[test]
    fn a_major_unified_compaction_falls_apart_where_no_file_lies_across() {
        // The second lies within the first, and the fourth begins after its end.
        let files = [
            file(1, 0, 1, (0, 240)),
            file(2, 0, 1, (50, 60)),
            file(3, 0, 1, (250, 300)),
            file(4, 0, 1, (100, 249)),
        ];
        let options = options("UnifiedCompactionStrategy", &[]);
        let state = TableState { ..state(&files) };
        let plans = major(&options, &state);
        assert_eq!(plans.len(), 1);
        let parts = parts(&plans[0], &files);
        assert_eq!(parts.iter().map(inputs).collect::<Vec<_>>(), [vec![1, 2, 4], vec![3]]);
        assert!(parts.iter().all(|p| p.reason == Reason::Major));
    }

    #[test]
    fn what_must_stay_together_does() {
        let files = [file(1, 0, 1, (0, 100)), file(2, 0, 1, (200, 300))];
        let plan = &major(&options("SizeTieredCompactionStrategy", &[]), &state(&files))[0];
        assert_eq!(parts(plan, &files), std::slice::from_ref(plan));
    }

    #[test]
    fn tokens_of_a_cut_go_to_the_part_that_they_lie_in() {
        let files = [file(1, 0, 1, (0, 400)), file(2, 0, 1, (500, 999))];
        let at = |n: i64| file(0, 0, 0, (n, n)).first_token;
        let plan = Plan {
            inputs: vec![Generation(1), Generation(2)],
            expired: vec![Generation(2)],
            level: 0,
            cut: Cut::AtTokens(vec![at(100), at(450), at(700), at(800)]),
            apart: true,
            reason: Reason::Major,
        };
        let parts = parts(&plan, &files);
        assert_eq!(parts[0].cut, Cut::AtTokens(vec![at(100)]));
        assert_eq!(parts[0].expired, []);
        assert_eq!(parts[1].cut, Cut::AtTokens(vec![at(700), at(800)]));
        assert_eq!(parts[1].expired, [Generation(2)]);
    }
}
