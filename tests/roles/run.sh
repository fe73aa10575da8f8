#!/usr/bin/env bash
# Roles, permissions and masks from outside: a server that asks for logins, the recorded cases of
# conformance/roles and the Python driver as limited roles.
#   HELENUS_BIN  the program, default target/debug/helenus
# Needs python3 with venv, target/debug/conformance, ports 19560 to 19563 of 127.0.0.1. Ends with
# "N passed, N failed"; exit status 0 only when nothing failed.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
work=$root/target/tests/roles
bin=${HELENUS_BIN:-$root/target/debug/helenus}
port=19560
rm -rf "$work/data"
mkdir -p "$work/data"

venv=${DRIVERS_WORK:-$root/target/drivers}/python-cassandra
wanted=$root/tests/drivers/python/requirements-cassandra.txt
if ! cmp -s "$wanted" "$venv/requirements.installed"; then
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$wanted"
  cp "$wanted" "$venv/requirements.installed"
fi

"$bin" server --workdir "$work/data" --native-transport-port "$port" \
  --native-shard-aware-transport-port $((port + 1)) --api-port $((port + 2)) \
  --storage-port $((port + 3)) --memory 512MiB --smp 2 --config "$root/conformance/roles/guardrails.yaml" \
  --authenticator PasswordAuthenticator --authorizer CassandraAuthorizer \
  --network-authorizer CassandraNetworkAuthorizer --dynamic-data-masking-enabled true --credentials-validity 600s \
  --cidr-authorizer '{class_name: CassandraCIDRAuthorizer, parameters: {cidr_authorizer_mode: ENFORCE}}' \
  > "$work/server.log" 2>&1 &
server=$!
trap 'kill "$server" 2> /dev/null || true; wait "$server" 2> /dev/null || true' EXIT
for _ in $(seq 300); do
  if (exec 3<> "/dev/tcp/127.0.0.1/$port") 2> /dev/null; then break; fi
  kill -0 "$server" 2> /dev/null || { cat "$work/server.log" >&2; exit 2; }
  sleep 0.1
done

status=0
"$root/target/debug/conformance" --target "127.0.0.1:$port" "$root/conformance/roles" || status=1
HELENUS_PORT=$port HELENUS_API_PORT=$((port + 2)) HELENUS_BIN=$bin "$venv/bin/python" -B -m pytest -q -p no:cacheprovider --tb=short --no-header \
  "$here/test_roles.py" || status=1
exit $status
