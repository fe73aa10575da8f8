//! Tries on disk, as format BTI has them: reading.
//!
//! A node is a byte with its type (high four bits) and its payload's flags (low four), then
//! transitions, then the payload. Positions of children are given as distances back. No node crosses
//! a page of 4 KiB. Source: `io.tries.TrieNode`, `io.tries.Walker`.
//!
//! Bytes come from a [`Pages`]: a walk that misses some ends with [`Stop::Need`] and is restarted
//! once they are loaded.

/// Bytes that no node crosses.
pub const PAGE_BYTES: u64 = 4096;
/// Longest way from a root: a key of 64 KiB, each byte escaped, and its ends.
const DEPTH_MAX: usize = 1 << 18;

/// Reason why a walk stopped early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The bytes at this position are needed.
    Need(u64),
    /// The bytes at this position cannot be a node.
    Damaged(u64),
}

/// Source of the bytes of a trie's file.
pub trait Pages {
    /// The bytes from a position on, to the end of its page at least (or of the file).
    ///
    /// # Errors
    /// `Need` when they are not loaded, `Damaged` for a position outside of the file.
    fn at(&self, position: u64) -> Result<&[u8], Stop>;
}

impl Pages for [u8] {
    fn at(&self, position: u64) -> Result<&[u8], Stop> {
        let start = usize::try_from(position).map_err(|_| Stop::Damaged(position))?;
        self.get(start..).filter(|b| !b.is_empty()).ok_or(Stop::Damaged(position))
    }
}

/// Layout of the transitions of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Leaf,
    /// The only transition: its byte, and how far back it leads.
    Single(u8, u64),
    /// A list of bytes, then of distances with that many bits.
    Sparse {
        bits: usize,
    },
    /// The first byte and the span, then distances; 0 = none.
    Dense {
        bits: usize,
    },
}

/// A node.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    position: u64,
    bytes: &'a [u8],
    shape: Shape,
    count: usize,
    /// Four bits for the form of the payload; 0 = none.
    pub flags: u8,
    payload_at: usize,
}

impl<'a> Node<'a> {
    /// Reads the node at a position.
    ///
    /// # Errors
    /// Those of [`Pages::at`]; `Damaged`.
    pub fn read<P: Pages + ?Sized>(pages: &'a P, position: u64) -> Result<Node<'a>, Stop> {
        let bytes = pages.at(position)?;
        Node::parse(position, bytes).ok_or(Stop::Damaged(position))
    }

    fn parse(position: u64, bytes: &'a [u8]) -> Option<Node<'a>> {
        let first = *bytes.first()?;
        let second = bytes.get(1).copied();
        let third = bytes.get(2).copied();
        let low = first & 15;
        let node = |shape, count, flags, payload_at| {
            let node = Node { position, bytes, shape, count, flags, payload_at };
            (bytes.len() >= payload_at).then_some(node)
        };
        let sparse = |bits: usize| {
            let count = usize::from(second?);
            let distances = count.saturating_mul(bits).div_ceil(8);
            let payload_at = count.saturating_add(distances).saturating_add(2);
            if count == 0 { None } else { node(Shape::Sparse { bits }, count, low, payload_at) }
        };
        let dense = |bits: usize| {
            let count = usize::from(third?).saturating_add(1);
            let payload_at = count.saturating_mul(bits).div_ceil(8).saturating_add(3);
            node(Shape::Dense { bits }, count, low, payload_at)
        };
        match first >> 4 {
            0 => node(Shape::Leaf, 0, low, 1),
            1 => node(Shape::Single(second?, u64::from(low)), 1, 0, 2),
            2 => node(Shape::Single(second?, number(bytes, 2, 1)?), 1, low, 3),
            3 => {
                let back = u64::from(low) << 8 | u64::from(second?);
                node(Shape::Single(third?, back), 1, 0, 3)
            }
            4 => node(Shape::Single(second?, number(bytes, 2, 2)?), 1, low, 4),
            5 => sparse(8),
            6 => sparse(12),
            7 => sparse(16),
            8 => sparse(24),
            9 => sparse(40),
            10 => dense(12),
            11 => dense(16),
            12 => dense(24),
            13 => dense(32),
            14 => dense(40),
            _ => dense(64),
        }
    }

    /// Returns the bytes after the node, to the end of the loaded ones.
    pub fn payload(&self) -> &'a [u8] {
        self.bytes.get(self.payload_at..).unwrap_or(&[])
    }

    /// Returns true if it has no transitions.
    pub fn is_leaf(&self) -> bool {
        self.count == 0
    }

    /// Returns the number of transitions, including missing ones.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The transition of a byte (`Ok`), or where it would be (`Err`), as a binary search.
    fn search(&self, byte: u8) -> Result<usize, usize> {
        match self.shape {
            Shape::Leaf => Err(0),
            Shape::Single(own, _) => match own.cmp(&byte) {
                std::cmp::Ordering::Equal => Ok(0),
                std::cmp::Ordering::Greater => Err(0),
                std::cmp::Ordering::Less => Err(1),
            },
            Shape::Sparse { .. } => {
                let end = self.count.saturating_add(2);
                self.bytes.get(2..end).unwrap_or(&[]).binary_search(&byte)
            }
            Shape::Dense { .. } => {
                let first = self.bytes.get(1).copied().unwrap_or(0);
                match byte.checked_sub(first) {
                    None => Err(0),
                    Some(at) if usize::from(at) >= self.count => Err(self.count),
                    Some(at) if self.distance(usize::from(at)) == Some(0) => Err(usize::from(at)),
                    Some(at) => Ok(usize::from(at)),
                }
            }
        }
    }

    fn distance(&self, index: usize) -> Option<u64> {
        let (start, bits) = match self.shape {
            Shape::Leaf => return None,
            Shape::Single(_, back) => return Some(back),
            Shape::Sparse { bits } => (self.count.checked_add(2)?, bits),
            Shape::Dense { bits } => (3usize, bits),
        };
        if bits != 12 {
            let width = bits / 8;
            return number(self.bytes, start.checked_add(index.checked_mul(width)?)?, width);
        }
        let at = start.checked_add(index.checked_mul(3)? / 2)?;
        let word = number(self.bytes, at, 2)?;
        Some(if index.is_multiple_of(2) { word >> 4 } else { word & 0xfff })
    }

    /// Target of a transition; `None`: no transition has that number.
    fn child(&self, index: usize) -> Result<Option<u64>, Stop> {
        if index >= self.count {
            return Ok(None);
        }
        match self.distance(index) {
            None => Err(Stop::Damaged(self.position)),
            Some(0) if matches!(self.shape, Shape::Dense { .. }) => Ok(None),
            // A node is written after its children: no walk goes in a circle.
            Some(0) => Err(Stop::Damaged(self.position)),
            Some(back) => match self.position.checked_sub(back) {
                Some(child) => Ok(Some(child)),
                None => Err(Stop::Damaged(self.position)),
            },
        }
    }

    /// The first transition at or after a number, with its own number.
    fn child_from(&self, mut index: usize) -> Result<Option<(usize, u64)>, Stop> {
        while index < self.count {
            if let Some(child) = self.child(index)? {
                return Ok(Some((index, child)));
            }
            index = index.saturating_add(1);
        }
        Ok(None)
    }

    /// The last transition before a number, with its own.
    fn child_before(&self, mut index: usize) -> Result<Option<(usize, u64)>, Stop> {
        while let Some(before) = index.checked_sub(1) {
            if let Some(child) = self.child(before)? {
                return Ok(Some((before, child)));
            }
            index = before;
        }
        Ok(None)
    }
}

/// Big-endian number of up to eight bytes.
fn number(bytes: &[u8], at: usize, width: usize) -> Option<u64> {
    let field = bytes.get(at..at.checked_add(width)?)?;
    Some(field.iter().fold(0u64, |n, b| n << 8 | u64::from(*b)))
}

/// Sign-extended big-endian number. Source: `io.util.SizedInts`.
pub fn signed_number(bytes: &[u8], width: usize) -> Option<i64> {
    let shift = 64usize.checked_sub(width.checked_mul(8)?)?;
    if width == 0 {
        return Some(0);
    }
    let value = number(bytes, 0, width)?.cast_signed();
    let shift = u32::try_from(shift).ok()?;
    Some(value.wrapping_shl(shift).wrapping_shr(shift))
}

/// Follows a key from the root as far as there are transitions. The node where it ends stands for
/// the key if it has a payload and (no transitions, or the whole key was followed).
///
/// # Errors
/// `Need`, `Damaged`.
pub fn follow<'p, P: Pages + ?Sized>(
    pages: &'p P,
    root: u64,
    key: &[u8],
) -> Result<Option<Node<'p>>, Stop> {
    let mut node = Node::read(pages, root)?;
    for byte in key {
        let Ok(index) = node.search(*byte) else {
            return Ok(node.is_leaf().then_some(node));
        };
        match node.child(index)? {
            Some(child) => node = Node::read(pages, child)?,
            None => return Ok(None),
        }
    }
    Ok(Some(node))
}

/// A place in a trie: the nodes from the root on, each with the transition that was taken.
#[derive(Clone, Debug, Default)]
pub struct Path {
    steps: Vec<(u64, usize)>,
    last: Option<u64>,
}

impl Path {
    /// The node at the place; `None`: there is no such place.
    pub fn node(&self) -> Option<u64> {
        self.last
    }

    fn at(root: u64) -> Path {
        Path { steps: Vec::new(), last: Some(root) }
    }

    fn down(&mut self, index: usize, child: u64) -> Result<(), Stop> {
        if let Some(here) = self.last {
            if self.steps.len() >= DEPTH_MAX {
                return Err(Stop::Damaged(here));
            }
            self.steps.push((here, index));
        }
        self.last = Some(child);
        Ok(())
    }

    /// The first position with a payload.
    ///
    /// # Errors
    /// `Need`, `Damaged`: the path is then unusable.
    pub fn first<P: Pages + ?Sized>(pages: &P, root: u64) -> Result<Path, Stop> {
        let mut path = Path::at(root);
        path.go_first(pages)?;
        Ok(path)
    }

    fn go_first<P: Pages + ?Sized>(&mut self, pages: &P) -> Result<(), Stop> {
        while let Some(at) = self.last {
            let node = Node::read(pages, at)?;
            if node.flags != 0 {
                return Ok(());
            }
            match node.child_from(0)? {
                Some((index, child)) => self.down(index, child)?,
                None => return Err(Stop::Damaged(at)),
            }
        }
        Ok(())
    }

    fn go_last<P: Pages + ?Sized>(&mut self, pages: &P) -> Result<(), Stop> {
        while let Some(at) = self.last {
            let node = Node::read(pages, at)?;
            match node.child_before(node.count())? {
                Some((index, child)) => self.down(index, child)?,
                None if node.flags != 0 => return Ok(()),
                None => return Err(Stop::Damaged(at)),
            }
        }
        Ok(())
    }

    /// The next place with a payload, in order.
    ///
    /// # Errors
    /// `Need`: call again, nothing has changed; `Damaged`.
    pub fn next<P: Pages + ?Sized>(&mut self, pages: &P) -> Result<(), Stop> {
        let mut path = self.clone();
        let Some(mut at) = path.last else { return Ok(()) };
        let mut from = 0usize;
        loop {
            let node = Node::read(pages, at)?;
            if let Some((index, child)) = node.child_from(from)? {
                path.last = Some(at);
                path.down(index, child)?;
                path.go_first(pages)?;
                break;
            }
            match path.steps.pop() {
                Some((parent, index)) => (at, from) = (parent, index.saturating_add(1)),
                None => {
                    path.last = None;
                    break;
                }
            }
        }
        *self = path;
        Ok(())
    }

    /// The place with a payload before this one.
    ///
    /// # Errors
    /// Those of [`Path::next`].
    pub fn previous<P: Pages + ?Sized>(&mut self, pages: &P) -> Result<(), Stop> {
        let mut path = self.clone();
        loop {
            let Some((parent, index)) = path.steps.pop() else {
                path.last = None;
                break;
            };
            let node = Node::read(pages, parent)?;
            path.last = Some(parent);
            if let Some((before, child)) = node.child_before(index)? {
                path.down(before, child)?;
                path.go_last(pages)?;
                break;
            }
            if node.flags != 0 {
                break;
            }
        }
        *self = path;
        Ok(())
    }

    /// The last position at or before a key in a trie of separators: the greatest payload whose
    /// path is not after the key.
    ///
    /// # Errors
    /// `Need`, `Damaged`.
    pub fn floor<P: Pages + ?Sized>(pages: &P, root: u64, key: &[u8]) -> Result<Path, Stop> {
        let mut path = Path::at(root);
        let mut at = root;
        for byte in key {
            let node = Node::read(pages, at)?;
            match node.search(*byte) {
                Ok(index) => match node.child(index)? {
                    Some(child) => {
                        path.down(index, child)?;
                        at = child;
                    }
                    None => return Err(Stop::Damaged(at)),
                },
                Err(index) => {
                    // Everything below a lesser transition is before the key.
                    if let Some((before, child)) = node.child_before(index)? {
                        path.down(before, child)?;
                        path.go_last(pages)?;
                    } else if node.flags == 0 {
                        path.previous(pages)?;
                    }
                    return Ok(path);
                }
            }
        }
        if Node::read(pages, at)?.flags == 0 {
            path.previous(pages)?;
        }
        Ok(path)
    }

    /// Position where a scan for keys at or after `key` begins in a trie of unique prefixes. It is
    /// a prefix of the key, which may stand for a lesser one, or else the first position after it.
    ///
    /// # Errors
    /// `Need`, `Damaged`.
    pub fn ceiling<P: Pages + ?Sized>(pages: &P, root: u64, key: &[u8]) -> Result<Path, Stop> {
        let mut path = Path::at(root);
        let mut at = root;
        for byte in key {
            let node = Node::read(pages, at)?;
            match node.search(*byte) {
                Ok(index) => match node.child(index)? {
                    Some(child) => {
                        path.down(index, child)?;
                        at = child;
                    }
                    None => return Err(Stop::Damaged(at)),
                },
                Err(_) if node.is_leaf() => return Ok(path),
                Err(index) => {
                    // Behind the key: the first below a greater transition, here or further up.
                    let (mut node, mut from) = (node, index);
                    loop {
                        if let Some((next, child)) = node.child_from(from)? {
                            path.last = Some(node.position);
                            path.down(next, child)?;
                            path.go_first(pages)?;
                            return Ok(path);
                        }
                        let Some((parent, taken)) = path.steps.pop() else {
                            path.last = None;
                            return Ok(path);
                        };
                        node = Node::read(pages, parent)?;
                        from = taken.saturating_add(1);
                    }
                }
            }
        }
        path.go_first(pages)?;
        Ok(path)
    }
}
