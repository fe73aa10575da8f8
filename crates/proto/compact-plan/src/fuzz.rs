//! Fuzz entry: any text as a compaction map.

use crate::options::{Strategy, parse_options};

/// Reads `data` as lines of `option=value` for every strategy; must never panic.
pub fn fuzz_compaction_map(data: &[u8]) {
    let Ok(text) = core::str::from_utf8(data) else {
        return;
    };
    let pairs: Vec<(&str, &str)> = text.lines().filter_map(|l| l.split_once('=')).collect();
    // With the class that the text names, if any, and with every known one.
    let _ = parse_options(pairs.iter().copied());
    for strategy in Strategy::ALL {
        let class = [("class", strategy.simple_name())];
        if let Ok(options) = parse_options(pairs.iter().copied().chain(class)) {
            let again = options.map.iter().map(|(k, v)| (k.as_str(), v.as_str()));
            assert!(parse_options(again).is_ok(), "the stored map is refused");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CORPUS: &[&str] = &[
        "min_threshold=2\nmax_threshold=8\nmin_sstable_size=1024\nbucket_low=0.4\nbucket_high=1e1",
        "sstable_size_in_mb=160\nfanout_size=10\ntombstone_threshold=NaN\nenabled=true",
        "compaction_window_unit=HOURS\ncompaction_window_size=99999999999\nlog_all=false",
        "scaling_parameters=T4,L10,N\ntarget_sstable_size=1.5 GiB\nmin_sstable_size=2*2^20 B\nsstable_growth=33%",
        "class=x.y\nprovide_overlapping_tombstones=cell\nflush_size_override=-1e308QiB",
    ];

    #[test]
    fn no_mutation_of_the_corpus_panics() {
        let mutations = testkit::Mutations::of(CORPUS).letters(b"0123456789.+-eE%B*^=\n,TLN");
        mutations.run(fuzz_compaction_map);
    }
}
