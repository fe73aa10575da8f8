//! Key stores that keytool and openssl made, and handshakes over them in memory.

mod handshakes;
mod stores;

use std::sync::Arc;

use rustls::pki_types::UnixTime;

use crate::material::{Identity, KeyMaterial, Source, Trust};
use crate::{TimeProvider, TlsError};

/// Bytes of a fixture.
macro_rules! fixture {
    ($name:literal) => {
        (
            concat!("\"keystore\" conf/", $name),
            include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/fixtures/", $name)).as_slice(),
        )
    };
}
pub(crate) use fixture;

/// A fixture: its place as errors name it, its content.
type Fixture = (&'static str, &'static [u8]);

fn source((place, bytes): Fixture) -> Source {
    Source { place: place.to_owned(), bytes: bytes.to_vec() }
}

/// A PEM file of several.
fn joined(parts: &[Fixture]) -> Source {
    let bytes = parts.iter().flat_map(|(_, bytes)| bytes.iter().copied()).collect();
    Source { place: "\"keystore\" conf/joined.pem".to_owned(), bytes }
}

fn identity(store: Source, password: Option<&str>) -> Result<Identity, TlsError> {
    Identity::read(&KeyMaterial { store, key: None, password: password.map(str::to_owned) })
}

fn trust(fixture: Fixture) -> Trust {
    Trust::read(&source(fixture), Some("cassandra")).unwrap()
}

/// A clock that stands still.
#[derive(Debug)]
struct At(u64);

impl TimeProvider for At {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(core::time::Duration::from_secs(self.0)))
    }
}

/// A day in 2030, at which all fixtures are valid.
fn clock() -> Arc<dyn TimeProvider> {
    Arc::new(At(1_900_000_000))
}
