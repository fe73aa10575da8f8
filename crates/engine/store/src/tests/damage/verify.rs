//! Verification of the files of a running store.

use rt::{Buf, OpenOptions};
use sstable::Component;

use crate::OwnedRanges;
use crate::damage::verify::VerifyOptions;
use crate::tests::*;

async fn filled(rt: &Rt) -> Store {
    let schema = schema_of(vec![table(TableOptions::default())]);
    let store = Store::open(rt.clone(), options(rt), schema);
    let store = store.await.unwrap().0;
    for pk in 0..200 {
        write(&store, &insert(pk, 1, &format!("value {pk}"), 1)).await.unwrap();
    }
    store.flush(None).await.unwrap();
    store
}

fn path(store: &Store, component: Component) -> String {
    let table = store.rooms.tables.table(TABLE).unwrap();
    let view = table.view();
    view.files[0].reader.meta().file(component).to_string()
}

/// Flips the bits of one byte in the middle of a file.
async fn damage(rt: &Rt, path: &str) {
    let options = OpenOptions { read: true, write: true, ..OpenOptions::default() };
    let file = rt.fs().open(path, options).await.unwrap();
    let at = file.len().await.unwrap() / 2;
    let byte = !file.read_exact_at(at, 1).await.unwrap().as_slice()[0];
    file.write_at(Buf::from(vec![byte]), at).await.1.unwrap();
}

fn ways() -> [VerifyOptions; 3] {
    let usual = VerifyOptions::default();
    [
        VerifyOptions { quick: true, ..usual.clone() },
        usual.clone(),
        VerifyOptions { extended: true, ..usual },
    ]
}

#[test]
fn what_the_disk_has_is_compared_with_its_checksums_by_each_way_as_far_as_it_looks() {
    // Which of quick, usual and extended find it.
    let cases = [
        (None, [false, false, false]),
        (Some(Component::Data), [false, true, true]),
        (Some(Component::Index), [false, true, true]),
        (Some(Component::Filter), [true, true, true]),
        (Some(Component::Statistics), [true, true, true]),
    ];
    for (component, found) in cases {
        for (options, is_found) in ways().into_iter().zip(found) {
            run_in(&world(77), move |rt| {
                let options = options.clone();
                async move {
                    let store = filled(&rt).await;
                    let data = path(&store, Component::Data);
                    let damaged = component.map(|component| path(&store, component));
                    if let Some(path) = &damaged {
                        damage(&rt, path).await;
                    }
                    let failed = store.verifier().verify(TABLE, &options).await.unwrap();
                    assert_eq!(failed.len(), usize::from(is_found), "{component:?} {options:?}");
                    for (path, error) in failed {
                        assert_eq!(path, data);
                        let text = error.to_string();
                        assert!(text.contains(damaged.as_deref().unwrap()), "{text}");
                    }
                    // Not shown any more, but perhaps what becomes of the damaged one.
                    let shown = store.files().slots().compactions();
                    assert!(shown.iter().all(|c| c.reason != "verification"), "{shown:?}");
                    assert_eq!(store.verifier().damaged_files().len(), usize::from(is_found));
                    store.stop().await;
                }
            });
        }
    }
}

#[test]
fn versions_tokens_and_stops_are_seen() {
    run_in(&world(78), move |rt| async move {
        let store = filled(&rt).await;
        let latest = VerifyOptions { latest_version: true, ..VerifyOptions::default() };
        assert_eq!(store.verifier().verify(TABLE, &latest).await.unwrap(), []);
        let owning = |ranges: Vec<(Token, Token)>| VerifyOptions {
            extended: true,
            owned: Some(OwnedRanges::new(ranges)),
            ..VerifyOptions::default()
        };
        let all = owning(vec![(Token::MIN, Token::MAX)]);
        assert_eq!(store.verifier().verify(TABLE, &all).await.unwrap(), []);
        let half =
            store.verifier().verify(TABLE, &owning(vec![(Token(0), Token::MAX)])).await.unwrap();
        assert!(half[0].1.to_string().contains("which this node does not own"), "{half:?}");

        write(&store, &insert(-1, 1, "in another file", 1)).await.unwrap();
        store.flush(None).await.unwrap();
        // It is listed as long as it runs, and ends when it is stopped.
        let running = store.clone();
        let ended = std::rc::Rc::new(std::cell::RefCell::new(None));
        let (seen, gate) = (ended.clone(), rt.gate("test"));
        let task = async move {
            let result = running.verifier().verify(TABLE, &VerifyOptions::default()).await;
            *seen.borrow_mut() = Some(result);
        };
        gate.spawn(&rt, rt::Group::Admin, "verify", task).unwrap();
        while store.files().slots().compactions().is_empty() {
            rt.sleep(Duration::from_micros(1)).await;
        }
        let shown = store.files().slots().compactions();
        assert_eq!((shown[0].kind, shown[0].inputs), ("Verify", 2));
        assert_eq!(store.files().slots().stop_compactions(|shown| shown.kind == "Verify"), 1);
        while ended.borrow().is_none() {
            rt.sleep(Duration::from_millis(10)).await;
        }
        let error = ended.borrow_mut().take().unwrap().unwrap_err();
        assert!(error.to_string().contains("stopped"), "{error}");
        gate.close().await;
        store.stop().await;

        // Files of another version are found on request.
        let mut options = options(&rt);
        options.sstable_version = crate::Version::Oa;
        let schema = schema_of(vec![table(TableOptions::default())]);
        let store = Store::open(rt.clone(), options, schema).await.unwrap().0;
        let failed = store.verifier().verify(TABLE, &latest).await.unwrap();
        assert!(failed[0].1.to_string().contains("run upgradesstables"), "{failed:?}");
        store.stop().await;
    });
}
