use stdx::Generation;

use super::{open_golden, rewrite, run};
use crate::meta::{Components, SstableMeta};
use crate::{Component, Descriptor, INDEX_BLOCK, SstableError};

/// Opens from bytes and reads every block; the errors that any damage must give.
fn read_all(files: &[(Component, Vec<u8>)]) -> Result<(), SstableError> {
    let get = |c| files.iter().find(|(f, _)| *f == c).map(|(_, b)| b.as_slice()).unwrap_or(&[]);
    let (data, index) = (get(Component::Data), get(Component::Index));
    let components = Components {
        small: files
            .iter()
            .filter(|(c, _)| !matches!(c, Component::Data | Component::Index))
            .cloned()
            .collect(),
        data_length: data.len() as u64,
        index_length: index.len() as u64,
        ..Components::default()
    };
    let descriptor = Descriptor::nb(Generation(1));
    let meta = SstableMeta::open("dir", descriptor, None, &components)?;
    let blocks = (0..meta.data_blocks()).chain((0..meta.index_blocks()).map(|b| b | INDEX_BLOCK));
    for block in blocks {
        let at = meta.locate(block).unwrap();
        let file = if at.file == crate::BlockFile::Data { data } else { index };
        let start = at.offset as usize;
        meta.decode_block(block, &file[start..(start + at.length).min(file.len())])?;
    }
    Ok(())
}

fn named(error: &SstableError) -> String {
    match error {
        SstableError::Corrupt { file, .. }
        | SstableError::Missing { file }
        | SstableError::Unsupported { file, .. } => file.clone(),
        other => panic!("{other}"),
    }
}

/// Our own file sets: compressed and plain, small enough to damage each byte.
fn with_files(test: impl Fn(Vec<(Component, Vec<u8>)>) + Send + Sync + 'static) {
    let test = std::sync::Arc::new(test);
    run(move |rt| {
        let test = test.clone();
        async move {
            let golden = open_golden(&rt.fs(), "clust").await;
            for (generation, plain) in [(1, false), (2, true)] {
                let ours = rewrite(&rt.fs(), &golden, generation, |options| {
                    if plain {
                        options.compression = None;
                    }
                })
                .await;
                let mut files = Vec::new();
                for component in ours.meta().components() {
                    let bytes = rt.fs().read(&ours.meta().file(*component), 1 << 20).await.unwrap();
                    files.push((*component, bytes));
                }
                read_all(&files).unwrap();
                test(files);
            }
        }
    });
}

/// INV-sstable-1.
#[test]
fn a_flip_of_any_byte_of_any_component_is_seen_and_the_file_named() {
    with_files(|files| {
        for i in 0..files.len() {
            for at in 0..files[i].1.len() {
                let mut bad = files.clone();
                bad[i].1[at] ^= 1 << (at % 8);
                let component = files[i].0;
                let error = read_all(&bad).err();
                let error = error.unwrap_or_else(|| panic!("flip at {at} of {component}"));
                // A damaged list of checksums can only accuse itself; others are named.
                let name = named(&error);
                assert!(name.ends_with(component.file_name()), "{at} of {component}: {error}");
            }
        }
    });
}

#[test]
fn a_component_cut_at_any_length_is_seen_and_named() {
    with_files(|files| {
        for i in 0..files.len() {
            for length in 0..files[i].1.len() {
                let mut bad = files.clone();
                bad[i].1.truncate(length);
                let component = files[i].0;
                let error = read_all(&bad).err();
                let error = error.unwrap_or_else(|| panic!("{component} cut at {length}"));
                assert!(
                    named(&error).ends_with(component.file_name()),
                    "{component} cut at {length}: {error}"
                );
            }
        }
    });
}

#[test]
fn a_missing_component_is_named() {
    with_files(|files| {
        for i in 0..files.len() {
            if matches!(files[i].0, Component::Data | Component::Index) {
                continue;
            }
            let mut bad = files.clone();
            let (component, _) = bad.remove(i);
            let error = read_all(&bad).unwrap_err();
            assert!(matches!(error, SstableError::Missing { .. }), "{component}: {error}");
            assert!(named(&error).ends_with(component.file_name()), "{component}: {error}");
        }
    });
}
