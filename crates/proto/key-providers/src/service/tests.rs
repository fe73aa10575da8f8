use at_rest::Secret;
use testkit::Random;

use super::*;

fn source(key: &str) -> KeySource {
    KeySource { provider: "vault:a".to_owned(), key: key.to_owned() }
}

fn at(seconds: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(seconds)
}

fn service() -> KeyService {
    let times = Times { expiry: Duration::from_secs(600), refresh: Duration::from_secs(1200) };
    let mut service = KeyService::default();
    service.set_hosts(BTreeMap::from([("vault:a".to_owned(), times)]));
    service
}

fn made(byte: u8, version: u32) -> Made {
    let (secret, envelope) = (Secret::new([byte; 32]), vec![byte; 4]);
    Made { secret, envelope, version, resolved: String::new() }
}

fn shown(outputs: &[Output]) -> Vec<String> {
    let one = |output: &Output| match output {
        Output::Send(KeyAsk::New(source)) => Some(format!("new {}", source.key)),
        Output::Send(KeyAsk::Open { source, .. }) => Some(format!("open {}", source.key)),
        Output::Answer(waiter, Ok(key)) => Some(format!("{waiter} <- {:?}", key.envelope())),
        Output::Answer(waiter, Err(what)) => Some(format!("{waiter} <- {what}")),
        Output::Keep(key) => Some(format!("keep {:?}", key.envelope())),
        Output::Activate(key) => Some(format!("use {:?}", key.envelope())),
        Output::Failed(source, failures, what) => {
            Some(format!("failed {} {failures} {what}", source.key))
        }
        Output::Retire(source) => Some(format!("retire {}", source.key)),
        Output::Expire(..) => None,
    };
    outputs.iter().filter_map(one).collect()
}

/// The request that unwraps a key that was made.
fn open_of(byte: u8, version: u32) -> KeyAsk {
    KeyAsk::Open { source: source("k"), version, envelope: vec![byte; 4] }
}

/// The provider makes a key and unwraps it.
fn make(service: &mut KeyService, now: Instant, byte: u8, version: u32) -> Vec<String> {
    let sent = service.answered(now, &KeyAsk::New(source("k")), Ok(made(byte, version)), 0);
    assert_eq!(shown(&sent), ["open k"]);
    shown(&service.answered(now, &open_of(byte, version), Ok(made(byte, version)), 0))
}

fn refused() -> Result<Made, ProviderError> {
    Err(ProviderError::Refused("403".to_owned()))
}

fn down() -> Result<Made, ProviderError> {
    Err(ProviderError::Unavailable("down".to_owned()))
}

#[test]
fn one_request_answers_all_that_wait_and_the_key_in_use_answers_the_next() {
    let (mut service, new) = (service(), KeyAsk::New(source("k")));
    assert_eq!(shown(&service.ask(at(0), new.clone(), 1)), ["new k"]);
    assert_eq!(shown(&service.ask(at(0), new.clone(), 2)), [""; 0]);
    let answers = make(&mut service, at(1), 7, 3);
    let key = "[7, 7, 7, 7]";
    assert_eq!(answers, [format!("use {key}"), format!("1 <- {key}"), format!("2 <- {key}")]);
    assert_eq!(shown(&service.ask(at(2), new, 3)), [format!("3 <- {key}")]);
}

#[test]
fn a_failure_is_retried_with_back_off_and_who_waits_learns_it_by_the_deadline() {
    let (mut service, new) = (service(), KeyAsk::New(source("k")));
    service.want(at(0), &source("k"));
    assert_eq!(shown(&service.ask(at(0), new.clone(), 1)), [""; 0], "it is in flight");
    assert_eq!(shown(&service.answered(at(5), &new, down(), 0)), ["failed k 1 down"]);
    assert_eq!(shown(&service.poll(at(5))), [""; 0]);
    assert_eq!(shown(&service.poll(at(6))), ["new k"]);
    assert_eq!(shown(&service.poll(at(14))), [""; 0]);
    assert_eq!(shown(&service.poll(at(15))), ["1 <- down"], "INV-key-providers-1");
    let mut last = at(15);
    for failures in 2..20 {
        service.answered(last, &new, down(), 0);
        let before = last + backoff(failures, 0).saturating_sub(Duration::from_millis(1));
        assert_eq!(shown(&service.poll(before)), [""; 0], "{failures}");
        last = last + backoff(failures, 0);
        assert_eq!(shown(&service.poll(last)), ["new k"], "{failures}");
    }
    assert_eq!(backoff(u32::MAX, 0), BACKOFF_MAX);
    assert!(backoff(9, u64::MAX) >= BACKOFF_MAX / 2);
    let status = service.status();
    assert_eq!(
        (status[0].failures, status[0].last_error.as_str(), status[0].version),
        (19, "down", None)
    );
}

#[test]
fn a_refusal_is_answered_at_once_and_nobody_waits_for_a_host_that_is_not_known() {
    let mut service = service();
    let open = KeyAsk::Open { source: source("k"), version: 1, envelope: vec![9] };
    assert_eq!(shown(&service.ask(at(0), open.clone(), 1)), ["open k"]);
    let refused = Err(ProviderError::Refused("403".to_owned()));
    assert_eq!(shown(&service.answered(at(1), &open, refused, 0)), ["failed k 1 403", "1 <- 403"]);
    assert!(service.pending.is_empty(), "nobody needs it");
    let other = KeySource { provider: "kms:b".to_owned(), key: "k".to_owned() };
    let unknown = "2 <- kms_hosts of this node's settings has no host \"b\"";
    assert_eq!(shown(&service.ask(at(1), KeyAsk::New(other), 2)), [unknown]);
}

#[test]
fn a_check_keeps_the_key_in_use_unless_the_named_key_was_rotated() {
    let (mut service, new) = (service(), KeyAsk::New(source("k")));
    service.want(at(0), &source("k"));
    assert_eq!(make(&mut service, at(0), 1, 3), ["use [1, 1, 1, 1]"]);
    assert_eq!(shown(&service.poll(at(1199))), [""; 0]);
    assert_eq!(shown(&service.poll(at(1200))), ["new k"]);
    let checked = service.answered(at(1201), &new, Ok(made(2, 3)), 0);
    assert_eq!(shown(&checked), ["open k"], "the same version: the key in use is unwrapped");
    let kept = service.answered(at(1201), &open_of(1, 3), Ok(made(1, 3)), 0);
    assert_eq!(shown(&kept), [""; 0]);
    assert_eq!(shown(&service.poll(at(2401))), ["new k"]);
    assert_eq!(shown(&service.answered(at(2402), &new, down(), 0)), ["failed k 1 down"]);
    assert_eq!(
        shown(&service.ask(at(2402), new.clone(), 1)),
        ["1 <- [1, 1, 1, 1]"],
        "it stays in use"
    );
    service.poll(at(2403));
    assert_eq!(make(&mut service, at(2404), 3, 4), ["use [3, 3, 3, 3]"]);
    assert_eq!(service.status()[0].version, Some(4));
    // On demand, before its time.
    assert_eq!(shown(&service.refresh(at(2405), &source("k"), 9)), ["new k"]);
    let demanded = make(&mut service, at(2406), 4, 5);
    assert_eq!(demanded, ["use [4, 4, 4, 4]", "9 <- [4, 4, 4, 4]"]);
    // An alias that means another key.
    let other = Made { resolved: "arn:2".to_owned(), ..made(5, 5) };
    service.poll(at(3606));
    assert_eq!(shown(&service.answered(at(3606), &new, Ok(other), 0)), ["open k"]);
    let used = service.answered(at(3606), &open_of(5, 5), Ok(made(5, 5)), 0);
    assert_eq!(shown(&used), ["use [5, 5, 5, 5]"]);
}

#[test]
fn a_key_is_put_into_use_only_after_the_provider_has_unwrapped_it_to_the_same_key() {
    let (mut service, new) = (service(), KeyAsk::New(source("k")));
    service.ask(at(0), new.clone(), 1);
    for (result, why) in
        [(refused(), "403"), (Ok(made(9, 1)), "it unwraps the key that it made to another key")]
    {
        assert_eq!(shown(&service.answered(at(1), &new, Ok(made(1, 1)), 0)), ["open k"]);
        assert_eq!(shown(&service.poll(at(2))), [""; 0], "one request at a time");
        let answers = service.answered(at(2), &open_of(1, 1), result, 0);
        assert_eq!(shown(&answers), [format!("failed k 1 {why}"), format!("1 <- {why}")]);
        assert_eq!(shown(&service.ask(at(2), new.clone(), 1)), ["new k"]);
    }
    // An outage between the two: retried from the first.
    service.answered(at(3), &new, Ok(made(2, 1)), 0);
    assert_eq!(shown(&service.answered(at(3), &open_of(2, 1), down(), 0)), ["failed k 1 down"]);
    assert_eq!(shown(&service.poll(at(4))), ["new k"]);
    assert_eq!(make(&mut service, at(4), 3, 1), ["use [3, 3, 3, 3]", "1 <- [3, 3, 3, 3]"]);
}

#[test]
fn a_named_key_that_was_made_again_with_the_same_version_is_noticed_by_the_next_check() {
    let (mut service, new) = (service(), KeyAsk::New(source("k")));
    service.want(at(0), &source("k"));
    make(&mut service, at(0), 1, 1);
    service.poll(at(1200));
    assert_eq!(shown(&service.answered(at(1200), &new, Ok(made(2, 1)), 0)), ["open k"]);
    // An outage says nothing about the key.
    assert_eq!(shown(&service.answered(at(1200), &open_of(1, 1), down(), 0)), ["failed k 1 down"]);
    assert_eq!(shown(&service.poll(at(1201))), ["new k"]);
    service.answered(at(1201), &new, Ok(made(3, 1)), 0);
    let replaced = shown(&service.answered(at(1201), &open_of(1, 1), refused(), 0));
    assert!(replaced[0].contains("does not open the key in use any more: 403"), "{replaced:?}");
    assert_eq!(replaced[1..], ["open k"]);
    let used = service.answered(at(1202), &open_of(3, 1), Ok(made(3, 1)), 0);
    assert_eq!(shown(&used), ["use [3, 3, 3, 3]"]);
}

#[test]
fn a_source_that_nothing_names_is_retired_and_not_asked_for_any_more() {
    let mut service = service();
    service.want(at(0), &source("k"));
    make(&mut service, at(0), 1, 1);
    service.want(at(0), &source("gone"));
    let named = BTreeSet::from([source("k")]);
    assert_eq!(shown(&service.retain(&named)), [""; 0], "it never had a key");
    let failed = service.answered(at(1), &KeyAsk::New(source("gone")), refused(), 0);
    assert_eq!(shown(&failed), ["failed gone 1 403"]);
    assert_eq!(shown(&service.poll(at(100))), [""; 0]);
    assert_eq!(service.status().len(), 1);
    assert_eq!(shown(&service.retain(&BTreeSet::new())), ["retire k"]);
    assert_eq!(shown(&service.poll(at(5000))), [""; 0]);
    assert_eq!(shown(&service.ask(at(5000), KeyAsk::New(source("k")), 1)), ["new k"]);
}

#[test]
fn requests_in_flight_and_waiters_are_bounded() {
    let mut service = service();
    let open = |n: usize| KeyAsk::Open {
        source: source("k"),
        version: 1,
        envelope: n.to_le_bytes().to_vec(),
    };
    let sent: usize = (0..100).map(|n| shown(&service.ask(at(0), open(n), n as u64)).len()).sum();
    assert_eq!(sent, IN_FLIGHT_MAX);
    let next = service.answered(at(0), &open(0), Ok(made(1, 1)), 0);
    assert_eq!(shown(&next), ["keep [1, 1, 1, 1]", "0 <- [1, 1, 1, 1]", "open k"]);
    for n in 100..=WAITERS_MAX {
        assert_eq!(shown(&service.ask(at(0), open(1), n as u64)), [""; 0], "{n}");
    }
    let full = service.ask(at(0), open(1), 9999);
    assert_eq!(shown(&full), ["9999 <- too many requests wait for the provider"]);
}

/// Any order of requests, answers, failures and hangs: each waiter is answered once, by its deadline.
#[test]
fn every_waiter_is_answered_once_by_its_deadline() {
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let mut service = service();
        let (mut waiting, mut flying) = (BTreeMap::new(), Vec::new());
        let (mut now, mut next) = (at(0), 0_u64);
        let note = |outputs: Vec<Output>,
                    flying: &mut Vec<KeyAsk>,
                    waiting: &mut BTreeMap<u64, Instant>| {
            for output in outputs {
                match output {
                    Output::Send(ask) => flying.push(ask),
                    Output::Answer(id, _) => {
                        assert!(
                            waiting.remove(&id).is_some(),
                            "seed {seed}: {id} is answered twice"
                        );
                    }
                    _ => {}
                }
            }
            assert!(flying.len() <= IN_FLIGHT_MAX);
        };
        for step in 0..400 {
            now = now + Duration::from_millis(random.below(1500) as u64);
            let outputs = match random.below(4) {
                0 if step < 300 => {
                    let key = source(["a", "b"][random.below(2)]);
                    let ask = match random.below(2) {
                        0 => KeyAsk::New(key),
                        _ => KeyAsk::Open {
                            source: key,
                            version: 1,
                            envelope: vec![random.byte() % 8],
                        },
                    };
                    next += 1;
                    waiting.insert(next, now + ANSWER_MAX);
                    service.ask(now, ask, next)
                }
                1 | 2 if !flying.is_empty() => {
                    let ask = flying.swap_remove(random.below(flying.len()));
                    let result = match random.below(3) {
                        0 => Ok(made(random.byte(), 1)),
                        1 => down(),
                        _ => Err(ProviderError::Refused("no".to_owned())),
                    };
                    service.answered(now, &ask, result, random.next_u64())
                }
                _ => service.poll(now),
            };
            note(outputs, &mut flying, &mut waiting);
            note(service.poll(now), &mut flying, &mut waiting);
            let late = waiting.values().filter(|deadline| **deadline <= now).count();
            assert_eq!(late, 0, "INV-key-providers-1, seed {seed}");
        }
        note(service.poll(now + ANSWER_MAX), &mut flying, &mut waiting);
        assert!(waiting.is_empty(), "seed {seed}");
    }
}
