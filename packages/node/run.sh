#!/usr/bin/env bash
# Builds the npm package around $HELENUS_BIN, installs it, runs its tests and the example with it;
# prints "N passed, N failed". With PREPARE_ONLY set it only fetches the driver and the compiler.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
work=${DRIVERS_WORK:-$root/target/drivers}/npm
mkdir -p "$work"
stamp=$work/package.installed
if ! cat "$here/test/package.json" "$here/test/package-lock.json" | cmp -s - "$stamp"; then
  cp "$here/test/package.json" "$here/test/package-lock.json" "$work/"
  (cd "$work" && npm ci --silent --no-audit --no-fund)
  cat "$here/test/package.json" "$here/test/package-lock.json" > "$stamp"
fi
[ -z "${PREPARE_ONLY:-}" ] || exit 0
rm -rf "$work/out" "$work/node_modules/helenus"
package=$("$here/../build.py" node --fast --out "$work/out" \
  --binary "${HELENUS_BIN:-$root/target/debug/helenus}")
(cd "$work" && npm install --silent --offline --no-save --no-audit --no-fund "$package")
echo "npm package ($(basename "$package")):"
status=0
EXAMPLE=$here/example/shop.test.js NODE_PATH=$work/node_modules \
  node --test --test-reporter=tap "$here/test/node.test.js" > "$work/output" 2>&1 || status=1
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
