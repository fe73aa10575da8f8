#!/usr/bin/env bash
# Clients that ask for more than a node has, beside a light one that has to be served.
#   HELENUS_BIN  the program, default target/debug/helenus; times are meant for a release build
#   HOSTILE      arguments for hostile.py, such as "--only unread-12,unpaged"
# Needs python3 and ports 19500 to 19503 of 127.0.5.1. Exit status 0 only when every bound was kept.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
work=${HOSTILE_WORK:-$root/target/tests/hostile}
rm -rf "$work"
mkdir -p "$work"
# shellcheck disable=SC2086
exec python3 "$here/hostile.py" --server "${HELENUS_BIN:-$root/target/debug/helenus}" --workdir "$work" ${HOSTILE:-}
