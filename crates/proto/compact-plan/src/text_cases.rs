//! Runs `testdata/*.txt`: tables as lists of files, and the compactions of these.
//!
//! A file is a line `GENERATION SIZE [FIRST-LAST] [word=value…]`: sizes in MiB, tokens in thousandths of the ring;
//! words: `level`, `ts` (largest timestamp in seconds; the smallest is a second before), `gone` (latest expiry,
//! seconds), `droppable` (share), `repaired`, `pending`, `run`, `windows=FIRST-LAST`, `hot`.

use std::fmt::Write as _;

use stdx::{DeletionSeconds, Generation, TimestampMicros, Uuid, WallMicros};
use testkit::Case;

use crate::testing::{MIB, Table, file, state};
use crate::{CompactionOptions, Cut, Plan, SstableInfo, TableState, major, next, parse_options};

#[test]
fn pickers_choose_what_the_text_files_say() {
    testkit::check(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata"), || run);
}

fn run(case: &Case) -> String {
    let own = ["now", "gc_before", "memtable", "flush", "count", "bytes", "step"];
    let mut pairs: Vec<(&str, &str)> =
        case.values().filter(|(name, _)| !own.contains(name)).collect();
    let has_class = pairs.iter().any(|(name, _)| *name == "class");
    if !has_class {
        pairs.push(("class", "SizeTieredCompactionStrategy"));
    }
    let options = match parse_options(pairs) {
        Ok(options) => options,
        Err(error) => return format!("error: {error}"),
    };
    match case.command.as_str() {
        "pick" => pick(case, &options),
        "major" => with_state(case, |state| {
            major(&options, state).iter().map(|plan| show(plan) + "\n").collect()
        }),
        "flush" => flush(case, options),
        other => panic!("{}: no command {other}", case.place),
    }
}

fn with_state<T>(case: &Case, f: impl FnOnce(&TableState<'_>) -> T) -> T {
    let (mut candidates, mut others) = (Vec::new(), Vec::new());
    for line in case.input.lines() {
        match line.strip_prefix("other ") {
            Some(line) => others.push(parsed(case, line)),
            None => candidates.push(parsed(case, line)),
        }
    }
    let seconds = |name: &str| case.parsed::<i64>(name);
    let before = state(&candidates);
    f(&TableState {
        others: &others,
        memtable_min_timestamp: seconds("memtable").map(|s| TimestampMicros(s * 1_000_000)),
        gc_before: seconds("gc_before").map_or(before.gc_before, DeletionSeconds),
        now: seconds("now").map_or(before.now, |s| WallMicros(s * 1_000_000)),
        flush_bytes: case.parsed::<u64>("flush").map(|mib| mib * MIB),
        ..before
    })
}

/// Shows the next compaction; `all` repeats that without the files already chosen.
fn pick(case: &Case, options: &CompactionOptions) -> String {
    with_state(case, |state| {
        let mut left = state.candidates.to_vec();
        let mut out = String::new();
        loop {
            let plan = next(options, &TableState { candidates: &left, ..*state });
            let Some(plan) = plan else { break };
            let _ = writeln!(out, "{}", show(&plan));
            if !case.has("all") {
                break;
            }
            left.retain(|file| !plan.inputs.contains(&file.generation));
        }
        if out.is_empty() { "nothing".to_owned() } else { out }
    })
}

/// Flushes files of one size, one after another, and shows the remaining files and the cost.
fn flush(case: &Case, options: CompactionOptions) -> String {
    let bytes = case.parsed::<u64>("bytes").unwrap_or(64) * MIB;
    let step = case.parsed::<i64>("step").unwrap_or(1);
    let mut table = Table::new(options);
    let count = case.parsed::<i64>("count").unwrap_or(1);
    for n in 1..=count {
        table.flush(bytes, n * step * 1_000_000);
    }
    let mut levels: Vec<(u32, u64)> = Vec::new();
    for file in &table.files {
        match levels.iter_mut().find(|(level, _)| *level == file.level) {
            Some((_, count)) => *count += 1,
            None => levels.push((file.level, 1)),
        }
    }
    levels.sort_unstable();
    let mut out = format!(
        "{} files, {} over one token, {:.1} bytes written for each byte flushed\n",
        table.files.len(),
        table.overlap(),
        table.written as f64 / (bytes as f64 * count as f64)
    );
    for (level, count) in levels.iter().filter(|_| levels.len() > 1) {
        let _ = writeln!(out, "level {level}: {count}");
    }
    let _ = writeln!(out, "largest compaction {} MiB", table.largest / MIB);
    out
}

fn parsed(case: &Case, line: &str) -> SstableInfo {
    let wrong = |what: &str| -> ! { panic!("{}: {what} in \"{line}\"", case.place) };
    let number = |text: &str| text.parse::<i64>().unwrap_or_else(|_| wrong("no number"));
    let span = |text: &str| match text.split_once('-') {
        Some((first, last)) => (number(first), number(last)),
        None => wrong("no range"),
    };
    let mut words = line.split_whitespace().peekable();
    let generation = number(words.next().unwrap_or_default()) as u64;
    let size: f64 = words.next().and_then(|w| w.parse().ok()).unwrap_or_else(|| wrong("no size"));
    let tokens = match words.next_if(|word| !word.contains('=')) {
        Some(word) => span(word),
        None => (0, 1000),
    };
    let mut info = file(generation, 0, (size * MIB as f64) as u64, tokens);
    for word in words {
        let Some((name, value)) = word.split_once('=') else { wrong("a word without =") };
        match name {
            "level" => info.level = number(value) as u32,
            "ts" => {
                info.max_timestamp = TimestampMicros(number(value) * 1_000_000);
                info.min_timestamp = TimestampMicros((number(value) - 1) * 1_000_000);
            }
            "gone" => info.max_local_deletion_time = DeletionSeconds(number(value)),
            "droppable" => info.droppable_tombstone_ratio = value.parse().unwrap_or(0.0),
            "repaired" => info.repaired_at = number(value),
            "pending" => info.pending_repair = Some(Uuid::from_u128(number(value) as u128)),
            "run" => info.run = Some(Uuid::from_u128(number(value) as u128)),
            "windows" => info.windows = Some(span(value)),
            "hot" => info.hotness = value.parse().unwrap_or(0.0),
            _ => wrong("an unknown word"),
        }
    }
    info
}

fn show(plan: &Plan) -> String {
    let list = |generations: &[Generation]| {
        let shown: Vec<String> = generations.iter().map(|g| g.0.to_string()).collect();
        shown.join(" ")
    };
    let mut out = format!("compact {} -> level {}", list(&plan.inputs), plan.level);
    match &plan.cut {
        Cut::Never => {}
        Cut::AtBytes(bytes) => {
            let _ = write!(out, ", cut at {} MiB", bytes / MIB);
        }
        Cut::AtTokens(tokens) => {
            let _ = write!(out, ", cut at {} tokens", tokens.len());
        }
        Cut::AtSizes(sizes) => {
            let sizes: Vec<String> = sizes.iter().map(|s| (s / MIB).to_string()).collect();
            let _ = write!(out, ", cut at {} MiB", sizes.join(", "));
        }
        Cut::AtWindows => out.push_str(", cut at windows"),
    }
    if plan.apart {
        out.push_str(", apart");
    }
    if !plan.expired.is_empty() {
        let _ = write!(out, ", unread {}", list(&plan.expired));
    }
    let _ = write!(out, "\n    {:?}", plan.reason);
    out
}
