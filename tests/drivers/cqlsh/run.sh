#!/usr/bin/env bash
# Runs the cqlsh suite against $HELENUS_HOST:$HELENUS_PORT; prints "N passed, N failed".
# With PREPARE_ONLY set it only fetches and builds what it needs.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=${DRIVERS_WORK:-$here/../../../target/drivers}
venv=$work/cqlsh
stamp=$venv/requirements.installed
if ! cmp -s "$here/requirements.txt" "$stamp"; then
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$here/requirements.txt"
  cp "$here/requirements.txt" "$stamp"
fi
[ -z "${PREPARE_ONLY:-}" ] || exit 0
echo "cqlsh:"
CQLSH="$venv/bin/cqlsh" "$venv/bin/python" -B -m pytest -q -p no:cacheprovider --tb=short --no-header \
  "$here/test_cqlsh.py"
