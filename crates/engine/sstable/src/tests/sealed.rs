use std::sync::Arc;

use at_rest::{KeyRing, generated_line, parse_keys};
use data::Slices;
use data::command::KeyRange;
use rt::{Fs, OpenOptions, Rt};
use stdx::{Generation, Uuid};

use super::{GOLDEN, collect, open_golden, rewrite, run};
use crate::offline::verify;
use crate::repair_state::{RepairState, write_repair_state};
use crate::{
    Component, Descriptor, Rewrapped, Sealing, SstableError, SstableReader, Version, rewrap,
};

/// A ring of keys with these ids, the first one active.
pub(super) fn ring(ids: &[&str]) -> Option<Arc<KeyRing>> {
    let line = |id: &&str| generated_line(id, [id.as_bytes()[0]; 32]).unwrap();
    let text = ids.iter().map(line).collect::<Vec<_>>().join("\n");
    Some(Arc::new(parse_keys(&text).unwrap().ring))
}

async fn rows(reader: &SstableReader) -> Vec<String> {
    let mut cursor = reader.range_cursor(0, KeyRange::all(), Arc::new(Slices::all()), None);
    collect(reader, &mut cursor).await
}

/// An encrypted copy of a golden file set.
async fn sealed(rt: &Rt, table: &str, generation: u64, version: Version) -> SstableReader {
    let golden = open_golden(&rt.fs(), table).await;
    rewrite(&rt.fs(), &golden, generation, |options| {
        options.version = version;
        options.sealing = Sealing::Sealed;
        if generation.is_multiple_of(2) {
            options.compression = None;
        }
    })
    .await
}

async fn files_of(fs: &Fs, reader: &SstableReader) -> Vec<(Component, Vec<u8>)> {
    let mut files = Vec::new();
    for component in reader.meta().components() {
        let path = reader.meta().file(*component);
        files.push((*component, fs.read(&path, 1 << 24).await.unwrap()));
    }
    files
}

/// Replaces a file; it need not be durable.
async fn put(fs: &Fs, path: &str, bytes: &[u8]) {
    let options =
        OpenOptions { write: true, create: true, truncate: true, ..OpenOptions::default() };
    let file = fs.open(path, options).await.unwrap();
    file.write_at(rt::Buf::from_slice(bytes), 0).await.1.unwrap();
}

/// Opens a set and reads every byte of it.
async fn check(fs: &Fs, set: Descriptor) -> crate::Result<()> {
    let reader = SstableReader::open(fs, "out", set, None).await?;
    verify(&reader).await.map(|_| ())
}

#[test]
fn an_encrypted_file_set_has_the_same_rows_and_none_of_their_bytes() {
    run(|rt| async move {
        rt.set_file_keys(ring(&["k"]));
        let fs = rt.fs();
        let mut generation = 0;
        for (table, text) in [("clust", &b"clust"[..]), ("wide", b"wide"), ("plain", b"plain")] {
            let golden = open_golden(&fs, table).await;
            let expected = rows(&golden).await;
            for version in [Version::Nb, Version::Nb, Version::Oa, Version::Da, Version::Da] {
                generation += 1;
                let ours = sealed(&rt, table, generation, version).await;
                assert!(ours.meta().is_sealed());
                assert_eq!(rows(&ours).await, expected, "{table} {version}");
                verify(&ours).await.unwrap();
                assert!(ours.meta().components().contains(&Component::Encryption));
                for (component, bytes) in files_of(&fs, &ours).await {
                    let clear = matches!(component, Component::Toc | Component::Encryption);
                    assert_eq!(at_rest::is_sealed(&bytes), !clear, "{component}");
                    // Cassandra's classes stand in every header in the clear.
                    let class = b"org.apache.cassandra";
                    assert!(
                        !bytes.windows(class.len()).any(|w| w == class),
                        "{component} {text:?}"
                    );
                }
            }
        }
    });
}

#[test]
fn every_flipped_byte_of_every_component_is_found() {
    run(|rt| async move {
        rt.set_file_keys(ring(&["k"]));
        let fs = rt.fs();
        for (generation, version) in [(1, Version::Nb), (2, Version::Nb), (3, Version::Da)] {
            let ours = sealed(&rt, "plain", generation, version).await;
            let set = ours.meta().descriptor();
            for (component, bytes) in files_of(&fs, &ours).await {
                let path = ours.meta().file(component);
                for at in 0..bytes.len() {
                    let mut bad = bytes.clone();
                    bad[at] ^= 0x20;
                    put(&fs, &path, &bad).await;
                    let error = check(&fs, set).await.expect_err(&format!("{component} at {at}"));
                    let other_version = matches!(error, SstableError::Unsupported { .. });
                    assert!(error.is_damage() || other_version, "{component} at {at}: {error}");
                }
                put(&fs, &path, &bytes).await;
            }
            check(&fs, set).await.unwrap();
        }
    });
}

#[test]
fn cut_extended_swapped_and_foreign_components_are_found_by_name() {
    run(|rt| async move {
        rt.set_file_keys(ring(&["k"]));
        let fs = rt.fs();
        let [one, other] =
            [sealed(&rt, "wide", 1, Version::Nb).await, sealed(&rt, "wide", 3, Version::Nb).await];
        let set = one.meta().descriptor();
        let foreign = files_of(&fs, &other).await;
        let same = files_of(&fs, &one).await;
        for ((component, bytes), (_, of_other)) in same.iter().zip(&foreign) {
            if *component == Component::Toc {
                continue;
            }
            let path = one.meta().file(*component);
            let mut bad = vec![of_other.clone(), bytes[..bytes.len() - 1].to_vec()];
            if *component != Component::Encryption {
                let block = at_rest::BLOCK_BYTES;
                bad.push(bytes[..(bytes.len() - 1) / block * block].to_vec());
                bad.push([&bytes[..], &[0; 4096]].concat());
                let next = same.iter().find(|(c, _)| c != component).unwrap();
                bad.push(next.1.clone());
                if bytes.len() > 2 * block + 100 {
                    let (first, rest) = bytes.split_at(block);
                    let (second, rest) = rest.split_at(block);
                    bad.push([second, first, rest].concat());
                }
            }
            for (number, bad) in bad.into_iter().enumerate() {
                put(&fs, &path, &bad).await;
                let error = check(&fs, set).await.expect_err(&format!("{component} {number}"));
                assert!(error.is_damage(), "{component} {number}: {error}");
            }
            fs.remove_file(&path).await.unwrap();
            let error = check(&fs, set).await.expect_err("it is missing");
            assert!(error.is_damage(), "{component}: {error}");
            put(&fs, &path, bytes).await;
        }
        check(&fs, set).await.unwrap();
    });
}

#[test]
fn a_file_set_without_its_key_is_refused_by_name_and_is_no_damage() {
    run(|rt| async move {
        rt.set_file_keys(ring(&["first"]));
        let fs = rt.fs();
        let ours = sealed(&rt, "clust", 1, Version::Nb).await;
        let set = ours.meta().descriptor();
        for keys in [None, ring(&["second"])] {
            rt.set_file_keys(keys);
            let error = check(&fs, set).await.unwrap_err();
            let text = error.to_string();
            assert!(!error.is_damage(), "{text}");
            assert!(text.contains("nb-1-big-Data.db cannot be read"), "{text}");
            assert!(text.contains("key \"first\" of key-file"), "{text}");
        }
        // Nor is one written without an active key.
        for keys in
            [None, Some(Arc::new(parse_keys(&format!("none\n{}", "1".repeat(64))).unwrap().ring))]
        {
            rt.set_file_keys(keys);
            let table = crate::offline::table_of_header(&ours.meta().statistics().header);
            let options = crate::WriterOptions::for_table(
                &table,
                Generation(9),
                1,
                crate::EncodingStats::NONE,
            );
            let options = crate::WriterOptions { sealing: Sealing::Sealed, ..options.unwrap() };
            let error =
                crate::SstableWriter::create(&fs, "out", &table, options).await.err().unwrap();
            assert!(error.to_string().contains("there is no active key"), "{error}");
        }
    });
}

#[test]
fn rotation_rewrites_the_record_alone_and_the_old_key_is_not_needed_any_more() {
    run(|rt| async move {
        rt.set_file_keys(ring(&["old"]));
        let fs = rt.fs();
        let ours = sealed(&rt, "clust", 1, Version::Da).await;
        let (set, expected) = (ours.meta().descriptor(), rows(&ours).await);
        let before = files_of(&fs, &ours).await;
        rt.set_file_keys(ring(&["new", "old"]));
        assert_eq!(rewrap(&fs, "out", set, &Sealing::Sealed).await, Ok(Rewrapped::Changed));
        assert_eq!(rewrap(&fs, "out", set, &Sealing::Sealed).await, Ok(Rewrapped::Current));
        for ((component, old), (_, new)) in before.iter().zip(files_of(&fs, &ours).await) {
            assert_eq!(*old == new, *component != Component::Encryption, "{component}");
        }
        rt.set_file_keys(ring(&["new"]));
        let reader = SstableReader::open(&fs, "out", set, None).await.unwrap();
        assert_eq!(rows(&reader).await, expected);
        rt.set_file_keys(ring(&["old"]));
        assert!(
            rewrap(&fs, "out", set, &Sealing::Sealed)
                .await
                .unwrap_err()
                .to_string()
                .contains("\"new\"")
        );
        assert_eq!(rewrap(&fs, GOLDEN, set, &Sealing::Sealed).await, Ok(Rewrapped::Plain));
    });
}

#[test]
fn rewritten_components_stay_encrypted() {
    run(|rt| async move {
        rt.set_file_keys(ring(&["k"]));
        let fs = rt.fs();
        let ours = sealed(&rt, "clust", 1, Version::Nb).await;
        let set = ours.meta().descriptor();
        let before = files_of(&fs, &ours).await;
        let state = RepairState { repaired_at: 77, pending: Some(Uuid::from_u128(5)) };
        write_repair_state(&fs, ours.meta(), state).await.unwrap();
        let again = SstableReader::open(&fs, "out", set, None).await.unwrap();
        assert_eq!(RepairState::of(again.meta()), state);
        verify(&again).await.unwrap();
        let statistics = |files: &[(Component, Vec<u8>)]| {
            files.iter().find(|(c, _)| *c == Component::Statistics).unwrap().1.clone()
        };
        let (old, new) = (statistics(&before), statistics(&files_of(&fs, &again).await));
        assert!(at_rest::is_sealed(&new));
        // Another salt: no nonce is used twice.
        let salt = |file: &[u8]| file[file.len() - 28..file.len() - 12].to_vec();
        assert_ne!(salt(&old), salt(&new));
        // TOC.txt is rebuilt as for a plain set.
        fs.remove_file(&again.meta().file(Component::Toc)).await.unwrap();
        let table = crate::offline::table_of_header(&ours.meta().statistics().header);
        crate::rebuild_toc(&fs, "out", set, &table, "0").await.unwrap();
        check(&fs, set).await.unwrap();
        // Offline rewrites keep the encryption.
        let to = crate::offline::Rewrite { fs: &fs, at: &mut |_, _| {} };
        let generation = Some(Generation(5));
        let written = crate::offline::upgrade(to, &again, Version::Oa, "out", generation).await;
        let new = written.unwrap().unwrap();
        let reader = SstableReader::open(&fs, "out", new.descriptor, None).await.unwrap();
        assert!(reader.meta().is_sealed());
        assert_eq!(rows(&reader).await, rows(&ours).await);
    });
}
