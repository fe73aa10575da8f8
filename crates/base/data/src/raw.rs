//! LEB128 and fixed little-endian integers of the packed form; every read is checked.

/// Cursor over packed bytes; each read is `None` when the bytes run out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Raw<'a> {
    bytes: &'a [u8],
}

impl<'a> Raw<'a> {
    #[inline]
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Raw { bytes }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    #[inline]
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    #[inline]
    pub(crate) fn bytes(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.bytes.split_at_checked(n)?;
        self.bytes = tail;
        Some(head)
    }

    #[inline]
    pub(crate) fn u8(&mut self) -> Option<u8> {
        let (first, tail) = self.bytes.split_first()?;
        self.bytes = tail;
        Some(*first)
    }

    #[inline]
    pub(crate) fn u32(&mut self) -> Option<u32> {
        let (head, tail) = self.bytes.split_first_chunk::<4>()?;
        self.bytes = tail;
        Some(u32::from_le_bytes(*head))
    }

    #[inline]
    pub(crate) fn i64(&mut self) -> Option<i64> {
        let (head, tail) = self.bytes.split_first_chunk::<8>()?;
        self.bytes = tail;
        Some(i64::from_le_bytes(*head))
    }

    /// LEB128, at most ten bytes.
    #[inline]
    pub(crate) fn v(&mut self) -> Option<u64> {
        let first = self.u8()?;
        if first < 0x80 {
            return Some(u64::from(first));
        }
        let mut value = u64::from(first & 0x7f);
        for shift in (7..64).step_by(7) {
            let byte = self.u8()?;
            let part = u64::from(byte & 0x7f);
            if shift == 63 && part > 1 {
                return None;
            }
            value |= part << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    /// Zigzag LEB128.
    #[inline]
    pub(crate) fn z(&mut self) -> Option<i64> {
        let v = self.v()?;
        Some(((v >> 1) as i64) ^ -((v & 1) as i64))
    }

    /// Length, then that many bytes.
    #[inline]
    pub(crate) fn sized(&mut self) -> Option<&'a [u8]> {
        let n = usize::try_from(self.v()?).ok()?;
        self.bytes(n)
    }
}

#[inline]
pub(crate) fn put_v(out: &mut Vec<u8>, mut v: u64) {
    while v >= 0x80 {
        out.push((v as u8) | 0x80);
        v >>= 7;
    }
    out.push(v as u8);
}

#[inline]
pub(crate) fn put_z(out: &mut Vec<u8>, v: i64) {
    put_v(out, ((v << 1) ^ (v >> 63)) as u64);
}
