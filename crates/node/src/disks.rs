//! Data directories that were there before must be there again: a disk that is not mounted leaves an empty
//! directory, and a node that starts with it would answer without what it has, and say that it is not there.
//!
//! Every data directory gets a mark, and a list of them lies in the work directory. Marks come first, so that
//! what is on the list has one.

use std::collections::BTreeSet;

use rt::Fs;
use stdx::IoErrorKind;

use crate::StartError;

/// In every data directory.
const MARK: &str = "helenus-data";
/// In the work directory: a path a line.
const LIST: &str = "data-directories";
/// Before a path that is below the work directory.
const BELOW: &str = "workdir:";
const LIST_BYTES_MAX: usize = 1 << 20;

/// Makes the data directories, and looks whether those of earlier starts are what they were.
///
/// # Errors
/// `DataDirectory`; `Io`.
pub(crate) async fn check(fs: &Fs, work_dir: &str, data: &[String]) -> Result<(), StartError> {
    let path = format!("{work_dir}/{LIST}");
    let known: BTreeSet<String> = match fs.read(&path, LIST_BYTES_MAX).await {
        Ok(bytes) => String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect(),
        Err(error) if error.kind == IoErrorKind::NotFound => BTreeSet::new(),
        Err(error) => return Err(error.into()),
    };
    // What lies in the work directory moves with it.
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
                "was a data directory before and is none now: what is in it is not read; make it one \
                 again, or repair the node"
            );
        }
    }
    if known == now {
        return Ok(());
    }
    for listed in &now {
        fs.create_dir_durably(&whole(listed)).await?;
        fs.write_atomic(&mark(listed), Vec::new()).await?;
    }
    let list = now.iter().fold(String::new(), |list, directory| list + directory + "\n");
    Ok(fs.write_atomic(&path, list.into_bytes()).await?)
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
            let fs = rt.fs();
            let paths = |paths: &[&str]| paths.iter().map(|p| (*p).to_owned()).collect::<Vec<_>>();
            let (one, two) =
                (paths(&["work/data", "disk2"]), paths(&["disk2/", "disk3", "work/data"]));
            check(&fs, "work", &one).await.unwrap();
            check(&fs, "work", &one).await.unwrap();
            check(&fs, "work", &two).await.unwrap();
            // Not mounted.
            fs.remove_dir_all("disk2").await.unwrap();
            fs.create_dir_all("disk2").await.unwrap();
            for data in [&two, &one] {
                let error = check(&fs, "work", data).await.unwrap_err().to_string();
                assert!(error.contains("disk2 was a data directory before"), "{error}");
            }
            // Left out, it says nothing: there is no mark that somebody may miss. Then it is a new one.
            check(&fs, "work", &paths(&["work/data", "disk3"])).await.unwrap();
            check(&fs, "work", &two).await.unwrap();
            // The work directory goes elsewhere, with what is in it.
            fs.create_dir_all("other").await.unwrap();
            fs.rename("work/data", "other/data").await.unwrap();
            fs.rename("work/data-directories", "other/data-directories").await.unwrap();
            check(&fs, "other", &paths(&["other/data", "disk2", "disk3"])).await.unwrap();
            fs.remove_file("other/data/helenus-data").await.unwrap();
            let error = check(&fs, "other", &paths(&["other/data"])).await.unwrap_err().to_string();
            assert!(error.contains("other/data was a data directory"), "{error}");
        });
    }
}
