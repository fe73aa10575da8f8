//! Handshakes between configurations, in memory.

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, ServerConnection};
use std::sync::Arc;

use super::{At, Fixture, clock, fixture, identity, joined, source, trust};
use crate::config::{HostNames, SessionTickets};
use crate::material::{Identity, revocation_lists};
use crate::offer::{Offer, OfferSettings, protocol_name, suite_name};
use crate::{ClientAuth, ClientParts, PeerCertificate, ServerParts, client_config, server_config};

const CA: Fixture = fixture!("ca.pem");

fn of(who: &str) -> Identity {
    let parts = match who {
        "node" => [fixture!("node-key.pem"), fixture!("node.pem"), CA],
        "client" => [fixture!("client-key.pem"), fixture!("client.pem"), CA],
        _ => {
            let parts = [fixture!("rsa-pkcs1.pem"), fixture!("rsa.pem")];
            return identity(joined(&parts), None).unwrap();
        }
    };
    identity(joined(&parts), None).unwrap()
}

fn server() -> ServerParts {
    ServerParts {
        section: "client_encryption_options",
        identity: of("node"),
        trust: Some(trust(CA)),
        client_auth: ClientAuth::NotRequired,
        revoked: Vec::new(),
        offer: Offer::default(),
        tickets: SessionTickets::Issued,
        clock: clock(),
    }
}

fn client() -> ClientParts {
    ClientParts {
        section: "server_encryption_options",
        identity: None,
        trust: trust(CA),
        host_names: HostNames::Compared,
        revoked: Vec::new(),
        offer: Offer::default(),
        clock: clock(),
    }
}

/// One handshake: protocol, suite, the client's name, resumed or full, and the first error of a side.
fn shake(client: &Arc<rustls::ClientConfig>, server: &Arc<rustls::ServerConfig>) -> String {
    let name = ServerName::try_from("node.example").unwrap();
    let mut client = ClientConnection::new(client.clone(), name).unwrap();
    let mut server = ServerConnection::new(server.clone()).unwrap();
    for _ in 0..10 {
        let mut wire = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut wire).unwrap();
        }
        let mut rest = wire.as_slice();
        while !rest.is_empty() {
            server.read_tls(&mut rest).unwrap();
            if let Err(error) = server.process_new_packets() {
                return format!("server: {error}");
            }
        }
        let mut wire = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut wire).unwrap();
        }
        let mut rest = wire.as_slice();
        while !rest.is_empty() {
            client.read_tls(&mut rest).unwrap();
            if let Err(error) = client.process_new_packets() {
                return format!("client: {error}");
            }
        }
    }
    let peer = server.peer_certificates().and_then(|chain| PeerCertificate::parse(&chain[0]));
    format!(
        "{} {} {} {:?}",
        protocol_name(server.protocol_version().unwrap()).unwrap(),
        suite_name(server.negotiated_cipher_suite().unwrap().suite()).unwrap(),
        peer.and_then(|p| p.common_name).unwrap_or_default(),
        server.handshake_kind().unwrap(),
    )
}

fn one(client: ClientParts, server: ServerParts) -> String {
    shake(&client_config(client).unwrap(), &server_config(server).unwrap())
}

#[test]
fn both_sides_agree_on_the_newest_protocol() {
    assert_eq!(one(client(), server()), "TLSv1.3 TLS_AES_256_GCM_SHA384  Full");
    let offer = OfferSettings {
        cipher_suites: vec!["TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256".to_owned()],
        ..OfferSettings::default()
    };
    let offer = Offer::new(&offer).unwrap();
    assert_eq!(
        one(client(), ServerParts { offer, ..server() }),
        "TLSv1.2 TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256  Full"
    );
}

#[test]
fn certificates_of_clients_are_asked_for_as_the_setting_says() {
    let with = |client_auth| ServerParts { client_auth, ..server() };
    let shown = |who| ClientParts { identity: Some(of(who)), ..client() };
    let full = |name: &str| format!("TLSv1.3 TLS_AES_256_GCM_SHA384 {name} Full");
    assert_eq!(one(shown("client"), with(ClientAuth::NotRequired)), full(""));
    assert_eq!(one(shown("client"), with(ClientAuth::Optional)), full("client.example"));
    assert_eq!(one(client(), with(ClientAuth::Optional)), full(""));
    assert_eq!(one(shown("client"), with(ClientAuth::Required)), full("client.example"));
    assert_eq!(one(client(), with(ClientAuth::Required)), "server: peer sent no certificates");
    for auth in [ClientAuth::Optional, ClientAuth::Required] {
        let refused = one(shown("rsa"), with(auth));
        assert!(refused.starts_with("server: invalid peer certificate"), "{refused}");
    }
}

#[test]
fn a_certificate_that_is_itself_trusted_needs_no_authority() {
    // It may also sign others, which rustls alone refuses in a leaf.
    let server = ServerParts {
        trust: Some(trust(fixture!("rsa.pem"))),
        client_auth: ClientAuth::Required,
        ..server()
    };
    let shown = || ClientParts { identity: Some(of("rsa")), ..client() };
    let full = "TLSv1.3 TLS_AES_256_GCM_SHA384 rsa.example Full";
    assert_eq!(one(shown(), server.clone()), full);
    let late = ServerParts { clock: Arc::new(At(5_500_000_000)), ..server };
    assert!(one(shown(), late).starts_with("server: invalid peer certificate"));
}

#[test]
fn a_required_certificate_needs_trusted_authorities() {
    let parts = ServerParts { trust: None, client_auth: ClientAuth::Required, ..server() };
    let error = server_config(parts).unwrap_err().to_string();
    let expected = "\"client_encryption_options.truststore\": is not set, but \"require_client_auth\" \
                    asks for certificates of clients; name the certificates of the clients' authorities";
    assert_eq!(error, expected);
}

#[test]
fn expired_and_revoked_certificates_of_clients_are_refused() {
    let shown = |who| ClientParts { identity: Some(of(who)), ..client() };
    let server = ServerParts { client_auth: ClientAuth::Required, ..server() };
    let late = ServerParts { clock: Arc::new(At(5_500_000_000)), ..server.clone() };
    let refused = one(shown("client"), late);
    assert!(
        refused.starts_with("server: invalid peer certificate: certificate expired"),
        "{refused}"
    );
    let revoked = revocation_lists(&source(fixture!("crl.pem"))).unwrap();
    let strict = ServerParts { revoked, ..server };
    assert_eq!(one(shown("client"), strict.clone()), "server: invalid peer certificate: Revoked");
    assert_eq!(one(shown("node"), strict), "TLSv1.3 TLS_AES_256_GCM_SHA384 node.example Full");
}

#[test]
fn names_of_servers_are_compared_unless_they_are_to_be_ignored() {
    let other = || ServerParts { identity: of("client"), ..server() };
    let refused = one(client(), other());
    assert!(refused.starts_with("client: invalid peer certificate"), "{refused}");
    let lenient = |trust| ClientParts { host_names: HostNames::Ignored, trust, ..client() };
    assert_eq!(one(lenient(trust(CA)), other()), "TLSv1.3 TLS_AES_256_GCM_SHA384  Full");
    let stranger = one(lenient(trust(fixture!("rsa.pem"))), other());
    assert!(stranger.starts_with("client: invalid peer certificate: UnknownIssuer"), "{stranger}");
}

#[test]
fn sessions_are_resumed_until_the_configuration_is_replaced() {
    for protocol in ["TLSv1.3", "TLSv1.2"] {
        let settings =
            OfferSettings { protocol: Some(protocol.to_owned()), ..OfferSettings::default() };
        let offer = Offer::new(&settings).unwrap();
        let server =
            ServerParts { client_auth: ClientAuth::Required, offer: offer.clone(), ..server() };
        let shown = ClientParts { identity: Some(of("client")), ..client() };
        let client = client_config(shown).unwrap();
        let first = server_config(server.clone()).unwrap();
        assert!(shake(&client, &first).ends_with("client.example Full"), "{protocol}");
        assert!(shake(&client, &first).ends_with("client.example Resumed"), "{protocol}");
        let reloaded = server_config(server.clone()).unwrap();
        assert!(shake(&client, &reloaded).ends_with("client.example Full"), "{protocol}");
        let without = server_config(ServerParts { tickets: SessionTickets::Off, ..server });
        let without = without.unwrap();
        for _ in 0..2 {
            assert!(shake(&client, &without).ends_with("client.example Full"), "{protocol}");
        }
    }
}
