#!/usr/bin/env bash
# The authorization matrix of a real Cassandra against the golden file of this repository (matrix.txt).
#   CASSANDRA_PEER   a script that starts and stops a Cassandra 5.0 (start, stop, wipe), with PEER_YAML as a file of
#                    lines for its cassandra.yaml and PEER_PORT as its port
#   DRIVERS_WORK     directory of the Python environment, default target/drivers
# Without CASSANDRA_PEER: MATRIX_HOST and MATRIX_PORT name a server that asks for passwords, with the superuser
# cassandra/cassandra and without caches of roles and permissions. Exit status 0 only without unknown differences.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
venv=${DRIVERS_WORK:-$root/target/drivers}/python-cassandra
wanted=$root/tests/drivers/python/requirements-cassandra.txt
if ! cmp -s "$wanted" "$venv/requirements.installed"; then
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$wanted"
  cp "$wanted" "$venv/requirements.installed"
fi
if [ -n "${CASSANDRA_PEER:-}" ]; then
  yaml=$(mktemp)
  cat > "$yaml" <<E
authenticator: PasswordAuthenticator
authorizer: CassandraAuthorizer
permissions_validity: 0ms
roles_validity: 0ms
E
  export PEER_YAML=$yaml
  "$CASSANDRA_PEER" start
  trap '"$CASSANDRA_PEER" stop; rm -f "$yaml"' EXIT
  MATRIX_PORT=${PEER_PORT:-9042}
fi
"$venv/bin/python" -B "$here/matrix.py" "${MATRIX_HOST:-127.0.0.1}" "${MATRIX_PORT:-9042}" "$here/matrix.txt"
