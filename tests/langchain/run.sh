#!/usr/bin/env bash
# Runs the stores of LangChain and CassIO, unchanged, against $HELENUS_HOST:$HELENUS_PORT; needs no keys and no model.
# Exit status 0 only when nothing failed. With PREPARE_ONLY set it only fetches packages (some 270 MB).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
venv=${DRIVERS_WORK:-$here/../../target/drivers}/langchain
stamp=$venv/requirements.installed
if ! cmp -s "$here/requirements.txt" "$stamp"; then
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$here/requirements.txt"
  cp "$here/requirements.txt" "$stamp"
fi
[ -z "${PREPARE_ONLY:-}" ] || exit 0
exec "$venv/bin/python" -B -m pytest -q -p no:cacheprovider --tb=short --no-header "$here"
