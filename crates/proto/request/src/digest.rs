//! The digest that replicas send instead of a page.

/// 128-bit hash of a replica page's bytes. A page has one encoding (INV-page-1 of `data`), so
/// replicas with equal content have equal digests. Not cryptographic: it protects against no peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct PageDigest(pub u128);

/// The digest of an encoded page: MurmurHash3 x64-128 with seed 0, as Cassandra computes it.
pub fn digest_of(page: &[u8]) -> PageDigest {
    let (high, low) = codec::murmur3_x64_128(page, 0);
    PageDigest((u128::from(high) << 64) | u128::from(low))
}
