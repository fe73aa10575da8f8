//! A simulated node asks a simulated provider, which hangs, fails, refuses and answers rubbish.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;

use at_rest::{DataKey, KeyRecord, SealError};
use conf::key_hosts::{KmsHosts, VaultHosts};
use key_providers::fake::{FakeProvider, Fault};
use rt::ListenOptions;
use rt::sim::{World, WorldOptions};
use stdx::Instant;

use super::*;

const PORT: u16 = 8200;

/// Serves a fake provider on one port, without end.
async fn serve(rt: Rt, at: SocketAddr, provider: Rc<RefCell<FakeProvider>>) {
    let listener = rt.listen(at, ListenOptions::default()).await.unwrap();
    let gate = rt.gate("provider");
    loop {
        let Ok(conn) = listener.accept().await else { continue };
        let provider = provider.clone();
        let served = async move {
            let mut request = Vec::new();
            while conn.read(&mut request, 4096).await.is_ok_and(|read| read > 0) {
                let answer = provider.borrow_mut().answer(&request);
                if let Some(answer) = answer {
                    drop(conn.write_all(&answer).await);
                    conn.shutdown();
                    return;
                }
            }
        };
        gate.spawn(&rt, Group::Admin, "connection", served).unwrap();
    }
}

fn hosts(world: &World) -> BTreeMap<String, KeyHost> {
    let ip = world.ip("provider");
    let read = |text: String| conf::yaml::parse(&text).unwrap();
    let vault =
        read(format!("{{a: {{endpoint: 'http://{ip}:{PORT}', token: token, timeout: 2s}}}}"));
    let kms = read(format!(
        "{{b: {{endpoint: 'http://{ip}:{PORT}', aws_region: region, aws_access_key_id: id, \
         aws_secret_access_key: secret, timeout: 2s}}}}"
    ));
    let mut hosts = BTreeMap::new();
    hosts.extend(
        VaultHosts::parse(&vault).unwrap().0.into_iter().map(|(n, h)| (format!("vault:{n}"), h)),
    );
    hosts
        .extend(KmsHosts::parse(&kms).unwrap().0.into_iter().map(|(n, h)| (format!("kms:{n}"), h)));
    hosts
}

fn source(provider: &str, key: &str) -> KeySource {
    KeySource { provider: provider.to_owned(), key: key.to_owned() }
}

/// Runs a test on a node beside a provider.
fn beside_a_provider<F: Future<Output = ()> + 'static>(
    test: impl FnOnce(Rt, BTreeMap<String, KeyHost>, Rc<RefCell<FakeProvider>>) -> F + 'static,
) {
    let world = World::new(7, WorldOptions::default());
    let provider = Rc::new(RefCell::new(FakeProvider::new()));
    let (served, at) = (provider.clone(), SocketAddr::new(world.ip("provider"), PORT));
    let _server = world.client("provider", move |rt| serve(rt, at, served));
    let (done, hosts) = (Rc::new(Cell::new(false)), hosts(&world));
    let of_test = done.clone();
    let _node = world.client("node", move |rt| async move {
        test(rt, hosts, provider).await;
        of_test.set(true);
    });
    world.run_for(Duration::from_secs(4000));
    assert!(done.get(), "the test did not end");
}

async fn open(rt: &Rt, record: &KeyRecord) -> Result<DataKey, SealError> {
    rt.fs().keys().open_data_key(record).await
}

/// Waits for a state that a task of the client brings about.
async fn until(rt: &Rt, seconds: u64, is: impl Fn() -> bool) {
    for _ in 0..seconds {
        if is() {
            return;
        }
        rt.sleep(Duration::from_secs(1)).await;
    }
    panic!("not within {seconds} s");
}

#[test]
fn both_providers_make_a_key_and_unwrap_it_for_a_node_that_has_forgotten_it() {
    beside_a_provider(|rt, hosts, provider| async move {
        let client = KeyClient::start(&rt, hosts).await.unwrap();
        for name in ["vault:a", "kms:b"] {
            let source = source(name, "k");
            client.want(&source).await.unwrap();
            let (key, record) = rt.fs().keys().new_data_key(Some(&source)).await.unwrap();
            assert_eq!(
                rt.fs().keys().new_data_key(Some(&source)).await.unwrap().1.envelope,
                record.envelope
            );
            assert_eq!(open(&rt, &record).await, Ok(key.clone()));
            let served = provider.borrow().served;
            rt.fs().keys().with_provided(|keys| *keys = at_rest::ProvidedKeys::default());
            let read = KeyRecord::decode(&record.encode()).unwrap();
            assert_eq!(open(&rt, &read).await, Ok(key.clone()));
            assert_eq!(open(&rt, &read).await, Ok(key), "from the cache");
            assert_eq!(provider.borrow().served, served + 1);
        }
    });
}

#[test]
fn every_fault_is_an_error_with_key_and_provider_by_the_deadline_and_ends_with_the_fault() {
    beside_a_provider(|rt, hosts, provider| async move {
        let client = KeyClient::start(&rt, hosts).await.unwrap();
        for name in ["vault:a", "kms:b"] {
            provider.borrow_mut().fault = Fault::None;
            let source = source(name, "k");
            client.want(&source).await.unwrap();
            let (key, record) = rt.fs().keys().new_data_key(Some(&source)).await.unwrap();
            for (fault, why) in [
                (Fault::Hangs, "did not answer within 2000 ms"),
                (Fault::Fails, "503"),
                (Fault::Refuses, "403"),
                (Fault::Garbles, "the answer is not understood"),
            ] {
                rt.fs().keys().with_provided(|keys| *keys = at_rest::ProvidedKeys::default());
                provider.borrow_mut().fault = fault;
                let begun: Instant = rt.now();
                let error = open(&rt, &record).await.unwrap_err();
                let took = rt.now().since(begun);
                assert!(took < Duration::from_secs(16), "{fault:?}: {took:?}");
                let text = error.to_string();
                assert!(
                    text.contains(why) && text.contains("\"k\"") && text.contains(name),
                    "{text}"
                );
                assert!(!error.is_damage(), "{text}");
                provider.borrow_mut().fault = Fault::None;
                assert_eq!(open(&rt, &record).await, Ok(key.clone()), "{fault:?}");
            }
            rt.fs().keys().with_provided(|keys| *keys = at_rest::ProvidedKeys::default());
            provider.borrow_mut().fault = Fault::WrongKey;
            let error = open(&rt, &record).await.unwrap_err();
            assert!(
                error.to_string().contains("gave another key") && !error.is_damage(),
                "{error}"
            );
            provider.borrow_mut().fault = Fault::None;
            assert_eq!(open(&rt, &record).await, Ok(key), "the wrong one is not kept");
        }
    });
}

#[test]
fn a_key_is_in_use_through_an_outage_and_a_rotated_one_after_the_next_check() {
    beside_a_provider(|rt, hosts, provider| async move {
        let client = KeyClient::start(&rt, hosts).await.unwrap();
        let source = source("vault:a", "k");
        client.want(&source).await.unwrap();
        let (key, record) = rt.fs().keys().new_data_key(Some(&source)).await.unwrap();
        provider.borrow_mut().fault = Fault::Hangs;
        rt.sleep(Duration::from_secs(1300)).await;
        assert!(client.status()[0].failures > 0, "{:?}", client.status());
        assert!(rt.fs().keys().is_wrapped_by_active(&record, Some(&source)));
        rt.fs().keys().new_data_key(Some(&source)).await.unwrap();
        *provider.borrow_mut().keys.get_mut("k").unwrap() = 2;
        provider.borrow_mut().fault = Fault::None;
        until(&rt, 60, || client.status()[0].version == Some(2)).await;
        assert_eq!((client.status()[0].failures, client.status().len()), (0, 1));
        assert!(!rt.fs().keys().is_wrapped_by_active(&record, Some(&source)));
        let wrapped = rt.fs().keys().wrap_data_key(&key, Some(&source)).await.unwrap();
        assert!(
            wrapped.version == 2 && rt.fs().keys().is_wrapped_by_active(&wrapped, Some(&source))
        );
        assert_eq!(open(&rt, &record).await, Ok(key.clone()), "the one before opens still");
        *provider.borrow_mut().keys.get_mut("k").unwrap() = 3;
        client.refresh().await.unwrap();
        assert_eq!(client.status()[0].version, Some(3), "on demand");
        provider.borrow_mut().fault = Fault::Refuses;
        let error = client.refresh().await.unwrap_err();
        assert!(error.contains("vault:a") && error.contains("403"), "{error}");
        assert!(!error.contains("token"), "INV-key-providers-2");
        provider.borrow_mut().fault = Fault::None;
        rt.sleep(Duration::from_secs(700)).await;
        assert_eq!(rt.fs().keys().with_provided(|keys| keys.cached()), 0, "it is forgotten");
        assert_eq!(open(&rt, &record).await, Ok(key), "and asked for again");
    });
}

#[test]
fn a_host_that_is_gone_and_a_node_without_a_client_are_named() {
    beside_a_provider(|rt, hosts, _provider| async move {
        let fs = rt.fs();
        let error =
            fs.keys().new_data_key(Some(&source("vault:a", "k"))).await.unwrap_err().to_string();
        assert!(error.contains("vault:a") && error.contains("vault_hosts"), "{error}");
        let client = KeyClient::start(&rt, hosts).await.unwrap();
        let error =
            fs.keys().new_data_key(Some(&source("kms:x", "k"))).await.unwrap_err().to_string();
        assert!(error.contains("kms_hosts of this node's settings has no host \"x\""), "{error}");
        let error =
            fs.keys().new_data_key(Some(&source("vault:a", "none"))).await.unwrap_err().to_string();
        assert!(error.contains("\"none\"") && error.contains("400"), "{error}");
        client.set_hosts(BTreeMap::new()).await.unwrap();
        let error =
            fs.keys().new_data_key(Some(&source("vault:a", "k"))).await.unwrap_err().to_string();
        assert!(error.contains("has no host \"a\""), "{error}");
    });
}
