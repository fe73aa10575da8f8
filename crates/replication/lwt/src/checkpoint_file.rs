//! A few numbers that a shard persists in a small file; a start reads those of all shards.
//!
//! File `<directory>/<shard>` in the envelope of small files (`docs/formats/small-files.md`): a line
//! `<name> <number>` for each number.

use codec::SmallForm;
use rt::{Rt, SmallContent, damaged};
use stdx::{IoError, IoErrorKind};

const BYTES_MAX: usize = 512;

/// A kind of such files.
pub(crate) struct Kept<const N: usize> {
    /// Its envelope.
    pub(crate) form: SmallForm,
    /// The first line of the form before, without the envelope.
    pub(crate) old_title: &'static str,
    /// Names of its numbers.
    pub(crate) names: [&'static str; N],
    /// The remedy for a damaged file.
    pub(crate) advice: &'static str,
}

impl<const N: usize> Kept<N> {
    /// The numbers of all shards that have run here, in no order, and whether this shard's are among them.
    ///
    /// # Errors
    /// One cannot be read, or is damaged.
    pub(crate) async fn load(
        &self,
        rt: &Rt,
        directory: &str,
    ) -> Result<(Vec<[u64; N]>, bool), IoError> {
        let entries = match rt.fs().read_dir(directory).await {
            Ok(entries) => entries,
            Err(error) if error.kind == IoErrorKind::NotFound => return Ok((Vec::new(), false)),
            Err(error) => return Err(error),
        };
        let (mut all, mut has_own) = (Vec::new(), false);
        for name in entries.into_iter().map(|entry| entry.name) {
            // Temporary files of an interrupted write are ignored.
            let Ok(shard) = name.parse::<u16>() else { continue };
            let path = format!("{directory}/{name}");
            let numbers = match rt.fs().read_small(self.form, &path, BYTES_MAX).await {
                Ok(SmallContent::Body(body)) => self.decode(&body),
                Ok(SmallContent::Legacy(bytes)) => self.decode_old(&bytes),
                Ok(SmallContent::Missing) => continue,
                Err(error) if error.kind == IoErrorKind::Damaged => None,
                Err(error) => return Err(error),
            };
            has_own |= shard == rt.shard().0;
            all.push(numbers.ok_or_else(|| damaged(&path, self.advice))?);
        }
        Ok((all, has_own))
    }

    /// Persists this shard's numbers.
    ///
    /// # Errors
    /// The file may have the old or the new numbers.
    pub(crate) async fn store(
        &self,
        rt: &Rt,
        directory: &str,
        numbers: [u64; N],
    ) -> Result<(), IoError> {
        rt.fs().create_dir_durably(directory).await?;
        let path = format!("{directory}/{}", rt.shard().0);
        rt.fs().write_small(self.form, &path, &self.encode(numbers)).await
    }

    pub(crate) fn encode(&self, numbers: [u64; N]) -> Vec<u8> {
        let lines = self.names.iter().zip(numbers).map(|(name, n)| format!("{name} {n}\n"));
        lines.collect::<String>().into_bytes()
    }

    fn decode(&self, body: &[u8]) -> Option<[u64; N]> {
        let mut lines = std::str::from_utf8(body).ok()?.lines();
        let mut numbers = [0; N];
        for (number, name) in numbers.iter_mut().zip(self.names) {
            *number = lines.next()?.strip_prefix(name)?.strip_prefix(' ')?.parse().ok()?;
        }
        (self.encode(numbers) == body).then_some(numbers)
    }

    /// A file of an earlier release: its title, the numbers, `crc32 <of the lines before>`.
    fn decode_old(&self, bytes: &[u8]) -> Option<[u64; N]> {
        let text = std::str::from_utf8(bytes).ok()?;
        let (body, _) = text.split_at_checked(text.rfind("crc32 ")?)?;
        let numbers =
            self.decode(body.strip_prefix(self.old_title)?.strip_prefix('\n')?.as_bytes())?;
        let crc = codec::crc32(body.as_bytes());
        (text == format!("{body}crc32 {crc:08x}\n")).then_some(numbers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_also_from_the_form_before_and_damaged_ones_do_not() {
        let form = SmallForm { kind: "test", version: 2 };
        let old_title = "helenus test 1";
        let kept = Kept { form, old_title, names: ["one", "two"], advice: "" };
        let numbers = [1_700_000_000_000_001, 7];
        assert_eq!(kept.decode(&kept.encode(numbers)), Some(numbers));
        let old = b"helenus test 1\none 1700000000000001\ntwo 7\n";
        let old = [&old[..], format!("crc32 {:08x}\n", codec::crc32(old)).as_bytes()].concat();
        assert_eq!(kept.decode_old(&old), Some(numbers));
        for at in 0..old.len() {
            assert_eq!(kept.decode_old(&old[..at]), None, "cut at {at}");
            let mut bad = old.clone();
            bad[at] ^= 1;
            assert_eq!(kept.decode_old(&bad), None, "flip at {at}");
            assert_eq!(kept.decode(&bad), None);
        }
    }
}
