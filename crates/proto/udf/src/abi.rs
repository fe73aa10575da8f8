//! How CQL values are WebAssembly values.
//!
//! Numbers and booleans of a function that is not called on null input are native numbers. All other
//! values go through linear memory in their serialised form, as one 64-bit number: the size in the
//! upper half, the address in the lower one; null has size -1. In version 1 the memory grows by what
//! arguments need; in version 2 the module gives memory by `_scylla_malloc`. The version stands in
//! memory at the address that the exported global `_scylla_abi` has.

use types::CqlType;
use wasmi::{F32, F64, Val, ValType};

/// Global with the address of the version.
pub const ABI: &str = "_scylla_abi";
/// Gives memory for arguments in version 2.
pub const MALLOC: &str = "_scylla_malloc";
/// Takes memory back in version 2.
pub const FREE: &str = "_scylla_free";

/// Passing of values of one type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passing {
    /// `bigint` as i64.
    I64,
    /// `boolean` as i32.
    Bool,
    /// `int` as i32.
    I32,
    /// `smallint` as i32.
    I16,
    /// `tinyint` as i32.
    I8,
    /// `float` as f32.
    F32,
    /// `double` as f64.
    F64,
    /// Through memory, as size and address.
    Memory,
}

impl Passing {
    /// How values of a type are passed to functions that are not called with null.
    pub fn of(ty: &CqlType) -> Passing {
        match ty {
            CqlType::Bigint => Passing::I64,
            CqlType::Boolean => Passing::Bool,
            CqlType::Int => Passing::I32,
            CqlType::Smallint => Passing::I16,
            CqlType::Tinyint => Passing::I8,
            CqlType::Float => Passing::F32,
            CqlType::Double => Passing::F64,
            _ => Passing::Memory,
        }
    }

    /// The WebAssembly type.
    pub fn wasm(self) -> ValType {
        match self {
            Passing::I64 | Passing::Memory => ValType::I64,
            Passing::Bool | Passing::I32 | Passing::I16 | Passing::I8 => ValType::I32,
            Passing::F32 => ValType::F32,
            Passing::F64 => ValType::F64,
        }
    }

    /// A serialised value as a native number; `None` when it is no number, or goes through memory.
    pub fn to_wasm(self, bytes: &[u8]) -> Option<Val> {
        Some(match self {
            Passing::Memory => return None,
            Passing::I64 => Val::I64(i64::from_be_bytes(bytes.try_into().ok()?)),
            Passing::Bool => Val::I32(i32::from(*bytes.first()? != 0)),
            Passing::I32 => Val::I32(i32::from_be_bytes(bytes.try_into().ok()?)),
            Passing::I16 => Val::I32(i32::from(i16::from_be_bytes(bytes.try_into().ok()?))),
            Passing::I8 => Val::I32(i32::from(i8::from_be_bytes(bytes.try_into().ok()?))),
            Passing::F32 => Val::F32(F32::from_bits(u32::from_be_bytes(bytes.try_into().ok()?))),
            Passing::F64 => Val::F64(F64::from_bits(u64::from_be_bytes(bytes.try_into().ok()?))),
        })
    }

    /// A native number as a serialised value. Numbers beyond the range of `smallint` and `tinyint`
    /// lose their upper bits. `None` for what goes through memory.
    pub fn from_wasm(self, value: &Val) -> Option<Vec<u8>> {
        Some(match self {
            Passing::Memory => return None,
            Passing::I64 => value.i64()?.to_be_bytes().to_vec(),
            Passing::Bool => vec![u8::from(value.i32()? != 0)],
            Passing::I32 => value.i32()?.to_be_bytes().to_vec(),
            Passing::I16 => (value.i32()? as i16).to_be_bytes().to_vec(),
            Passing::I8 => (value.i32()? as i8).to_be_bytes().to_vec(),
            Passing::F32 => value.f32()?.to_bits().to_be_bytes().to_vec(),
            Passing::F64 => value.f64()?.to_bits().to_be_bytes().to_vec(),
        })
    }
}

/// Size and address in one number.
pub fn pack(size: i32, address: u32) -> i64 {
    i64::from(size) << 32 | i64::from(address)
}

/// Size and address of [`pack`].
pub fn unpack(value: i64) -> (i32, u32) {
    ((value >> 32) as i32, value as u32)
}
