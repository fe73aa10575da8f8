//! Remedies for damaged SSTables that refuse a start, in the text of the error.
//!
//! Errors of the commit log have theirs already. The table for operators is in `docs/user/troubleshooting.md`.

use store::{Component, Descriptor, StoreError};

/// Adds the remedy to the error of a damaged component of an SSTable; any other error stays.
pub(crate) fn with_remedy(error: StoreError) -> StoreError {
    match error {
        StoreError::Corrupt { file, what } => match remedy(&file) {
            Some(remedy) => StoreError::Corrupt { what: format!("{what}; {remedy}"), file },
            None => StoreError::Corrupt { file, what },
        },
        error => error,
    }
}

fn remedy(path: &str) -> Option<String> {
    let (directory, name) = path.rsplit_once('/').unwrap_or((".", path));
    let (descriptor, component) = Descriptor::parse(name)?;
    let prefix = descriptor.prefix();
    let scrub = format!("helenus sstable scrub {directory}/{prefix}-Data.db");
    let otherwise = format!(
        "start with disk_failure_policy: best_effort, which repairs its ranges from other replicas; or move \
         {directory}/{prefix}-* to another disk, start, and import a copy of the set from a backup"
    );
    Some(match component {
        Component::Index
        | Component::Summary
        | Component::Partitions
        | Component::Rows
        | Component::Filter
        | Component::Digest
        | Component::Crc
        | Component::Checksums
        | Component::Toc => format!("rebuild it with \"{scrub}\""),
        Component::CompressionInfo => format!(
            "\"{scrub}\" rebuilds it if its content can still be decoded; if not, {otherwise}"
        ),
        Component::Data => {
            format!("{otherwise}; or keep its readable rows with \"{scrub}\"")
        }
        // Without the record of its key nothing of the set can be read.
        Component::Encryption | Component::Statistics | Component::Attached(_) => otherwise,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn what(file: &str) -> String {
        let error = StoreError::Corrupt { file: file.to_owned(), what: "bad".to_owned() };
        let StoreError::Corrupt { file: named, what } = with_remedy(error) else { panic!() };
        assert_eq!(named, file);
        what
    }

    #[test]
    fn a_damaged_component_has_the_remedy_that_can_help() {
        let filter = what("/d/ks/t-1/nb-7-big-Filter.db");
        assert_eq!(
            filter,
            "bad; rebuild it with \"helenus sstable scrub /d/ks/t-1/nb-7-big-Data.db\""
        );
        let statistics = what("/d/ks/t-1/nb-7-big-Statistics.db");
        assert!(
            !statistics.contains("scrub") && statistics.contains("best_effort"),
            "{statistics}"
        );
        assert!(statistics.contains("/d/ks/t-1/nb-7-big-*"), "{statistics}");
        let info = what("/d/ks/t-1/nb-7-big-CompressionInfo.db");
        assert!(info.contains("scrub") && info.contains("best_effort"), "{info}");
        let data = what("/d/ks/t-1/nb-7-big-Data.db");
        assert!(data.contains("readable rows") && data.contains("best_effort"), "{data}");
        // The commit log and small files have their own.
        assert_eq!(what("/d/helenus-commitlog-0000000000001000.log"), "bad");
    }
}
