//! Check that earlier data directories are mounted. A disk that is not mounted leaves an empty
//! directory. A node that starts with it would answer without that disk's data, as if it did not
//! exist.
//!
//! Every data directory has a mark, and the work directory has a list of them: a path a line, in
//! the envelope of small files. Marks are written first, so that a listed directory has one.

use std::collections::BTreeSet;

use codec::SmallForm;
use rt::{Fs, SmallContent, damaged};

use crate::StartError;
use crate::small_files::SmallFiles;

/// In every data directory.
const MARK: &str = "helenus-data";
/// In the work directory: a path a line.
pub(crate) const LIST: &str = "data-directories";
const FORM: SmallForm = SmallForm { kind: "data-directories", version: 2 };
/// The remedy for a damaged list.
const ADVICE: &str = "remove it if the disks of all data_file_directories are mounted";
/// Before a path that is below the work directory.
const BELOW: &str = "workdir:";
const LIST_BYTES_MAX: usize = 1 << 20;

/// Creates the data directories, and checks that those of earlier starts are mounted.
///
/// # Errors
/// `DataDirectory`; `Io`.
pub(crate) async fn check(
    fs: &Fs,
    work_dir: &str,
    data: &[String],
    files: &SmallFiles,
) -> Result<(), StartError> {
    let path = format!("{work_dir}/{LIST}");
    let (known, is_current) = match fs.read_small(FORM, &path, LIST_BYTES_MAX).await {
        Ok(SmallContent::Body(body)) => (parse(&body), true),
        Ok(SmallContent::Missing) => (Some(BTreeSet::new()), true),
        // The form before had no checksum.
        Ok(SmallContent::Legacy(bytes)) if !files.is_listed(LIST) => (parse(&bytes), false),
        Ok(SmallContent::Legacy(_)) => (None, false),
        Err(error) => return Err(files.refuse(error, ADVICE)),
    };
    let Some(known) = known else {
        return Err(files.refuse(damaged(&path, "it is not a list of directories"), ADVICE));
    };
    // Directories inside the work directory move with it.
    let short = |path: &String| {
        let path = path.trim_end_matches('/');
        let below = path.strip_prefix(work_dir).and_then(|rest| rest.strip_prefix('/'));
        below.map_or_else(|| path.to_owned(), |below| format!("{BELOW}{below}"))
    };
    let whole = |listed: &String| match listed.strip_prefix(BELOW) {
        Some(below) => format!("{work_dir}/{below}"),
        None => listed.clone(),
    };
    let mark = |listed: &String| format!("{}/{MARK}", whole(listed));
    let now: BTreeSet<String> = data.iter().map(short).collect();
    for listed in now.intersection(&known) {
        if !fs.exists(&mark(listed)).await? {
            return Err(StartError::DataDirectory(whole(listed)));
        }
    }
    for listed in known.difference(&now) {
        if fs.exists(&mark(listed)).await? {
            tracing::warn!(
                directory = whole(listed),
                "a data directory was removed from the configuration: its SSTables are not read; \
                add it again, or repair the node"
            );
        }
    }
    if known == now && is_current {
        return Ok(());
    }
    for listed in &now {
        fs.create_dir_durably(&whole(listed)).await?;
        fs.write_atomic(&mark(listed), Vec::new()).await?;
    }
    let list = now.iter().fold(String::new(), |list, directory| list + directory + "\n");
    Ok(fs.write_small(FORM, &path, list.as_bytes()).await?)
}

fn parse(bytes: &[u8]) -> Option<BTreeSet<String>> {
    let text = std::str::from_utf8(bytes).ok()?;
    let is_list =
        text.ends_with('\n') && !text.lines().any(|l| l.is_empty() || l.starts_with("crc32 "));
    is_list.then(|| text.lines().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::Pin;
    use std::sync::Arc;

    use rt::{Machine, NativeOptions, NodeSpec, Rt};

    use super::*;

    fn run<F: Future<Output = ()> + 'static>(test: impl Fn(Rt) -> F + Send + Sync + 'static) {
        let directory = tempfile::tempdir().unwrap();
        let work_dir = directory.path().to_str().unwrap().to_owned();
        let main: rt::Main = Arc::new(move |rt: Rt| {
            let stop = rt.clone();
            let future = test(rt);
            Box::pin(async move {
                future.await;
                stop.request_stop();
            }) as Pin<Box<dyn Future<Output = ()>>>
        });
        let machine = Machine::native(NativeOptions::default());
        machine.start(NodeSpec { name: "test".into(), shards: 1, work_dir }, main).join().unwrap();
    }

    #[test]
    fn a_directory_that_lost_its_mark_stops_the_start_and_a_new_one_does_not() {
        run(|rt| async move {
            let (fs, none) = (rt.fs(), SmallFiles::default());
            let paths = |paths: &[&str]| paths.iter().map(|p| (*p).to_owned()).collect::<Vec<_>>();
            let (one, two) =
                (paths(&["work/data", "disk2"]), paths(&["disk2/", "disk3", "work/data"]));
            check(&fs, "work", &one, &none).await.unwrap();
            check(&fs, "work", &one, &none).await.unwrap();
            check(&fs, "work", &two, &none).await.unwrap();
            // Not mounted.
            fs.remove_dir_all("disk2").await.unwrap();
            fs.create_dir_all("disk2").await.unwrap();
            for data in [&two, &one] {
                let error = check(&fs, "work", data, &none).await.unwrap_err().to_string();
                assert!(error.contains("disk2 was a data directory before"), "{error}");
            }
            // A directory that is left out is not checked and loses its entry. Added later, it is a
            // new one.
            check(&fs, "work", &paths(&["work/data", "disk3"]), &none).await.unwrap();
            check(&fs, "work", &two, &none).await.unwrap();
            // The work directory is moved, with its content.
            fs.create_dir_all("other").await.unwrap();
            fs.rename("work/data", "other/data").await.unwrap();
            fs.rename("work/data-directories", "other/data-directories").await.unwrap();
            check(&fs, "other", &paths(&["other/data", "disk2", "disk3"]), &none).await.unwrap();
            fs.remove_file("other/data/helenus-data").await.unwrap();
            let error =
                check(&fs, "other", &paths(&["other/data"]), &none).await.unwrap_err().to_string();
            assert!(error.contains("other/data was a data directory"), "{error}");
        });
    }
}
