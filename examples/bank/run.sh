#!/usr/bin/env bash
# A bank on lightweight transactions: transfers under load and faults, then every account is checked.
#   run.sh [--faults all] [--seconds N] [--choice zipfian] [--nodes 6 --dcs 2]...   all options: run.sh --help
# Everything that is installed or written goes below target/bank (or $BANK_WORK). $BANK_HELENUS names
# the program; without it the release build is brought up to date.
# With PREPARE_ONLY set it only fetches and builds what it needs.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
mkdir -p "${BANK_WORK:=$root/target/bank}"
BANK_WORK=$(cd "$BANK_WORK" && pwd)
venv=$BANK_WORK/venv
if ! cmp -s "$here/requirements.txt" "$venv/requirements.installed"; then
  echo "installing the driver (once)" >&2
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$here/requirements.txt"
  cp "$here/requirements.txt" "$venv/requirements.installed"
fi
[ -z "${PREPARE_ONLY:-}" ] || exit 0
if [ -z "${BANK_HELENUS:-}" ]; then
  cargo build --release --quiet --manifest-path "$root/Cargo.toml" --package helenus
  BANK_HELENUS=$root/target/release/helenus
fi
export BANK_WORK BANK_HELENUS
exec "$venv/bin/python" -B "$here/main.py" "$@"
