#!/usr/bin/env bash
# Tests the packages that start a node for a test run: python, node, rust; all of them, even when one
# fails. With PREPARE_ONLY set it only fetches what they need.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
status=0
for package in python node rust; do
  "$here/$package/run.sh" || { echo "packages/$package/run.sh failed"; status=1; }
done
exit $status
