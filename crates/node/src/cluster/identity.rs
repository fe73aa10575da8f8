//! `metadata/identity` below the work directory: who this node is, apart from any log.
//!
//! A node that joins has its host id before it has a log; afterwards the log alone does not say
//! which of its members the directory belongs to. Four lines of text, the last one a CRC32 of those
//! before:
//!
//! ```text
//! helenus identity 1
//! host_id 5e0a...
//! cluster_id 81c3...      (- while it is not known)
//! check 0a1b2c3d
//! ```

use rt::{Fs, IoErrorKind};
use stdx::{HostId, Uuid};

use crate::StartError;

const HEAD: &str = "helenus identity 1";
const BYTES_MAX: usize = 4096;

/// What the file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// This node.
    pub(crate) host_id: HostId,
    /// Its cluster, once it is in one.
    pub(crate) cluster_id: Option<Uuid>,
}

fn path(work_dir: &str) -> String {
    format!("{work_dir}/{}/identity", membership::log::DIRECTORY)
}

impl Identity {
    pub(crate) fn encode(self) -> String {
        let cluster = self.cluster_id.map_or_else(|| "-".to_owned(), |id| id.to_string());
        let body = format!("{HEAD}\nhost_id {}\ncluster_id {cluster}\n", self.host_id);
        let check = codec::crc32(body.as_bytes());
        format!("{body}check {check:08x}\n")
    }

    pub(crate) fn decode(text: &str) -> Result<Identity, String> {
        let (body, check) = text.split_at(text.find("check ").ok_or("it has no check line")?);
        let expected = format!("check {:08x}\n", codec::crc32(body.as_bytes()));
        if check != expected {
            return Err("its check line does not fit the lines before".to_owned());
        }
        let mut lines = body.lines();
        match lines.next() {
            Some(HEAD) => {}
            Some(other) => return Err(format!("it begins with \"{other}\", not with \"{HEAD}\"")),
            None => return Err("it is empty".to_owned()),
        }
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
        Ok(Identity { host_id: HostId(host_id), cluster_id })
    }
}

/// Reads the file; `None` when there is none.
///
/// # Errors
/// `Identity` when it cannot be understood: a guess could make two nodes of one.
pub(crate) async fn read(fs: &Fs, work_dir: &str) -> Result<Option<Identity>, StartError> {
    let path = path(work_dir);
    let bytes = match fs.read(&path, BYTES_MAX).await {
        Ok(bytes) => bytes,
        Err(error) if error.kind == IoErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let text = std::str::from_utf8(&bytes).map_err(|_| "it is no text".to_owned());
    let identity = text.and_then(Identity::decode);
    identity.map(Some).map_err(|what| StartError::Identity { path, what })
}

/// Replaces the file, durably.
///
/// # Errors
/// `Io`.
pub(crate) async fn write(fs: &Fs, work_dir: &str, identity: Identity) -> Result<(), StartError> {
    Ok(fs.write_atomic(&path(work_dir), identity.encode().into_bytes()).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_any_changed_byte_is_seen() {
        let host_id = HostId(Uuid::from_u128(0x1234));
        for cluster_id in [None, Some(Uuid::from_u128(7))] {
            let identity = Identity { host_id, cluster_id };
            let text = identity.encode();
            assert_eq!(Identity::decode(&text), Ok(identity));
            for i in 0..text.len() {
                let mut bytes = text.clone().into_bytes();
                bytes[i] ^= 1;
                let changed = String::from_utf8(bytes).unwrap();
                assert!(Identity::decode(&changed).is_err(), "byte {i}: {changed}");
                assert!(Identity::decode(&text[..i]).is_err(), "cut at {i}");
            }
        }
    }
}
