use std::time::Duration;

use super::*;

/// Signed by themselves, as `openssl req -x509` makes them; valid from November 2026 for 20 years.
const NODE: &str = "\
-----BEGIN CERTIFICATE-----
MIIBXzCCAQagAwIBAgIBATAKBggqhkjOPQQDAjAPMQ0wCwYDVQQDDARub2RlMB4X
DTI2MTEyNTAzMTExM1oXDTQ2MTEyMDAzMTExM1owDzENMAsGA1UEAwwEbm9kZTBZ
MBMGByqGSM49AgEGCCqGSM49AwEHA0IABL6+wvEaudv7PVzoy/b0icrZGooVlGqk
9ukwwUp02qJeC+xJnxItjiskOEj9tZ75Qk9RnesrPAlbPZ6eusTB+PijUzBRMB0G
A1UdDgQWBBTiNA9FBLUXK7chMzVC8HfktbM8PzAfBgNVHSMEGDAWgBTiNA9FBLUX
K7chMzVC8HfktbM8PzAPBgNVHRMBAf8EBTADAQH/MAoGCCqGSM49BAMCA0cAMEQC
IBG54Motocr+9x+QPprT8KfTahBBdfzqX0GfioZagGe1AiBm5jV/H3gENMAhSk4m
cuqhAfZeOoeodMojn69Wt8xRLA==
-----END CERTIFICATE-----
";
const OTHER: &str = "\
-----BEGIN CERTIFICATE-----
MIIBYzCCAQigAwIBAgIBAjAKBggqhkjOPQQDAjAQMQ4wDAYDVQQDDAVvdGhlcjAe
Fw0yNjExMjUwMzExMTRaFw00NjExMjAwMzExMTRaMBAxDjAMBgNVBAMMBW90aGVy
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEMgEVu2h04QtmX32QlmgSJvW3Je5w
o5jKVCz1jtX/drRuLdcdi0JPGaV4DC8kA9we4YolORJpbdtBD6xy7NaJG6NTMFEw
HQYDVR0OBBYEFMgboJXqMx7+iF0UsDugEXAo4cR3MB8GA1UdIwQYMBaAFMgboJXq
Mx7+iF0UsDugEXAo4cR3MA8GA1UdEwEB/wQFMAMBAf8wCgYIKoZIzj0EAwIDSQAw
RgIhAPdzUeBIJCrbD5jKXTpq/mOWvK6Se7nx39Wd206XMeGqAiEAvyhz6eafWb7T
C/6ZWtxP3CMJ1kQ07Bod+jfP7J36nKY=
-----END CERTIFICATE-----
";
const IN_2027: u64 = 1_800_000_000;
const IN_2060: u64 = 2_840_000_000;

fn settings(file: &str, variables: &[(&str, &str)]) -> Tls {
    let config = Config::parse(file).unwrap();
    let variable = |name: &str| {
        let found = variables.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    Tls::read(&config, Path::new("h/cqlshrc"), &variable)
}

#[test]
fn the_file_of_a_server_is_chosen_as_the_python_shell_chooses_it() {
    let file = "[ssl]\ncertfile = all.pem\n[certfiles]\nNode1 = one.pem\n";
    let check = |variables, host, expect: &str| {
        assert_eq!(settings(file, variables).trusted(host), Ok(Some(expect)));
    };
    check(&[], "node1", "one.pem");
    check(&[], "NODE1", "one.pem");
    check(&[], "node2", "all.pem");
    check(&[("SSL_CERTFILE", "mine.pem")], "node1", "mine.pem");
}

#[test]
fn a_check_needs_a_file() {
    let error = settings("", &[]).trusted("h").unwrap_err();
    assert!(error.starts_with("Validation is enabled; SSL transport factory"), "{error}");
    assert!(error.contains("option in h/cqlshrc (or"), "{error}");
    assert_eq!(settings("[ssl]\nvalidate = FALSE\n", &[]).trusted("h"), Ok(None));
    assert_eq!(settings("", &[("SSL_VALIDATE", "false")]).trusted("h"), Ok(None));
    // The variable wins, and any other word is no.
    let both = settings("[ssl]\nvalidate = false\n", &[("SSL_VALIDATE", "0")]);
    assert!(both.trusted("h").is_err());
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let directory = std::env::temp_dir().join(format!("cqlsh-tls-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let path = |name: &str| directory.join(name).display().to_string();
    std::fs::write(path("node.pem"), NODE).unwrap();
    std::fs::write(path("empty.pem"), "nothing").unwrap();
    let check = |file: &str, expect: &str| {
        let error = settings(file, &[]).client_config("h").unwrap_err();
        assert!(error.contains(expect), "{file}: {error}");
    };
    check(&format!("[ssl]\ncertfile = {}\n", path("none.pem")), "No such file");
    check(&format!("[ssl]\ncertfile = {}\n", path("empty.pem")), "no certificate in");
    let node = format!("[ssl]\ncertfile = {0}\nuserkey = {0}\n", path("node.pem"));
    check(&node, "userkey: needs a usercert");
    check(&format!("{node}usercert = {}\n", path("node.pem")), "no private key");
    assert!(
        settings(&format!("[ssl]\ncertfile = {}\n", path("node.pem")), &[])
            .client_config("h")
            .is_ok()
    );
    std::fs::remove_dir_all(&directory).unwrap();
}

/// Result of the verification of a server with the certificate `NODE`.
fn verify(validate: bool, trusted: &str, seconds: u64) -> Result<(), String> {
    let parse = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = Verifier::new(validate, vec![parse(trusted)], provider).unwrap();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let now = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
    match verifier.verify_server_cert(&parse(NODE), &[], &name, &[], now) {
        Ok(_) => Ok(()),
        Err(error) => Err(reason(&std::io::Error::other(error))),
    }
}

#[test]
fn a_certificate_of_the_file_is_trusted_in_its_time() {
    assert_eq!(verify(true, NODE, IN_2027), Ok(()));
    assert_eq!(
        verify(true, NODE, IN_2060).unwrap_err(),
        "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: certificate has expired"
    );
    assert!(verify(true, NODE, 0).unwrap_err().ends_with("certificate is not yet valid"));
}

#[test]
fn a_certificate_of_somebody_else_is_refused_unless_nothing_is_checked() {
    let error = verify(true, OTHER, IN_2027).unwrap_err();
    assert!(error.contains("CERTIFICATE_VERIFY_FAILED"), "{error}");
    assert_eq!(verify(false, OTHER, IN_2060), Ok(()));
}
