//! Prints the rows of tables below a data directory as CQLite reads them.
//!
//!     files-cqlite DATA SCHEMA.cql KEYSPACE.TABLE...
//!
//! A line is `TABLE|column=value|…`, columns by name, null ones left out; lines are sorted. A table that
//! it does not read is `TABLE!error`.

use std::path::PathBuf;

use cqlite_core::ingestion::{IngestionConfig, ingest};
use cqlite_core::{Config, Value};

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [data, schema, tables @ ..] = arguments.as_slice() else {
        eprintln!("files-cqlite DATA SCHEMA.cql KEYSPACE.TABLE...");
        std::process::exit(2);
    };
    for table in tables {
        let (keyspace, name) = table.split_once('.').expect("KEYSPACE.TABLE");
        let config = IngestionConfig {
            schema_paths: vec![PathBuf::from(schema)],
            data_dir: PathBuf::from(data),
            version_hint: Some("5.0".to_owned()),
            core_config: Config::default(),
            table_directory_filter: Some(format!("/{keyspace}/{name}-")),
        };
        match rows(config, table).await {
            Ok(lines) => lines.iter().for_each(|line| println!("{table}|{line}")),
            Err(error) => println!("{table}!{error}"),
        }
    }
}

async fn rows(config: IngestionConfig, table: &str) -> Result<Vec<String>, String> {
    let found = ingest(config).await.map_err(|error| error.to_string())?;
    let result = found.database.execute(&format!("SELECT * FROM {table}")).await;
    let result = result.map_err(|error| error.to_string())?;
    let mut lines: Vec<String> = result
        .rows
        .iter()
        .map(|row| {
            let mut cells: Vec<String> = row
                .values
                .iter()
                .filter(|(_, value)| !matches!(value, Value::Null))
                .map(|(name, value)| format!("{name}={}", shown(value)))
                .collect();
            cells.sort();
            cells.join("|")
        })
        .collect();
    lines.sort();
    Ok(lines)
}

fn shown(value: &Value) -> String {
    match value {
        Value::Integer(number) => number.to_string(),
        Value::BigInt(number) => number.to_string(),
        Value::Boolean(value) => value.to_string(),
        Value::Text(text) => String::from_utf8_lossy(text).into_owned(),
        Value::Set(values) | Value::List(values) => {
            format!("[{}]", values.iter().map(shown).collect::<Vec<_>>().join(","))
        }
        other => format!("{other:?}"),
    }
}
