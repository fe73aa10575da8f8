#!/bin/sh
# Exports histories of conditional writes from the simulator, good and spoilt ones, and has porcupine
# judge them too. Needs Go and the simulator built (target/debug/sim).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
"${SIM:-$root/target/debug/sim}" export "$out"
cd "$here"
go run . "$out"
