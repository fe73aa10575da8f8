//! Row ids of a subtree while it is built: a vector while they are few, a bitmap when that is smaller.

#[derive(Debug, Default)]
pub(crate) struct IdSet {
    ids: Vec<u32>,
    /// Empty while `ids` is in use.
    words: Vec<u64>,
    rows: u32,
}

impl IdSet {
    pub(crate) fn new(rows: u32) -> IdSet {
        IdSet { ids: Vec::new(), words: Vec::new(), rows }
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.ids.capacity() * 4 + self.words.capacity() * 8
    }

    pub(crate) fn insert(&mut self, id: u32) {
        if self.words.is_empty() {
            self.ids.push(id);
            if self.ids.len() > 1024 && self.ids.len() > self.rows as usize / 32 {
                self.spread();
            }
        } else {
            set_bit(&mut self.words, id);
        }
    }

    fn spread(&mut self) {
        self.words.resize(self.rows as usize / 64 + 1, 0);
        for id in self.ids.drain(..) {
            set_bit(&mut self.words, id);
        }
    }

    /// Removes all ids and gives them to `each` in ascending order, each once.
    pub(crate) fn drain<E>(&mut self, mut each: impl FnMut(u32) -> Result<(), E>) -> Result<(), E> {
        // A scan of the bitmap costs a cycle a word, a sort about fifty an id.
        if self.words.is_empty() && self.ids.len() > self.rows as usize / 64 / 32 {
            self.spread();
        }
        if self.words.is_empty() {
            self.ids.sort_unstable();
            self.ids.dedup();
            return self.ids.drain(..).try_for_each(each);
        }
        let mut base = 0u32;
        for word in &mut self.words {
            let mut bits = std::mem::take(word);
            while bits != 0 {
                each(base + bits.trailing_zeros())?;
                bits &= bits - 1;
            }
            base = base.wrapping_add(64);
        }
        self.words.clear();
        Ok(())
    }
}

fn set_bit(words: &mut [u64], id: u32) {
    if let Some(word) = words.get_mut(id as usize / 64) {
        *word |= 1 << (id % 64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_come_out_in_order_and_once_from_both_forms() {
        let mut random = testkit::Random::new(9);
        for (rows, count) in [(1_000_000u32, 10), (1_000_000, 5_000), (100_000, 90_000), (3, 7)] {
            let mut set = IdSet::new(rows);
            for _ in 0..2 {
                let mut ids: Vec<u32> =
                    (0..count).map(|_| random.below(rows as usize) as u32).collect();
                ids.iter().chain(ids.first()).for_each(|id| set.insert(*id));
                ids.sort_unstable();
                ids.dedup();
                let mut out = Vec::new();
                set.drain(|id| {
                    out.push(id);
                    Ok::<(), ()>(())
                })
                .unwrap();
                assert_eq!(out, ids, "{count} of {rows}");
            }
        }
    }
}
