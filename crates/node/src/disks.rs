//! Check that earlier data directories are mounted and configured. A disk that is not mounted leaves an empty
//! directory, and a changed setting leaves out a full one. A node that starts so would answer without that
//! disk's data, as if it did not exist.
//!
//! Every data directory has a mark with an id, and the work directory has a list of ids and paths, in the
//! envelope of small files. Marks are written first, so that a listed directory has one.
//!
//! A listed directory is present if a configured one has its id, wherever it is mounted. Earlier releases
//! had empty marks and a list of paths: these are compared by path. An empty mark also says that the operator
//! gives up what the directory had.

use std::collections::{BTreeMap, BTreeSet};

use codec::SmallForm;
use rt::{Fs, IoErrorKind, Rt, SmallContent, damaged};
use stdx::Uuid;

use crate::StartError;
use crate::small_files::SmallFiles;

/// In every data directory.
const MARK: &str = "helenus-data";
const MARK_FORM: SmallForm = SmallForm { kind: "data-directory", version: 1 };
/// In the work directory.
pub(crate) const LIST: &str = "data-directories";
const FORM: SmallForm = SmallForm { kind: "data-directories", version: 3 };
/// The form of a list of paths.
const FORMER: SmallForm = SmallForm { kind: "data-directories", version: 2 };
/// The remedy for a damaged list.
const ADVICE: &str = "remove it if the disks of all data_file_directories are mounted";
/// Before a path that is below the work directory.
const BELOW: &str = "workdir:";
const LIST_BYTES_MAX: usize = 1 << 20;

/// A line of the list.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Listed {
    /// `None`: an earlier release wrote the list.
    id: Option<Uuid>,
    /// The form that [`Paths::short`] gives it.
    path: String,
}

/// Content of a directory's mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    Missing,
    /// The mark of an earlier release, or one that the operator created.
    Empty,
    Id(Uuid),
}

/// Paths in the list: directories inside the work directory move with it.
struct Paths<'a> {
    work_dir: &'a str,
}

impl Paths<'_> {
    fn short(&self, path: &str) -> String {
        let path = path.trim_end_matches('/');
        let below = path.strip_prefix(self.work_dir).and_then(|rest| rest.strip_prefix('/'));
        below.map_or_else(|| path.to_owned(), |below| format!("{BELOW}{below}"))
    }

    fn whole(&self, listed: &str) -> String {
        match listed.strip_prefix(BELOW) {
            Some(below) => format!("{}/{below}", self.work_dir),
            None => listed.to_owned(),
        }
    }

    fn mark(&self, listed: &str) -> String {
        format!("{}/{MARK}", self.whole(listed))
    }
}

/// Creates the data directories, and checks that those of earlier starts are present.
///
/// # Errors
/// `DataDirectory`: one is not mounted. `LeftOut`: one is not configured any more. `Io`.
pub(crate) async fn check(
    rt: &Rt,
    work_dir: &str,
    data: &[String],
    files: &SmallFiles,
) -> Result<(), StartError> {
    let (fs, paths) = (rt.fs(), Paths { work_dir });
    let list = format!("{work_dir}/{LIST}");
    let known = read_list(&fs, &list, files).await?;
    let mut present = Vec::new();
    for path in data.iter().map(|path| paths.short(path)).collect::<BTreeSet<String>>() {
        let mark = read_mark(&fs, &paths.mark(&path)).await?;
        present.push((path, mark));
    }
    check_ids(&paths, &present)?;
    // Each may be a directory of a list without ids.
    let is_new = |path: &String| known.iter().all(|listed| listed.path != *path);
    let is_spare = |(path, mark): &&(String, Mark)| is_new(path) && *mark != Mark::Missing;
    let mut spare = present.iter().filter(is_spare).count();
    for listed in &known {
        check_listed(&fs, &paths, listed, &present, &mut spare).await?;
    }
    let mut now = Vec::new();
    for (path, mark) in present {
        let id = match mark {
            Mark::Id(id) => id,
            Mark::Missing | Mark::Empty => {
                fs.create_dir_durably(&paths.whole(&path)).await?;
                let id = new_id(rt);
                let body = format!("id {id}\n");
                fs.write_small(MARK_FORM, &paths.mark(&path), body.as_bytes()).await?;
                id
            }
        };
        now.push(Listed { id: Some(id), path });
    }
    if now == known {
        return Ok(());
    }
    let line = |listed: &Listed| format!("{} {}\n", listed.id.unwrap_or_default(), listed.path);
    let body: String = now.iter().map(line).collect();
    Ok(fs.write_small(FORM, &list, body.as_bytes()).await?)
}

/// Checks that each id is that of one configured directory: a copy would hold the same SSTables again, and the
/// original of a copy that is mounted in its stead would not be missed.
fn check_ids(paths: &Paths<'_>, present: &[(String, Mark)]) -> Result<(), StartError> {
    let mut seen: BTreeMap<Uuid, &str> = BTreeMap::new();
    for (path, mark) in present {
        let Mark::Id(id) = mark else { continue };
        if let Some(other) = seen.insert(*id, path) {
            let (one, two) = (paths.whole(other), paths.whole(path));
            return Err(StartError::Setting(format!(
                "data_file_directories: {one} and {two} are one data directory or copies of one: both have the id {id} \
                 in {MARK}; configure one of them only"
            )));
        }
    }
    Ok(())
}

/// Checks one directory of earlier starts. `spare`: number of marked directories at new paths that do not count as a moved
/// one yet.
async fn check_listed(
    fs: &Fs,
    paths: &Paths<'_>,
    listed: &Listed,
    present: &[(String, Mark)],
    spare: &mut usize,
) -> Result<(), StartError> {
    let at_path = present.iter().find(|(path, _)| *path == listed.path).map(|(_, mark)| *mark);
    let is_present = match listed.id {
        Some(id) => present.iter().any(|(_, mark)| *mark == Mark::Id(id)),
        None => at_path.is_some_and(|mark| mark != Mark::Missing),
    };
    let directory = paths.whole(&listed.path);
    match at_path {
        _ if is_present => Ok(()),
        Some(Mark::Empty) => {
            tracing::warn!(
                directory,
                "what was in this data directory is given up, as its empty file helenus-data says; repair the node"
            );
            Ok(())
        }
        Some(Mark::Missing) => Err(StartError::DataDirectory(directory)),
        Some(Mark::Id(_)) => Err(StartError::OtherDataDirectory(directory)),
        None => match check_left_out(fs, paths, listed, directory).await {
            // Its mark had no id: a directory with a mark at a new path may be this one.
            Err(StartError::LeftOut { .. }) if listed.id.is_none() && *spare > 0 => {
                *spare -= 1;
                Ok(())
            }
            checked => checked,
        },
    }
}

/// A directory that is not configured any more may be left out when it is reachable and has no SSTable.
async fn check_left_out(
    fs: &Fs,
    paths: &Paths<'_>,
    listed: &Listed,
    directory: String,
) -> Result<(), StartError> {
    let mark = read_mark(fs, &paths.mark(&listed.path)).await?;
    let is_it = match listed.id {
        Some(id) => mark == Mark::Id(id) || mark == Mark::Empty,
        None => mark != Mark::Missing,
    };
    if is_it && !has_sstables(fs, &directory).await? {
        tracing::info!(directory, "omitting a former data directory: it has no SSTables");
        return Ok(());
    }
    let list = format!("{}/{LIST}", paths.work_dir);
    Err(StartError::LeftOut { directory, list })
}

/// Returns true if a table's directory has a data file, snapshots and backups left out.
async fn has_sstables(fs: &Fs, directory: &str) -> Result<bool, StartError> {
    for keyspace in fs.read_dir(directory).await?.into_iter().filter(|entry| entry.is_dir) {
        let keyspace = format!("{directory}/{}", keyspace.name);
        for table in fs.read_dir(&keyspace).await?.into_iter().filter(|entry| entry.is_dir) {
            let files = fs.read_dir(&format!("{keyspace}/{}", table.name)).await?;
            if files.iter().any(|file| file.name.ends_with("-Data.db")) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

async fn read_mark(fs: &Fs, path: &str) -> Result<Mark, StartError> {
    let mark = match fs.read_small(MARK_FORM, path, LIST_BYTES_MAX).await? {
        SmallContent::Missing => Some(Mark::Missing),
        SmallContent::Legacy(bytes) => bytes.is_empty().then_some(Mark::Empty),
        SmallContent::Body(body) => parse_mark(&body).map(Mark::Id),
    };
    let advice = "if what the directory had is lost, make it an empty file, and repair the node";
    let what = format_args!("it is not the mark of a data directory; {advice}");
    mark.ok_or_else(|| StartError::Io(damaged(path, what)))
}

fn parse_mark(body: &[u8]) -> Option<Uuid> {
    let text = std::str::from_utf8(body).ok()?;
    Uuid::parse_str(text.strip_prefix("id ")?.strip_suffix('\n')?).ok()
}

async fn read_list(fs: &Fs, path: &str, files: &SmallFiles) -> Result<Vec<Listed>, StartError> {
    let refused = |what: &str| files.refuse(damaged(path, what), ADVICE);
    let not_a_list = "it is not a list of directories";
    match fs.read_small(FORM, path, LIST_BYTES_MAX).await {
        Ok(SmallContent::Body(body)) => parse(&body, true).ok_or_else(|| refused(not_a_list)),
        Ok(SmallContent::Missing) => Ok(Vec::new()),
        // The form before had no checksum.
        Ok(SmallContent::Legacy(bytes)) if !files.is_listed(LIST) => {
            parse(&bytes, false).ok_or_else(|| refused(not_a_list))
        }
        Ok(SmallContent::Legacy(_)) => Err(refused(not_a_list)),
        Err(error) if error.kind == IoErrorKind::Damaged => {
            match fs.read_small(FORMER, path, LIST_BYTES_MAX).await {
                Ok(SmallContent::Body(body)) => {
                    parse(&body, false).ok_or_else(|| refused(not_a_list))
                }
                _ => Err(files.refuse(error, ADVICE)),
            }
        }
        Err(error) => Err(error.into()),
    }
}

/// Lines of a list, with ids or without.
fn parse(bytes: &[u8], has_ids: bool) -> Option<Vec<Listed>> {
    let text = std::str::from_utf8(bytes).ok()?;
    let is_list =
        text.ends_with('\n') && !text.lines().any(|l| l.is_empty() || l.starts_with("crc32 "));
    let line = |line: &str| match has_ids {
        false => Some(Listed { id: None, path: line.to_owned() }),
        true => {
            let (id, path) = line.split_once(' ')?;
            Some(Listed { id: Some(Uuid::parse_str(id).ok()?), path: path.to_owned() })
        }
    };
    text.lines().map(line).collect::<Option<_>>().filter(|_| is_list)
}

fn new_id(rt: &Rt) -> Uuid {
    let mut random = [0_u8; 16];
    rt.random_fill(&mut random);
    uuid::Builder::from_random_bytes(random).into_uuid()
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::Pin;
    use std::sync::Arc;

    use rt::{Machine, NativeOptions, NodeSpec};

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

    fn paths(paths: &[&str]) -> Vec<String> {
        paths.iter().map(|path| (*path).to_owned()).collect()
    }

    async fn add_sstable(fs: &Fs, directory: &str) {
        fs.create_dir_all(&format!("{directory}/ks/t-1")).await.unwrap();
        fs.write_atomic(&format!("{directory}/ks/t-1/nb-1-big-Data.db"), b"x".to_vec())
            .await
            .unwrap();
    }

    async fn refusal(rt: &Rt, work_dir: &str, data: &[&str]) -> String {
        let none = SmallFiles::default();
        check(rt, work_dir, &paths(data), &none).await.unwrap_err().to_string()
    }

    async fn accepted(rt: &Rt, work_dir: &str, data: &[&str]) {
        check(rt, work_dir, &paths(data), &SmallFiles::default()).await.unwrap();
    }

    #[test]
    fn a_directory_that_lost_its_mark_stops_the_start_and_a_new_one_does_not() {
        run(|rt| async move {
            let fs = rt.fs();
            accepted(&rt, "work", &["work/data", "disk2"]).await;
            accepted(&rt, "work", &["work/data", "disk2"]).await;
            accepted(&rt, "work", &["disk2/", "disk3", "work/data"]).await;
            // Not mounted.
            fs.rename("disk2", "elsewhere").await.unwrap();
            fs.create_dir_all("disk2").await.unwrap();
            for data in [&["disk2/", "disk3", "work/data"][..], &["work/data", "disk2", "disk3"]] {
                let error = refusal(&rt, "work", data).await;
                assert!(error.contains("disk2 was a data directory before"), "{error}");
            }
            // Mounted elsewhere, or under each other's path.
            accepted(&rt, "work", &["work/data", "elsewhere", "disk3"]).await;
            fs.rename("disk3", "swapped").await.unwrap();
            fs.rename("elsewhere", "disk3").await.unwrap();
            fs.rename("swapped", "elsewhere").await.unwrap();
            accepted(&rt, "work", &["work/data", "elsewhere", "disk3"]).await;
            // The work directory is moved, with its content.
            fs.create_dir_all("other").await.unwrap();
            fs.rename("work/data", "other/data").await.unwrap();
            fs.rename("work/data-directories", "other/data-directories").await.unwrap();
            accepted(&rt, "other", &["other/data", "elsewhere", "disk3"]).await;
            fs.remove_file("other/data/helenus-data").await.unwrap();
            let all = ["other/data", "elsewhere", "disk3"];
            let error = refusal(&rt, "other", &all).await;
            assert!(error.contains("other/data was a data directory"), "{error}");
            // The SSTables in it are lost.
            fs.write_atomic("other/data/helenus-data", Vec::new()).await.unwrap();
            accepted(&rt, "other", &all).await;
            // Another disk under its path.
            accepted(&rt, "third", &["third/data"]).await;
            fs.rename("disk3", "gone").await.unwrap();
            fs.rename("third/data", "disk3").await.unwrap();
            let error = refusal(&rt, "other", &all).await;
            assert!(error.contains("disk3 is not the data directory"), "{error}");
        });
    }

    #[test]
    fn a_directory_that_is_left_out_stops_the_start_unless_it_is_seen_to_have_no_sstables() {
        run(|rt| async move {
            let fs = rt.fs();
            accepted(&rt, "work", &["work/data", "disk2"]).await;
            add_sstable(&fs, "disk2").await;
            let error = refusal(&rt, "work", &["work/data"]).await;
            assert!(error.contains("disk2 was a data directory before"), "{error}");
            assert!(error.contains("data_file_directories"), "{error}");
            assert!(error.contains("work/data-directories"), "{error}");
            // Not reachable.
            fs.rename("disk2", "gone").await.unwrap();
            assert_eq!(refusal(&rt, "work", &["work/data"]).await, error);
            // Emptied.
            fs.rename("gone", "disk2").await.unwrap();
            fs.remove_dir_all("disk2/ks").await.unwrap();
            accepted(&rt, "work", &["work/data"]).await;
            // The remedy of the error.
            accepted(&rt, "work", &["work/data", "disk3"]).await;
            add_sstable(&fs, "disk3").await;
            refusal(&rt, "work", &["work/data"]).await;
            fs.remove_file("work/data-directories").await.unwrap();
            accepted(&rt, "work", &["work/data"]).await;
        });
    }

    #[test]
    fn marks_and_lists_of_earlier_releases_are_compared_by_path_and_get_ids() {
        run(|rt| async move {
            let fs = rt.fs();
            for directory in ["work/data", "disk2"] {
                fs.create_dir_all(directory).await.unwrap();
                fs.write_atomic(&format!("{directory}/helenus-data"), Vec::new()).await.unwrap();
            }
            let list = b"disk2\nworkdir:data\n";
            fs.write_small(FORMER, "work/data-directories", list).await.unwrap();
            add_sstable(&fs, "disk2").await;
            let error = refusal(&rt, "work", &["work/data"]).await;
            assert!(error.contains("disk2 was a data directory"), "{error}");
            // Moved.
            fs.rename("disk2", "disk3").await.unwrap();
            accepted(&rt, "work", &["work/data", "disk3"]).await;
            assert!(matches!(read_mark(&fs, "disk3/helenus-data").await, Ok(Mark::Id(_))));
            let list = read_list(&fs, "work/data-directories", &SmallFiles::default()).await;
            assert!(list.unwrap().iter().all(|listed| listed.id.is_some()));
            accepted(&rt, "work", &["work/data", "disk3"]).await;
        });
    }

    #[test]
    fn two_directories_with_one_id_refuse_the_start() {
        run(|rt| async move {
            let fs = rt.fs();
            accepted(&rt, "work", &["work/data", "disk2"]).await;
            let mark = fs.read("disk2/helenus-data", 1 << 10).await.unwrap();
            fs.create_dir_all("copy").await.unwrap();
            fs.write_atomic("copy/helenus-data", mark).await.unwrap();
            let error = refusal(&rt, "work", &["work/data", "disk2", "copy"]).await;
            assert!(error.contains("copy and disk2 are one data directory or copies"), "{error}");
            accepted(&rt, "work", &["work/data", "copy"]).await;
        });
    }

    #[test]
    fn a_new_path_stands_for_one_directory_of_a_list_without_ids() {
        run(|rt| async move {
            let fs = rt.fs();
            for directory in ["work/data", "disk2", "disk3", "disk4"] {
                fs.create_dir_all(directory).await.unwrap();
                fs.write_atomic(&format!("{directory}/helenus-data"), Vec::new()).await.unwrap();
                add_sstable(&fs, directory).await;
            }
            let list = b"disk2\ndisk3\ndisk4\nworkdir:data\n";
            fs.write_small(FORMER, "work/data-directories", list).await.unwrap();
            fs.rename("disk2", "moved2").await.unwrap();
            fs.rename("disk3", "moved3").await.unwrap();
            let error = refusal(&rt, "work", &["work/data", "disk4", "moved2"]).await;
            assert!(error.contains("disk3 was a data directory"), "{error}");
            // One that may be left out needs none.
            fs.remove_dir_all("disk4/ks").await.unwrap();
            accepted(&rt, "work", &["work/data", "moved2", "moved3"]).await;
        });
    }

    #[test]
    fn the_bytes_of_mark_and_list_are_the_documented_ones() {
        let id = Uuid::from_u128(9);
        assert_eq!(parse_mark(b"id 00000000-0000-0000-0000-000000000009\n"), Some(id));
        assert_eq!(parse_mark(b"id 9"), None);
        let body = b"00000000-0000-0000-0000-000000000009 workdir:data\n";
        let listed = Listed { id: Some(id), path: "workdir:data".to_owned() };
        assert_eq!(parse(body, true), Some(vec![listed]));
        for bad in [&b"workdir:data\n"[..], b"x y\n", b"\n", b""] {
            assert_eq!(parse(bad, true), None, "{bad:?}");
        }
        let former = Listed { id: None, path: "/a b".to_owned() };
        assert_eq!(parse(b"/a b\n", false), Some(vec![former]));
    }
}
