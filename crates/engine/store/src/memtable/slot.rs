//! What a memtable has under one token.

use std::rc::Rc;

use smallvec::SmallVec;

use super::partition::PartitionVersion;

/// Versions of one partition, oldest first; usually one.
pub(crate) type Versions = SmallVec<[Rc<PartitionVersion>; 1]>;

/// The partitions of one token, by key. Small, as a walk through a memtable reads all of them: nearly
/// always it is one partition of one version.
pub(super) enum Slot {
    One(Rc<PartitionVersion>),
    /// At least one partition, each of at least one version.
    #[expect(clippy::box_collection, reason = "a vector would make all slots larger")]
    More(Box<Vec<Versions>>),
}

const _: () = assert!(size_of::<Slot>() == 16);

pub(super) fn key_of(versions: &Versions) -> &[u8] {
    versions.first().map_or(&[], |v| &v.key)
}

impl Slot {
    /// Its partitions, to be changed. Never `None`.
    pub(super) fn partitions(&mut self) -> Option<&mut Vec<Versions>> {
        if let Slot::One(only) = self {
            let versions = Versions::from_elem(only.clone(), 1);
            *self = Slot::More(Box::new(vec![versions]));
        }
        match self {
            Slot::More(partitions) => Some(partitions),
            Slot::One(_) => None,
        }
    }

    /// The only version of its only partition, when that has this key and nobody else holds it.
    #[inline]
    pub(super) fn only_mut(&mut self, key: &[u8]) -> Option<&mut PartitionVersion> {
        match self {
            Slot::One(only) if *only.key == *key => Rc::get_mut(only),
            _ => None,
        }
    }

    /// How many partitions.
    pub(super) fn count(&self) -> usize {
        match self {
            Slot::One(_) => 1,
            Slot::More(partitions) => partitions.len(),
        }
    }

    /// Accounted memory.
    pub(super) fn memory_bytes(&self) -> usize {
        match self {
            Slot::One(only) => only.memory_bytes(),
            Slot::More(partitions) => partitions.iter().flatten().map(|v| v.memory_bytes()).sum(),
        }
    }

    /// The versions of a partition.
    pub(super) fn get(&self, key: &[u8]) -> Option<Versions> {
        match self {
            Slot::One(only) if *only.key == *key => Some(Versions::from_elem(only.clone(), 1)),
            Slot::One(_) => None,
            Slot::More(partitions) => partitions.iter().find(|v| key_of(v) == key).cloned(),
        }
    }

    /// Loads what is needed to drop it.
    #[inline]
    pub(super) fn touch(&self) -> u8 {
        match self {
            Slot::One(only) => only.touch_key(),
            Slot::More(_) => 0,
        }
    }
}
