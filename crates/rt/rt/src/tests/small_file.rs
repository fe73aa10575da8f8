//! Small durable files on both worlds.

use super::*;
use crate::SmallContent;
use codec::SmallForm;
use stdx::IoErrorKind;

const FORM: SmallForm = SmallForm { kind: "test", version: 1 };

async fn what_is_there(rt: Rt) {
    let fs = rt.fs();
    fs.create_dir_all("d").await.unwrap();
    let read = |max| {
        let fs = rt.fs();
        async move { fs.read_small(FORM, "d/f", max).await }
    };
    assert_eq!(read(100).await, Ok(SmallContent::Missing));
    fs.write_small(FORM, "d/f", b"body").await.unwrap();
    assert_eq!(read(100).await, Ok(SmallContent::Body(b"body".to_vec())));
    let error = read(10).await.unwrap_err();
    assert_eq!(error.kind, IoErrorKind::Damaged);
    let mut bytes = FORM.encode(b"body");
    bytes[20] ^= 1;
    fs.write_atomic("d/f", bytes).await.unwrap();
    let error = read(100).await.unwrap_err();
    assert_eq!(error.kind, IoErrorKind::Damaged);
    assert!(error.to_string().contains("d/f") && error.to_string().contains("checksum"), "{error}");
    for old in [&b""[..], b"7\n"] {
        fs.write_atomic("d/f", old.to_vec()).await.unwrap();
        assert_eq!(read(100).await, Ok(SmallContent::Legacy(old.to_vec())));
    }
}

#[test]
fn a_small_file_reads_back_and_a_damaged_one_is_named() {
    natively(IoBackend::Threads, 1, main_of(|rt| Box::pin(what_is_there(rt))));
    simulated(1, 1, main_of(|rt| Box::pin(what_is_there(rt))));
}
