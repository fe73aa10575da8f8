#!/usr/bin/env python3
"""Builds the packages that carry the server: a wheel and an npm package, below target/packages.

    packages/build.py python|node [--binary PATH] [--out DIRECTORY] [--fast]

Without --binary the server is built first (cargo build --profile dist). --fast leaves the archive
uncompressed, for tests. Nothing is downloaded; equal inputs give equal bytes.
"""

from __future__ import annotations

import argparse
import base64
import gzip
import hashlib
import io
import json
import platform
import re
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent

#: Libraries that a manylinux wheel may expect on the machine, of those that a Rust program may need.
SYSTEM_LIBRARIES = re.compile(
    r"(libc|libm|libdl|librt|libpthread|libgcc_s|ld-linux[-a-z0-9_]*)\.so\.\d+$"
)


class Refused(Exception):
    """The package cannot be built; the message says why."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("package", choices=["python", "node"])
    parser.add_argument("--binary", type=Path, help="a built server")
    parser.add_argument("--out", type=Path, default=ROOT / "target/packages")
    parser.add_argument("--fast", action="store_true", help="do not compress")
    arguments = parser.parse_args()
    try:
        binary = arguments.binary or build_server()
        build = {"python": wheel, "node": npm_package}[arguments.package]
        with tempfile.TemporaryDirectory() as work:
            server = stripped(binary, Path(work))
            arguments.out.mkdir(parents=True, exist_ok=True)
            print(build(server, arguments.out, arguments.fast))
    except Refused as error:
        print(f"build.py: {error}", file=sys.stderr)
        return 1
    return 0


def build_server() -> Path:
    command = ["cargo", "build", "--profile", "dist", "--bin", "helenus"]
    if subprocess.run(command, cwd=ROOT, check=False).returncode != 0:
        raise Refused("cargo build failed")
    return ROOT / "target/dist/helenus"


def stripped(binary: Path, work: Path) -> bytes:
    """Returns the server without symbols, which are four fifths of it."""
    if not binary.is_file():
        raise Refused(f"{binary} is missing")
    if shutil.which("strip") is None:
        raise Refused("strip is missing; install binutils")
    to = work / "helenus"
    subprocess.run(["strip", "-s", "-o", str(to), str(binary)], check=True)
    return to.read_bytes()


def version() -> str:
    text = (ROOT / "Cargo.toml").read_text(encoding="utf-8")
    found = re.search(r'^\[workspace\.package\]\nversion = "([^"]+)"', text, re.MULTILINE)
    if found is None:
        raise Refused("Cargo.toml has no version of the workspace")
    return found.group(1)


def legal() -> dict[str, bytes]:
    return {name: (ROOT / name).read_bytes() for name in ("LICENSE", "NOTICE")}


# The wheel.


def wheel(server: bytes, out: Path, fast: bool) -> Path:
    machine, glibc = needs(server)
    number = version()
    tag = f"py3-none-manylinux_{glibc[0]}_{glibc[1]}_{machine}"
    info = f"helenus-{number}.dist-info"
    source = HERE / "python/helenus"
    files: dict[str, tuple[bytes, int]] = {}
    for path in sorted(source.iterdir()):
        if path.suffix == ".py" or path.name == "py.typed":
            text = path.read_bytes().replace(b"@VERSION@", number.encode())
            files[f"helenus/{path.name}"] = (text, 0o644)
    files["helenus/supervise.sh"] = ((HERE / "supervise.sh").read_bytes(), 0o644)
    files["helenus/bin/helenus"] = (server, 0o755)
    readme = (HERE / "python/README.md").read_text(encoding="utf-8")
    files[f"{info}/METADATA"] = (metadata(number, readme).encode(), 0o644)
    generator = f"Wheel-Version: 1.0\nGenerator: helenus\nRoot-Is-Purelib: false\nTag: {tag}\n"
    files[f"{info}/WHEEL"] = (generator.encode(), 0o644)
    points = (
        "[console_scripts]\nhelenus = helenus.__main__:main\n\n"
        "[pytest11]\nhelenus = helenus.pytest_plugin\n"
    )
    files[f"{info}/entry_points.txt"] = (points.encode(), 0o644)
    for name, text in legal().items():
        files[f"{info}/licenses/{name}"] = (text, 0o644)
    record = "".join(
        f"{name},sha256={digest(data)},{len(data)}\n" for name, (data, _) in files.items()
    )
    files[f"{info}/RECORD"] = (f"{record}{info}/RECORD,,\n".encode(), 0o644)
    path = out / f"helenus-{number}-{tag}.whl"
    method = zipfile.ZIP_STORED if fast else zipfile.ZIP_DEFLATED
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, (data, mode) in files.items():
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.compress_type = method
            # A plain file with its mode, as Unix has them.
            entry.external_attr = (0o100000 | mode) << 16
            archive.writestr(entry, data)
    return path


def metadata(number: str, readme: str) -> str:
    return (
        "Metadata-Version: 2.4\n"
        "Name: helenus\n"
        f"Version: {number}\n"
        "Summary: A database that speaks Cassandra's protocol, started for a test run\n"
        "License-Expression: Apache-2.0\n"
        "License-File: LICENSE\n"
        "License-File: NOTICE\n"
        "Requires-Python: >=3.9\n"
        "Classifier: Framework :: Pytest\n"
        "Classifier: Operating System :: POSIX :: Linux\n"
        "Description-Content-Type: text/markdown\n"
        f"\n{readme}"
    )


def digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


# The npm package.


def npm_package(server: bytes, out: Path, fast: bool) -> Path:
    machine, _ = needs(server)
    number = version()
    source = HERE / "node"
    manifest = json.loads((source / "package.json").read_text(encoding="utf-8"))
    manifest["version"] = number
    manifest["cpu"] = [{"x86_64": "x64", "aarch64": "arm64"}[machine]]
    files: dict[str, tuple[bytes, int]] = {
        "package.json": ((json.dumps(manifest, indent=2) + "\n").encode(), 0o644)
    }
    for name in ("index.js", "index.d.ts", "cli.js", "README.md"):
        mode = 0o755 if name == "cli.js" else 0o644
        files[name] = ((source / name).read_bytes(), mode)
    files["supervise.sh"] = ((HERE / "supervise.sh").read_bytes(), 0o644)
    files["bin/helenus"] = (server, 0o755)
    for name, text in legal().items():
        files[name] = (text, 0o644)
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, (data, mode) in files.items():
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size, entry.mode = len(data), mode
            archive.addfile(entry, io.BytesIO(data))
    path = out / f"helenus-{number}.tgz"
    path.write_bytes(gzip.compress(raw.getvalue(), 0 if fast else 9, mtime=0))
    return path


# What the server needs of the machine.


def needs(server: bytes) -> tuple[str, tuple[int, int]]:
    """Returns the processor of an ELF program and the version of glibc that it needs."""
    if server[:6] != b"\x7fELF\x02\x01":
        raise Refused("the server is no 64-bit little-endian ELF program")
    number = struct.unpack_from("<H", server, 18)[0]
    machine = {62: "x86_64", 183: "aarch64"}.get(number)
    if machine is None:
        raise Refused(f"the server is for the processor {number} of ELF, not x86_64 or aarch64")
    for library in needed_libraries(server):
        if not SYSTEM_LIBRARIES.match(library):
            raise Refused(f"the server needs {library}, which a machine may not have")
    found = [
        tuple(map(int, name.removeprefix("GLIBC_").split(".")[:2]))
        for name in needed_versions(server)
        if name.startswith("GLIBC_2.")
    ]
    if not found:
        raise Refused("the server does not need glibc: its platform has no tag here")
    return machine, max(found)


def sections(server: bytes, kind: int) -> list[tuple[int, int, int, int]]:
    """Returns offset, size, entries and offset of the texts of the ELF sections of a kind."""
    start, _, count = struct.unpack_from("<Q10xHH", server, 40)
    # name, type, flags, address, offset, size, link, information, alignment, size of an entry
    table = [struct.unpack_from("<IIQQQQIIQQ", server, start + 64 * n) for n in range(count)]
    return [(s[4], s[5], s[7], table[s[6]][4]) for s in table if s[1] == kind]


def text_at(server: bytes, offset: int) -> str:
    return server[offset : server.index(b"\0", offset)].decode()


def needed_libraries(server: bytes) -> list[str]:
    """Returns the libraries that the program is linked to: DT_NEEDED in SHT_DYNAMIC."""
    return [
        text_at(server, texts + value)
        for offset, size, _, texts in sections(server, 6)
        for tag, value in struct.iter_unpack("<qQ", server[offset : offset + size])
        if tag == 1
    ]


def needed_versions(server: bytes) -> list[str]:
    """Returns the versions of the symbols that the program needs: SHT_GNU_verneed."""
    names = []
    for library, _, libraries, texts in sections(server, 0x6FFFFFFE):
        for _ in range(libraries):
            _, entries, _, first, following = struct.unpack_from("<HHIII", server, library)
            entry = library + first
            for _ in range(entries):
                _, _, _, name, next_entry = struct.unpack_from("<IHHII", server, entry)
                names.append(text_at(server, texts + name))
                entry += next_entry
            library += following
    return names


if __name__ == "__main__":
    sys.exit(main())
