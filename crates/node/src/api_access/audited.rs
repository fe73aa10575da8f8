//! Requests of the API in the audit log.

use std::future::Future;
use std::task::{Context, Poll, Waker};

use admin::operation::Class;
use admin::{ActionLog, ApiAction, ApiOutcome};
use audit::auditor::AuditRequest;
use audit::{AdminEvent, AuditAnswer, AuditMesh};
use rt::ForeignCaller;
use stdx::ShardId;

/// Passes what administrators did, and what was refused to them, to the audit log of shard 0. Requests that only read are
/// left out: monitoring sends them all the time.
pub(super) struct Audited {
    caller: ForeignCaller<AuditRequest, AuditAnswer>,
}

impl Audited {
    pub(super) fn new(mesh: &AuditMesh) -> Audited {
        Audited { caller: mesh.foreign() }
    }
}

impl ActionLog for Audited {
    fn record(&self, action: &ApiAction<'_>) {
        let Some(event) = event(action) else { return };
        // The call sends at once; its answer says nothing that the client of the API could use.
        let sent = std::pin::pin!(self.caller.call(ShardId(0), AuditRequest::Admin(event)));
        let answer = sent.poll(&mut Context::from_waker(Waker::noop()));
        if matches!(answer, Poll::Ready(Err(_))) {
            tracing::error!(
                path = action.path,
                "shard 0 did not accept an action for the audit log"
            );
        }
    }
}

/// The event of an action; `None`: it is not audited.
fn event(action: &ApiAction<'_>) -> Option<AdminEvent> {
    let refusal = match action.outcome {
        ApiOutcome::Unauthenticated => Some("no valid login".to_owned()),
        ApiOutcome::Forbidden => Some("not permitted".to_owned()),
        ApiOutcome::Completed(_) | ApiOutcome::Abandoned
            if matches!(action.class, Class::Open | Class::Reads) =>
        {
            return None;
        }
        ApiOutcome::Completed(status) if status >= 400 => Some(format!("status {status}")),
        ApiOutcome::Completed(_) | ApiOutcome::Abandoned => None,
    };
    let mut operation = format!("{} {}", action.method, action.path);
    if !action.command.is_empty() {
        operation.push(' ');
        operation.push_str(action.command);
    }
    Some(AdminEvent {
        user: (!action.user.is_empty()).then(|| action.user.to_owned()),
        source: action.client,
        operation,
        refusal,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(class: Class, outcome: ApiOutcome) -> Option<(String, Option<String>)> {
        let action = ApiAction {
            user: "operator",
            client: "10.0.0.7:4711".parse().unwrap(),
            method: "POST",
            path: "/api/v1/cluster",
            command: "drain",
            class,
            outcome,
        };
        event(&action).map(|event| (event.operation, event.refusal))
    }

    #[test]
    fn changes_and_refusals_are_audited_and_successful_reads_are_not() {
        let operation = || "POST /api/v1/cluster drain".to_owned();
        let reason = |text: &str| Some((operation(), Some(text.to_owned())));
        for class in [Class::Open, Class::Reads] {
            assert_eq!(of(class, ApiOutcome::Completed(200)), None);
            assert_eq!(of(class, ApiOutcome::Abandoned), None);
        }
        for class in [Class::Changes, Class::Destroys] {
            assert_eq!(of(class, ApiOutcome::Completed(200)), Some((operation(), None)));
            assert_eq!(of(class, ApiOutcome::Abandoned), Some((operation(), None)));
            assert_eq!(of(class, ApiOutcome::Completed(500)), reason("status 500"));
        }
        for class in [Class::Reads, Class::Destroys] {
            assert_eq!(of(class, ApiOutcome::Unauthenticated), reason("no valid login"));
            assert_eq!(of(class, ApiOutcome::Forbidden), reason("not permitted"));
        }
    }
}
