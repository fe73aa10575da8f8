#!/usr/bin/env bash
# Three nodes as processes of this machine, driven by cassandra-driver and nodetool; see README.md.
#   run.sh [HELENUS [three] [leaving] [faults] [datacenters] [upkeep] [encryption] [six] [upgrade]
#   [namespaces] [namespaces-drivers]]
# The program is by default $HELENUS_BIN, then target/debug/helenus; the names choose parts.
# Needs python3 with venv, and 127.0.0.1 to 127.0.0.6 with the ports 7000, 9042, 10000 and 19042
# free; for drivers under faults also Go, a JDK with Maven, and Rust. Ends with "N passed, N failed"; exit
# status 0 only when nothing failed.
# With PREPARE_ONLY set it only fetches and builds what it needs.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
target=$(cd "$here/../.." && pwd)/target
work=$target/tests/cluster
mkdir -p "$work"
venv=$work/venv

# The load of each driver; what they need is shared with tests/drivers.
build_loads() {
  local drivers=$target/drivers
  mkdir -p "$drivers/go" "$drivers/java" "$drivers/rust"
  (cd "$here/go" && GOMODCACHE=$drivers/go/modules GOCACHE=$drivers/go/cache GOFLAGS=-modcacherw \
    go build -o "$work/load-go" .)
  local pom=$here/../drivers/java/pom.xml
  if ! cmp -s "$pom" "$drivers/java/pom.installed"; then
    rm -rf "$drivers/java/lib"
    mvn --batch-mode --quiet --file "$pom" \
      org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies \
      -DoutputDirectory="$drivers/java/lib" -DincludeScope=runtime
    cp "$pom" "$drivers/java/pom.installed"
  fi
  rm -rf "$work/java"
  javac -Xlint:all,-processing,-classfile -Werror --release 17 -encoding UTF-8 -d "$work/java" \
    -cp "$drivers/java/lib/*" "$here"/java/load/*.java
  # An outer cargo's flags would build everything again.
  (cd "$here/rust" && unset RUSTFLAGS CARGO_ENCODED_RUSTFLAGS CARGO_BUILD_TARGET &&
    CARGO_TARGET_DIR=$drivers/rust cargo build --quiet --locked)
}

if ! cmp -s "$here/requirements.txt" "$venv/requirements.installed"; then
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$here/requirements.txt"
  cp "$here/requirements.txt" "$venv/requirements.installed"
fi
if [ -n "${PREPARE_ONLY:-}" ]; then
  build_loads
  exit 0
fi
helenus=${1:-${HELENUS_BIN:-$target/debug/helenus}}
[ -x "$helenus" ] || { echo "$helenus is not there; build it with: cargo build" >&2; exit 2; }
if [ $# -lt 2 ] || [[ " ${*:2} " =~ \ (faults|six|upgrade|namespaces-drivers)\  ]]; then
  build_loads
fi
exec "$venv/bin/python" -B "$here/main.py" "$helenus" "$work" "${@:2}"
