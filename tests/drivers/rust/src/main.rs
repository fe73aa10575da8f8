//! What an application does with the Rust driver (crate `scylla`), against the server under test.
//!
//! It uses only what a single node must offer: no conditional statements, counters, views or roles.
//! The server comes from `HELENUS_HOST` and `HELENUS_PORT`. Each test is an async function that
//! panics when something is wrong; the last line is `N passed, N failed`.

mod connection;
mod statements;
mod types;

use std::env;
use std::future::Future;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use scylla::client::execution_profile::ExecutionProfile;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::deserialize::row::DeserializeRow;
use scylla::serialize::row::SerializeRow;

/// What every test is given: a session in the keyspace of the suite.
pub struct Context {
    pub session: Session,
    pub keyspace: String,
}

impl Context {
    /// Runs a statement of the schema, or any without values.
    pub async fn define(&self, cql: &str) {
        if let Err(error) = self.session.query_unpaged(cql, ()).await {
            panic!("{cql}: {error}");
        }
    }

    /// Prepares and executes a statement.
    pub async fn execute(&self, cql: &str, values: impl SerializeRow) {
        let prepared = self.session.prepare(cql).await.unwrap_or_else(|e| panic!("{cql}: {e}"));
        if let Err(error) = self.session.execute_unpaged(&prepared, values).await {
            panic!("{cql}: {error}");
        }
    }

    /// All rows of a prepared statement.
    pub async fn rows<R>(&self, cql: &str, values: impl SerializeRow) -> Vec<R>
    where
        R: for<'f> DeserializeRow<'f, 'f>,
    {
        let prepared = self.session.prepare(cql).await.unwrap_or_else(|e| panic!("{cql}: {e}"));
        let result = self.session.execute_unpaged(&prepared, values).await;
        let result = result.unwrap_or_else(|e| panic!("{cql}: {e}"));
        let rows = result.into_rows_result().unwrap_or_else(|e| panic!("{cql}: {e}"));
        rows.rows::<R>().unwrap().map(|row| row.unwrap()).collect()
    }
}

/// Options of a session with the server under test.
pub fn builder() -> SessionBuilder {
    let host = env::var("HELENUS_HOST").unwrap_or_else(|_| "127.0.0.1".to_owned());
    let port = env::var("HELENUS_PORT").unwrap_or_else(|_| "9042".to_owned());
    let profile = ExecutionProfile::builder().request_timeout(Some(Duration::from_secs(30)));
    SessionBuilder::new()
        .known_node(format!("{host}:{port}"))
        .connection_timeout(Duration::from_secs(20))
        .default_execution_profile_handle(profile.build().into_handle())
}

type Test = fn(Arc<Context>) -> Pin<Box<dyn Future<Output = ()> + Send>>;

/// Names the functions of a module as tests.
#[macro_export]
macro_rules! tests {
    ($($name:ident),* $(,)?) => {
        pub const TESTS: &[(&str, $crate::TestFn)] = &[
            $((stringify!($name), |context| Box::pin($name(context)))),*
        ];
    };
}
pub type TestFn = Test;

async fn run() -> Result<bool, Box<dyn std::error::Error>> {
    let wanted: Vec<String> = env::args().skip(1).collect();
    let session = builder().build().await?;
    let id = uuid::Uuid::new_v4().simple().to_string();
    let keyspace = format!("drv_rust_{}", &id[..8]);
    let replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}";
    let create = format!("CREATE KEYSPACE {keyspace} WITH replication = {replication}");
    session.query_unpaged(create, ()).await?;
    session.use_keyspace(&keyspace, false).await?;
    let context = Arc::new(Context { session, keyspace });
    let (mut passed, mut failed) = (0, 0);
    for (name, test) in [connection::TESTS, statements::TESTS, types::TESTS].concat() {
        if !wanted.is_empty() && !wanted.iter().any(|part| name.contains(part.as_str())) {
            continue;
        }
        match tokio::spawn(test(Arc::clone(&context))).await {
            Ok(()) => passed += 1,
            Err(_) => {
                failed += 1;
                println!("FAILED {name}");
            }
        }
    }
    context.define(&format!("DROP KEYSPACE {}", context.keyspace)).await;
    println!("{passed} passed, {failed} failed");
    Ok(failed == 0 && passed > 0)
}

fn main() -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(run()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            println!("0 passed, 1 failed");
            ExitCode::FAILURE
        }
    }
}
