#!/usr/bin/env bash
# Files between Helenus and a real Apache Cassandra 5.0.9, both ways; see README.md here.
#   HELENUS_BIN    the program, default target/debug/helenus
#   JAVA17_HOME    a JDK 17, default the one below /usr/lib/jvm
#   CASSANDRA_LIB  jars of Cassandra; default: fetched with Maven below target/tests/cassandra/lib
# Needs python3 with venv, Maven (unless the jars are there), a JDK 17, ports 19610 to 19629 of
# 127.0.0.1. Ends with "N passed, N failed"; exit status 0 only when nothing failed.
# With PREPARE_ONLY set it only fetches and builds what it needs.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
target=$(cd "$here/../.." && pwd)/target
work=$target/tests/files
mkdir -p "$work"

if [ -z "${JAVA17_HOME:-}" ]; then
  for home in /usr/lib/jvm/*17*; do
    [ -x "$home/bin/java" ] && JAVA17_HOME=$home && break
  done
fi
[ -x "${JAVA17_HOME:-}/bin/java" ] || { echo "no JDK 17; set JAVA17_HOME" >&2; exit 2; }
export JAVA17_HOME

if [ -z "${CASSANDRA_LIB:-}" ]; then
  CASSANDRA_LIB=$target/tests/cassandra/lib
  if [ -f "$target/perf/cassandra/lib/.complete" ]; then
    CASSANDRA_LIB=$target/perf/cassandra/lib
  elif [ ! -f "$CASSANDRA_LIB/.complete" ]; then
    JAVA_HOME=$JAVA17_HOME mvn -B -q -ntp -Dstyle.color=never -f "$here/pom.xml" \
      org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies \
      -DoutputDirectory="$CASSANDRA_LIB" -DincludeScope=runtime
    touch "$CASSANDRA_LIB/.complete"
  fi
fi
export CASSANDRA_LIB

venv=$work/venv
if ! cmp -s "$here/requirements.txt" "$venv/requirements.installed"; then
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$here/requirements.txt"
  cp "$here/requirements.txt" "$venv/requirements.installed"
fi

rm -rf "$work/classes"
"$JAVA17_HOME/bin/javac" -Xlint:all,-removal -Werror --release 17 -encoding UTF-8 -d "$work/classes" "$here"/java/*.java

[ -z "${PREPARE_ONLY:-}" ] || exit 0
export HELENUS_BIN=${HELENUS_BIN:-$target/debug/helenus}
[ -x "$HELENUS_BIN" ] || { echo "$HELENUS_BIN is not there; build it with: cargo build" >&2; exit 2; }
exec "$venv/bin/python" -B "$here/files.py" "$work" "$@"
