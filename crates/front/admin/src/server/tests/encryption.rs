//! TLS of the API, with the client that nodetool uses.

use std::time::Duration;

use blocking_client::Endpoint;
use blocking_client::api::ApiOptions;
use blocking_client::http::{HttpFault, exchange_as};
use http_client::Request;
use tls::config::SessionTickets;
use tls::offer::OfferSettings;
use tls::rustls::time_provider::DefaultTimeProvider;
use tls::{
    CertificateLimits, ClientAuth, Identity, KeyMaterial, Offer, ServerParts, Source, Trust,
    server_config,
};

use super::*;
use crate::server::PlainConnections;

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../rt/tls/src/fixtures");

fn fixture(name: &str) -> String {
    format!("{FIXTURES}/{name}")
}

fn source(names: &[&str]) -> Source {
    let bytes = names.iter().flat_map(|name| std::fs::read(fixture(name)).unwrap()).collect();
    Source { place: names.join(" "), bytes }
}

fn encryption(plain: PlainConnections, client_auth: ClientAuth) -> ApiEncryption {
    let section = "api_encryption_options";
    let offer = OfferSettings {
        section,
        protocol: None,
        accepted_protocols: Vec::new(),
        cipher_suites: Vec::new(),
        priority_string: None,
    };
    let key =
        KeyMaterial { store: source(&["node-key.pem", "node.pem"]), key: None, password: None };
    let config = server_config(ServerParts {
        section,
        identity: Identity::read(&key).unwrap(),
        trust: Some(Trust::read(&source(&["ca.pem"]), None).unwrap()),
        client_auth,
        revoked: Vec::new(),
        offer: Offer::new(&offer).unwrap(),
        tickets: SessionTickets::Issued,
        clock: Arc::new(DefaultTimeProvider),
    });
    ApiEncryption { plain, config: config.unwrap(), limits: CertificateLimits::default() }
}

fn start(access: AccessParts, encryption: ApiEncryption) -> TestNode {
    TestNode::start_as(access, Some(encryption), |shard, request, reply| {
        reply.send(super::answer(shard, request));
    })
}

/// Status of the answer to a read, or the error.
fn status(node: &TestNode, options: &ApiOptions) -> Result<u16, String> {
    let access = options.open(|| None).unwrap();
    let endpoint = Endpoint { host: "127.0.0.1", port: node.address.port(), timeout: None };
    let request = Request { method: "GET", path: "/api/v1/node", authorization: None, body: None };
    match exchange_as(&access, &endpoint, &request, Some(Duration::from_secs(60))) {
        Ok(answer) => Ok(answer.status),
        Err(HttpFault::Connect(error)) => Err(error.to_string()),
        Err(HttpFault::Strange(text)) => Err(text),
    }
}

fn ssl(ca: &str) -> ApiOptions {
    ApiOptions { ssl: true, ca: Some(fixture(ca)), ..ApiOptions::default() }
}

fn with_certificate(certificate: &str, key: &str) -> ApiOptions {
    let (certificate, key) = (Some(fixture(certificate)), Some(fixture(key)));
    ApiOptions { certificate, key, ..ssl("ca.pem") }
}

#[test]
fn an_encrypted_api_serves_clients_that_trust_it_and_no_plain_ones() {
    let node =
        start(AccessParts::open(), encryption(PlainConnections::Refused, ClientAuth::NotRequired));
    assert_eq!(status(&node, &ssl("ca.pem")), Ok(200));
    let compared = ApiOptions { verifies_host: true, ..ssl("ca.pem") };
    assert_eq!(status(&node, &compared), Ok(200));
    // Another authority.
    let error = status(&node, &ssl("rsa.pem")).unwrap_err();
    assert!(
        error.contains("UnknownIssuer") || error.contains("invalid peer certificate"),
        "{error}"
    );
    assert!(status(&node, &ApiOptions::default()).is_err());
    node.stop();
}

#[test]
fn optional_encryption_serves_both_by_the_first_byte() {
    let node =
        start(AccessParts::open(), encryption(PlainConnections::Served, ClientAuth::NotRequired));
    assert_eq!(status(&node, &ssl("ca.pem")), Ok(200));
    assert_eq!(status(&node, &ApiOptions::default()), Ok(200));
    // Neither HTTP nor TLS.
    let mut stream = TcpStream::connect(node.address).unwrap();
    stream.write_all(&[0x16, 0xff, 0xff, 0xff, 0xff, 0xff]).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert_eq!(status(&node, &ssl("ca.pem")), Ok(200));
    node.stop();
}

#[test]
fn certificates_of_clients_are_logins() {
    let node =
        start(super::access::parts(), encryption(PlainConnections::Served, ClientAuth::Optional));
    // `spiffe://test.example/client` is a role, `spiffe://test.example/node` is none.
    assert_eq!(status(&node, &with_certificate("client.pem", "client-key.pem")), Ok(200));
    assert_eq!(status(&node, &with_certificate("node.pem", "node-key.pem")), Ok(401));
    assert_eq!(status(&node, &ssl("ca.pem")), Ok(401));
    // The header counts before the certificate.
    let token = std::env::temp_dir().join(format!("helenus-token-{}", std::process::id()));
    std::fs::write(&token, "helenus_wrong\n").unwrap();
    let wrong = ApiOptions {
        token_file: Some(token.display().to_string()),
        ..with_certificate("client.pem", "client-key.pem")
    };
    assert_eq!(status(&node, &wrong), Ok(401));
    std::fs::write(&token, "helenus_reader\n").unwrap();
    assert_eq!(status(&node, &wrong), Ok(200));
    std::fs::remove_file(&token).unwrap();
    node.stop();
}

#[test]
fn a_required_certificate_and_its_validity_are_checked_in_the_handshake() {
    let day = Duration::from_secs(86_400);
    let limits = CertificateLimits { validity_max: Some(day), ..CertificateLimits::default() };
    let required = encryption(PlainConnections::Refused, ClientAuth::Required);
    let node = start(AccessParts::open(), required.clone());
    assert!(status(&node, &ssl("ca.pem")).is_err());
    assert_eq!(status(&node, &with_certificate("client.pem", "client-key.pem")), Ok(200));
    node.stop();
    // The fixture is valid for a hundred years.
    let node = start(AccessParts::open(), ApiEncryption { limits, ..required });
    assert!(status(&node, &with_certificate("client.pem", "client-key.pem")).is_err());
    node.stop();
}
