//! `metadata/identity` below the work directory: the identity of this node, apart from any log.
//!
//! A node that joins has its host id before it has a log; afterwards the log alone does not say
//! which of its members the directory belongs to. Two lines in the envelope of small files:
//!
//! ```text
//! host_id 5e0a...
//! cluster_id 81c3...      (- while it is not known)
//! ```
//!
//! An earlier release wrote `helenus identity 1`, these lines, and `check <their CRC32>`.

use codec::SmallForm;
use rt::{Fs, IoErrorKind, SmallContent};
use stdx::{HostId, Uuid};

use crate::error::{Result as TopologyResult, TopologyError};

const HEAD: &str = "helenus identity 1\n";
const FORM: SmallForm = SmallForm { kind: "identity", version: 2 };
const BYTES_MAX: usize = 4096;

/// Content of the identity file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// This node.
    pub host_id: HostId,
    /// Its cluster, once it is in one.
    pub cluster_id: Option<Uuid>,
}

fn path(work_dir: &str) -> String {
    format!("{work_dir}/{}/identity", membership::log::DIRECTORY)
}

impl Identity {
    fn encode(self) -> String {
        let cluster = self.cluster_id.map_or_else(|| "-".to_owned(), |id| id.to_string());
        format!("host_id {}\ncluster_id {cluster}\n", self.host_id)
    }

    fn decode(body: &str) -> Result<Identity, String> {
        let mut lines = body.lines();
        let mut value = |name: &str| {
            let line = lines.next().and_then(|line| line.split_once(' '));
            line.filter(|(n, _)| *n == name).map(|(_, v)| v).ok_or(format!("it has no {name}"))
        };
        let host = value("host_id")?;
        let host_id = Uuid::parse_str(host).map_err(|_| format!("\"{host}\" is no host id"))?;
        let cluster_id = match value("cluster_id")? {
            "-" => None,
            text => {
                Some(Uuid::parse_str(text).map_err(|_| format!("\"{text}\" is no cluster id"))?)
            }
        };
        let identity = Identity { host_id: HostId(host_id), cluster_id };
        // Upper-case digits and more lines are not what was written.
        match identity.encode() == body {
            true => Ok(identity),
            false => Err("its lines are not what was written".to_owned()),
        }
    }

    /// A file of an earlier release.
    pub fn decode_old(text: &str) -> Result<Identity, String> {
        let (body, check) = text.split_at(text.find("check ").ok_or("it has no check line")?);
        if check != format!("check {:08x}\n", codec::crc32(body.as_bytes())) {
            return Err("its check line does not fit the lines before".to_owned());
        }
        Identity::decode(body.strip_prefix(HEAD).ok_or("its first line is not what was written")?)
    }

    /// Any bytes of a file.
    pub fn decode_file(bytes: &[u8]) -> Result<Identity, String> {
        let text = |bytes| std::str::from_utf8(bytes).map_err(|_| "it is no text".to_owned());
        match codec::is_small_file(bytes) {
            true => Identity::decode(text(FORM.decode(bytes).map_err(|e| e.to_string())?)?),
            false => Identity::decode_old(text(bytes)?),
        }
    }

    /// The whole file.
    pub fn encode_file(self) -> Vec<u8> {
        FORM.encode(self.encode().as_bytes())
    }
}

/// Reads the file; `None` when there is none.
///
/// # Errors
/// `Identity` when it cannot be understood: a guess could make two nodes of one.
pub async fn read(fs: &Fs, work_dir: &str) -> TopologyResult<Option<Identity>> {
    let path = path(work_dir);
    let damaged = |what| TopologyError::Identity { path: path.clone(), what };
    let identity = match fs.read_small(FORM, &path, BYTES_MAX).await {
        Ok(SmallContent::Missing) => return Ok(None),
        Ok(SmallContent::Body(body)) => {
            std::str::from_utf8(&body).map_err(|e| e.to_string()).and_then(Identity::decode)
        }
        Ok(SmallContent::Legacy(bytes)) => Identity::decode_file(&bytes),
        Err(error) if error.kind == IoErrorKind::Damaged => Err(error.detail),
        Err(error) => return Err(error.into()),
    };
    identity.map(Some).map_err(damaged)
}

/// Replaces the file, durably.
///
/// # Errors
/// `Io`.
pub async fn write(fs: &Fs, work_dir: &str, identity: Identity) -> TopologyResult<()> {
    Ok(fs.write_small(FORM, &path(work_dir), identity.encode().as_bytes()).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_any_changed_byte_is_seen() {
        let host_id = HostId(Uuid::from_u128(0x1234));
        for cluster_id in [None, Some(Uuid::from_u128(7))] {
            let identity = Identity { host_id, cluster_id };
            let body = format!("{HEAD}{}", identity.encode());
            let old = format!("{body}check {:08x}\n", codec::crc32(body.as_bytes())).into_bytes();
            for file in [identity.encode_file(), old] {
                assert_eq!(Identity::decode_file(&file), Ok(identity));
                for i in 0..file.len() {
                    let mut bytes = file.clone();
                    bytes[i] ^= 1;
                    assert!(Identity::decode_file(&bytes).is_err(), "byte {i}: {bytes:?}");
                    assert!(Identity::decode_file(&file[..i]).is_err(), "cut at {i}");
                }
            }
        }
    }
}
