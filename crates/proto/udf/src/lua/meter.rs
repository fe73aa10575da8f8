//! Fuel and memory that a call has left.
//!
//! A hook consumes fuel every [`STRIDE`] instructions, more of it the more memory is in use. One
//! instruction of Lua's can go over all memory there is (a comparison of two strings, a table that is
//! rehashed), so an instruction costs what it may take. Functions of the library consume fuel for their
//! own work. The hook also collects garbage, at fixed amounts of memory.

use std::cell::Cell;
use std::rc::Rc;

use mlua::{Error, Lua, VmState};

/// Instructions between two turns of the hook.
pub(super) const STRIDE: u32 = 128;
/// Bytes in use for which an instruction costs one unit more.
const BYTES_PER_UNIT: usize = 16 * 1024;
/// Bytes of garbage and values that a collection goes over for one unit.
const COLLECTED_PER_UNIT: usize = 16;

/// The account of one call. Never negative; once it is empty it stays so, and every error after that
/// is the same one, so that a function cannot catch it.
#[derive(Debug)]
pub(super) struct Meter {
    fuel: Cell<u64>,
    empty: Cell<bool>,
    /// Bytes that the function may use, beside those of [`Meter::base`].
    memory_bytes: usize,
    /// Bytes of the state before the function has anything.
    base: Cell<usize>,
    /// Bytes in use, without the base, at which garbage is collected.
    collect_at: Cell<usize>,
    /// Bytes of large numbers, which are not in Lua's memory.
    numbers: Cell<usize>,
}

impl Meter {
    pub(super) fn new(fuel: u64, memory_bytes: usize) -> Rc<Meter> {
        Rc::new(Meter {
            fuel: Cell::new(fuel),
            empty: Cell::new(false),
            memory_bytes,
            base: Cell::new(0),
            collect_at: Cell::new(memory_bytes / 2),
            numbers: Cell::new(0),
        })
    }

    /// Units that are left.
    pub(super) fn left(&self) -> u64 {
        self.fuel.get()
    }

    /// Returns true if more was requested than there was.
    pub(super) fn is_empty(&self) -> bool {
        self.empty.get()
    }

    /// Bytes that the function may use.
    pub(super) fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// # Errors
    /// Less is left.
    pub(super) fn spend(&self, units: u64) -> mlua::Result<()> {
        match self.fuel.get().checked_sub(units) {
            Some(left) if !self.empty.get() => {
                self.fuel.set(left);
                Ok(())
            }
            _ => {
                self.fuel.set(0);
                self.empty.set(true);
                Err(Error::runtime("out of fuel"))
            }
        }
    }

    /// Consumes the cost of `count` steps of a loop.
    ///
    /// # Errors
    /// Less is left.
    pub(super) fn spend_steps(&self, count: usize) -> mlua::Result<()> {
        self.spend(u64::try_from(count).unwrap_or(u64::MAX))
    }

    /// From now on memory is counted.
    pub(super) fn begin(&self, lua: &Lua) -> mlua::Result<()> {
        let base = lua.used_memory();
        self.base.set(base);
        lua.gc_stop();
        lua.set_memory_limit(base.saturating_add(self.memory_bytes)).map(drop)
    }

    fn used(&self, lua: &Lua) -> usize {
        lua.used_memory().saturating_sub(self.base.get())
    }

    /// The hook.
    ///
    /// # Errors
    /// The fuel is used up.
    pub(super) fn tick(&self, lua: &Lua) -> mlua::Result<VmState> {
        let used = self.used(lua);
        let weight = (used / BYTES_PER_UNIT).saturating_add(1);
        self.spend(u64::from(STRIDE).saturating_mul(u64::try_from(weight).unwrap_or(u64::MAX)))?;
        self.make_room(lua)?;
        Ok(VmState::Continue)
    }

    /// Collects garbage when there is much. Callers are functions that create much of it between
    /// two runs of the hook, in memory of their own that Lua does not count.
    ///
    /// # Errors
    /// The fuel is used up.
    pub(super) fn make_room(&self, lua: &Lua) -> mlua::Result<()> {
        let used = self.used(lua);
        if used > self.collect_at.get() { self.collect(lua, used) } else { Ok(()) }
    }

    fn collect(&self, lua: &Lua, used: usize) -> mlua::Result<()> {
        self.spend_steps(used / COLLECTED_PER_UNIT)?;
        lua.gc_collect()?;
        let mut kept = self.used(lua);
        // Memory that our own functions and numbers hold is freed one collection after they are.
        if kept > self.memory_bytes / 4 {
            self.spend_steps(kept / COLLECTED_PER_UNIT)?;
            lua.gc_collect()?;
            kept = self.used(lua);
        }
        let free = self.memory_bytes.saturating_sub(kept);
        self.collect_at.set(kept.saturating_add(free / 2));
        Ok(())
    }

    /// Counts the bytes of a large number.
    ///
    /// # Errors
    /// With it the numbers of the function have more than its memory.
    pub(super) fn hold(self: &Rc<Self>, lua: &Lua, bytes: usize) -> mlua::Result<Held> {
        if self.numbers.get().saturating_add(bytes) > self.memory_bytes {
            self.collect(lua, self.used(lua))?;
        }
        let all = self.numbers.get().saturating_add(bytes);
        if all > self.memory_bytes {
            return Err(Error::MemoryError("not enough memory".to_owned()));
        }
        self.numbers.set(all);
        Ok(Held { meter: self.clone(), bytes })
    }
}

/// Bytes that are counted until this goes.
#[derive(Debug)]
pub(super) struct Held {
    meter: Rc<Meter>,
    bytes: usize,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.meter.numbers.set(self.meter.numbers.get().saturating_sub(self.bytes));
    }
}
