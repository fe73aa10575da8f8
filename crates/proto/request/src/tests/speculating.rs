//! `speculative_retry` against Cassandra's `SpeculativeRetryParseTest`, and thresholds.

use std::time::Duration;

use crate::fuzz::fuzz_speculative_retry;
use crate::speculation::{SpeculativeRetry, Threshold};

fn check(text: &str, expect: SpeculativeRetry, canonical: &str) {
    let policy = SpeculativeRetry::parse(text).unwrap();
    assert_eq!((policy, policy.to_string().as_str()), (expect, canonical), "{text}");
    assert_eq!(SpeculativeRetry::parse(canonical), Ok(policy), "{canonical}");
}

fn refused(text: &str) -> String {
    SpeculativeRetry::parse(text).unwrap_err().to_string()
}

#[test]
fn every_form_is_read_whatever_its_case() {
    use SpeculativeRetry::{Always, Fixed, Hybrid, Never, Percentile};
    for text in ["NONE", "None", "Never", "NEVER"] {
        check(text, Never, "NEVER");
    }
    for text in ["ALWAYS", "Always"] {
        check(text, Always, "ALWAYS");
    }
    check("95PERCENTILE", Percentile(95.0), "95p");
    check("99.5PERCENTILE", Percentile(99.5), "99.5p");
    check("99.99PERCENTILE", Percentile(99.99), "99.99p");
    check("21.1percentile", Percentile(21.1), "21.1p");
    check("78.11p", Percentile(78.11), "78.11p");
    check("1ms", Fixed { ms: 1 }, "1ms");
    check("1000ms", Fixed { ms: 1000 }, "1000ms");
    check("121.1ms", Fixed { ms: 121 }, "121ms");
    check("21.7MS", Fixed { ms: 21 }, "21ms");
    check("99999999999ms", Fixed { ms: 2_147_483_647 }, "2147483647ms");
    let max = Hybrid { is_max: true, percentile: 99.0, ms: 53 };
    check("max(99p,53ms)", max, "MAX(99p,53ms)");
    check("max(53ms,99p)", max, "MAX(99p,53ms)");
    let min = Hybrid { is_max: false, percentile: 90.0, ms: 70 };
    check("MIN(70MS,90PERCENTILE)", min, "MIN(90p,70ms)");
    check("MIN(70MS  ,  90PERCENTILE)", min, "MIN(90p,70ms)");
}

#[test]
fn what_is_no_policy_is_refused_in_cassandras_words() {
    let invalid = |text: &str| format!("Invalid value {text} for option 'speculative_retry'");
    let bad = [
        "",
        "-0.1PERCENTILE",
        "xPERCENTILE",
        "0",
        "99",
        "p",
        "ms",
        "10.1.1ms",
        "1 ms",
        " 99p",
        "max(99p",
        "max(99p)",
        "max(99p,)",
        "max(99p,always)",
        "min(never,99p)",
        "med(99p,50ms)",
        "max( 99p,50ms)",
        "max(99p,50ms )",
        "max(1p,2ms,3ms)",
    ];
    for text in bad {
        assert_eq!(refused(text), invalid(text));
    }
    for text in ["100.1PERCENTILE", "0p", "100p"] {
        let range = "must be between (0.0 and 100.0)";
        let value = format!("Invalid value {text} for PERCENTILE option 'speculative_retry'");
        assert_eq!(refused(text), format!("{value}: {range}"));
    }
    let same = refused("max(99p,98p)");
    assert!(same.ends_with("should be of different types, but both are of type PERCENTILE"));
    assert!(refused("MIN(1ms,2ms)").ends_with("both are of type FIXED"));
}

#[test]
fn thresholds_follow_the_measured_latency() {
    let ms = Duration::from_millis;
    let measured = |share: f64| (share > 0.98).then_some(ms(40));
    let old = Threshold::After(ms(7));
    let check = |text: &str, expect: Threshold| {
        assert_eq!(SpeculativeRetry::parse(text).unwrap().threshold(measured, old), expect);
    };
    check("NONE", Threshold::Never);
    check("ALWAYS", Threshold::Always);
    check("50ms", Threshold::After(ms(50)));
    check("99p", Threshold::After(ms(40)));
    // Without samples the previous value stays.
    check("50p", old);
    check("MIN(50p,10ms)", old);
    check("MIN(99p,50ms)", Threshold::After(ms(40)));
    check("MAX(99p,50ms)", Threshold::After(ms(50)));
    check("MIN(99p,10ms)", Threshold::After(ms(10)));
    check("MAX(99p,10ms)", Threshold::After(ms(40)));
}

#[test]
fn the_fuzz_target_takes_anything() {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as usize
    };
    let corpus = ["99.9PERCENTILE", "max(99p,53ms)", "ALWAYS", "1e5ms", "MIN(\u{fffd}p,ms)"];
    for round in 0..5000 {
        let mut bytes = corpus[round % corpus.len()].as_bytes().to_vec();
        for _ in 0..=next() % 4 {
            let at = next() % bytes.len();
            match next() % 3 {
                0 => bytes[at] = next() as u8,
                1 => bytes.insert(at, b"0123456789.,()pmsMAXIN "[next() % 23]),
                _ => bytes.truncate(at.max(1)),
            }
        }
        fuzz_speculative_retry(&bytes);
    }
}
