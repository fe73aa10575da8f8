//! One request to a provider over a connection of its own.

use std::net::{IpAddr, SocketAddr};

use at_rest::KeyAsk;
use conf::key_hosts::KeyHost;
use http_client::{Request, split_answer};
use key_providers::{
    HttpRequest, Made, ProviderError, authority, login, login_file, parse, request,
};
use rt::{IoErrorKind, NotConnected, Rt, Stream, TlsClient, TlsClock};
use stdx::Instant;
use tls::config::HostNames;
use tls::rustls::pki_types::ServerName;
use tls::{ClientParts, Offer, Source, Trust};

/// Longest answer, bytes.
const ANSWER_BYTES_MAX: usize = 64 << 10;
const READ_BYTES: usize = 8 << 10;
/// Longest file with a login, bytes.
const LOGIN_BYTES_MAX: usize = 64 << 10;
/// Longest file with certificates of authorities, bytes.
const TRUST_BYTES_MAX: usize = 8 << 20;
/// Files with the certificates that the system trusts: of Debian, Red Hat, SUSE, Alpine.
const SYSTEM_TRUST: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// A provider's host, ready for connections.
pub(crate) struct Endpoint {
    host: KeyHost,
    name: String,
    port: u16,
    tls: Option<TlsClient>,
}

impl Endpoint {
    /// Reads the certificates that the host's is checked by.
    ///
    /// # Errors
    /// Text for the operator.
    pub(crate) async fn new(rt: &Rt, host: KeyHost) -> Result<Endpoint, String> {
        let (scheme, rest) = host.endpoint.split_once("://").unwrap_or(("https", &host.endpoint));
        let (name, port) = rest.rsplit_once(':').unwrap_or((rest, "443"));
        let name = name.trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = port.parse().map_err(|_| format!("endpoint {} has no port", host.endpoint))?;
        let tls = match scheme {
            "https" => Some(client_config(rt, host.truststore.as_deref()).await?),
            _ => None,
        };
        Ok(Endpoint { host, name, port, tls })
    }
}

async fn client_config(rt: &Rt, truststore: Option<&str>) -> Result<TlsClient, String> {
    let fs = rt.fs();
    let mut found = None;
    for path in truststore.map_or_else(|| SYSTEM_TRUST.to_vec(), |path| vec![path]) {
        match fs.read(path, TRUST_BYTES_MAX).await {
            Ok(bytes) => {
                found = Some(Source { place: path.to_owned(), bytes });
                break;
            }
            Err(error) if error.kind == IoErrorKind::NotFound && truststore.is_none() => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    let source = found.ok_or("the system has no file of trusted certificates: set truststore")?;
    let clock = TlsClock::new();
    let parts = ClientParts {
        section: "truststore of a provider of keys",
        identity: None,
        trust: Trust::read(&source, None).map_err(|error| error.to_string())?,
        host_names: HostNames::Compared,
        revoked: Vec::new(),
        offer: Offer::default(),
        clock: clock.clone(),
    };
    let config = tls::client_config(parts).map_err(|error| error.to_string())?;
    Ok(TlsClient { config, clock })
}

fn unavailable(what: impl core::fmt::Display) -> ProviderError {
    ProviderError::Unavailable(what.to_string())
}

/// Asks a host for a key.
///
/// # Errors
/// It gave none within its time.
pub(crate) async fn exchange(rt: &Rt, to: &Endpoint, ask: &KeyAsk) -> Result<Made, ProviderError> {
    let deadline = rt.now() + to.host.timeout;
    let answered = rt.timeout(deadline, answer(rt, to, ask, deadline)).await;
    let (status, body) = answered.unwrap_or_else(|_| {
        let millis = to.host.timeout.as_millis();
        Err(unavailable(format!("{} did not answer within {millis} ms", to.host.endpoint)))
    })?;
    parse(&to.host, ask, status, &body)
}

async fn answer(
    rt: &Rt,
    to: &Endpoint,
    ask: &KeyAsk,
    deadline: Instant,
) -> Result<(u16, Vec<u8>), ProviderError> {
    let file = match login_file(&to.host) {
        None => None,
        Some(path) => {
            let bytes = rt.fs().read(path, LOGIN_BYTES_MAX).await.map_err(unavailable)?;
            let text = String::from_utf8(bytes);
            Some(text.map_err(|_| unavailable(format!("{path} is not text")))?)
        }
    };
    let login = login(&to.host, file.as_deref())?;
    let request = request(&to.host, &login, ask, rt.wall())?;
    let stream = connect(rt, to, deadline).await?;
    stream.write_all(&bytes_of(to, &request)).await.map_err(unavailable)?;
    let mut answer = Vec::new();
    loop {
        match stream.read(&mut answer, READ_BYTES).await {
            Ok(0) => break,
            Ok(_) => {}
            // Some servers end without saying so in TLS. A cut answer is an error below.
            Err(_) if !answer.is_empty() => break,
            Err(error) => return Err(unavailable(error)),
        }
        if answer.len() > ANSWER_BYTES_MAX {
            return Err(unavailable(format!("the answer is longer than {ANSWER_BYTES_MAX} bytes")));
        }
    }
    stream.shutdown();
    split_answer(&answer).map_err(|what| unavailable(format!("{}: {what}", to.host.endpoint)))
}

fn bytes_of(to: &Endpoint, request: &HttpRequest) -> Vec<u8> {
    let HttpRequest { path, content_type, headers, body } = request;
    let head = Request {
        method: "POST",
        path,
        authorization: None,
        body: Some((content_type, body.as_bytes())),
    };
    let headers: Vec<(&str, &str)> =
        headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let mut bytes = head.head_with(authority(&to.host.endpoint), &headers).into_bytes();
    bytes.extend_from_slice(body.as_bytes());
    bytes
}

/// Connects to the first address of the host that answers.
async fn connect(rt: &Rt, to: &Endpoint, deadline: Instant) -> Result<Stream, ProviderError> {
    let at = &to.host.endpoint;
    let mut last = unavailable(format!("{at} has no address"));
    for address in addresses(rt, to).await? {
        let conn = match rt.connect(address).await {
            Ok(conn) => conn,
            Err(error) => {
                last = unavailable(format!("{at}: {error}"));
                continue;
            }
        };
        let Some(tls) = &to.tls else { return Ok(Stream::plain(conn)) };
        let name = ServerName::try_from(to.name.clone());
        let name = name.map_err(|_| unavailable(format!("{at}: not the name of a server")))?;
        match Stream::connect_tls(rt, conn, tls, name, deadline).await {
            Ok(stream) => return Ok(stream),
            Err(
                NotConnected::NotSpoken(error)
                | NotConnected::Failed(error)
                | NotConnected::Cut(error),
            ) => {
                last = unavailable(format!("{at}: TLS: {error}"));
            }
        }
    }
    Err(last)
}

async fn addresses(rt: &Rt, to: &Endpoint) -> Result<Vec<SocketAddr>, ProviderError> {
    if let Ok(ip) = to.name.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, to.port)]);
    }
    let found = rt::resolve(rt, &to.name, to.port).await;
    found.map_err(|error| unavailable(format!("{} cannot be resolved: {error}", to.host.endpoint)))
}
