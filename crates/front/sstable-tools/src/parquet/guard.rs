//! Panics of the crate `parquet` on a damaged file: it checks much, but trusts some lengths and
//! levels and panics when they are wrong.
//!
//! The caller cannot prevent this: to check everything is to rewrite the crate. Where panics unwind
//! they are caught. The shipped build aborts at a panic, so there the hook, which runs first,
//! reports the error and ends the tool as any other damaged file does. `write` therefore reads a
//! file to its end before it begins anything.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::{Arc, Once};

use tool_io::exit;

thread_local! {
    /// The file that this thread's crate `parquet` reads.
    static READING: RefCell<Option<Arc<str>>> = const { RefCell::new(None) };
}

/// Sets what the thread reads, and nothing when it is dropped.
struct Reading;

impl Reading {
    fn begin(path: &Arc<str>) -> Reading {
        READING.with(|reading| *reading.borrow_mut() = Some(path.clone()));
        Reading
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        READING.with(|reading| *reading.borrow_mut() = None);
    }
}

/// Runs a read of the file at `path`.
///
/// # Errors
/// Those of `read`, and a panic as damage of the file. After a panic, the state of `read` must not
/// be used any more.
pub(super) fn guarded<T>(
    path: &Arc<str>,
    read: impl FnOnce() -> Result<T, String>,
) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !told(info) {
                before(info);
            }
        }));
    });
    let reading = Reading::begin(path);
    let done = catch_unwind(AssertUnwindSafe(read));
    drop(reading);
    done.unwrap_or_else(|payload| {
        let what = payload.downcast_ref::<String>().map(String::as_str);
        Err(damaged(what.or_else(|| payload.downcast_ref::<&str>().copied())))
    })
}

/// Returns true if a panic is due to a file that is being read. It is then reported: here, at the
/// end of the tool, or by the code that catches it.
fn told(info: &PanicHookInfo<'_>) -> bool {
    let path = READING.with(|reading| reading.try_borrow().ok().and_then(|path| path.clone()));
    let Some(path) = path else { return false };
    if cfg!(panic = "abort") {
        complain_line!("helenus sstable: {path}: {}", damaged(info.payload_as_str()));
        std::process::exit(i32::from(exit::FAILED));
    }
    true
}

fn damaged(what: Option<&str>) -> String {
    format!("the file is damaged: {}", what.unwrap_or("levels or lengths that cannot be"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_of_the_crate_is_an_error_of_the_file_and_the_next_file_is_read() {
        let path: Arc<str> = "x.parquet".into();
        let of_index = guarded(&path, || Ok(Vec::<u8>::new()[path.len()]));
        let text = "index out of bounds: the len is 0 but the index is 9";
        assert_eq!(of_index, Err(format!("the file is damaged: {text}")));
        let plain = guarded::<()>(&path, || panic!("plain"));
        assert_eq!(plain, Err("the file is damaged: plain".to_owned()));
        assert!(READING.with(|reading| reading.borrow().is_none()));
        assert_eq!(guarded(&path, || Ok(5)), Ok(5));
        assert_eq!(guarded::<()>(&path, || Err("short".to_owned())), Err("short".to_owned()));
    }
}
