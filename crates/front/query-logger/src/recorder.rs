//! From a finished request to its record, as Cassandra makes it.
//!
//! Source: Cassandra 5.0 `FullQueryLogger`, `QueryEvents`.

use audit::binlog::Weighed;
use audit::mask;
use audit::statement::{facts, without_password};
use query::{ObservedRequest, ObservedStatement, ObservedValue, RequestDetails, RequestRecord};
use query_log::format::push_record;
use query_log::record::{NO_NOW, NO_TIMESTAMP};
use query_log::{BatchQuery, LoggedStatement, LoggedValue, QueryRecord};

/// Bytes that a record holds beside its encoding, about.
const RECORD_BYTES: u64 = 64;

/// A record in the encoding of its file.
#[derive(Debug)]
pub struct EncodedRecord(pub Vec<u8>);

impl Weighed for EncodedRecord {
    fn weight(&self) -> u64 {
        self.0.len() as u64 + RECORD_BYTES
    }
}

/// Makes the record of a request that was answered; `None` for requests that are not logged: those that failed,
/// logins, and PREPARE. INV-querylogger-1.
pub fn encoded(request: &RequestRecord) -> Option<EncodedRecord> {
    let record = record(request)?;
    let mut bytes = Vec::with_capacity(record.options.len() + 128);
    push_record(&mut bytes, &record);
    Some(EncodedRecord(bytes))
}

/// Makes the record of a request that was answered.
pub fn record(request: &RequestRecord) -> Option<QueryRecord> {
    if request.failure.is_some() {
        return None;
    }
    let details = request.details.as_ref()?;
    let statement = match &request.request {
        ObservedRequest::Query(statement) | ObservedRequest::Execute(statement) => {
            LoggedStatement::Single { query: text(statement)? }
        }
        ObservedRequest::Batch { kind, statements } => {
            LoggedStatement::Batch { kind: *kind, queries: queries(statements, details)? }
        }
        ObservedRequest::Login | ObservedRequest::Prepare(_) => return None,
    };
    let began = request.began.0;
    Some(QueryRecord {
        start_millis: began.div_euclid(1000),
        protocol_version: details.protocol_version,
        options: details.options.clone(),
        generated_timestamp: details.generated_timestamp.unwrap_or(NO_TIMESTAMP),
        generated_now: if details.lacks_now { began.div_euclid(1_000_000) } else { NO_NOW },
        keyspace: request.session_keyspace.as_deref().map(str::to_owned),
        statement,
    })
}

fn queries(statements: &[ObservedStatement], details: &RequestDetails) -> Option<Vec<BatchQuery>> {
    let pairs = statements.iter().zip(&details.batch_values);
    let one = |(statement, values): (&ObservedStatement, &Vec<ObservedValue>)| {
        let values = values.iter().map(|value| match value {
            ObservedValue::Null => LoggedValue::Null,
            ObservedValue::Unset => LoggedValue::Unset,
            ObservedValue::Bytes(bytes) => LoggedValue::Bytes(bytes.clone()),
        });
        Some(BatchQuery { query: text(statement)?, values: values.collect() })
    };
    pairs.map(one).collect()
}

/// The text, without the password of a statement about roles.
fn text(statement: &ObservedStatement) -> Option<String> {
    let text = statement.text()?;
    if !mask::has_word(text) {
        return Some(text.to_string());
    }
    Some(match cql_syntax::parse(text) {
        Ok(parsed) => match facts(&parsed.kind, None).password {
            Some(password) => without_password(text, &password).into_owned(),
            None => text.to_string(),
        },
        Err(_) => mask::cut(text).into_owned(),
    })
}
