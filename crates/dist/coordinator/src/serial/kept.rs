//! A few numbers that a shard keeps in a small file, and reads those of all shards at the next start.
//!
//! File `<directory>/<shard>`: a line that names the kind and its version, a line `<name> <number>` for
//! each number, `crc32 <of the lines before>`.

use rt::Rt;
use stdx::{IoError, IoErrorKind};

const BYTES_MAX: usize = 256;

/// A kind of such files.
pub(super) struct Kept<const N: usize> {
    /// The first line.
    pub(super) title: &'static str,
    /// What its numbers are called.
    pub(super) names: [&'static str; N],
    /// What to do about a damaged one.
    pub(super) advice: &'static str,
}

impl<const N: usize> Kept<N> {
    /// Those of all shards that have run here, in no order; none when there is no directory.
    ///
    /// # Errors
    /// One cannot be read, or is damaged.
    pub(super) async fn load(&self, rt: &Rt, directory: &str) -> Result<Vec<[u64; N]>, IoError> {
        let entries = match rt.fs().read_dir(directory).await {
            Ok(entries) => entries,
            Err(error) if error.kind == IoErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut all = Vec::new();
        for name in entries.into_iter().map(|entry| entry.name) {
            // What was being written when the node ended counts for nothing.
            if name.parse::<u16>().is_err() {
                continue;
            }
            let path = format!("{directory}/{name}");
            let found = rt.fs().read(&path, BYTES_MAX).await?;
            let Some(numbers) = self.decode(&found) else {
                let detail = format!("it is damaged; {}", self.advice);
                return Err(IoError { kind: IoErrorKind::Device, operation: "read", path, detail });
            };
            all.push(numbers);
        }
        Ok(all)
    }

    /// Writes this shard's, durably.
    ///
    /// # Errors
    /// It may be the one before or the new one.
    pub(super) async fn store(
        &self,
        rt: &Rt,
        directory: &str,
        numbers: [u64; N],
    ) -> Result<(), IoError> {
        rt.fs().create_dir_durably(directory).await?;
        let path = format!("{directory}/{}", rt.shard().0);
        rt.fs().write_atomic(&path, self.encode(numbers)).await
    }

    fn encode(&self, numbers: [u64; N]) -> Vec<u8> {
        let mut body = format!("{}\n", self.title);
        for (name, number) in self.names.iter().zip(numbers) {
            body.push_str(&format!("{name} {number}\n"));
        }
        let crc = codec::crc32(body.as_bytes());
        format!("{body}crc32 {crc:08x}\n").into_bytes()
    }

    fn decode(&self, bytes: &[u8]) -> Option<[u64; N]> {
        let text = std::str::from_utf8(bytes).ok()?;
        let mut lines = text.strip_prefix(self.title)?.strip_prefix('\n')?.lines();
        let mut numbers = [0; N];
        for (number, name) in numbers.iter_mut().zip(self.names) {
            *number = lines.next()?.strip_prefix(name)?.strip_prefix(' ')?.parse().ok()?;
        }
        (self.encode(numbers) == bytes).then_some(numbers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_and_damaged_ones_do_not() {
        let kept = Kept { title: "helenus test 1", names: ["one", "two"], advice: "" };
        let bytes = kept.encode([1_700_000_000_000_001, 7]);
        assert_eq!(kept.decode(&bytes), Some([1_700_000_000_000_001, 7]));
        for at in 0..bytes.len() {
            assert_eq!(kept.decode(&bytes[..at]), None, "cut at {at}");
            let mut bad = bytes.clone();
            bad[at] ^= 1;
            assert_eq!(kept.decode(&bad), None, "flip at {at}");
        }
    }
}
