//! Tries on disk, as format BTI has them: writing.
//!
//! Keys come in order. A node is complete once a later key came. Complete branches are buffered until
//! they would not fit into a page together with the node above. Then they are written, each within
//! one page. So a walk changes pages seldom, and no node crosses a page. Source:
//! `io.tries.IncrementalTrieWriterPageAware`, `io.tries.TrieNode`.

use codec::Writer;

use crate::trie::PAGE_BYTES;

const PAGE: usize = 4096;
const _: () = assert!(PAGE as u64 == PAGE_BYTES);
/// Bytes that the distance to a node of another page takes at most: 1 TiB of trie.
const FAR_BYTES: usize = 5;

/// Most bytes of a payload.
pub const PAYLOAD_BYTES_MAX: usize = 20;

/// A payload: four bits for its node, and its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payload {
    /// Not 0, but for a node without one.
    flags: u8,
    length: u8,
    bytes: [u8; PAYLOAD_BYTES_MAX],
}

impl Payload {
    const NONE: Payload = Payload { flags: 0, length: 0, bytes: [0; PAYLOAD_BYTES_MAX] };

    /// Creates a payload of at most [`PAYLOAD_BYTES_MAX`] bytes; more are a broken invariant. Flags
    /// are 1..=15.
    pub fn new(flags: u8, bytes: &[u8]) -> Payload {
        stdx::invariant!(bytes.len() <= PAYLOAD_BYTES_MAX, "trie: a payload is too long");
        let mut payload = Payload { flags, ..Payload::NONE };
        payload.length = u8::try_from(bytes.len()).unwrap_or(0);
        if let Some(room) = payload.bytes.get_mut(..bytes.len()) {
            room.copy_from_slice(bytes);
        }
        payload
    }

    /// The first `length` of nine bytes. It avoids a copy of that length, which would wait for the
    /// bytes that were just written.
    #[inline]
    pub(crate) fn of_first(flags: u8, bytes: [u8; 9], length: usize) -> Payload {
        let mut payload = Payload { flags, ..Payload::NONE };
        payload.length = u8::try_from(length.min(9)).unwrap_or(9);
        if let Some(room) = payload.bytes.first_chunk_mut() {
            *room = bytes;
        }
        payload
    }

    fn bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.length)).unwrap_or(&[])
    }
}

/// Returns the length of the common prefix of two keys.
#[inline]
pub fn shared(a: &[u8], b: &[u8]) -> usize {
    let eights = a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0);
    let mut count = 0usize;
    for (a, b) in eights {
        let difference = u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b);
        if difference != 0 {
            let equal = usize::try_from(difference.trailing_zeros() / 8).unwrap_or(0);
            return count.saturating_add(equal);
        }
        count = count.saturating_add(8);
    }
    let (a, b) = (a.get(count..).unwrap_or(&[]), b.get(count..).unwrap_or(&[]));
    count.saturating_add(a.iter().zip(b).take_while(|(a, b)| a == b).count())
}

/// A node that a later key may still change, on the path to the last key.
#[derive(Debug)]
struct Open {
    /// Byte of the transition to the next node of the path.
    next: u8,
    payload: Payload,
    below: Below,
    /// Index in [`TrieWriter::complete`] of the first node below it, and in
    /// [`TrieWriter::payloads`].
    start: usize,
    payloads: usize,
}

/// A complete node. A large trie has many of them until its root is complete: they are small.
#[derive(Clone, Copy, Debug)]
struct Node {
    /// Where it lies in the file, with all below it. Of one that waits: where its payload begins in
    /// [`TrieWriter::payloads`].
    place: u64,
    children: u16,
    /// How many nodes before it are below it. Each takes a byte at least.
    size: u16,
    /// Most bytes that it takes with them; no more than a page has. [`WRITTEN`]: it is in the file.
    bytes_max: u16,
    /// Byte of the transition that leads to it.
    byte: u8,
    /// Bytes of its payload; its flags come before them.
    payload: u8,
}

const WRITTEN: u16 = 0;
const _: () = assert!(size_of::<Node>() <= 16);

impl Node {
    fn written(byte: u8, place: u64) -> Node {
        Node { place, children: 0, size: 0, bytes_max: WRITTEN, byte, payload: 0 }
    }

    #[inline]
    fn is_written(&self) -> bool {
        self.bytes_max == WRITTEN
    }

    /// Flags and bytes of the payload of one that waits.
    #[inline]
    fn payload<'p>(&self, payloads: &'p [u8]) -> (u8, &'p [u8]) {
        let start = usize::try_from(self.place).unwrap_or(usize::MAX);
        let all = payloads.get(start..).unwrap_or(&[]);
        let (flags, rest) = all.split_first().unwrap_or((&0, &[]));
        (*flags, rest.get(..usize::from(self.payload)).unwrap_or(&[]))
    }
}

/// A branch of complete nodes, and where its uppermost lies once it is written.
#[derive(Clone, Copy, Debug)]
struct Branch {
    from: usize,
    to: usize,
    position: u64,
}

/// Written bytes of the last page; 0: it is full, or there is none.
fn used_of_page(at: u64, out: &[u8]) -> usize {
    let position = at.saturating_add(out.len() as u64);
    usize::try_from(position % PAGE_BYTES).unwrap_or(0)
}

/// The complete nodes right below another one.
#[derive(Clone, Copy, Debug, Default)]
struct Below {
    children: usize,
    /// Most bytes that they take with all below them.
    bytes_max: usize,
    /// Most bytes of the last of them alone.
    last_bytes_max: usize,
    /// They are written, in other pages perhaps.
    is_far: bool,
}

/// Most bytes of a node itself. Source: [`put_node`].
fn own_bytes_max(below: Below, payload: &Payload) -> usize {
    let count = below.children;
    let transitions = match (count, below.last_bytes_max, payload.flags) {
        (0, ..) => 1,
        _ if below.is_far => count.saturating_mul(FAR_BYTES + 1).saturating_add(3),
        // A node directly follows its only child.
        (1, 0..=15, 0) => 2,
        (1, 0..=255, _) | (1, _, 0) => 3,
        (1, ..) => 4,
        _ => {
            let bits = if below.bytes_max < 256 { 8 } else { 12 };
            count.saturating_mul(bits).div_ceil(8).saturating_add(count).saturating_add(2)
        }
    };
    transitions.saturating_add(usize::from(payload.length))
}

/// Writes one trie after the other into a file; positions are the file's.
#[derive(Debug, Default)]
pub struct TrieWriter {
    /// The nodes of the last key, from the root on; each but the last leads on by its byte.
    path: Vec<Open>,
    /// Complete nodes that wait to be written, or to be skipped. Each comes after all nodes below
    /// it, so that the list is in the order of writing.
    complete: Vec<Node>,
    /// Flags and bytes of the payloads of waiting nodes, in the same order.
    payloads: Vec<u8>,
    key: Vec<u8>,
    places: u64,
    /// Children of the node that is being written: the bytes that lead to them and their positions.
    children: Vec<(u8, u64)>,
    /// Branches below a node whose children are written, the last first; reused.
    branches: Vec<Branch>,
    /// Branches that are not written yet: most bytes, and the index among them.
    waiting: Vec<(u16, usize)>,
    distances: Vec<u64>,
}

impl TrieWriter {
    /// Forgets what was added.
    pub fn clear(&mut self) {
        self.path.clear();
        self.complete.clear();
        self.payloads.clear();
        self.key.clear();
        self.places = 0;
    }

    /// Payloads so far.
    pub fn len(&self) -> u64 {
        self.places
    }

    /// No payload so far.
    pub fn is_empty(&self) -> bool {
        self.places == 0
    }

    /// Adds a payload under a key that is greater than all before. `out` has the bytes after the
    /// first `at` bytes of the file.
    pub fn add(&mut self, key: &[u8], payload: Payload, at: u64, out: &mut Vec<u8>) {
        let common = shared(key, &self.key);
        if self.path.is_empty() {
            self.open();
        }
        self.close(common, at, out);
        for byte in key.get(common..).unwrap_or(&[]) {
            if let Some(last) = self.path.last_mut() {
                last.next = *byte;
            }
            self.open();
        }
        if let Some(last) = self.path.last_mut() {
            last.payload = payload;
        }
        self.key.truncate(common);
        self.key.extend_from_slice(key.get(common..).unwrap_or(&[]));
        self.places = self.places.saturating_add(1);
    }

    fn open(&mut self) {
        let (start, payloads) = (self.complete.len(), self.payloads.len());
        let (payload, below) = (Payload::NONE, Below::default());
        self.path.push(Open { next: 0, payload, below, start, payloads });
    }

    /// Completes the nodes below that depth.
    fn close(&mut self, depth: usize, at: u64, out: &mut Vec<u8>) {
        while self.path.len() > depth.saturating_add(1) {
            let Some(node) = self.path.pop() else { return };
            let Some(next) = self.path.last().map(|parent| parent.next) else { return };
            let (own, bytes_max) = self.complete(&node, next, at, out);
            if let Some(Open { below, .. }) = self.path.last_mut() {
                below.children = below.children.saturating_add(1);
                below.bytes_max = below.bytes_max.saturating_add(bytes_max);
                below.last_bytes_max = own;
            }
        }
    }

    /// Ends the trie: the position of its root. `None`: it is empty.
    pub fn finish(&mut self, at: u64, out: &mut Vec<u8>) -> Option<u64> {
        self.close(0, at, out);
        let root = self.path.pop()?;
        self.complete(&root, 0, at, out);
        let position = self.write_in_page(0, self.complete.len(), at, out);
        self.clear();
        Some(position)
    }

    /// Completes a node, which is reached by `byte`: the most bytes that it takes, alone and with all below it. Its
    /// children are written when it does not fit into a page with them.
    fn complete(&mut self, node: &Open, byte: u8, at: u64, out: &mut Vec<u8>) -> (usize, usize) {
        let (payload, mut below) = (node.payload, node.below);
        let mut own = own_bytes_max(below, &payload);
        if own.saturating_add(below.bytes_max) > PAGE {
            self.write_children(node, at, out);
            (below.bytes_max, below.is_far) = (0, below.children > 0);
            own = own_bytes_max(below, &payload);
        }
        let bytes_max = own.saturating_add(below.bytes_max);
        let size = self.complete.len().saturating_sub(node.start);
        let narrow = |n: usize| u16::try_from(n).unwrap_or(u16::MAX);
        self.complete.push(Node {
            place: self.payloads.len() as u64,
            children: narrow(below.children),
            size: narrow(size),
            bytes_max: narrow(bytes_max),
            byte,
            payload: payload.length,
        });
        self.payloads.push(payload.flags);
        // The first nine have nearly all of them, and to append as many always needs no loop.
        match (payload.bytes.first_chunk::<9>(), payload.length) {
            (Some(bytes), 0..=9) => {
                let end = self.payloads.len().saturating_add(usize::from(payload.length));
                self.payloads.extend_from_slice(bytes);
                self.payloads.truncate(end);
            }
            _ => self.payloads.extend_from_slice(payload.bytes()),
        }
        (own, bytes_max)
    }

    /// Writes the branches below a node, each of which remains as a written node. The largest that
    /// fits into the rest of the page is the next, so that little of a page stays empty.
    fn write_children(&mut self, node: &Open, at: u64, out: &mut Vec<u8>) {
        let start = node.start;
        let mut branches = std::mem::take(&mut self.branches);
        let mut waiting = std::mem::take(&mut self.waiting);
        branches.clear();
        waiting.clear();
        let mut to = self.complete.len();
        while to > start {
            let upmost = to.saturating_sub(1);
            let mut branch = Branch { from: upmost, to, position: 0 };
            match self.complete.get(upmost) {
                Some(node) if node.is_written() => branch.position = node.place,
                Some(Node { size, bytes_max, .. }) => {
                    branch.from = upmost.saturating_sub(usize::from(*size));
                    waiting.push((*bytes_max, branches.len()));
                }
                None => {}
            }
            to = branch.from;
            branches.push(branch);
        }
        waiting.sort_unstable();
        while let Some(largest) = waiting.len().checked_sub(1) {
            let room = PAGE.saturating_sub(used_of_page(at, out));
            let fitting = waiting.partition_point(|(bytes_max, _)| usize::from(*bytes_max) <= room);
            // Where none fits, the largest begins the next page.
            let (_, next) = waiting.remove(fitting.checked_sub(1).unwrap_or(largest));
            if let Some(Branch { from, to, .. }) = branches.get(next).copied() {
                let position = self.write_in_page(from, to, at, out);
                if let Some(branch) = branches.get_mut(next) {
                    branch.position = position;
                }
            }
        }
        let mut kept = start;
        for Branch { to, position, .. } in branches.iter().rev() {
            let byte = self.complete.get(to.saturating_sub(1)).map_or(0, |node| node.byte);
            if let Some(place) = self.complete.get_mut(kept) {
                *place = Node::written(byte, *position);
            }
            kept = kept.saturating_add(1);
        }
        self.complete.truncate(kept);
        self.payloads.truncate(node.payloads);
        (self.branches, self.waiting) = (branches, waiting);
    }

    /// Writes a branch, the nodes `from..to`, that fits into a page into this page or the next one: where
    /// its uppermost node lies.
    fn write_in_page(&mut self, from: usize, to: usize, at: u64, out: &mut Vec<u8>) -> u64 {
        let bytes_max = match self.complete.get(to.saturating_sub(1)) {
            Some(node) if node.is_written() => return node.place,
            Some(node) => usize::from(node.bytes_max),
            None => 0,
        };
        let used = used_of_page(at, out);
        if used > 0 && used.saturating_add(bytes_max) > PAGE {
            out.resize(out.len().saturating_add(PAGE.saturating_sub(used)), 0);
        }
        self.children.clear();
        let mut position = 0;
        for node in self.complete.get(from..to).unwrap_or(&[]) {
            position = match node.is_written() {
                true => node.place,
                false => {
                    // Those below it were the last to be written.
                    let first = self.children.len().saturating_sub(usize::from(node.children));
                    let position = at.saturating_add(out.len() as u64);
                    let below = self.children.get(first..).unwrap_or(&[]);
                    let (flags, payload) = node.payload(&self.payloads);
                    put_node(position, below, flags & 15, &mut self.distances, out);
                    out.put_bytes(payload);
                    self.children.truncate(first);
                    position
                }
            };
            self.children.push((node.byte, position));
        }
        position
    }
}

/// Types by the bits that the longest distance takes.
/// `distances` is overwritten.
fn put_node(
    position: u64,
    children: &[(u8, u64)],
    flags: u8,
    distances: &mut Vec<u64>,
    out: &mut Vec<u8>,
) {
    let back = |child: u64| position.saturating_sub(child);
    let (Some((first, nearest)), Some((last, _))) = (children.first(), children.last()) else {
        out.put_u8(flags);
        return;
    };
    let longest = children.iter().map(|(_, child)| back(*child)).max().unwrap_or(0);
    let bits = 64u32.saturating_sub(longest.leading_zeros());
    if children.len() == 1 && bits <= 16 {
        let back = back(*nearest).to_be_bytes();
        let [.., high, low] = back;
        match (bits, flags) {
            (0..=4, 0) => out.put_bytes(&[0x10 | low, *first]),
            (0..=8, _) => out.put_bytes(&[0x20 | flags, *first, low]),
            (9..=12, 0) => out.put_bytes(&[0x30 | high, low, *first]),
            _ => out.put_bytes(&[0x40 | flags, *first, high, low]),
        }
        return;
    }
    let span = usize::from(last.saturating_sub(*first)).saturating_add(1);
    let (sparse_type, sparse_bits) = match bits {
        0..=8 => (5u8, 8usize),
        9..=12 => (6, 12),
        13..=16 => (7, 16),
        17..=24 => (8, 24),
        25..=40 => (9, 40),
        _ => (15, 64),
    };
    let (dense_type, dense_bits) = match bits {
        0..=12 => (10u8, 12usize),
        13..=16 => (11, 16),
        17..=24 => (12, 24),
        25..=32 => (13, 32),
        33..=40 => (14, 40),
        _ => (15, 64),
    };
    let count = children.len();
    let sparse = count.saturating_mul(sparse_bits).div_ceil(8).saturating_add(count);
    let dense = span.saturating_mul(dense_bits).div_ceil(8).saturating_add(1);
    distances.clear();
    match u8::try_from(count) {
        // A single child beyond 16 bits has no type of its own.
        Ok(few) if sparse_type != 15 && sparse <= dense && count > 1 => {
            out.put_u8(sparse_type << 4 | flags);
            out.put_u8(few);
            children.iter().for_each(|(byte, _)| out.put_u8(*byte));
            distances.extend(children.iter().map(|(_, child)| back(*child)));
            put_distances(distances, sparse_bits, out);
        }
        _ => {
            out.put_u8(dense_type << 4 | flags);
            out.put_u8(*first);
            out.put_u8(last.saturating_sub(*first));
            distances.resize(span, 0);
            for (byte, child) in children {
                let slot = usize::from(byte.saturating_sub(*first));
                if let Some(distance) = distances.get_mut(slot) {
                    *distance = back(*child);
                }
            }
            put_distances(distances, dense_bits, out);
        }
    }
}

fn put_distances(distances: &[u64], bits: usize, out: &mut Vec<u8>) {
    if bits != 12 {
        let skip = 8usize.saturating_sub(bits / 8);
        for distance in distances {
            out.put_bytes(distance.to_be_bytes().get(skip..).unwrap_or(&[]));
        }
        return;
    }
    for pair in distances.chunks(2) {
        let (a, b) = (pair.first().copied().unwrap_or(0), pair.get(1).copied());
        let [.., high, middle, low] = (a << 12 | b.unwrap_or(0)).to_be_bytes();
        out.put_u8(high);
        out.put_u8(middle);
        if b.is_some() {
            out.put_u8(low);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trie::{Node, Pages, Path, Stop, follow};

    /// Keys of several lengths and densities, in order.
    fn keys(count: usize, alphabet: u64, length: usize) -> Vec<Vec<u8>> {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut keys: Vec<Vec<u8>> = (0..count)
            .map(|_| {
                (0..length)
                    .map(|_| {
                        state ^= state << 13;
                        state ^= state >> 7;
                        state ^= state << 17;
                        (state % alphabet) as u8
                    })
                    .collect()
            })
            .collect();
        keys.sort();
        keys.dedup();
        keys
    }

    #[test]
    fn little_of_pages_is_left_empty() {
        for (count, length) in [(20_000, 4), (9_000, 3), (5_000, 4)] {
            let (mut out, mut writer) = (Vec::new(), TrieWriter::default());
            for key in &keys(count, 256, length) {
                writer.add(key, Payload::new(15, &[1; 2]), 0, &mut out);
            }
            writer.finish(0, &mut out).unwrap();
            // Nodes have no zeros but in distances of dense ones.
            let ends = out.chunks(PAGE).map(|page| page.iter().rev().take_while(|b| **b == 0));
            let empty: usize = ends.map(Iterator::count).sum();
            assert!(empty * 20 < out.len(), "{count}: {empty} of {}", out.len());
        }
    }

    fn payload(i: usize) -> Payload {
        Payload::new(4, &(i as u32).to_be_bytes())
    }

    fn number_at<P: Pages + ?Sized>(file: &P, position: u64) -> usize {
        let node = Node::read(file, position).unwrap();
        assert_eq!(node.flags, 4);
        u32::from_be_bytes(node.payload()[..4].try_into().unwrap()) as usize
    }

    /// Shows bytes to the end of a page of 4 KiB only.
    struct Paged<'f>(&'f [u8]);

    impl Pages for Paged<'_> {
        fn at(&self, position: u64) -> Result<&[u8], Stop> {
            let end = (position / PAGE_BYTES + 1) * PAGE_BYTES;
            let end = (end as usize).min(self.0.len());
            self.0.get(position as usize..end).ok_or(Stop::Damaged(position))
        }
    }

    #[test]
    fn every_key_of_every_density_is_found_forwards_and_backwards() {
        for (count, alphabet, length, before) in [
            (1, 256, 3, 0),
            (300, 256, 1, 100),
            (5000, 256, 4, 4000),
            (3000, 4, 9, 9),
            (900, 2, 600, 0),
        ] {
            let keys = keys(count, alphabet, length);
            let mut file = vec![0u8; before];
            let mut out = Vec::new();
            let mut writer = TrieWriter::default();
            for (i, key) in keys.iter().enumerate() {
                writer.add(key, payload(i), before as u64, &mut out);
            }
            assert_eq!(writer.len(), keys.len() as u64);
            let root = writer.finish(before as u64, &mut out).unwrap();
            file.extend_from_slice(&out);
            let pages = Paged(&file);
            let mut path = Path::first(&pages, root).unwrap();
            for (i, key) in keys.iter().enumerate() {
                let node = follow(&pages, root, key).unwrap().unwrap();
                assert_eq!(&node.payload()[..4], (i as u32).to_be_bytes());
                assert_eq!(number_at(&pages, path.node().unwrap()), i);
                let floor = Path::floor(&pages, root, key).unwrap();
                assert_eq!(number_at(&pages, floor.node().unwrap()), i);
                // Between this key and the next.
                let mut behind = key.clone();
                behind.push(0);
                let floor = Path::floor(&pages, root, &behind).unwrap();
                assert_eq!(number_at(&pages, floor.node().unwrap()), i);
                let ceiling = Path::ceiling(&pages, root, key).unwrap();
                assert_eq!(number_at(&pages, ceiling.node().unwrap()), i);
                path.next(&pages).unwrap();
            }
            assert_eq!(path.node(), None);
            let mut path = Path::floor(&pages, root, &[255; 700]).unwrap();
            for i in (0..keys.len()).rev() {
                assert_eq!(number_at(&pages, path.node().unwrap()), i);
                path.previous(&pages).unwrap();
            }
            assert_eq!(path.node(), None);
            // A prefix of the key may stand for a lesser one.
            let behind = Path::ceiling(&pages, root, &[255; 700]).unwrap();
            assert!(behind.node().is_none_or(|at| number_at(&pages, at) == keys.len() - 1));
            if length > 1 {
                let before = Path::floor(&pages, root, &[]).unwrap();
                assert_eq!(before.node(), None);
            }
        }
    }

    /// The same trie, built of nodes that own their children.
    #[derive(Default)]
    struct Branch {
        children: Vec<(u8, Branch)>,
        payload: Option<Payload>,
        /// Its position, once it is written.
        written: Option<u64>,
    }

    impl Branch {
        fn add(&mut self, key: &[u8], payload: Payload) {
            let Some((byte, rest)) = key.split_first() else {
                self.payload = Some(payload);
                return;
            };
            if self.children.last().is_none_or(|(last, _)| last != byte) {
                self.children.push((*byte, Branch::default()));
            }
            self.children.last_mut().unwrap().1.add(rest, payload);
        }

        /// Most bytes, alone and with all below it.
        fn sizes(&self) -> (usize, usize) {
            if self.written.is_some() {
                return (0, 0);
            }
            let sizes: Vec<_> = self.children.iter().map(|(_, child)| child.sizes()).collect();
            let below = Below {
                children: sizes.len(),
                bytes_max: sizes.iter().map(|(_, all)| all).sum(),
                last_bytes_max: sizes.last().map_or(0, |(own, _)| *own),
                is_far: self.children.iter().any(|(_, child)| child.written.is_some()),
            };
            let own = own_bytes_max(below, &self.payload.unwrap_or(Payload::NONE));
            (own, own + below.bytes_max)
        }

        fn bytes_max(&self) -> usize {
            self.sizes().1
        }

        /// Completes the nodes below it, then the node itself, as later keys would.
        fn complete(&mut self, at: u64, out: &mut Vec<u8>) {
            self.children.iter_mut().for_each(|(_, child)| child.complete(at, out));
            if self.bytes_max() <= PAGE {
                return;
            }
            let mut waiting: Vec<&mut Branch> = self.children.iter_mut().map(|(_, c)| c).collect();
            waiting.retain(|child| child.written.is_none());
            while !waiting.is_empty() {
                let room = PAGE - (at as usize + out.len()) % PAGE;
                let sizes = || waiting.iter().map(|child| child.bytes_max()).enumerate();
                // Among equally large ones, the one with the lower byte.
                let largest = |most: usize| {
                    sizes().filter(|(_, size)| *size <= most).min_by_key(|(_, s)| PAGE - s)
                };
                let (next, _) = largest(room).or_else(|| largest(PAGE)).unwrap();
                waiting.remove(next).place(at, out);
            }
        }

        fn place(&mut self, at: u64, out: &mut Vec<u8>) -> u64 {
            let used = (at as usize + out.len()) % PAGE;
            if used > 0 && used + self.bytes_max() > PAGE {
                out.resize(out.len() + PAGE - used, 0);
            }
            self.write(at, out)
        }

        fn write(&mut self, at: u64, out: &mut Vec<u8>) -> u64 {
            if let Some(position) = self.written {
                return position;
            }
            let below = self.children.iter_mut().map(|(byte, child)| (*byte, child.write(at, out)));
            let below: Vec<(u8, u64)> = below.collect();
            let position = at + out.len() as u64;
            let payload = self.payload.unwrap_or(Payload::NONE);
            put_node(position, &below, payload.flags, &mut Vec::new(), out);
            out.put_bytes(payload.bytes());
            self.written = Some(position);
            position
        }
    }

    #[test]
    fn a_trie_is_written_as_one_of_nodes_that_own_their_children() {
        for (count, alphabet, length, before) in [
            (1, 256, 3, 0),
            (300, 256, 1, 100),
            (20_000, 256, 4, 4000),
            (3000, 4, 9, 9),
            (3000, 2, 13, 4095),
            (120, 2, 600, 0),
        ] {
            let keys = keys(count, alphabet, length);
            let mut writer = TrieWriter::default();
            // Twice: nothing of the first trie remains in the second.
            for _ in 0..2 {
                let (mut root, mut expect) = (Branch::default(), Vec::new());
                let mut out = Vec::new();
                for (i, key) in keys.iter().enumerate() {
                    let payload = Payload::new(4, &vec![i as u8; i % 21]);
                    writer.add(key, payload, before, &mut out);
                    root.add(key, payload);
                }
                root.complete(before, &mut expect);
                let expect_root = root.place(before, &mut expect);
                assert_eq!(writer.finish(before, &mut out), Some(expect_root));
                assert!(out == expect, "{count} of {alphabet}: {} {}", out.len(), expect.len());
            }
        }
    }

    #[test]
    fn keys_are_alike_down_to_the_first_byte_that_differs() {
        let key: Vec<u8> = (0..40).collect();
        for length in 0..40 {
            for at in 0..length {
                let mut other = key.clone();
                other[at] ^= 0x80;
                assert_eq!(shared(&key[..length], &other), at);
                assert_eq!(shared(&other, &key[..length]), at);
            }
            assert_eq!(shared(&key[..length], &key), length);
        }
    }

    #[test]
    fn prefixes_of_keys_have_payloads_too() {
        let keys = [&b""[..], b"a", b"ab", b"abba", b"as", b"ask", b"b"];
        let mut out = Vec::new();
        let mut writer = TrieWriter::default();
        for (i, key) in keys.iter().enumerate() {
            writer.add(key, payload(i), 0, &mut out);
        }
        let root = writer.finish(0, &mut out).unwrap();
        let file = out.as_slice();
        for (key, expected) in [
            ("", 0),
            ("aa", 1),
            ("abb", 2),
            ("abc", 3),
            ("ar", 3),
            ("asking", 5),
            ("az", 5),
            ("c", 6),
        ] {
            let path = Path::floor(file, root, key.as_bytes()).unwrap();
            assert_eq!(number_at(file, path.node().unwrap()), expected, "{key}");
        }
        // In a trie of unique prefixes a node with children stands for its own key only.
        assert!(follow(file, root, b"ac").unwrap().is_none());
        assert!(follow(file, root, b"bc").unwrap().is_some());
    }

    #[test]
    fn damage_is_said_and_not_walked_in_circles() {
        let mut out = Vec::new();
        let mut writer = TrieWriter::default();
        for (i, key) in keys(200, 8, 5).iter().enumerate() {
            writer.add(key, payload(i), 0, &mut out);
        }
        let root = writer.finish(0, &mut out).unwrap();
        for at in 0..out.len() {
            let mut bad = out.clone();
            bad[at] ^= 0x55;
            let Ok(mut path) = Path::first(bad.as_slice(), root) else { continue };
            for _ in 0..1000 {
                if path.next(bad.as_slice()).is_err() || path.node().is_none() {
                    break;
                }
            }
        }
        assert_eq!(Path::first(&out[..], root + 1000).unwrap_err(), Stop::Damaged(root + 1000));
    }
}
