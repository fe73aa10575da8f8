#!/usr/bin/env bash
# TLS from outside: drivers of five languages, two shells, keytool, openssl and nodetool against servers of this script.
#   run.sh [PHASE]...   only these phases; see main.py
#   HELENUS_BIN     the program, default target/debug/helenus
#   CASSANDRA_PEER  a script that starts and stops a Cassandra 5.0 (start, stop, wipe, nodetool), with PEER_YAML as a file
#                   of lines for its cassandra.yaml and PEER_PORT as its port: the cases run against that one instead
# Needs openssl, python3 with venv, a JDK with Maven, Go, Node, Rust, ports 21600 to 21619 of 127.0.0.1. Ends with
# "N passed, N failed"; exit status 0 only when nothing failed.
# With PREPARE_ONLY set it only fetches and builds what it needs.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
export DRIVERS_WORK=${DRIVERS_WORK:-$root/target/drivers}
mkdir -p "$DRIVERS_WORK"
DRIVERS_WORK=$(cd "$DRIVERS_WORK" && pwd)
for driver in python java node cqlsh; do
  PREPARE_ONLY=1 bash "$here/../drivers/$driver/run.sh"
done
javac -Xlint:all,-processing,-classfile -Werror --release 17 -encoding UTF-8 -d "$DRIVERS_WORK/tls-java" \
  -cp "$DRIVERS_WORK/java/lib/*" "$here"/java/probe/*.java
(cd "$here/go" && GOMODCACHE=$DRIVERS_WORK/go/modules GOCACHE=$DRIVERS_WORK/go/cache GOFLAGS=-modcacherw \
  go build -o "$DRIVERS_WORK/tls-go" .)
# An outer cargo's flags would build everything again.
(cd "$here/rust" && unset RUSTFLAGS CARGO_ENCODED_RUSTFLAGS CARGO_BUILD_TARGET &&
  CARGO_TARGET_DIR=$DRIVERS_WORK/rust cargo build --quiet --locked)
[ -z "${PREPARE_ONLY:-}" ] || exit 0
work=${TLS_WORK:-$root/target/tests/tls}
exec python3 -B "$here/main.py" "${HELENUS_BIN:-$root/target/debug/helenus}" "$work" "$DRIVERS_WORK" "$@"
