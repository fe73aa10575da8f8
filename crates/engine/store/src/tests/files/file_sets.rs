//! File sets whose components were lost, or come from other file sets: nothing is removed, and nothing is
//! read with the wrong component.

use sstable::{Component, Descriptor, SetState, list_sstables};

use crate::tests::*;

const ROWS: i32 = 20;

/// One file set of [`ROWS`] partitions with that value, and its directory.
async fn fill(rt: &Rt, options: StoreOptions, rows: &[(i32, &str, i64)]) -> String {
    let store = Store::open(rt.clone(), options, schema()).await.unwrap().0;
    for (pk, value, timestamp) in rows {
        write(&store, &insert(*pk, 1, value, *timestamp)).await.unwrap();
    }
    store.drain().await.unwrap();
    let directory = store.files().target_directory(TABLE).unwrap();
    store.stop().await;
    directory
}

async fn fill_some(rt: &Rt, options: StoreOptions) -> String {
    let rows: Vec<(i32, &str, i64)> = (0..ROWS).map(|pk| (pk, "v", 1)).collect();
    fill(rt, options, &rows).await
}

async fn names(rt: &Rt, directory: &str) -> Vec<String> {
    let entries = rt.fs().read_dir(directory).await.unwrap();
    let mut names: Vec<String> =
        entries.into_iter().filter(|e| !e.is_dir).map(|e| e.name).collect();
    names.sort();
    names
}

/// The only file set of a directory.
async fn set(rt: &Rt, directory: &str) -> Descriptor {
    let sets = list_sstables(&rt.fs(), directory).await.unwrap();
    let [(set, _)] = sets[..] else { panic!("{sets:?}") };
    set
}

#[test]
fn a_lost_table_of_contents_is_written_again_and_no_row_is_lost() {
    for version in sstable::WriterOptions::VERSIONS {
        // The files of Cassandra, and those of this node.
        for has_checksums in [true, false] {
            let world = World::new(201, WorldOptions::default());
            run_in(&world, move |rt| async move {
                let mut options = options(&rt);
                options.sstable_version = version;
                let directory = fill_some(&rt, options.clone()).await;
                let set = set(&rt, &directory).await;
                let path = |c| format!("{directory}/{}", set.file_name(c));
                let fs = rt.fs();
                let before = fs.read(&path(Component::Toc), 4096).await.unwrap();
                fs.remove_file(&path(Component::Toc)).await.unwrap();
                if !has_checksums {
                    fs.remove_file(&path(Component::Checksums)).await.unwrap();
                }
                let (store, report) =
                    Store::open(rt.clone(), options.clone(), schema()).await.unwrap();
                assert_eq!(read_all(&store).await.len(), ROWS as usize, "{version}");
                assert_eq!(report.rebuilt_tocs, [path(Component::Toc)]);
                assert!(report.removed_files.is_empty() && report.moved_files.is_empty());
                let after = fs.read(&path(Component::Toc), 4096).await.unwrap();
                assert_eq!(after == before, has_checksums, "{version}");
                store.stop().await;
                let (store, report) = Store::open(rt.clone(), options, schema()).await.unwrap();
                assert_eq!(read_all(&store).await.len(), ROWS as usize);
                assert!(report.rebuilt_tocs.is_empty(), "{report:?}");
                store.stop().await;
            });
        }
    }
}

/// Whatever else is lost with TOC.txt: the start names it, and nothing is removed.
/// INV-file-set-1.
#[test]
fn a_file_set_that_lost_more_is_refused_by_name_or_quarantined_and_kept() {
    for version in sstable::WriterOptions::VERSIONS {
        for component in Component::ALL.into_iter().filter(|c| *c != Component::Toc) {
            let world = World::new(202, WorldOptions::default());
            run_in(&world, move |rt| async move {
                let mut options = options(&rt);
                options.sstable_version = version;
                let directory = fill_some(&rt, options.clone()).await;
                let set = set(&rt, &directory).await;
                let fs = rt.fs();
                let lost = format!("{directory}/{}", set.file_name(component));
                if !fs.exists(&lost).await.unwrap() {
                    return;
                }
                for c in [component, Component::Toc] {
                    let path = format!("{directory}/{}", set.file_name(c));
                    fs.remove_file(&path).await.unwrap();
                }
                let left = names(&rt, &directory).await;
                let opened = Store::open(rt.clone(), options.clone(), schema()).await;
                // Without the list the other components are unknown.
                let may_open = component == Component::Checksums;
                match opened {
                    Ok((store, report)) if may_open => {
                        assert_eq!(read_all(&store).await.len(), ROWS as usize, "{version}");
                        assert_eq!(report.rebuilt_tocs.len(), 1);
                        return store.stop().await;
                    }
                    Ok(_) => panic!("{version} {component}: opened"),
                    Err(error) => {
                        let error = error.to_string();
                        assert!(error.contains(&lost), "{version} {component}: {error}");
                    }
                }
                assert_eq!(names(&rt, &directory).await, left, "{version} {component}");
                options.starts_with_damaged_files = true;
                let (store, report) = Store::open(rt.clone(), options, schema()).await.unwrap();
                assert!(report.removed_files.is_empty(), "{version} {component}");
                assert_eq!(store.verifier().damaged_files().len(), 1, "{version} {component}");
                store.stop().await;
            });
        }
    }
}

/// The rest of an unfinished write or removal is removed, whichever components exist.
#[test]
fn a_marked_file_set_is_removed() {
    for mark in [".tmp", ".removed"] {
        let world = World::new(203, WorldOptions::default());
        run_in(&world, move |rt| async move {
            let directory = fill_some(&rt, options(&rt)).await;
            let set = set(&rt, &directory).await;
            let toc = format!("{directory}/{}", set.file_name(Component::Toc));
            rt.fs().rename(&toc, &format!("{toc}{mark}")).await.unwrap();
            let found = list_sstables(&rt.fs(), &directory).await.unwrap();
            assert_eq!(found, [(set, SetState::Unfinished)]);
            let (store, report) = Store::open(rt.clone(), options(&rt), schema()).await.unwrap();
            assert_eq!(report.removed_files, [format!("{directory}/{}", set.prefix())]);
            assert!(read_all(&store).await.is_empty());
            store.stop().await;
            let left = names(&rt, &directory).await;
            assert!(!left.iter().any(|name| name.starts_with("nb-")), "{left:?}");
        });
    }
}

/// A set that lost its TOC.txt is linked into the snapshot of DROP TABLE like the others.
#[test]
fn dropping_a_table_keeps_a_set_without_table_of_contents_in_its_snapshot() {
    let world = World::new(204, WorldOptions::default());
    run_in(&world, |rt| async move {
        let directory = fill_some(&rt, options(&rt)).await;
        let set = set(&rt, &directory).await;
        let fs = rt.fs();
        let toc = format!("{directory}/{}", set.file_name(Component::Toc));
        fs.remove_file(&toc).await.unwrap();
        // The mark of a drop that the end of the process interrupted.
        let mark = format!("{directory}/helenus-dropped");
        fs.write_atomic(&mark, b"dropped-1-t\n".to_vec()).await.unwrap();
        let store = Store::open(rt.clone(), options(&rt), schema_of(vec![])).await.unwrap().0;
        let data = set.file_name(Component::Data);
        assert!(fs.exists(&format!("{directory}/snapshots/dropped-1-t/{data}")).await.unwrap());
        store.stop().await;
    });
}

/// Statistics.db of another file set would change the times of rows: an older value would win.
#[test]
fn a_component_of_another_file_set_is_refused_by_name() {
    for version in sstable::WriterOptions::VERSIONS {
        for component in Component::ALL {
            let world = World::new(205, WorldOptions::default());
            run_in(&world, move |rt| async move {
                let mut options = options(&rt);
                options.sstable_version = version;
                let (old, new) = (5_000_000, 9_000_000_000);
                let rows = |value, timestamp| -> Vec<(i32, &str, i64)> {
                    (0..ROWS).map(|pk| (pk, value, timestamp + i64::from(pk))).collect()
                };
                fill(&rt, options.clone(), &rows("old", old)).await;
                let directory = fill(&rt, options.clone(), &rows("new", new)).await;
                let fs = rt.fs();
                let sets = list_sstables(&fs, &directory).await.unwrap();
                let [(first, _), (second, _)] = sets[..] else { panic!("{sets:?}") };
                let path = |set: Descriptor| format!("{directory}/{}", set.file_name(component));
                if !fs.exists(&path(first)).await.unwrap() {
                    return;
                }
                let is_same = fs.read(&path(first), 1 << 20).await.unwrap()
                    == fs.read(&path(second), 1 << 20).await.unwrap();
                fs.rename(&path(first), "swapped").await.unwrap();
                fs.rename(&path(second), &path(first)).await.unwrap();
                fs.rename("swapped", &path(second)).await.unwrap();
                match Store::open(rt.clone(), options, schema()).await {
                    Err(error) => {
                        assert!(!is_same, "{version} {component}: {error}");
                        let error = error.to_string();
                        let prefixes = [first.prefix(), second.prefix()];
                        assert!(prefixes.iter().any(|p| error.contains(p)), "{error}");
                    }
                    Ok((store, _)) if is_same => {
                        let rows = read_all(&store).await;
                        assert!(rows.iter().all(|row| row.3.as_deref() == Some("new")), "{rows:?}");
                        store.stop().await;
                    }
                    // Large components of the same length are compared block by block.
                    Ok((store, _)) => {
                        assert!(component.is_large(), "{version} {component}: opened");
                        let options = crate::VerifyOptions::default();
                        let failed = store.verifier().verify(TABLE, &options).await.unwrap();
                        assert!(!failed.is_empty(), "{version} {component}");
                        store.stop().await;
                    }
                }
            });
        }
    }
}

/// A whole file set under another name, as manual restores create them: served, and reported.
#[test]
fn a_file_set_under_another_name_is_served_and_named() {
    let world = World::new(206, WorldOptions::default());
    run_in(&world, |rt| async move {
        let directory = fill_some(&rt, options(&rt)).await;
        let set = set(&rt, &directory).await;
        let other = Descriptor::nb(stdx::Generation(set.generation.0 + 100));
        for component in Component::ALL {
            let from = format!("{directory}/{}", set.file_name(component));
            let to = format!("{directory}/{}", other.file_name(component));
            if rt.fs().exists(&from).await.unwrap() {
                rt.fs().rename(&from, &to).await.unwrap();
            }
        }
        let (store, report) = Store::open(rt.clone(), options(&rt), schema()).await.unwrap();
        let data = format!("{directory}/{}", other.file_name(Component::Data));
        assert_eq!(report.moved_files, [data]);
        assert_eq!(read_all(&store).await.len(), ROWS as usize);
        store.stop().await;
    });
}
