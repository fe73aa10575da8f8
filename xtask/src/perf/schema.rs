//! Duration of CREATE TABLE, from the request to its answer: every live node has the table then.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::cql::Client;
use super::process::Target;

const TABLES: usize = 20;
const ANSWER_MAX: Duration = Duration::from_secs(60);

/// Milliseconds of each of 20 tables, asked of each node in turn.
pub fn create_tables(target: &dyn Target) -> Result<Vec<f64>> {
    let addresses = target.addresses();
    let mut clients: Vec<Client> =
        addresses.iter().map(|a| Client::connect(a, ANSWER_MAX)).collect::<Result<_>>()?;
    let factor = clients.len();
    if let Some(client) = clients.first_mut() {
        client.query(&format!(
            "CREATE KEYSPACE ddl{factor} WITH replication = \
             {{'class': 'SimpleStrategy', 'replication_factor': {factor}}}"
        ))?;
    }
    let mut times = Vec::new();
    for number in 0..TABLES {
        let Some(client) = clients.get_mut(number % factor.max(1)) else { break };
        let begun = Instant::now();
        client.query(&format!(
            "CREATE TABLE ddl{factor}.t{number} (key bigint PRIMARY KEY, c0 blob)"
        ))?;
        times.push(begun.elapsed().as_secs_f64() * 1000.0);
    }
    Ok(times)
}
