//! One call: a new instance, arguments in, the function, the result out.

use wasmi::{
    Error, Extern, ExternType, Func, Instance, Linker, Memory, Store, StoreLimits,
    StoreLimitsBuilder, TrapCode, Val,
};

use crate::abi::{self, ABI, MALLOC, Passing};
use crate::compile::WASI;
use crate::{CallError, Code};

/// Bytes of one page of linear memory.
const PAGE: u64 = 65_536;
/// Entries of all tables together.
const TABLE_ENTRIES_MAX: usize = 100_000;

struct Run<'c> {
    code: &'c Code,
    store: Store<StoreLimits>,
    instance: Instance,
    /// Fuel at the start of the call.
    fuel: u64,
}

pub(crate) fn call(
    code: &Code,
    args: &[Option<&[u8]>],
    fuel: &mut u64,
) -> Result<Option<Vec<u8>>, CallError> {
    let given = *fuel;
    let limits = StoreLimitsBuilder::new()
        .memory_size(code.memory_bytes)
        .table_elements(TABLE_ENTRIES_MAX)
        .instances(1)
        .build();
    let mut store = Store::new(&code.engine, limits);
    store.limiter(|limits| limits);
    store.set_fuel(given).map_err(|e| failure(&e, given))?;
    let instance = match instantiate(code, &mut store) {
        Ok(instance) => instance,
        Err(error) => {
            *fuel = store.get_fuel().unwrap_or(0);
            return Err(failure(&error, given));
        }
    };
    let mut run = Run { code, store, instance, fuel: given };
    let result = run.call(args);
    *fuel = run.store.get_fuel().unwrap_or(0);
    result
}

fn instantiate(code: &Code, store: &mut Store<StoreLimits>) -> Result<Instance, Error> {
    let mut linker = Linker::new(&code.engine);
    for import in code.module.imports() {
        let ExternType::Func(ty) = import.ty() else { continue };
        let name = import.name().to_owned();
        // The same function may be imported twice.
        if linker.get(&*store, WASI, &name).is_some() {
            continue;
        }
        linker.func_new(WASI, import.name(), ty.clone(), move |_, _, _| {
            Err(Error::new(format!("it called {WASI}.{name}: functions have no input or output")))
        })?;
    }
    linker.instantiate_and_start(store, &code.module)
}

fn failure(error: &Error, given: u64) -> CallError {
    match error.as_trap_code() {
        Some(TrapCode::OutOfFuel) => CallError::Fuel(given),
        _ => CallError::Trap(error.to_string()),
    }
}

impl Run<'_> {
    fn call(&mut self, args: &[Option<&[u8]>]) -> Result<Option<Vec<u8>>, CallError> {
        // Libraries built by linkers need this call before any other.
        if let Some(start) = self.instance.get_func(&self.store, "_initialize") {
            let ty = start.ty(&self.store);
            if ty.params().is_empty() && ty.results().is_empty() {
                self.run(start, &[], &mut [])?;
            }
        }
        let uses_memory =
            self.code.args.contains(&Passing::Memory) || self.code.returns == Passing::Memory;
        let memory = if uses_memory { Some(self.memory()?) } else { None };
        let values = self.arguments(args, memory)?;
        let name = &self.code.signature.name;
        let Some(function) = self.instance.get_func(&self.store, name) else {
            return Err(CallError::Abi(format!("there is no function \"{name}\"")));
        };
        let mut results = [Val::default_for_ty(self.code.returns.wasm())];
        self.run(function, &values, &mut results)?;
        let [result] = results;
        let bytes = match (self.code.returns, memory) {
            (Passing::Memory, Some(memory)) => {
                match self.read(memory, result.i64().unwrap_or_default())? {
                    Some(bytes) => bytes,
                    None => return Ok(None),
                }
            }
            (native, _) => match native.from_wasm(&result) {
                Some(bytes) => bytes,
                None => return Err(CallError::Abi("the result has another type".to_owned())),
            },
        };
        let returns = &self.code.signature.returns;
        match returns.validate_bound(&bytes) {
            Ok(()) => Ok(Some(bytes)),
            Err(error) => Err(CallError::Abi(format!("it returned no valid {returns}: {error}"))),
        }
    }

    fn run(&mut self, function: Func, args: &[Val], out: &mut [Val]) -> Result<(), CallError> {
        let given = self.fuel;
        function.call(&mut self.store, args, out).map_err(|e| failure(&e, given))
    }

    fn memory(&self) -> Result<Memory, CallError> {
        let found = self.instance.exports(&self.store).find_map(|export| export.into_memory());
        found.ok_or_else(|| CallError::Abi("the module exports no memory".to_owned()))
    }

    /// The ABI version that the module exports.
    fn version(&self, memory: Memory) -> Result<u8, CallError> {
        let global = match self.instance.get_export(&self.store, ABI) {
            Some(Extern::Global(global)) => global.get(&self.store).i32(),
            _ => None,
        };
        let version = global.and_then(|address| {
            let address = usize::try_from(address as u32).ok()?;
            memory.data(&self.store).get(address).copied()
        });
        match version {
            Some(version @ (1 | 2)) => Ok(version),
            Some(other) => Err(CallError::Abi(format!("version {other} of the ABI is not known"))),
            None => Err(CallError::Abi(format!("\"{ABI}\" is no address of memory"))),
        }
    }

    fn arguments(
        &mut self,
        args: &[Option<&[u8]>],
        memory: Option<Memory>,
    ) -> Result<Vec<Val>, CallError> {
        let version = match memory {
            Some(memory) => self.version(memory)?,
            None => 1,
        };
        let mut values = Vec::with_capacity(args.len());
        for (arg, passing) in args.iter().zip(&self.code.args) {
            values.push(match (arg, memory) {
                (None, _) => Val::I64(abi::pack(-1, 0)),
                (Some(bytes), Some(memory)) if *passing == Passing::Memory => {
                    let address = self.allocate(bytes.len(), version, memory)?;
                    let size = i32::try_from(bytes.len()).unwrap_or(i32::MAX);
                    let at = usize::try_from(address).unwrap_or(usize::MAX);
                    memory.write(&mut self.store, at, bytes).map_err(|_| {
                        CallError::Abi(format!("{MALLOC} gave an address that is not in memory"))
                    })?;
                    Val::I64(abi::pack(size, address))
                }
                (Some(bytes), _) => passing.to_wasm(bytes).ok_or_else(|| {
                    CallError::Abi(format!("{} bytes are no number", bytes.len()))
                })?,
            });
        }
        Ok(values)
    }

    fn allocate(&mut self, bytes: usize, version: u8, memory: Memory) -> Result<u32, CallError> {
        let too_large =
            || CallError::Trap(format!("arguments of {bytes} bytes do not fit its memory"));
        if version == 1 {
            let at = memory.data_size(&self.store);
            let pages = (bytes as u64).div_ceil(PAGE);
            memory.grow(&mut self.store, pages).map_err(|_| too_large())?;
            return u32::try_from(at).map_err(|_| too_large());
        }
        let Some(malloc) = self.instance.get_func(&self.store, MALLOC) else {
            return Err(CallError::Abi(format!("version 2 of the ABI needs \"{MALLOC}\"")));
        };
        let size = i32::try_from(bytes).map_err(|_| too_large())?;
        let mut out = [Val::I32(0)];
        self.run(malloc, &[Val::I32(size)], &mut out)?;
        let [address] = out;
        match address.i32() {
            Some(address) if address != 0 || bytes == 0 => Ok(address as u32),
            _ => Err(too_large()),
        }
    }

    /// The value at a packed size and address; null has a size below 0.
    fn read(&self, memory: Memory, packed: i64) -> Result<Option<Vec<u8>>, CallError> {
        let (size, address) = abi::unpack(packed);
        let Ok(size) = usize::try_from(size) else { return Ok(None) };
        let start = usize::try_from(address).unwrap_or(usize::MAX);
        let data = memory.data(&self.store);
        let bytes = start.checked_add(size).and_then(|end| data.get(start..end));
        match bytes {
            Some(bytes) => Ok(Some(bytes.to_vec())),
            None => Err(CallError::Abi(format!(
                "it returned {size} bytes at {address}, which are not in its memory"
            ))),
        }
    }
}
