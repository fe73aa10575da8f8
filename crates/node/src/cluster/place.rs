//! Location of this node according to its snitch: data centre and rack.

use conf::snitch::{self, Place};
use conf::{Options, Snitch};
use rt::{Fs, IoErrorKind};

use crate::{StartError, parts};

const FILE_BYTES_MAX: usize = 1 << 20;

/// The place of this node.
///
/// # Errors
/// `Snitch` when the snitch's file is missing or does not name it.
pub(crate) async fn find(fs: &Fs, options: &Options) -> Result<Place, StartError> {
    match options.endpoint_snitch {
        Snitch::Simple => Ok(Place::simple()),
        Snitch::RackInferring => Ok(Place::inferred(parts::ip(options.announced_address())?)),
        Snitch::GossipingPropertyFile => {
            if let (Some(datacenter), Some(rack)) = (&options.datacenter, &options.rack) {
                return Ok(Place { datacenter: datacenter.clone(), rack: rack.clone() });
            }
            let (path, text) = read(fs, options, snitch::RACKDC).await?;
            let mut place =
                snitch::rackdc(&text).map_err(|what| StartError::Snitch { path, what })?;
            if let Some(datacenter) = &options.datacenter {
                place.datacenter.clone_from(datacenter);
            }
            if let Some(rack) = &options.rack {
                place.rack.clone_from(rack);
            }
            Ok(place)
        }
        Snitch::PropertyFile => {
            let (path, text) = read(fs, options, snitch::TOPOLOGY).await?;
            let place = snitch::topology(&text, parts::ip(options.announced_address())?);
            place.map_err(|what| StartError::Snitch { path, what })
        }
    }
}

/// Reads the first of the possible files that exists.
async fn read(fs: &Fs, options: &Options, name: &str) -> Result<(String, String), StartError> {
    let candidates = options.snitch_files(name);
    for path in &candidates {
        match fs.read(path, FILE_BYTES_MAX).await {
            Ok(bytes) => return Ok((path.clone(), String::from_utf8_lossy(&bytes).into_owned())),
            Err(error) if error.kind == IoErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
    }
    let path = candidates.join(" or ");
    Err(StartError::Snitch { path, what: "is missing; endpoint_snitch needs it".to_owned() })
}
