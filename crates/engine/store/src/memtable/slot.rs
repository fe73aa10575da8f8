//! Partitions of a memtable under one token.

use std::rc::Rc;

use smallvec::SmallVec;
use stdx::Token;

use super::held::{Held, Partition};
use super::partition::PartitionVersion;
use super::plain::{Chunks, PlainAt};

/// Versions of one partition, oldest first; usually one.
pub(super) type Versions = SmallVec<[Rc<PartitionVersion>; 1]>;

/// The partitions of one token, by key: nearly always it is one partition of one version.
pub(super) enum Slot {
    Plain(PlainAt),
    One(Rc<PartitionVersion>),
    /// At least one partition, each of at least one version.
    #[expect(clippy::box_collection, reason = "a vector would make all slots larger")]
    More(Box<Vec<Versions>>),
}

const _: () = assert!(size_of::<Slot>() <= 16);

pub(super) fn key_of(versions: &Versions) -> &[u8] {
    versions.first().map_or(&[], |v| &v.key)
}

impl Slot {
    /// Its partitions, to be changed. Never `None`.
    pub(super) fn partitions(
        &mut self,
        token: Token,
        chunks: &Chunks,
    ) -> Option<&mut Vec<Versions>> {
        let only = match self {
            Slot::Plain(place) => {
                let (key, entry) = chunks.parts(*place);
                Some(Rc::new(PartitionVersion::of_plain(token, key, entry)))
            }
            Slot::One(only) => Some(only.clone()),
            Slot::More(_) => None,
        };
        if let Some(only) = only {
            *self = Slot::More(Box::new(vec![Versions::from_elem(only, 1)]));
        }
        match self {
            Slot::More(partitions) => Some(partitions),
            Slot::Plain(_) | Slot::One(_) => None,
        }
    }

    /// The only version of its only partition, when that has this key and no reader holds it.
    #[inline]
    pub(super) fn only_mut(&mut self, key: &[u8]) -> Option<&mut PartitionVersion> {
        match self {
            Slot::One(only) if *only.key == *key => Rc::get_mut(only),
            _ => None,
        }
    }

    /// Number of partitions.
    pub(super) fn count(&self) -> usize {
        match self {
            Slot::Plain(_) | Slot::One(_) => 1,
            Slot::More(partitions) => partitions.len(),
        }
    }

    /// Accounted memory.
    pub(super) fn memory_bytes(&self) -> usize {
        match self {
            Slot::Plain(place) => place.memory_bytes(),
            Slot::One(only) => only.memory_bytes(),
            Slot::More(partitions) => partitions.iter().flatten().map(|v| v.memory_bytes()).sum(),
        }
    }

    /// The versions of a partition.
    #[inline]
    pub(super) fn get(&self, token: Token, key: &[u8], chunks: &mut Chunks) -> Option<Held> {
        let only = match self {
            Slot::Plain(place) => {
                (chunks.key(*place) == key).then(|| Partition::Plain(token, chunks.hold(*place)))
            }
            Slot::One(only) => (*only.key == *key).then(|| Partition::Version(only.clone())),
            Slot::More(partitions) => {
                let versions = partitions.iter().find(|v| key_of(v) == key)?;
                return Some(versions.iter().cloned().map(Partition::Version).collect());
            }
        };
        let mut held = Held::new();
        held.push(only?);
        Some(held)
    }

    /// Loads the data that dropping it needs.
    #[inline]
    pub(super) fn touch(&self) -> u8 {
        match self {
            Slot::One(only) => only.touch_key(),
            Slot::Plain(_) | Slot::More(_) => 0,
        }
    }
}
