#!/usr/bin/env bash
# Runs the Rust suite (crate scylla) against $HELENUS_HOST:$HELENUS_PORT; prints "N passed, N failed".
#   run.sh [NAME]...   only the tests whose name contains NAME
# With PREPARE_ONLY set it only fetches and builds what it needs.
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
[ -z "${PREPARE_ONLY:-}" ] || exit 0
echo "rust (scylla):"
exec "$CARGO_TARGET_DIR/debug/drivers-rust" "$@"
