//! The attached components of an open file set: see [`sst_format::attached`].

use sst_format::{AttachedName, Checksums, Component, ComponentChecksum};

use crate::SstableMeta;

/// The attached components that this program wrote, as the file set had them when it was opened.
#[derive(Clone, Copy)]
pub struct Attached<'a> {
    checksums: Option<&'a Checksums>,
    existing: &'a [(AttachedName, u64)],
}

impl<'a> Attached<'a> {
    /// Those of a file set.
    pub fn of(meta: &'a SstableMeta) -> Attached<'a> {
        Attached { checksums: meta.checksums(), existing: meta.attached_lengths() }
    }

    /// Those that exist, with their lengths.
    pub fn existing(self) -> &'a [(AttachedName, u64)] {
        self.existing
    }

    /// The checksums and the lifecycle of one. `None`: the file set never had it.
    pub fn checksum(self, name: AttachedName) -> Option<&'a ComponentChecksum> {
        self.checksums.and_then(|list| list.component(Component::Attached(name)))
    }

    /// Those that are missing and are rebuilt from the rows.
    pub fn lost(self) -> impl Iterator<Item = AttachedName> + 'a {
        let listed = self.checksums.into_iter().flat_map(Checksums::attached);
        listed.filter(move |name| !self.existing.iter().any(|(existing, _)| existing == name))
    }
}
