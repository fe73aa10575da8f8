#!/usr/bin/env bash
# Three nodes as processes of this machine, driven by cassandra-driver and nodetool; see README.md.
#   run.sh [HELENUS [three] [leaving]]
# The program is by default $HELENUS_BIN, then target/debug/helenus; the names choose parts.
# Needs python3 with venv, and 127.0.0.1 to 127.0.0.4 with the ports 7000, 9042, 10000 and 19042
# free. Ends with "N passed, N failed"; exit status 0 only when nothing failed.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
target=$(cd "$here/../.." && pwd)/target
work=$target/tests/cluster
mkdir -p "$work"
venv=$work/venv
if ! cmp -s "$here/requirements.txt" "$venv/requirements.installed"; then
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$here/requirements.txt"
  cp "$here/requirements.txt" "$venv/requirements.installed"
fi
helenus=${1:-${HELENUS_BIN:-$target/debug/helenus}}
[ -x "$helenus" ] || { echo "$helenus is not there; build it with: cargo build" >&2; exit 2; }
exec "$venv/bin/python" -B "$here/cluster.py" "$helenus" "$work" "${@:2}"
