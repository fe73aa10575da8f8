//! Fuzz entries: any bytes as a key store, as PEM, as a certificate, as a revocation list.

use crate::certificate::PeerCertificate;
use crate::identity::{IdentityQuery, IdentityRule, IdentitySource};
use crate::material::{Identity, KeyMaterial, Source, Trust, revocation_lists};

/// The password of the fixtures: with another one the reader stops at the checksum.
const PASSWORD: &str = "cassandra";

/// Reads `data` with every reader of this crate; must never panic.
pub fn fuzz_material(data: &[u8]) {
    let store = Source { place: "fuzz".to_owned(), bytes: data.to_vec() };
    for password in [Some(PASSWORD), None] {
        let material =
            KeyMaterial { store: store.clone(), key: None, password: password.map(str::to_owned) };
        drop(Identity::read(&material).map(|identity| identity.certificates().count()));
        drop(Trust::read(&store, password));
    }
    drop(revocation_lists(&store));
    if let Some(certificate) = PeerCertificate::parse(data) {
        drop(IdentityRule::Spiffe.identity(&certificate));
        let sources = [IdentitySource::Subject, IdentitySource::AlternativeName];
        let queries = sources.iter().flat_map(|source| IdentityQuery::new(*source, "=(.*)"));
        drop(IdentityRule::Queries(queries.collect()).identity(&certificate));
    }
}
