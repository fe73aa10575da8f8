#!/usr/bin/env bash
# Runs the Node suite (cassandra-driver) against $HELENUS_HOST:$HELENUS_PORT; prints "N passed, N failed".
# With PREPARE_ONLY set it only fetches and builds what it needs.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=${DRIVERS_WORK:-$here/../../../target/drivers}
mkdir -p "$work/node"
work=$(cd "$work/node" && pwd)
stamp=$work/package.installed
if ! cat "$here/package.json" "$here/package-lock.json" | cmp -s - "$stamp"; then
  cp "$here/package.json" "$here/package-lock.json" "$work/"
  (cd "$work" && npm ci --silent --no-audit --no-fund)
  cat "$here/package.json" "$here/package-lock.json" > "$stamp"
fi
[ -z "${PREPARE_ONLY:-}" ] || exit 0
echo "node (cassandra-driver):"
status=0
NODE_PATH=$work/node_modules node --test --test-concurrency=1 --test-reporter=tap \
  "$here"/*.test.js > "$work/output" 2>&1 || status=1
passed=$(sed -n 's/^# pass //p' "$work/output" | tail -1)
failed=$(sed -n 's/^# fail //p' "$work/output" | tail -1)
if [ $status -ne 0 ] || [ "${passed:-0}" -eq 0 ]; then
  status=1
  # A suite that does not load has no count.
  [ "${failed:-0}" -gt 0 ] || failed=1
  grep -vE '^ *(ok |# Subtest|---|\.\.\.|duration_ms|type:)' "$work/output" || true
fi
echo "${passed:-0} passed, ${failed:-0} failed"
exit $status
