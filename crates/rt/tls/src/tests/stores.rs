//! Readers of key stores: accepted content, rejected content with its error, damaged bytes.

use super::{Fixture, fixture, identity, joined, source};
use crate::fuzz::fuzz_material;
use crate::material::{Identity, KeyMaterial, Trust, revocation_lists};

/// Subject and length of the chain of each key, or the error.
fn found(result: Result<Identity, crate::TlsError>) -> String {
    match result {
        Err(error) => error.to_string(),
        Ok(identity) => {
            let lengths = identity.keys.iter().map(|key| key.cert.len());
            let keys = identity.certificates().zip(lengths);
            keys.map(|(c, n)| format!("{} of {n}", c.common_name.unwrap())).collect()
        }
    }
}

const NODE: Fixture = fixture!("node.pem");
const CA: Fixture = fixture!("ca.pem");

#[test]
fn keys_of_all_formats_are_read_with_their_chains() {
    let jks = identity(source(fixture!("keytool.jks")), Some("cassandra"));
    assert_eq!(found(jks), "jks.example of 1");
    for fixture in [
        fixture!("keytool.p12"),
        fixture!("openssl.p12"),
        fixture!("openssl-legacy.p12"),
        fixture!("openssl-open.p12"),
    ] {
        let read = found(identity(source(fixture), Some("cassandra")));
        let expected = match fixture.0.contains("keytool") {
            true => "jks.example of 1",
            false => "node.example of 2",
        };
        assert_eq!(read, expected, "{}", fixture.0);
    }
    for key in [
        fixture!("node-key.pem"),
        fixture!("node-sec1.pem"),
        fixture!("node-key-encrypted.pem"),
        fixture!("node-key-scrypt.pem"),
        fixture!("node-key-pbes1.pem"),
    ] {
        let read = found(identity(joined(&[key, NODE, CA]), Some("cassandra")));
        assert_eq!(read, "node.example of 2", "{}", key.0);
    }
    let rsa = joined(&[fixture!("rsa-pkcs1.pem"), fixture!("rsa.pem")]);
    assert_eq!(found(identity(rsa, None)), "rsa.example of 1");
}

/// INV-tls-1
#[test]
fn ec_keys_without_public_part_get_that_of_their_certificate() {
    for fixture in [fixture!("keytool-ec.jks"), fixture!("keytool-ec.p12")] {
        let read = found(identity(source(fixture), Some("cassandra")));
        assert_eq!(read, "ec.example of 1", "{}", fixture.0);
        let trust = Trust::read(&source(fixture), Some("cassandra")).unwrap();
        assert_eq!(trust.certificates.len(), 1, "{}", fixture.0);
    }
    let bare = fixture!("node-sec1-bare.pem");
    assert_eq!(found(identity(joined(&[bare, CA, NODE]), None)), "node.example of 2");
    let error = found(identity(joined(&[bare, fixture!("client.pem"), CA]), None));
    let expected = "\"keystore\" conf/joined.pem: no certificate matches the private key; \
                    put the certificate of that key first, then those of its issuers";
    assert_eq!(error, expected);
    let alone = found(identity(source(bare), None));
    assert!(alone.contains("has no certificate"), "{alone}");
}

/// INV-tls-1
#[test]
fn the_key_may_have_a_file_of_its_own() {
    let with_key = |key: Fixture| {
        found(Identity::read(&KeyMaterial {
            store: source(NODE),
            key: Some(source(key)),
            password: None,
        }))
    };
    assert_eq!(with_key(fixture!("node-key.pem")), "node.example of 1");
    let error = with_key(fixture!("client-key.pem"));
    let expected = "\"keystore\" conf/node.pem: no certificate matches the private key; \
                    put the certificate of that key first, then those of its issuers";
    assert_eq!(error, expected);
}

#[test]
fn trusted_certificates_of_all_formats_are_read() {
    let sections = crate::pem::sections(CA.1).ok().unwrap();
    let expected = sections.into_iter().next().unwrap().bytes;
    let expected = expected.as_slice();
    for (fixture, password) in [
        (CA, None),
        (fixture!("keytool-trust.jks"), Some("cassandra")),
        (fixture!("keytool-trust.jks"), None),
        (fixture!("keytool-trust.p12"), Some("cassandra")),
        (fixture!("openssl-trust.p12"), Some("cassandra")),
    ] {
        let trust = Trust::read(&source(fixture), password).unwrap();
        let found: Vec<&[u8]> = trust.certificates.iter().map(AsRef::as_ref).collect();
        assert_eq!(found, [expected], "{}", fixture.0);
    }
    // Java trusts the leaf of a key, too: one file is often both stores.
    for fixture in [fixture!("keytool.jks"), fixture!("keytool.p12"), fixture!("openssl.p12")] {
        let trust = Trust::read(&source(fixture), Some("cassandra")).unwrap();
        assert_eq!(trust.certificates.len(), 1, "{}", fixture.0);
    }
}

#[test]
fn what_cannot_be_used_is_refused_with_place_problem_and_remedy() {
    let wrong = "the password is wrong or the key store is damaged; \
                 check its password with \"keytool -list -keystore FILE\"";
    let cases: [(Fixture, Option<&str>, &str); 13] = [
        (fixture!("keytool.jks"), Some("wrong"), wrong),
        (fixture!("keytool.p12"), Some("wrong"), wrong),
        (fixture!("openssl.p12"), Some("wrong"), wrong),
        (fixture!("openssl-legacy.p12"), Some(""), wrong),
        (
            fixture!("keytool.jks"),
            None,
            "is a key store, and its password is not set; set the password of the key store",
        ),
        (
            fixture!("keytool.p12"),
            None,
            "is a key store, and its password is not set; set the password of the key store",
        ),
        (
            fixture!("keytool.jceks"),
            Some("cassandra"),
            "is a JCEKS key store, which is not supported; \
             convert it with \"keytool -importkeystore -deststoretype PKCS12\"",
        ),
        (
            fixture!("keytool-trust.jks"),
            Some("cassandra"),
            "has no private key; add the key of the certificate (PEM: a section PRIVATE KEY)",
        ),
        (
            fixture!("node-key.pem"),
            None,
            "has no certificate; put the certificate of that key first, then those of its issuers",
        ),
        (
            fixture!("node-key-legacy.pem"),
            Some("cassandra"),
            "section 1 (EC PRIVATE KEY) is encrypted in OpenSSL's old way; \
             convert the key with \"openssl pkcs8 -topk8\"",
        ),
        (
            fixture!("node-key-encrypted.pem"),
            None,
            "the private key is encrypted; set the password of the key",
        ),
        (
            ("\"keystore\" conf/empty", b""),
            None,
            "is empty; write the key store or the PEM text into it",
        ),
        (
            ("\"keystore\" conf/text", b"#!/bin/sh\n"),
            None,
            "is neither PEM nor a JKS or PKCS12 key store; name a file that keytool or openssl wrote",
        ),
    ];
    for (fixture, password, problem) in cases {
        let error = found(identity(source(fixture), password));
        assert_eq!(error, format!("{}: {problem}", fixture.0));
    }
    for key in [fixture!("node-key-encrypted.pem"), fixture!("node-key-pbes1.pem")] {
        let error = found(identity(source(key), Some("wrong")));
        assert!(error.contains("the password does not open the private key"), "{error}");
    }
    let closed = Trust::read(&source(fixture!("keytool-trust.p12")), None).unwrap_err();
    assert!(closed.to_string().contains("its password is not set"), "{closed}");
    let none = Trust::read(&source(fixture!("node-key.pem")), None).unwrap_err();
    assert!(none.to_string().contains("has no trusted certificate"), "{none}");
}

#[test]
fn a_pem_chain_holds_only_issuers() {
    let key = fixture!("node-key.pem");
    let error = found(identity(joined(&[key, NODE, fixture!("rsa.pem")]), None));
    let expected = "\"keystore\" conf/joined.pem: certificate 2 is not the issuer of the one before; \
                    put the certificate of the key first, then those of its issuers";
    assert_eq!(error, expected);
    // Order does not matter, nor does a duplicate certificate.
    let mixed = joined(&[CA, NODE, key, CA]);
    assert_eq!(found(identity(mixed, None)), "node.example of 2");
}

#[test]
fn the_fields_of_a_certificate_are_found() {
    let identity = identity(joined(&[fixture!("node-key.pem"), NODE]), None).unwrap();
    let fields = identity.certificates().next().unwrap();
    assert_eq!(fields.common_name.as_deref(), Some("node.example"));
    assert_eq!(fields.dns_names, ["node.example", "localhost"]);
    assert_eq!(fields.spiffe_id(), Some("spiffe://test.example/node"));
    assert_eq!(fields.subject, "O=Helenus, CN=node.example");
    assert_eq!(fields.subject_rfc4514, "CN=node.example,O=Helenus");
    let names =
        ["DNS=node.example", "DNS=localhost", "IP=127.0.0.1", "URI=spiffe://test.example/node"];
    assert_eq!(fields.alternative_names, names);
    let seconds = fields.not_after - fields.not_before;
    assert_eq!(seconds, 36_500 * 86_400);
    assert!(fields.is_valid_at(fields.not_after) && !fields.is_valid_at(fields.not_after + 1));
    assert_eq!(fields.serial.len() % 2, 0);
}

#[test]
fn revocation_lists_are_read_and_other_files_refused() {
    assert_eq!(revocation_lists(&source(fixture!("crl.pem"))).unwrap().len(), 1);
    let error = revocation_lists(&source(CA)).unwrap_err().to_string();
    assert!(error.contains("has no valid certificate revocation list"), "{error}");
}

#[test]
fn a_flipped_bit_in_a_jks_file_is_always_found() {
    let (place, bytes) = fixture!("keytool.jks");
    for at in 0..bytes.len() {
        let mut flipped = bytes.to_vec();
        flipped[at] ^= 1 << (at % 8);
        let store = crate::Source { place: place.to_owned(), bytes: flipped };
        assert!(identity(store, Some("cassandra")).is_err(), "byte {at}");
    }
    for length in 0..bytes.len() {
        let store = crate::Source { place: place.to_owned(), bytes: bytes[..length].to_vec() };
        assert!(identity(store, Some("cassandra")).is_err(), "{length} bytes");
    }
}

/// INV-tls-2, with mutations of stores whose keys cost little to open.
#[test]
fn no_mutation_of_pem_or_jks_panics() {
    let corpus = [
        fixture!("node.pem").1,
        fixture!("node-key.pem").1,
        fixture!("node-sec1.pem").1,
        fixture!("node-sec1-bare.pem").1,
        fixture!("rsa-pkcs1.pem").1,
        fixture!("crl.pem").1,
        fixture!("keytool-trust.jks").1,
        fixture!("keytool.jks").1,
        fixture!("keytool-ec.jks").1,
        fixture!("openssl-open.p12").1,
    ];
    testkit::Mutations::of(corpus).rounds(3_000).run(fuzz_material);
    let der = corpus[..6]
        .iter()
        .map(|pem| crate::pem::sections(pem).ok().unwrap().into_iter().next().unwrap().bytes);
    testkit::Mutations::of(der).rounds(3_000).run(fuzz_material);
}

/// The same for stores with thousands of iterations of key derivation.
#[test]
fn no_mutation_of_pkcs12_or_encrypted_pem_panics() {
    let corpus = [
        fixture!("keytool.p12").1,
        fixture!("keytool-ec.p12").1,
        fixture!("openssl.p12").1,
        fixture!("openssl-legacy.p12").1,
        fixture!("openssl-trust.p12").1,
        fixture!("node-key-encrypted.pem").1,
        fixture!("node-key-scrypt.pem").1,
        fixture!("node-key-pbes1.pem").1,
    ];
    testkit::Mutations::of(corpus).rounds(60).run(fuzz_material);
}
