//! The shape of the system calls of a compaction: what lies on the disk is read and written once, in large
//! aligned requests beside the page cache.

use rt::sim::DataCall;

use crate::tests::*;

/// Bytes of a read.
const REQUEST_BYTES: u64 = 256 * 1024;
/// Bytes of a write.
const WRITE_BYTES: u64 = 1024 * 1024;
const ALIGNMENT: u64 = 4096;

/// Three files of 2,400 rows of 700 bytes that no compressor makes smaller; every third row is in all.
async fn fill(store: &Store) {
    for file in 0..3_i32 {
        for i in 0..2400 {
            let ck = if i % 3 == 0 { i } else { i * 3 + file };
            let mut state = u32::try_from(i * 3 + file + 1).unwrap();
            let text: String = (0..700)
                .map(|_| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    char::from(33 + (state >> 24) as u8 % 94)
                })
                .collect();
            write(store, &insert(i % 40, ck, &text, i64::from(file) + 1)).await.unwrap();
        }
        store.flush(None).await.unwrap();
    }
}

/// The calls on one file, in order.
fn of_file<'c>(calls: &'c [DataCall], path: &str) -> Vec<&'c DataCall> {
    calls.iter().filter(|call| call.path == path).collect()
}

#[test]
fn a_compaction_reads_its_inputs_once_and_writes_its_output_once_in_aligned_requests() {
    let world = world(91);
    // Name and length of the inputs, then of the output.
    type Files = Vec<(String, u64)>;
    let files: Arc<Mutex<Vec<Files>>> = Arc::default();
    let seen = files.clone();
    world.disk("n1").watch("-Data.db");
    run_in(&world, move |rt| {
        let seen = seen.clone();
        async move {
            let options = StoreOptions {
                sstable_version: sstable::Version::Nb,
                segment_bytes: 8 << 20,
                ..options(&rt)
            };
            let mut of_table =
                TableOptions { gc_grace_seconds: i32::MAX, ..TableOptions::default() };
            of_table.compaction.insert("enabled".to_owned(), "false".to_owned());
            let schema = schema_of(vec![table(of_table)]);
            let (store, _) = Store::open(rt.clone(), options, schema).await.unwrap();
            fill(&store).await;
            let now = |store: &Store| {
                let view = store.rooms.tables.table(TABLE).unwrap().view();
                let metas = view.files.iter().map(|file| file.reader.meta());
                metas.map(|m| (m.file(sstable::Component::Data), m.data_file_length())).collect()
            };
            seen.lock().unwrap().push(now(&store));
            store.compactor().compact_major(TABLE).await.unwrap();
            seen.lock().unwrap().push(now(&store));
            store.stop().await;
        }
    });
    let calls = world.disk("n1").take_calls();
    let files = files.lock().unwrap();
    let [inputs, outputs] = files.as_slice() else { panic!("{files:?}") };
    assert_eq!((inputs.len(), outputs.len()), (3, 1), "{files:?}");
    for (path, length) in inputs.iter().chain(outputs) {
        assert!(*length > 5 * REQUEST_BYTES, "{path}: {length}");
        let is_input = inputs.iter().any(|(input, _)| input == path);
        let of_file = of_file(&calls, path);
        assert!(of_file.iter().all(|call| call.is_direct), "{path}: through the page cache");
        for call in &of_file {
            let is_end = call.offset + call.bytes as u64 == *length;
            assert_eq!(call.offset % ALIGNMENT, 0, "{call:?}");
            assert!(is_end || call.bytes as u64 >= REQUEST_BYTES, "{call:?} of {length}");
            assert!(is_end || (call.bytes as u64).is_multiple_of(ALIGNMENT), "{call:?}");
        }
        let sum = |is_write: bool| {
            let calls = of_file.iter().filter(|call| call.is_write == is_write);
            calls.fold((0, 0), |(n, bytes), call| (n + 1, bytes + call.bytes as u64))
        };
        // Written once, by the flush or the compaction.
        assert_eq!(sum(true), (length.div_ceil(WRITE_BYTES), *length), "{path}");
        let (requests, bytes) = sum(false);
        if is_input {
            // A block that two runs cut in two is read with the second one too.
            let again = bytes - length;
            assert!(requests <= length.div_ceil(REQUEST_BYTES) + 1, "{path}: {requests} reads");
            assert!(again <= requests * 16 * 1024, "{path}: {again} bytes twice");
        } else {
            assert_eq!(requests, 0, "{path}");
        }
    }
}
