//! Helpers shared by the tests of the pickers: files, and a table that executes plans.

use stdx::{DeletionSeconds, Generation, TimestampMicros, Token, WallMicros};

use crate::{CompactionOptions, Cut, Plan, SstableInfo, TableState, next, parse_options, parts};

pub const MIB: u64 = 1 << 20;

/// A file of live data; tokens are given in 1/1000 of the ring.
pub fn file(
    generation: u64,
    level: u32,
    size_bytes: u64,
    (first, last): (i64, i64),
) -> SstableInfo {
    let token = |n: i64| {
        let at = i128::from(i64::MIN) + i128::from(n) * (1_i128 << 64) / 1000;
        Token(at.min(i128::from(i64::MAX)) as i64)
    };
    SstableInfo {
        generation: Generation(generation),
        size_bytes,
        level,
        min_timestamp: TimestampMicros(0),
        max_timestamp: TimestampMicros(i64::try_from(generation).unwrap()),
        max_local_deletion_time: DeletionSeconds::NONE,
        droppable_tombstone_ratio: 0.0,
        first_token: token(first),
        last_token: token(last),
        repaired_at: 0,
        pending_repair: None,
        run: None,
        windows: None,
        created_at: WallMicros(0),
        hotness: 0.0,
    }
}

pub fn state(candidates: &[SstableInfo]) -> TableState<'_> {
    TableState {
        candidates,
        others: &[],
        memtable_min_timestamp: None,
        gc_before: DeletionSeconds(1_000),
        now: WallMicros(1_000_000 * 1_000_000),
        flush_bytes: None,
    }
}

pub fn options(class: &str, more: &[(&str, &str)]) -> CompactionOptions {
    let class = [("class", class)];
    parse_options(class.into_iter().chain(more.iter().copied())).unwrap()
}

pub fn inputs(plan: &Plan) -> Vec<u64> {
    let mut inputs: Vec<u64> = plan.inputs.iter().map(|g| g.0).collect();
    inputs.sort_unstable();
    inputs
}

/// A table whose rows are spread evenly over what its files span; nothing is overwritten.
pub struct Table {
    pub files: Vec<SstableInfo>,
    pub options: CompactionOptions,
    pub written: u64,
    /// Largest sum of the inputs of one compaction.
    pub largest: u64,
    generation: u64,
    /// Compactions so far.
    runs: u128,
}

impl Table {
    pub fn new(options: CompactionOptions) -> Table {
        Table { files: Vec::new(), options, written: 0, largest: 0, generation: 0, runs: 0 }
    }

    /// Adds a file with timestamps up to `at` and compacts until nothing is due.
    pub fn flush(&mut self, bytes: u64, at: i64) {
        self.generation += 1;
        let mut flushed = file(self.generation, 0, bytes, (0, 1000));
        flushed.max_timestamp = TimestampMicros(at);
        self.written += bytes;
        self.files.push(flushed);
        for _ in 0..1000 {
            let state = TableState { flush_bytes: Some(bytes), ..state(&self.files) };
            let Some(plan) = next(&self.options, &state) else { return };
            self.run(&plan);
        }
        panic!("compactions do not come to rest: {:?}", self.files);
    }

    fn run(&mut self, plan: &Plan) {
        self.runs += 1;
        for part in parts::parts(plan, &self.files.clone()) {
            self.run_part(&part);
        }
    }

    fn run_part(&mut self, plan: &Plan) {
        let (inputs, rest): (Vec<_>, Vec<_>) =
            self.files.drain(..).partition(|f| plan.inputs.contains(&f.generation));
        assert_eq!(inputs.len(), plan.inputs.len(), "a plan names what is not there, or one twice");
        self.files = rest;
        let bytes: u64 = inputs.iter().map(|f| f.size_bytes).sum();
        self.written += bytes;
        self.largest = self.largest.max(bytes);
        let first = inputs.iter().map(|f| f.first_token).min().unwrap();
        let last = inputs.iter().map(|f| f.last_token).max().unwrap();
        let width = i128::from(last.0) - i128::from(first.0);
        let ends: Vec<Token> = match &plan.cut {
            Cut::Never | Cut::AtSizes(_) | Cut::AtWindows => vec![last],
            Cut::AtBytes(max) => {
                let parts = i128::from(bytes.div_ceil(*max).max(1));
                (1..=parts)
                    .map(|n| Token((i128::from(first.0) + width * n / parts) as i64))
                    .collect()
            }
            Cut::AtTokens(tokens) => tokens.iter().copied().chain([last]).collect(),
        };
        let mut from = first;
        for end in ends {
            self.generation += 1;
            let share = (i128::from(end.0) - i128::from(from.0)) as f64 / width as f64;
            self.files.push(SstableInfo {
                generation: Generation(self.generation),
                size_bytes: (bytes as f64 * share) as u64,
                level: plan.level,
                max_timestamp: inputs.iter().map(|f| f.max_timestamp).max().unwrap(),
                first_token: from,
                last_token: end,
                run: Some(stdx::Uuid::from_u128(self.runs)),
                ..inputs[0].clone()
            });
            from = Token(end.0.saturating_add(1));
        }
    }

    /// Files over one token, at most.
    pub fn overlap(&self) -> usize {
        let over = |at: Token| {
            self.files.iter().filter(|f| f.first_token <= at && at <= f.last_token).count()
        };
        self.files.iter().map(|f| over(f.first_token)).max().unwrap_or(0)
    }
}
