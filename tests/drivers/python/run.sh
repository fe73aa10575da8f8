#!/usr/bin/env bash
# Runs the Python suite against $HELENUS_HOST:$HELENUS_PORT, once per driver.
#   run.sh [cassandra|scylla]...   default: both
# Prints one line "N passed, N failed" per driver; exit status 0 only when nothing failed.
# With PREPARE_ONLY set it only fetches and builds what it needs.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=${DRIVERS_WORK:-$here/../../../target/drivers}
[ $# -gt 0 ] || set -- cassandra scylla
status=0
for driver in "$@"; do
  venv=$work/python-$driver
  stamp=$venv/requirements.installed
  if ! cmp -s "$here/requirements-$driver.txt" "$stamp"; then
    rm -rf "$venv"
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$here/requirements-$driver.txt"
    cp "$here/requirements-$driver.txt" "$stamp"
  fi
  [ -z "${PREPARE_ONLY:-}" ] || continue
  echo "python ($driver-driver):"
  "$venv/bin/python" -B -m pytest -q -p no:cacheprovider --tb=short --no-header \
    "$here/test_driver.py" "$here/test_cqlengine.py" "$here/test_indexes.py" "$here/test_local_indexes.py" "$here/test_like.py" "$here/test_vectors.py" || status=1
done
exit $status
