#!/usr/bin/env bash
# Runs the tests of the crate helenus-test with the server in $HELENUS_BIN.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
[ -z "${PREPARE_ONLY:-}" ] || exit 0
echo "crate helenus-test:"
cd "$root"
HELENUS_BIN=${HELENUS_BIN:-$root/target/debug/helenus} \
  exec "${CARGO:-cargo}" test --quiet -p helenus-test --features server --test node
