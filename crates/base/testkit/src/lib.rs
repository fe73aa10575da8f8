//! Shared tools of the tests of all crates: random numbers, mutated inputs, cases in text files.
//!
//! Owns: [`Random`], [`Mutations`] of a corpus, for fuzz functions, and the runner of [`cases`]. Never: clocks, the machine's randomness,
//! anything that is built into the server: other crates name it under `dev-dependencies` only.
//!
//! Invariant: the same seed gives the same numbers and inputs on every run and machine.

pub mod cases;

pub use cases::{Case, check};

/// Numbers that look random (xorshift64).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of a seed.
    pub fn new(seed: u64) -> Random {
        // A state of 0 stays 0.
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `bound`; 0 when that is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        let number = self.next_u64() % (bound.max(1) as u64);
        usize::try_from(number).unwrap_or(0)
    }

    /// Any byte.
    pub fn byte(&mut self) -> u8 {
        self.next_u64().to_le_bytes()[7]
    }

    /// One of a slice, which is not empty.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}

/// Inputs near to those of a corpus: 10,000 of them with up to four edits each (bytes replaced, inserted, removed
/// or with a bit flipped, the end cut off or repeated), after the corpus itself.
#[derive(Clone, Debug)]
pub struct Mutations {
    corpus: Vec<Vec<u8>>,
    rounds: usize,
    edits: usize,
    letters: Option<&'static [u8]>,
}

impl Mutations {
    /// Creates mutations of these inputs, at least one.
    pub fn of<T: AsRef<[u8]>>(corpus: impl IntoIterator<Item = T>) -> Mutations {
        let corpus: Vec<Vec<u8>> = corpus.into_iter().map(|seed| seed.as_ref().to_vec()).collect();
        assert!(!corpus.is_empty(), "nothing to mutate");
        Mutations { corpus, rounds: 10_000, edits: 4, letters: None }
    }

    /// Another number of inputs.
    pub fn rounds(self, rounds: usize) -> Mutations {
        Mutations { rounds, ..self }
    }

    /// Another number of edits of one input at most, at least one.
    pub fn edits(self, edits: usize) -> Mutations {
        Mutations { edits, ..self }
    }

    /// Half of the new bytes are of these, which mean something to the reader of a text.
    pub fn letters(self, letters: &'static [u8]) -> Mutations {
        Mutations { letters: Some(letters), ..self }
    }

    /// Gives the corpus and every mutation of it to `target`.
    pub fn run(self, mut target: impl FnMut(&[u8])) {
        self.corpus.iter().for_each(|seed| target(seed));
        let mut random = Random::new(1);
        for round in 0..self.rounds {
            let mut input = self.corpus[round % self.corpus.len()].clone();
            for _ in 0..=random.below(self.edits) {
                self.edit(&mut input, &mut random);
            }
            target(&input);
        }
    }

    fn edit(&self, input: &mut Vec<u8>, random: &mut Random) {
        let at = random.below(input.len() + 1);
        let new = match self.letters {
            Some(letters) if random.below(2) == 0 => *random.pick(letters),
            Some(_) => random.byte() % 128,
            None => random.byte(),
        };
        match random.below(8) {
            0 | 1 if at < input.len() => input[at] = new,
            2 | 3 if at < input.len() => input[at] ^= 1 << random.below(8),
            4 if at < input.len() => drop(input.remove(at)),
            5 => input.truncate(at),
            6 => {
                // At most 4 KiB more, so that it does not grow without end.
                let end = input.len().min(at + 4096);
                input.extend_from_within(at..end);
            }
            _ => input.insert(at, new),
        }
    }
}

/// Gives a corpus and 10,000 mutations of it to a fuzz function.
pub fn mutate<T: AsRef<[u8]>>(corpus: impl IntoIterator<Item = T>, target: fn(&[u8])) {
    Mutations::of(corpus).run(target);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mutations_are_near_to_the_corpus_and_the_same_on_every_run() {
        let collect = || {
            let mut all = Vec::new();
            Mutations::of([b"abcdefgh".as_slice(), b""]).run(|input| all.push(input.to_vec()));
            all
        };
        let all = collect();
        assert_eq!(all, collect());
        assert_eq!((all.len(), all[0].as_slice()), (10_002, b"abcdefgh".as_slice()));
        assert!(all.iter().any(|input| input.len() < 8) && all.iter().any(|input| input.len() > 8));
        let near = all.iter().filter(|input| input.starts_with(b"abc")).count();
        assert!(near > 1_000, "{near}: too few begin as the corpus does");
    }

    #[test]
    fn numbers_are_below_their_bound_and_meet_all_of_it() {
        let mut random = Random::new(0);
        let mut seen = [0; 5];
        (0..1_000).for_each(|_| seen[random.below(5)] += 1);
        assert!(seen.iter().all(|count| *count > 100), "{seen:?}");
        assert_eq!(random.below(0), 0);
        assert_ne!(Random::new(1).next_u64(), Random::new(2).next_u64());
    }

    #[test]
    fn letters_are_used_in_texts() {
        let mut count = 0;
        Mutations::of(["text"]).letters(b"=").run(|input| {
            count += usize::from(input.contains(&b'='));
        });
        assert!(count > 1_000, "{count}");
    }
}
