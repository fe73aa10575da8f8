//! Encryption by table, and tables whose provider of keys hangs.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use at_rest::{KeyAsk, KeySource, Secret, WrappingKey};
use rt::KeyRequest;
use schema::TableEncryption;

use crate::tests::files::sealed::{ring, sealed_tables};
use crate::tests::*;
use crate::{SealingPolicy, UpgradeScope};

const OTHER: TableId = TableId(Uuid::from_u128(0x12));

/// Both results.
async fn both<A, B>(
    rt: &Rt,
    a: impl Future<Output = A> + 'static,
    b: impl Future<Output = B>,
) -> (A, B)
where
    A: 'static,
{
    let (sender, receiver) = rt::sync::oneshot::channel();
    let gate = rt.gate("both");
    let first = async move {
        assert!(sender.send(a.await).is_ok());
    };
    gate.spawn(rt, rt::Group::Admin, "first", first).unwrap();
    let second = b.await;
    (receiver.await.unwrap(), second)
}

/// A table with the option that has those keys and values.
fn table_with(pairs: &[(&str, &str)]) -> Table {
    let map = pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let mut options = TableOptions { gc_grace_seconds: i32::MAX, ..TableOptions::default() };
    options.compaction.insert("enabled".to_owned(), "false".to_owned());
    options.set_encryption(&TableEncryption::of_map(map).unwrap());
    table(options)
}

fn schema_with(pairs: &[(&str, &str)]) -> Arc<Schema> {
    schema_of(vec![table_with(pairs)])
}

async fn fill(store: &Store, from: i32) {
    for pk in from..from + 20 {
        write(store, &insert(pk, pk, "row", 1)).await.unwrap();
    }
}

fn are_sealed(store: &Store) -> BTreeSet<bool> {
    let view = store.rooms.tables.table(TABLE).unwrap().view();
    view.files.iter().map(|file| file.reader.meta().is_sealed()).collect()
}

#[test]
fn a_table_is_encrypted_as_its_option_says_and_other_nodes_files_stay_readable() {
    run(7200, |rt| async move {
        rt.set_file_keys(ring("key"));
        let options = || StoreOptions { sealing: sealed_tables(), ..options(&rt) };
        let none = schema_with(&[("key_provider", "none")]);
        let store = Store::open(rt.clone(), options(), none.clone()).await.unwrap().0;
        fill(&store, 0).await;
        store.flush(None).await.unwrap();
        assert_eq!(are_sealed(&store), BTreeSet::from([false]), "the table turns it off");
        store.stop().await;
        // A node whose settings encrypt nothing.
        let plain = || StoreOptions { sealing: SealingPolicy::default(), ..options() };
        let on = schema_with(&[("cipher_algorithm", "AES/CBC/PKCS5Padding")]);
        let store = Store::open(rt.clone(), plain(), on).await.unwrap().0;
        fill(&store, 20).await;
        store.flush(None).await.unwrap();
        assert_eq!(are_sealed(&store), BTreeSet::from([false, true]));
        assert_eq!(read_all(&store).await.len(), 40);
        store.compactor().upgrade(TABLE, UpgradeScope::All).await.unwrap();
        assert_eq!(are_sealed(&store), BTreeSet::from([true]));
        store.stop().await;
        let store = Store::open(rt.clone(), options(), none).await.unwrap().0;
        store.compactor().upgrade(TABLE, UpgradeScope::All).await.unwrap();
        assert_eq!(are_sealed(&store), BTreeSet::from([false]));
        assert_eq!(read_all(&store).await.len(), 40);
        store.stop().await;
    });
}

/// The key that a provider gives.
fn given_key(source: &KeySource) -> Arc<WrappingKey> {
    Arc::new(WrappingKey::new(source.clone(), 1, vec![5; 9], &Secret::new([5; 32])))
}

#[test]
fn a_provider_that_hangs_keeps_rows_in_memory_and_in_the_log_and_other_tables_are_flushed() {
    run(7210, |rt| async move {
        let requests = rt.fs().keys().serve_requests();
        let mut other = table(TableOptions::default());
        (other.id, other.name) = (OTHER, "other".into());
        let hangs = [("key_provider", "vault"), ("vault_host", "a")];
        let schema = schema_of(vec![table_with(&hangs), other]);
        let hosts = BTreeMap::from([("vault:a".to_owned(), Some("k".to_owned()))]);
        let sealing = SealingPolicy { hosts: Arc::new(hosts), ..SealingPolicy::default() };
        let options = || StoreOptions { sealing: sealing.clone(), ..options(&rt) };
        let store = Store::open(rt.clone(), options(), schema.clone()).await.unwrap().0;
        fill(&store, 0).await;
        write(&store, &in_other(&insert(1, 1, "row", 1))).await.unwrap();
        for id in [TABLE, OTHER] {
            store.rooms.tables.table(id).unwrap().wants_flush.set(true);
        }
        store.rooms.env.work.notify_one();
        let KeyRequest { ask, answer } = requests.recv().await.unwrap();
        let source = KeySource { provider: "vault:a".to_owned(), key: "k".to_owned() };
        assert_eq!(ask, KeyAsk::New(source.clone()));
        // The provider hangs: the round goes on with the other table.
        rt.sleep(Duration::from_secs(5)).await;
        let view = |id| store.rooms.tables.table(id).unwrap().view();
        assert_eq!((view(TABLE).files.len(), view(OTHER).files.len()), (0, 1));
        assert_eq!(view(TABLE).flushing.len(), 1, "nothing is written in the clear");
        fill(&store, 20).await;
        assert_eq!(read_all(&store).await.len(), 40, "rows are read from memory");
        // A refusal: the next request is a while later, and a flush that is asked for has the reason.
        assert!(answer.send(Err("it answers 403".to_owned())).is_ok());
        let flushed = store.clone();
        let refused = async move { flushed.flush(Some(&[TABLE])).await };
        let answers = async {
            let KeyRequest { answer, .. } = requests.recv().await.unwrap();
            assert!(answer.send(Err("it answers 403".to_owned())).is_ok());
        };
        let (refused, ()) = both(&rt, refused, answers).await;
        let text = refused.unwrap_err().to_string();
        assert!(text.contains("key \"k\" of vault:a: it answers 403"), "{text}");
        assert!(view(TABLE).files.is_empty());
        // The provider is back: the background writes what waits.
        let KeyRequest { answer, .. } = requests.recv().await.unwrap();
        rt.fs().keys().with_provided(|keys| keys.activate(rt.now(), given_key(&source)));
        assert!(answer.send(Ok(given_key(&source))).is_ok());
        store.flush(None).await.unwrap();
        assert_eq!(are_sealed(&store), BTreeSet::from([true]));
        assert_eq!(read_all(&store).await.len(), 40);
        store.stop().await;
        // A start without the provider names file, key and provider, and is no empty table.
        rt.fs().keys().with_provided(|keys| *keys = at_rest::ProvidedKeys::default());
        let opened = Store::open(rt.clone(), options(), schema);
        let answers = async {
            let KeyRequest { ask, answer } = requests.recv().await.unwrap();
            assert_eq!(
                ask,
                KeyAsk::Open { source: source.clone(), version: 1, envelope: vec![5; 9] }
            );
            assert!(answer.send(Err("no answer".to_owned())).is_ok());
        };
        let (opened, ()) = both(&rt, opened, answers).await;
        let text = opened.err().unwrap().to_string();
        assert!(
            text.contains("-Data.db") && text.contains("key \"k\" of vault:a: no answer"),
            "{text}"
        );
    });
}

/// INV-unflushable-2.
#[test]
fn a_table_without_its_key_takes_its_share_of_the_memory_and_other_tables_go_on() {
    const BUDGET: usize = 400_000;
    run(7211, |rt| async move {
        let requests = rt.fs().keys().serve_requests();
        let mut other = table(TableOptions::default());
        (other.id, other.name) = (OTHER, "other".into());
        let keys = [("key_provider", "vault"), ("vault_host", "a"), ("master_key", "misspelt")];
        let hosts = BTreeMap::from([("vault:a".to_owned(), None)]);
        let sealing = SealingPolicy { hosts: Arc::new(hosts), ..SealingPolicy::default() };
        let options = StoreOptions { sealing, memtable_bytes_max: BUDGET, ..options(&rt) };
        let schema = schema_of(vec![table_with(&keys), other]);
        let store = Store::open(rt.clone(), options, schema).await.unwrap().0;
        let gate = rt.gate("provider");
        let given = Rc::new(Cell::new(false));
        let (asked, fs) = (given.clone(), rt.fs());
        let provider = async move {
            while let Some(KeyRequest { ask, answer }) = requests.recv().await {
                let key = given_key(ask.source());
                let answered = match asked.get() {
                    true => {
                        let now = stdx::Instant::ZERO;
                        fs.keys().with_provided(|keys| keys.activate(now, key.clone()));
                        answer.send(Ok(key))
                    }
                    false => answer.send(Err("it answers 400".to_owned())),
                };
                assert!(answered.is_ok());
            }
        };
        gate.spawn(&rt, rt::Group::Admin, "provider", provider).unwrap();
        let row = |pk: i32| insert(pk, pk, &"x".repeat(1_000), 1);
        let mut taken = 0;
        let refused = loop {
            store.writer().wait_for_room().await.unwrap();
            match write(&store, &row(taken)).await {
                Ok(()) => taken += 1,
                Err(error) => break error,
            }
            assert!(taken < 1_000, "no share is kept");
            // The background takes notice of what the writes begin.
            rt.sleep(Duration::from_millis(20)).await;
        };
        let text = refused.to_string();
        let StoreError::Unflushable { table, share, .. } = refused else { panic!("{text}") };
        assert_eq!((table.as_str(), share), ("ks.t", BUDGET / 4));
        assert!(text.contains("its files need key \"misspelt\" of vault:a"), "{text}");
        for i in 0..1_000 {
            store.writer().wait_for_room().await.unwrap();
            write(&store, &in_other(&row(i))).await.unwrap();
        }
        assert!(write(&store, &row(0)).await.is_err());
        let of_table = |rows: Vec<_>| rows.len();
        assert_eq!(of_table(read_all(&store).await), usize::try_from(taken).unwrap());
        // The key comes: what waits is written, and the table takes writes again without a command.
        given.set(true);
        while store.rooms.tables.table(TABLE).unwrap().lacks_key.get() {
            rt.sleep(Duration::from_secs(1)).await;
        }
        write(&store, &row(5_000)).await.unwrap();
        store.flush(None).await.unwrap();
        assert_eq!(are_sealed(&store), BTreeSet::from([true]));
        assert_eq!(of_table(read_all(&store).await), usize::try_from(taken).unwrap() + 1);
        store.stop().await;
    });
}

/// The same mutation for the other table.
fn in_other(row: &[u8]) -> Vec<u8> {
    let mut row = row.to_vec();
    let at = row.windows(16).position(|bytes| bytes == TABLE.0.as_bytes()).unwrap();
    row[at..at + 16].copy_from_slice(OTHER.0.as_bytes());
    row
}
