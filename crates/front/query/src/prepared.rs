//! Prepared statements: compiled plans by id, bounded, revalidated when the schema moves on.
//!
//! INV-prepared-1: an id depends on the text and the keyspace only, so it stays the same over
//! restarts and schema changes. INV-prepared-2: a plan is executed only on the schema it was made
//! for, or one that left its tables alone.

use crate::description::{Described, Description};
use crate::read_strategy::ReadStrategy;
use cluster::ClusterSnapshot;
use cql_plan::auth::Requirement;
use cql_plan::functions::user::UserFunctions;
use cql_plan::plan::{CommandPlan, Plan, PlanContext, PlanInputs, PlanKind, PlanLimits};
use cql_plan::select::SelectPlan;
use cql_plan::{BatchPlan, ModifyPlan, PlanError, requirements};
use cql_syntax::ast::{BatchEntry, QualifiedName, Statement, StatementKind};
use md5::{Digest, Md5};
use schema::Schema;
use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use stdx::{Epoch, FixedMap, WallMicros};

/// Settings and functions that statements are planned with.
pub struct Planning {
    pub(crate) limits: PlanLimits,
    /// Compiled functions of users.
    pub functions: UserFunctions,
}

impl std::ops::Deref for Planning {
    type Target = PlanLimits;

    fn deref(&self) -> &PlanLimits {
        &self.limits
    }
}

/// Source of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    /// The statement.
    pub(crate) text: Rc<str>,
    /// Default keyspace of unqualified names.
    pub(crate) keyspace: Option<Rc<str>>,
    /// A client has prepared it: its plan is worth keeping.
    pub(crate) is_prepared: bool,
}

/// Id of a prepared statement.
pub type PreparedId = [u8; 16];

/// Cassandra's id: MD5 of the text, with the keyspace in front when names need one.
pub fn id_of(text: &str, keyspace: Option<&str>) -> PreparedId {
    Md5::new().chain_update(keyspace.unwrap_or_default()).chain_update(text).finalize().into()
}

/// Returns true if the meaning of the statement does not depend on the keyspace in use. Statements
/// that Cassandra does not call qualified (DDL of keyspaces, USE) count as unqualified, as there.
pub(crate) fn is_fully_qualified(kind: &StatementKind) -> bool {
    let named = |name: &QualifiedName| name.keyspace.is_some();
    match kind {
        StatementKind::Select(s) => named(&s.table),
        StatementKind::Insert(s) => named(&s.table),
        StatementKind::Update(s) => named(&s.table),
        StatementKind::Delete(s) => named(&s.table),
        StatementKind::Truncate(s) => named(&s.table),
        StatementKind::Batch(b) => b.statements.iter().all(|entry| match entry {
            BatchEntry::Insert(s) => named(&s.table),
            BatchEntry::Update(s) => named(&s.table),
            BatchEntry::Delete(s) => named(&s.table),
        }),
        StatementKind::CreateTable(s) => named(&s.table),
        StatementKind::CopyTable(s) => named(&s.table) && named(&s.source),
        StatementKind::AlterTable(s) => named(&s.table),
        StatementKind::DropTable(s) => named(&s.table),
        _ => false,
    }
}

/// Common part of every statement, whatever its plan.
pub struct CompiledHeader {
    /// Values, tables and functions that the plan depends on.
    pub inputs: PlanInputs,
    /// The bind markers.
    pub markers: Description,
    /// The newest epoch the plan was found valid for.
    pub(crate) valid_at: Cell<Epoch>,
    /// Consistency levels that were found achievable, one bit each, and for which epoch.
    pub(crate) achievable: Cell<(Epoch, u32)>,
    /// Permissions that its user needs; computed on first use.
    pub(crate) needs: OnceCell<Vec<Requirement>>,
    /// Number of the access that last had these permissions; 0: none yet.
    pub(crate) allowed_to: Cell<u64>,
    /// Its source, if another node may execute it or compute its groups.
    pub(crate) source: Option<Source>,
}

/// A plan with everything that executing it needs ready. The header has the same offset for all plans, so that finding
/// it takes no branch.
#[repr(C)]
pub struct CompiledPlan<P> {
    /// Common part of all statements.
    pub header: CompiledHeader,
    /// The plan.
    pub plan: P,
}

/// The plan of a SELECT, with the strategy of its execution.
pub struct ReadPlan {
    pub(crate) select: Box<SelectPlan>,
    /// The columns of its result.
    pub(crate) columns: Description,
    pub(crate) strategy: ReadStrategy,
}

/// A SELECT, which its reads keep while they wait.
pub(crate) type SelectStatement = CompiledPlan<ReadPlan>;

/// A compiled statement, by what it does. It is matched where a request begins; from there on its plan is typed.
#[derive(Clone)]
pub enum Compiled {
    /// SELECT.
    Select(Rc<CompiledPlan<ReadPlan>>),
    /// INSERT, UPDATE, DELETE.
    Modify(Rc<CompiledPlan<ModifyPlan>>),
    /// BEGIN BATCH.
    Batch(Rc<CompiledPlan<BatchPlan>>),
    /// Everything else.
    Command(Rc<CompiledPlan<CommandPlan>>),
}

impl Compiled {
    /// Plans a parsed statement.
    ///
    /// # Errors
    /// As [`cql_plan::plan`].
    pub(crate) fn new(
        statement: &Statement,
        snapshot: &ClusterSnapshot,
        keyspace: Option<&str>,
        planning: &Planning,
        now: WallMicros,
    ) -> Result<Compiled, PlanError> {
        let cx = PlanContext {
            schema: &snapshot.schema,
            keyspace,
            limits: &planning.limits,
            now,
            functions: Some(&planning.functions),
        };
        let Plan { kind, inputs } = cql_plan::plan::plan(statement, &cx)?;
        let markers: Vec<Described> = inputs
            .binds
            .iter()
            .map(|b| Described {
                keyspace: b.keyspace.clone(),
                table: b.table.clone(),
                name: b.name.clone(),
                ty: b.ty.clone(),
            })
            .collect();
        let header = CompiledHeader {
            inputs,
            markers: Description::new(markers),
            valid_at: Cell::new(snapshot.epoch),
            achievable: Cell::new((snapshot.epoch, 0)),
            needs: OnceCell::new(),
            allowed_to: Cell::new(0),
            source: None,
        };
        Ok(match kind {
            PlanKind::Select(select) => {
                let columns = Description::new(select.result_columns().clone());
                let strategy = ReadStrategy::of(&select);
                let plan = ReadPlan { select, columns, strategy };
                Compiled::Select(Rc::new(CompiledPlan { header, plan }))
            }
            PlanKind::Modify(plan) => Compiled::Modify(Rc::new(CompiledPlan { header, plan })),
            PlanKind::Batch(plan) => Compiled::Batch(Rc::new(CompiledPlan { header, plan })),
            PlanKind::Command(plan) => Compiled::Command(Rc::new(CompiledPlan { header, plan })),
        })
    }

    /// Returns the common part of all statements.
    #[inline]
    pub fn header(&self) -> &CompiledHeader {
        match self {
            Compiled::Select(statement) => &statement.header,
            Compiled::Modify(statement) => &statement.header,
            Compiled::Batch(statement) => &statement.header,
            Compiled::Command(statement) => &statement.header,
        }
    }

    /// The result's columns; `None` for statements that return none.
    #[inline]
    pub fn result(&self) -> Option<&Description> {
        match self {
            Compiled::Select(statement) => Some(&statement.plan.columns),
            Compiled::Modify(_) | Compiled::Batch(_) | Compiled::Command(_) => None,
        }
    }

    /// Sets its source; does nothing once it is shared.
    pub(crate) fn set_source(&mut self, source: Source) {
        let header = match self {
            Compiled::Select(statement) => Rc::get_mut(statement).map(|s| &mut s.header),
            Compiled::Modify(statement) => Rc::get_mut(statement).map(|s| &mut s.header),
            Compiled::Batch(statement) => Rc::get_mut(statement).map(|s| &mut s.header),
            Compiled::Command(statement) => Rc::get_mut(statement).map(|s| &mut s.header),
        };
        if let Some(header) = header {
            header.source = Some(source);
        }
    }

    /// Returns true if the statement has IF.
    #[inline]
    pub fn is_conditional(&self) -> bool {
        match self {
            Compiled::Modify(statement) => statement.plan.has_conditions(),
            Compiled::Batch(statement) => statement.plan.has_conditions(),
            Compiled::Select(_) | Compiled::Command(_) => false,
        }
    }

    /// Returns true if the statement is about roles and permissions.
    pub(crate) fn is_about_roles(&self) -> bool {
        matches!(self, Compiled::Command(command) if matches!(command.plan, CommandPlan::Auth(_)))
    }

    /// Returns the permissions that its user needs.
    pub(crate) fn requirements(&self, schema: &Schema) -> Vec<Requirement> {
        let inputs = &self.header().inputs;
        match self {
            Compiled::Select(statement) => requirements::of_select(&statement.plan.select, inputs),
            Compiled::Modify(statement) => requirements::of_modify(&statement.plan, inputs),
            Compiled::Batch(statement) => requirements::of_batch(&statement.plan, inputs),
            Compiled::Command(statement) => requirements::of_command(&statement.plan, schema),
        }
    }

    /// Returns true if the plan may be executed on this snapshot.
    #[inline]
    pub(crate) fn is_valid_for(&self, snapshot: &ClusterSnapshot) -> bool {
        let header = self.header();
        if header.valid_at.get() == snapshot.epoch {
            return true;
        }
        let valid = header.inputs.is_valid_for(&snapshot.schema);
        if valid {
            header.valid_at.set(snapshot.epoch);
        }
        valid
    }
}

/// One prepared statement.
pub struct Prepared {
    /// Its id.
    pub id: PreparedId,
    pub(crate) text: Rc<str>,
    pub(crate) keyspace: Option<Rc<str>>,
    /// Its names need no keyspace.
    pub(crate) is_qualified: bool,
    /// Replaced when the schema moved on.
    pub compiled: RefCell<Compiled>,
    /// The result metadata id that PREPARE answered last.
    pub(crate) described_as: Cell<Option<[u8; 16]>>,
    used_at: Cell<u64>,
    /// Estimated memory.
    pub(crate) bytes: usize,
}

impl Prepared {
    /// Returns the keyspace of its names without one; `None` if it needs none.
    pub fn keyspace(&self) -> Option<&Rc<str>> {
        self.keyspace.as_ref()
    }

    pub(crate) fn new(
        id: PreparedId,
        text: &str,
        keyspace: Option<&str>,
        is_qualified: bool,
        mut compiled: Compiled,
    ) -> Prepared {
        let (text, keyspace): (Rc<str>, Option<Rc<str>>) = (text.into(), keyspace.map(Into::into));
        compiled.set_source(source_of(&text, keyspace.as_ref()));
        let described_as = compiled.result().map(|r| *r.id());
        let bytes =
            plan_bytes(&text).saturating_add(compiled.header().inputs.binds.len() * MARKER_BYTES);
        Prepared {
            id,
            text,
            keyspace,
            is_qualified,
            compiled: RefCell::new(compiled),
            described_as: Cell::new(described_as),
            used_at: Cell::new(0),
            bytes,
        }
    }
}

/// Memory of a bind marker: its name, its type, its description for clients.
const MARKER_BYTES: usize = 512;

/// Memory of a term of a list, besides its text.
const TERM_BYTES: usize = 256;

/// Memory of the plan of a statement, estimated from its text: what stands between commas may be a term of its
/// own, and a term takes far more than its two bytes of text.
pub(crate) fn plan_bytes(text: &str) -> usize {
    1024_usize.saturating_add(text.len().saturating_mul(5)).saturating_add(term_bytes(text))
}

/// The part of it that the terms take, however short they are.
pub fn term_bytes(text: &str) -> usize {
    let (mut terms, mut is_quoted) = (0_usize, false);
    for byte in text.bytes() {
        match byte {
            b'\'' => is_quoted = !is_quoted,
            b',' if !is_quoted => terms += 1,
            _ => {}
        }
    }
    terms.saturating_mul(TERM_BYTES)
}

/// The source of a plan that a client has prepared.
pub(crate) fn source_of(text: &Rc<str>, keyspace: Option<&Rc<str>>) -> Source {
    Source { text: text.clone(), keyspace: keyspace.cloned(), is_prepared: true }
}

/// All prepared statements of one shard.
pub struct PreparedCache {
    by_id: RefCell<FixedMap<PreparedId, Rc<Prepared>>>,
    bytes: Cell<usize>,
    bytes_max: usize,
    clock: Cell<u64>,
    /// Number of times at which statements were removed or replaced.
    removals: Cell<u64>,
}

impl PreparedCache {
    pub(crate) fn new(bytes_max: usize) -> PreparedCache {
        PreparedCache {
            by_id: RefCell::default(),
            bytes: Cell::new(0),
            bytes_max,
            clock: Cell::new(0),
            removals: Cell::new(0),
        }
    }

    /// A statement that was found stays the one of its id as long as this number does not change.
    #[inline]
    pub(crate) fn removals(&self) -> u64 {
        self.removals.get()
    }

    /// Refuses a statement that all of the memory would not hold. Source: `QueryProcessor.storePreparedStatement`.
    ///
    /// # Errors
    /// Invalid.
    pub(crate) fn check_size(&self, text: &str, bytes: usize) -> Result<(), PlanError> {
        if bytes <= self.bytes_max {
            return Ok(());
        }
        let shown = text.get(..text.floor_char_boundary(200)).unwrap_or_default();
        Err(PlanError::invalid(format!(
            "Prepared statement of size {bytes} bytes is larger than allowed maximum of {} MB: {shown}...",
            self.bytes_max >> 20,
        )))
    }

    /// Number of statements.
    #[expect(clippy::len_without_is_empty, reason = "nobody asks")]
    pub fn len(&self) -> usize {
        self.by_id.borrow().len()
    }

    /// The statement of that id, which thereby is the most recently used.
    #[inline]
    pub(crate) fn get(&self, id: &[u8]) -> Option<Rc<Prepared>> {
        let id: &PreparedId = id.try_into().ok()?;
        let by_id = self.by_id.borrow();
        let found = by_id.get(id)?;
        let now = self.clock.get() + 1;
        self.clock.set(now);
        found.used_at.set(now);
        Some(found.clone())
    }

    /// Puts a statement in, and returns those that had to go for it.
    pub(crate) fn insert(&self, prepared: Rc<Prepared>) -> Vec<PreparedId> {
        let mut by_id = self.by_id.borrow_mut();
        let now = self.clock.get() + 1;
        self.clock.set(now);
        prepared.used_at.set(now);
        let mut bytes = self.bytes.get() + prepared.bytes;
        self.removals.set(self.removals.get() + 1);
        if let Some(old) = by_id.insert(prepared.id, prepared) {
            bytes -= old.bytes;
        }
        let mut evicted = Vec::new();
        if bytes > self.bytes_max {
            // A tenth at once: looking for the oldest one costs a pass over all.
            let target = self.bytes_max - self.bytes_max / 10;
            let mut by_age: Vec<(u64, PreparedId, usize)> =
                by_id.values().map(|p| (p.used_at.get(), p.id, p.bytes)).collect();
            by_age.sort_unstable();
            by_age.pop();
            for (_, id, size) in by_age {
                if bytes <= target {
                    break;
                }
                by_id.remove(&id);
                bytes -= size;
                evicted.push(id);
            }
        }
        self.bytes.set(bytes);
        evicted
    }

    /// Takes a statement out.
    pub(crate) fn remove(&self, id: &PreparedId) {
        self.removals.set(self.removals.get() + 1);
        if let Some(old) = self.by_id.borrow_mut().remove(id) {
            self.bytes.set(self.bytes.get() - old.bytes);
        }
    }
}

/// Parses a statement; errors are Cassandra's.
///
/// # Errors
/// A syntax error.
pub(crate) fn parse(text: &str) -> Result<Statement, PlanError> {
    Ok(cql_syntax::parse(text)?)
}
