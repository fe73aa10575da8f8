#!/bin/sh
# Exports histories of conditional writes from the simulator, good and spoilt ones, and has porcupine
# judge them too. Needs Go and the simulator built (target/debug/sim).
# With PREPARE_ONLY set it only fetches and builds what it needs.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
if [ -n "${PREPARE_ONLY:-}" ]; then
  cd "$here"
  go build -o /dev/null .
  exit 0
fi
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
"${SIM:-$root/target/debug/sim}" export "$out"
cd "$here"
go run . "$out"
