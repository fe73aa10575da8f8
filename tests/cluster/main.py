"""Runs the parts of this directory one after the other; see README.md."""

import sys
import time
import traceback

import cluster
import copying
import datacenters
import encryption
import faults
import namespaces
import upkeep

GROUPS = {
    "three": cluster.Test,
    "leaving": cluster.Leaving,
    "copying": copying.Copying,
    "faults": faults.Drivers,
    "datacenters": datacenters.Datacenters,
    "upkeep": upkeep.Upkeep,
    "encryption": encryption.Encryption,
    "six": faults.Six,
    "upgrade": faults.Upgrade,
    "namespaces": namespaces.Namespaces,
    "namespaces-drivers": namespaces.NamespaceDrivers,
}
# Only when they are named: they take long, or need rights, or another build.
OPTIONAL = ("six", "upgrade", "namespaces", "namespaces-drivers")


def run(test):
    """Its phases up to the first failure: they build on each other. Passed, failed, not run."""
    passed, failed = 0, 0
    test.nodes.clean()
    try:
        for phase in test.PHASES:
            name = phase.__name__.replace("_", " ")
            began = time.monotonic()
            try:
                phase(test)
            except Exception:
                failed += 1
                print(f"FAILED {name}")
                traceback.print_exc()
                break
            passed += 1
            print(f"ok     {name} ({time.monotonic() - began:.1f} s)", flush=True)
    finally:
        close = getattr(test, "close", None)
        if close:
            close()
        if test.connection:
            test.connection.cluster.shutdown()
        if not test.nodes.end():
            failed += 1
            print("FAILED stop")
    return passed, failed, len(test.PHASES) - min(passed + failed, len(test.PHASES))


def main():
    helenus, work = sys.argv[1], sys.argv[2]
    wanted = sys.argv[3:] or [name for name in GROUPS if name not in OPTIONAL]
    unknown = [name for name in wanted if name not in GROUPS]
    if unknown:
        sys.exit(f"no part {unknown[0]}; there are {', '.join(GROUPS)}")
    results = []
    for name in wanted:
        print(f"-- {name}", flush=True)
        why = namespaces.missing() if name.startswith("namespaces") else ""
        if name == "upgrade":
            why = faults.lacking_for_upgrade()
        if why:
            print(f"skipped: {why}")
            results.append((0, 0, 0))
            continue
        group = GROUPS[name]
        nodes = getattr(group, "Nodes", cluster.Nodes)(helenus, work, name)
        results.append(run(group(nodes)))
    passed, failed, left = (sum(column) for column in zip(*results))
    if left:
        print(f"{left} not run")
    print(f"{passed} passed, {failed} failed")
    return 0 if failed == 0 and left == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
