//! The bind markers of a statement, and the calls in it that are evaluated once per execution.

use std::sync::Arc;

use schema::Table;
use types::CqlType;

use super::{PlannedCall, Receiver};
use crate::error::PlanError;

/// One bind marker as PREPARED metadata shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BindSpec {
    /// Keyspace of the receiver.
    pub keyspace: Arc<str>,
    /// Table of the receiver.
    pub table: Arc<str>,
    /// Name of the marker, else of its receiver.
    pub name: Arc<str>,
    /// Type of the values.
    pub ty: CqlType,
}

/// The bind markers of one statement while it is being planned.
pub struct Binds {
    markers: Vec<BindSlot>,
    /// Calls of functions that give another result each time, in the order in which they can be evaluated.
    calls: Vec<PlannedCall>,
}

struct BindSlot {
    /// `:name`.
    name: Option<Arc<str>>,
    /// The receiver's own name, which identifies partition-key columns even for `:name`.
    target: Option<Arc<str>>,
    spec: Option<BindSpec>,
}

impl Binds {
    /// No receiver known yet. `markers` is [`cql_syntax::ast::Statement::bind_markers`].
    pub fn new(markers: &[Option<String>]) -> Binds {
        let slot = |name: &Option<String>| BindSlot {
            name: name.as_deref().map(Arc::from),
            target: None,
            spec: None,
        };
        Binds { markers: markers.iter().map(slot).collect(), calls: Vec::new() }
    }

    /// Notes a call whose function gives another result each time. Returns the slot of its result,
    /// after the values of all markers. `None` when there are too many: then it is evaluated
    /// wherever it is needed.
    pub(crate) fn add_call(&mut self, call: &PlannedCall) -> Option<u16> {
        let slot = u16::try_from(self.markers.len().saturating_add(self.calls.len())).ok()?;
        self.calls.push(PlannedCall { slot: None, ..call.clone() });
        Some(slot)
    }

    /// The calls that were noted.
    pub(crate) fn take_calls(&mut self) -> Vec<PlannedCall> {
        std::mem::take(&mut self.calls)
    }

    /// Number of markers.
    pub(crate) fn len(&self) -> usize {
        self.markers.len()
    }

    /// Sets the receiver of a marker. A marker occurs at one position of the statement, so this is
    /// called once per index; an index out of range is ignored.
    pub fn set(&mut self, index: usize, receiver: &Receiver<'_>) {
        let Some(slot) = self.markers.get_mut(index) else { return };
        slot.target = Some(receiver.name.clone());
        slot.spec = Some(BindSpec {
            keyspace: Arc::from(receiver.keyspace),
            table: Arc::from(receiver.table),
            name: slot.name.clone().unwrap_or_else(|| receiver.name.clone()),
            ty: receiver.ty.clone(),
        });
    }

    /// For each partition-key column the index of the marker that is its value; `None` unless all
    /// have one. Source: `VariableSpecifications.getPartitionKeyBindIndexes`.
    pub fn partition_key_indices(&self, table: &Table) -> Option<Vec<u16>> {
        let position = |column: &schema::Column| {
            let at = self.markers.iter().rposition(|m| m.target.as_ref() == Some(&column.name))?;
            u16::try_from(at).ok()
        };
        table.partition_key().iter().map(position).collect()
    }

    /// The typed markers in order.
    ///
    /// # Errors
    /// A marker that no receiver was found for.
    pub fn finish(self) -> Result<Vec<BindSpec>, PlanError> {
        let untyped = || PlanError::invalid("a bind marker's type cannot be told");
        self.markers.into_iter().map(|m| m.spec.ok_or_else(untyped)).collect()
    }
}
