//! Fuzz targets: plain functions over bytes that must never panic.

use crate::damage::background_verify;
use crate::files::table_files::{Transaction, decode_record, encode_record};
use crate::files::{index_marks, marks, scan_list};
use crate::tables::damage::Damage;

/// Records of a compaction and of an ingest.
pub fn fuzz_transaction(data: &[u8]) {
    let _ = Transaction::decode(data);
    if let Some(files) = decode_record(data) {
        let again = decode_record(&encode_record(&files));
        stdx::invariant!(again.as_ref() == Some(&files), "a record comes back");
    }
}

/// Small files in the directories of tables.
pub fn fuzz_mark(data: &[u8]) {
    const SHARDS: u16 = 2;
    let damage = marks::body_of(marks::DAMAGED, data);
    if let Some(damage) = damage.ok().and_then(|body| Damage::of_lines(&body, SHARDS)) {
        let again = marks::body_of(marks::DAMAGED, &damage.encode(SHARDS));
        let again = again.ok().and_then(|body| Damage::of_lines(&body, SHARDS));
        // A reason is one line.
        let again = again.map(|damage| damage.encode(SHARDS));
        stdx::invariant!(again == Some(damage.encode(SHARDS)), "a mark comes back");
    }
    let times = marks::body_of(marks::VERIFIED, data);
    if let Some(times) = times.ok().and_then(|body| background_verify::of_lines(&body)) {
        let again = marks::body_of(marks::VERIFIED, &background_verify::encode(&times));
        let again = again.ok().and_then(|body| background_verify::of_lines(&body));
        stdx::invariant!(again.as_ref() == Some(&times), "times come back");
    }
    let looked = marks::body_of(marks::LOOKED, data);
    if let Some(looked) = looked.ok().and_then(|body| scan_list::of_lines(&body)) {
        let again = marks::body_of(marks::LOOKED, &scan_list::encode(&looked));
        let again = again.ok().and_then(|body| scan_list::of_lines(&body));
        stdx::invariant!(again.as_ref() == Some(&looked), "a list comes back");
    }
    let built = marks::body_of(marks::INDEXED, data);
    if let Some(built) = built.ok().and_then(|body| index_marks::of_lines(&body)) {
        let again = marks::body_of(marks::INDEXED, &index_marks::encode(&built));
        let again = again.ok().and_then(|body| index_marks::of_lines(&body));
        stdx::invariant!(again.as_ref() == Some(&built), "a list of indexes comes back");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn earlier(text: &str) -> Vec<u8> {
        codec::seal_text(text.to_owned())
    }

    #[test]
    fn marks_of_any_bytes_never_panic() {
        let damage = Damage { found: 5, salvaged: Some(7), reason: "a reason".to_owned() };
        let corpus = [
            damage.encode(2),
            marks::VERIFIED.encode(b"3 5\n9 -1\n"),
            marks::LOOKED.encode(b"looked 3\nwaits 4\n"),
            marks::INDEXED.encode(b"built 00000000-0000-0000-0000-000000000010\n"),
            earlier("helenus-damaged 1\nshards 2\nfound 5\nreason x\n"),
            earlier("helenus-verified 1\n3 5\n"),
            earlier("helenus-looked 1\nlooked 3\n"),
        ];
        testkit::mutate(corpus, fuzz_mark);
        // Bodies whose checksum is right.
        let built = "built 00000000-0000-0000-0000-000000000010\n";
        let bodies = ["shards 2\nfound 5\nsalvaged 3\nreason x\n", "3 5\n", "waits 3\n", built];
        testkit::Mutations::of(bodies).letters(b"0123456789- \n").run(|body| {
            for form in [marks::DAMAGED, marks::VERIFIED, marks::LOOKED, marks::INDEXED] {
                fuzz_mark(&form.encode(body));
            }
        });
    }

    #[test]
    fn records_of_any_bytes_never_panic() {
        let corpus = [
            earlier("helenus-txn 1\nslice 0 of 2\nremove 3\nrelease 4\n"),
            earlier("helenus-ingest 1\nadd 3\nadd 4 da\n"),
        ];
        testkit::mutate(corpus, fuzz_transaction);
        let bodies = ["slice 0 of 2\nremove 3\nrelease 4\n", "add 3\nadd 4 da\n"];
        testkit::Mutations::of(bodies).letters(b"0123456789 \nreldmov").run(|body| {
            for head in ["helenus-txn 1\n", "helenus-ingest 1\n"] {
                let body = String::from_utf8_lossy(body);
                fuzz_transaction(&earlier(&format!("{head}{body}")));
            }
        });
    }

    #[test]
    fn marks_of_earlier_releases_are_read() {
        let body = |form, text: &str| marks::body_of(form, &earlier(text));
        let damaged = body(marks::DAMAGED, "helenus-damaged 1\nshards 2\nfound 5\nreason x\n");
        let damage = Damage { found: 5, salvaged: None, reason: "x".to_owned() };
        assert_eq!(Damage::of_lines(&damaged.unwrap(), 2), Some(damage));
        assert_eq!(body(marks::VERIFIED, "helenus-verified 1\n3 5\n").unwrap(), "3 5\n");
        assert_eq!(body(marks::LOOKED, "helenus-looked 1\nwaits 3\n").unwrap(), "waits 3\n");
        // A body of another kind, and an empty file.
        assert!(body(marks::LOOKED, "helenus-verified 1\n3 5\n").is_err());
        assert_eq!(marks::body_of(marks::LOOKED, b""), Err("it is empty".to_owned()));
    }
}
