#!/usr/bin/env bash
# Reads files of Helenus with CQLite; see README.md here.
#   HELENUS_BIN    the program, default target/debug/helenus
# Needs python3, Rust, ports 9642 and 10642 of 127.0.0.1. Ends with "N passed, N failed".
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
target=$(cd "$here/../.." && pwd)/target
work=$target/tests/cqlite
mkdir -p "$work"
# An outer cargo's flags would build everything again.
(cd "$here/cqlite" && unset RUSTFLAGS CARGO_ENCODED_RUSTFLAGS CARGO_BUILD_TARGET &&
  CARGO_TARGET_DIR=$work/target cargo build --quiet --locked)
exec python3 -B "$here/cqlite.py" "${HELENUS_BIN:-$target/debug/helenus}" \
  "$work/target/debug/files-cqlite" "$work/nodes"
