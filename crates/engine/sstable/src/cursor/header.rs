//! The part of a cursor that reads where a partition begins.

use sst_format::row::decode_partition_header;

use super::{Current, Result, SstableCursor, State, Step, Target, is_behind};

impl SstableCursor {
    pub(super) fn partition_header(&mut self) -> Result<Step> {
        let is_range = matches!(self.target, Target::Range(_));
        if is_range && self.data.is_at_end() {
            self.state = State::Done;
            return Ok(Step::Again);
        }
        let start = self.data.position();
        let (key, deletion, length) =
            match decode_partition_header(self.data.bytes(), self.meta.version()) {
                Ok(found) => found,
                Err(e) => return self.data_error(0, &e),
            };
        if is_range {
            self.hash = self.meta.hash_of(key);
            let token = self.hash.map_or_else(|| self.meta.token_of(key), |hash| hash.token);
            if self.started && (token, key) <= (self.token, self.key.as_slice()) {
                return Err(self.corrupt_data(start, "partition keys do not ascend"));
            }
            self.started = true;
            self.token = token;
            self.key.clear();
            self.key.extend_from_slice(key);
        } else if key != self.key && self.meta.footer().is_some() {
            // The trie knows prefixes of keys: it was another key with this one.
            self.state = State::Done;
            return Ok(Step::Again);
        } else if key != self.key {
            return Err(
                self.corrupt_data(start, "another partition lies where the index points to")
            );
        }
        self.deletion = deletion;
        self.partition_start = start;
        self.data.skip(length);
        self.rows_start = self.data.position();
        self.begin_partition();
        if let Target::Range(target) = &self.target {
            let (range, filter) = &**target;
            if is_behind(self.token, &self.key, &range.end) {
                self.state = State::Done;
                return Ok(Step::Again);
            }
            let owned = filter.as_ref().is_none_or(|f| f.shows(self.token));
            if !owned || !is_behind(self.token, &self.key, &range.start) {
                self.state = State::SkipRows;
                return Ok(Step::Again);
            }
        }
        self.current = Current::Partition;
        self.state = match self.meta.schema().has_static() {
            true => State::StaticRow,
            false => self.first_state(),
        };
        Ok(Step::Item)
    }

    pub(super) fn begin_partition(&mut self) {
        self.head = None;
        self.ended = false;
        self.slice = 0;
        self.in_slice = self.all;
        self.open = None;
        self.entered = false;
        self.arena.clear();
        self.events.clear();
    }
}
