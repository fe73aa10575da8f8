#!/usr/bin/env bash
# Runs the Rust suite (crate scylla) against $HELENUS_HOST:$HELENUS_PORT; prints "N passed, N failed".
#   run.sh [NAME]...   only the tests whose name contains NAME
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=${DRIVERS_WORK:-$here/../../../target/drivers}
mkdir -p "$work/rust"
CARGO_TARGET_DIR=$(cd "$work/rust" && pwd)
export CARGO_TARGET_DIR
# An outer cargo's flags would build everything again.
unset RUSTFLAGS CARGO_ENCODED_RUSTFLAGS CARGO_BUILD_TARGET
cd "$here"
cargo build --quiet --locked
echo "rust (scylla):"
exec "$CARGO_TARGET_DIR/debug/drivers-rust" "$@"
