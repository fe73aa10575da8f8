//! Probe of the Rust driver (crate scylla over rustls): see ../README.md for its requests and answers.

use std::collections::HashMap;
use std::error::Error;
use std::io::{BufRead, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;

type Request = HashMap<String, String>;
type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn tls(request: &Request) -> Outcome<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(&request["ca"])? {
        roots.add(certificate?)?;
    }
    let builder = ClientConfig::builder().with_root_certificates(roots);
    let config = match request.get("cert") {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let chain = CertificateDer::pem_file_iter(path)?.collect::<Result<Vec<_>, _>>()?;
            builder.with_client_auth_cert(chain, PrivateKeyDer::from_pem_file(&request["key"])?)?
        }
    };
    Ok(Arc::new(config))
}

async fn connect(request: &Request) -> Outcome<Session> {
    let mut builder = SessionBuilder::new()
        .known_node(format!("{}:{}", request["host"], request["port"]))
        .connection_timeout(Duration::from_secs(10));
    if request["tls"] == "yes" {
        builder = builder.tls_context(Some(tls(request)?));
    }
    if let Some(user) = request.get("user") {
        builder = builder.user(user, &request["password"]);
    }
    Ok(builder.build().await?)
}

async fn select(session: &Session) -> Outcome<String> {
    let rows = session.query_unpaged("SELECT key FROM system.local", &[]).await?.into_rows_result()?;
    Ok(rows.single_row::<(String,)>()?.0)
}

async fn load(request: Request, stop: Arc<AtomicBool>) -> String {
    let (mut done, mut failures) = (0, Vec::new());
    while !stop.load(Ordering::Relaxed) {
        match connect(&request).await {
            Err(error) => failures.push(error.to_string()),
            Ok(session) => {
                for _ in 0..20 {
                    match select(&session).await {
                        Ok(_) => done += 1,
                        Err(error) => failures.push(error.to_string()),
                    }
                }
            }
        }
    }
    format!("{done} {} {}", failures.len(), failures.first().map_or("", String::as_str))
}

fn main() -> Outcome<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    let mut open = None;
    let mut running = None;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let mut fields = line.split('\t');
        let verb = fields.next().unwrap_or_default();
        let fields = fields.filter_map(|field| field.split_once('='));
        let request: Request = fields.map(|(name, value)| (name.into(), value.into())).collect();
        let answer: Outcome<String> = runtime.block_on(async {
            match verb {
                "try" => select(&connect(&request).await?).await,
                "open" => {
                    open = Some(connect(&request).await?);
                    Ok(String::new())
                }
                "close" => {
                    open = None;
                    Ok(String::new())
                }
                "load" => {
                    let stop = Arc::new(AtomicBool::new(false));
                    let task = tokio::spawn(load(request, stop.clone()));
                    running = Some((stop, task));
                    Ok(String::new())
                }
                "stop" => {
                    let (stop, task) = running.take().ok_or("no load is running")?;
                    stop.store(true, Ordering::Relaxed);
                    Ok(task.await?)
                }
                _ => Err(format!("no request {verb:?}").into()),
            }
        });
        let answer = match answer {
            Ok(text) => format!("ok {text}"),
            Err(error) => format!("error {error}"),
        };
        println!("{}", answer.replace('\n', " "));
        std::io::stdout().flush()?;
    }
    drop(open);
    Ok(())
}
