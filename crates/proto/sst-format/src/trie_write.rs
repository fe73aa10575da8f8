//! Tries on disk, as format BTI has them: writing.
//!
//! Keys come in order. A node is complete once a key behind it came; complete branches are kept until
//! they would not fit into a page together with the node above, and are written then, each within one
//! page. So a walk changes pages seldom, and no node crosses a page.
//! Source: `io.tries.IncrementalTrieWriterPageAware`, `io.tries.TrieNode`.

use codec::Writer;

use crate::trie::PAGE_BYTES;

const PAGE: usize = 4096;
const _: () = assert!(PAGE as u64 == PAGE_BYTES);
/// Bytes that the distance to a node of another page takes at most: 1 TiB of trie.
const FAR_BYTES: usize = 5;

/// A payload: four bits for its node, and its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payload {
    /// Not 0.
    pub flags: u8,
    /// Up to some dozens.
    pub bytes: Vec<u8>,
}

#[derive(Debug)]
enum Child {
    /// Where it lies.
    Written(u64),
    Branch(Box<Branch>),
}

/// A node that is not written yet, with what is below it.
#[derive(Debug, Default)]
struct Branch {
    children: Vec<(u8, Child)>,
    payload: Option<Payload>,
    /// Most bytes that it takes with all below it, known once it is complete.
    bytes_max: usize,
}

impl Branch {
    /// Most bytes of the node itself.
    fn own_bytes_max(&self) -> usize {
        let far = self.children.iter().any(|(_, c)| matches!(c, Child::Written(_)));
        let count = self.children.len();
        let transitions = match (count, far) {
            (0, _) => 1,
            (_, true) => count.saturating_mul(FAR_BYTES + 1).saturating_add(3),
            (_, false) => count.saturating_mul(5).div_ceil(2).saturating_add(3),
        };
        transitions.saturating_add(self.payload.as_ref().map_or(0, |p| p.bytes.len()))
    }

    fn measure(&mut self) {
        let below = self.children.iter().map(|(_, c)| match c {
            Child::Written(_) => 0,
            Child::Branch(branch) => branch.bytes_max,
        });
        self.bytes_max = below.fold(self.own_bytes_max(), usize::saturating_add);
    }
}

/// Writes one trie after the other into a file; positions are the file's.
#[derive(Debug, Default)]
pub struct TrieWriter {
    /// The nodes of the last key, from the root on; each but the last leads on by the byte beside it.
    path: Vec<(Branch, u8)>,
    key: Vec<u8>,
    places: u64,
}

impl TrieWriter {
    /// Forgets what was added.
    pub fn clear(&mut self) {
        self.path.clear();
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

    /// Adds a payload under a key that lies behind all before. `out` is what follows the first `at`
    /// bytes of the file.
    pub fn add(&mut self, key: &[u8], payload: Payload, at: u64, out: &mut Vec<u8>) {
        let common = key.iter().zip(&self.key).take_while(|(a, b)| a == b).count();
        if self.path.is_empty() {
            self.path.push((Branch::default(), 0));
        }
        self.close(common, at, out);
        for byte in key.get(common..).unwrap_or(&[]) {
            if let Some((_, next)) = self.path.last_mut() {
                *next = *byte;
            }
            self.path.push((Branch::default(), 0));
        }
        if let Some((node, _)) = self.path.last_mut() {
            node.payload = Some(payload);
        }
        self.key.clear();
        self.key.extend_from_slice(key);
        self.places = self.places.saturating_add(1);
    }

    /// Completes the nodes below that depth.
    fn close(&mut self, depth: usize, at: u64, out: &mut Vec<u8>) {
        while self.path.len() > depth.saturating_add(1) {
            let Some((mut node, _)) = self.path.pop() else { return };
            complete(&mut node, at, out);
            if let Some((parent, byte)) = self.path.last_mut() {
                parent.children.push((*byte, Child::Branch(Box::new(node))));
            }
        }
    }

    /// Ends the trie: the position of its root. `None`: it is empty.
    pub fn finish(&mut self, at: u64, out: &mut Vec<u8>) -> Option<u64> {
        self.close(0, at, out);
        let (mut root, _) = self.path.pop()?;
        self.clear();
        complete(&mut root, at, out);
        Some(write_in_page(&root, at, out))
    }
}

/// Measures a node; its children are written when it does not fit into a page with them.
fn complete(node: &mut Branch, at: u64, out: &mut Vec<u8>) {
    node.measure();
    if node.bytes_max <= PAGE {
        return;
    }
    for (_, child) in &mut node.children {
        if let Child::Branch(branch) = child {
            *child = Child::Written(write_in_page(branch, at, out));
        }
    }
    node.measure();
}

/// Writes a branch that fits into a page into this page or the next one.
fn write_in_page(branch: &Branch, at: u64, out: &mut Vec<u8>) -> u64 {
    let position = at.saturating_add(out.len() as u64);
    let used = usize::try_from(position % PAGE_BYTES).unwrap_or(0);
    if used > 0 && used.saturating_add(branch.bytes_max) > PAGE {
        out.resize(out.len().saturating_add(PAGE.saturating_sub(used)), 0);
    }
    write(branch, at, out)
}

fn write(branch: &Branch, at: u64, out: &mut Vec<u8>) -> u64 {
    let children: Vec<(u8, u64)> = branch
        .children
        .iter()
        .map(|(byte, child)| match child {
            Child::Written(position) => (*byte, *position),
            Child::Branch(branch) => (*byte, write(branch, at, out)),
        })
        .collect();
    let position = at.saturating_add(out.len() as u64);
    let flags = branch.payload.as_ref().map_or(0, |p| p.flags & 15);
    put_node(position, &children, flags, out);
    if let Some(payload) = &branch.payload {
        out.put_bytes(&payload.bytes);
    }
    position
}

/// Types by the bits that the longest distance takes.
fn put_node(position: u64, children: &[(u8, u64)], flags: u8, out: &mut Vec<u8>) {
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
    let mut distances = Vec::new();
    match u8::try_from(count) {
        // A single child beyond 16 bits has no type of its own.
        Ok(few) if sparse_type != 15 && sparse <= dense && count > 1 => {
            out.put_u8(sparse_type << 4 | flags);
            out.put_u8(few);
            children.iter().for_each(|(byte, _)| out.put_u8(*byte));
            distances.extend(children.iter().map(|(_, child)| back(*child)));
            put_distances(&distances, sparse_bits, out);
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
            put_distances(&distances, dense_bits, out);
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

    fn payload(i: usize) -> Payload {
        Payload { flags: 4, bytes: (i as u32).to_be_bytes().to_vec() }
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
