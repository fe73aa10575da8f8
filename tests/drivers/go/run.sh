#!/usr/bin/env bash
# Runs the Go suite (gocql) against $HELENUS_HOST:$HELENUS_PORT; prints "N passed, N failed".
#   run.sh [arguments of go test]...   for example: -run TestPaging
# With PREPARE_ONLY set it only fetches and builds what it needs.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=${DRIVERS_WORK:-$here/../../../target/drivers}
mkdir -p "$work/go"
work=$(cd "$work/go" && pwd)
export GOMODCACHE=$work/modules GOCACHE=$work/cache GOFLAGS=-modcacherw
cd "$here"
if [ -n "${PREPARE_ONLY:-}" ]; then
  go test -vet=off -c -o /dev/null .
  exit 0
fi
echo "go (gocql):"
status=0
go test -v -count=1 -vet=off -timeout 300s "$@" ./... > "$work/output" 2>&1 || status=1
passed=$(grep -cE '^ *--- PASS: ' "$work/output" || true)
failed=$(grep -cE '^ *--- FAIL: ' "$work/output" || true)
if [ $status -ne 0 ] || [ "$passed" -eq 0 ]; then
  status=1
  # A build error, a panic or a time-out has no line of its own.
  [ "$failed" -gt 0 ] || failed=1
  grep -vE '^ *(=== |--- PASS)' "$work/output" || true
fi
echo "$passed passed, $failed failed"
exit $status
