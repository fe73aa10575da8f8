#!/usr/bin/env bash
# Runs the Java suite (driver 4) against $HELENUS_HOST:$HELENUS_PORT; prints "N passed, N failed".
#   run.sh [NAME]...   only the tests whose name contains NAME
# With PREPARE_ONLY set it only fetches and builds what it needs.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=${DRIVERS_WORK:-$here/../../../target/drivers}
mkdir -p "$work/java"
work=$(cd "$work/java" && pwd)
if ! cmp -s "$here/pom.xml" "$work/pom.installed"; then
  rm -rf "$work/lib"
  mvn --batch-mode --quiet --file "$here/pom.xml" \
    org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies \
    -DoutputDirectory="$work/lib" -DincludeScope=runtime
  cp "$here/pom.xml" "$work/pom.installed"
fi
rm -rf "$work/classes"
javac -Xlint:all,-processing,-classfile -Werror --release 17 -encoding UTF-8 -d "$work/classes" -cp "$work/lib/*" "$here"/src/suite/*.java
[ -z "${PREPARE_ONLY:-}" ] || exit 0
echo "java (java-driver-core):"
exec java -Xmx512m -XX:+UseSerialGC -Dfile.encoding=UTF-8 -cp "$work/classes:$work/lib/*" suite.Main "$@"
