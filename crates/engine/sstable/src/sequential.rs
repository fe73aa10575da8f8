//! Reading a file from its start to its end, beside the cache.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use rt::Buf;

use crate::Result;
use crate::block::Chunk;
use crate::meta::BlockFile;
use crate::reader::SstableReader;

/// Bytes per request of a sequential read.
pub const SEQUENTIAL_BYTES: usize = 256 * 1024;

/// Blocks that a [`SequentialReader`] has in memory: a reader that continues after its end need not
/// read them again.
#[derive(Default)]
pub struct ReadAhead {
    /// Data read by the last requests, each directly after the one before; `start` is the first
    /// one's position. All but the last are of [`SEQUENTIAL_BYTES`].
    runs: Vec<Buf>,
    start: u64,
    /// The last block of the index: that of one range is most often that of the next one too.
    index: Option<(u64, Rc<Chunk>)>,
}

impl ReadAhead {
    /// The bytes of an offset, when they are in memory: `joined` has them where two runs have a
    /// part each.
    fn get<'a>(&'a self, offset: u64, length: usize, joined: &'a mut Vec<u8>) -> Option<&'a [u8]> {
        let skip = usize::try_from(offset.checked_sub(self.start)?).ok()?;
        let number = (skip / SEQUENTIAL_BYTES).min(self.runs.len().saturating_sub(1));
        let run = self.runs.get(number)?.as_slice().get(skip - number * SEQUENTIAL_BYTES..)?;
        if let Some(bytes) = run.get(..length) {
            return Some(bytes);
        }
        let next = self.runs.get(number + 1)?.as_slice().get(..length - run.len())?;
        joined.clear();
        joined.extend_from_slice(run);
        joined.extend_from_slice(next);
        Some(joined)
    }
}

/// Loads blocks for one pass over the file. See [`SstableReader::sequential`].
pub struct SequentialReader {
    reader: SstableReader,
    ahead: ReadAhead,
    /// Most requests that are made at once.
    together: usize,
    /// The last block of Data: a cursor requests it again to get more of it.
    last: Option<(u64, Rc<Chunk>)>,
    /// A block that lies in two runs; reused.
    joined: Vec<u8>,
}

impl SequentialReader {
    pub(crate) fn new(reader: SstableReader, ahead: ReadAhead) -> SequentialReader {
        SequentialReader { reader, ahead, together: 1, last: None, joined: Vec::new() }
    }

    /// Submits this many requests at once, each of [`SEQUENTIAL_BYTES`]: they share the kernel's
    /// cost beside their bytes. As many buffers are kept.
    pub fn in_batches_of(mut self, requests: usize) -> SequentialReader {
        self.together = requests.max(1);
        self
    }

    /// Like [`SstableReader::load_block`]; Data is read ahead in whole requests.
    ///
    /// # Errors
    /// `Corrupt`, `Io`.
    pub async fn load_block(&mut self, block: u64) -> Result<Rc<Chunk>> {
        if let Some((last, chunk)) = &self.last
            && *last == block
        {
            return Ok(chunk.clone());
        }
        self.reader.check_readable()?;
        let meta = self.reader.meta.clone();
        let location = meta.locate(block).ok_or_else(|| self.reader.no_block(block))?;
        if location.file != BlockFile::Data {
            if let Some((last, chunk)) = &self.ahead.index
                && *last == block
            {
                return Ok(chunk.clone());
            }
            let chunk = self.reader.load_block(block).await?;
            self.ahead.index = Some((block, chunk.clone()));
            return Ok(chunk);
        }
        let (offset, length) = (location.offset, location.length);
        if self.ahead.get(offset, length, &mut self.joined).is_none() {
            self.read(offset, length).await?;
        }
        let raw = self.ahead.get(offset, length, &mut self.joined).unwrap_or(&[]);
        let chunk = Rc::new(meta.decode_block(block, raw)?);
        self.last = Some((block, chunk.clone()));
        Ok(chunk)
    }

    /// Reads `length` bytes from a block's offset on.
    async fn read(&mut self, offset: u64, length: usize) -> Result<()> {
        // Aligned for direct IO; a block may begin in the middle of a run.
        let start = offset - offset % 4096;
        let skip = usize::try_from(offset - start).unwrap_or(0);
        let first = SEQUENTIAL_BYTES.max((skip + length).next_multiple_of(4096));
        let together = if first == SEQUENTIAL_BYTES { self.together } else { 1 };
        let end = self.reader.meta.data_file_length();
        let mut free = std::mem::take(&mut self.ahead.runs).into_iter();
        let mut requests = Vec::with_capacity(together);
        let mut at = start;
        for _ in 0..together {
            let left = usize::try_from(end.saturating_sub(at)).unwrap_or(usize::MAX);
            if left == 0 && !requests.is_empty() {
                break;
            }
            let data = self.reader.data.clone();
            let buf = free.next().unwrap_or_default();
            let from = at;
            requests.push(async move { data.read_at(buf, from, first.min(left)).await });
            at += first as u64;
        }
        self.ahead.start = start;
        for (mut buf, result) in all(requests).await {
            let read = result?;
            buf.resize(read);
            self.ahead.runs.push(buf);
            if read < SEQUENTIAL_BYTES {
                break;
            }
        }
        Ok(())
    }

    /// Returns the blocks of the file that are in memory.
    pub fn into_ahead(self) -> ReadAhead {
        self.ahead
    }
}

/// A future, and its result.
struct Waiting<F: Future> {
    future: Pin<Box<F>>,
    result: Option<F::Output>,
}

/// The results of futures that run concurrently, in their order.
async fn all<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let waiting = |future| Waiting { future: Box::pin(future), result: None };
    let mut all: Vec<Waiting<F>> = futures.into_iter().map(waiting).collect();
    std::future::poll_fn(|cx| {
        let mut are_done = true;
        for waiting in all.iter_mut().filter(|waiting| waiting.result.is_none()) {
            match waiting.future.as_mut().poll(cx) {
                Poll::Ready(value) => waiting.result = Some(value),
                Poll::Pending => are_done = false,
            }
        }
        if are_done { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    all.into_iter().filter_map(|waiting| waiting.result).collect()
}
