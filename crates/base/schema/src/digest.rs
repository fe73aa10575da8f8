//! Digests in the form of a UUID.

use stdx::Uuid;

/// Digest of bytes, as a version-3-shaped UUID.
pub(crate) fn digest_uuid(mut bytes: Vec<u8>) -> Uuid {
    let low = codec::xxh3_64(&bytes);
    bytes.push(0x48);
    let high = codec::xxh3_64(&bytes);
    let mut id = [0_u8; 16];
    id[..8].copy_from_slice(&high.to_be_bytes());
    id[8..].copy_from_slice(&low.to_be_bytes());
    uuid::Builder::from_bytes(id)
        .with_variant(uuid::Variant::RFC4122)
        .with_version(uuid::Version::Md5)
        .into_uuid()
}
