#!/usr/bin/env bash
# Runs a corpus of statements through Cassandra's cqlsh and `helenus cqlsh` against
# $HELENUS_HOST:$HELENUS_PORT and compares what they print; prints "N passed, N failed".
# With PREPARE_ONLY set it only fetches and builds what it needs.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
work=${DRIVERS_WORK:-$root/target/drivers}
venv=$work/cqlsh
stamp=$venv/requirements.installed
if ! cmp -s "$here/../cqlsh/requirements.txt" "$stamp"; then
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$here/../cqlsh/requirements.txt"
  cp "$here/../cqlsh/requirements.txt" "$stamp"
fi
[ -z "${PREPARE_ONLY:-}" ] || exit 0
echo "helenus cqlsh beside cqlsh:"
export CQLSH="$venv/bin/cqlsh"
export HELENUS_CQLSH="${HELENUS_CQLSH:-${HELENUS_BIN:-$root/target/debug/helenus} cqlsh}"
"$venv/bin/python" -B "$here/interrupt.py"
"$venv/bin/python" -B "$here/tls.py"
"$venv/bin/python" -B "$here/options.py"
exec "$venv/bin/python" -B "$here/compare.py"
