#!/usr/bin/env bash
# Builds the wheel around $HELENUS_BIN, installs it into a virtual environment, runs its tests and the
# example with it. Exit status 0 only when nothing failed.
# With PREPARE_ONLY set it only fetches the driver and pytest.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
work=${DRIVERS_WORK:-$root/target/drivers}/wheel
stamp=$work/venv/requirements.installed
if ! cmp -s "$here/requirements-test.txt" "$stamp"; then
  rm -rf "$work/venv"
  python3 -m venv "$work/venv"
  "$work/venv/bin/pip" install --quiet --disable-pip-version-check -r "$here/requirements-test.txt"
  cp "$here/requirements-test.txt" "$stamp"
fi
[ -z "${PREPARE_ONLY:-}" ] || exit 0
rm -rf "$work/out"
wheel=$("$here/../build.py" python --fast --out "$work/out" \
  --binary "${HELENUS_BIN:-$root/target/debug/helenus}")
"$work/venv/bin/pip" install --quiet --disable-pip-version-check --no-index --no-deps \
  --force-reinstall --no-compile "$wheel"
export EXAMPLE=$here/example
echo "wheel ($(basename "$wheel")):"
cd "$work"
exec "$work/venv/bin/python" -B -m pytest -q -p no:cacheprovider --tb=short --no-header "$here/tests"
