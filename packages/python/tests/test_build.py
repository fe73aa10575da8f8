"""build.py: what it refuses, and that its archives are what they say. A small program stands for the server."""

import base64
import hashlib
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

BUILD = Path(__file__).parents[2] / "build.py"
PROGRAM = "/bin/sh"


def build(package, out, *, binary=PROGRAM, expect=0):
    run = subprocess.run([sys.executable, "-B", str(BUILD), package, "--binary", str(binary), "--out", str(out)],
                         capture_output=True, text=True, check=False)
    assert run.returncode == expect, run.stderr
    return Path(run.stdout.strip()) if expect == 0 else run.stderr


def test_a_wheel_lists_its_files_with_their_hashes_and_the_server_is_executable(tmp_path):
    path = build("python", tmp_path)
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        [record] = [name for name in names if name.endswith("/RECORD")]
        rows = [row.split(",") for row in archive.read(record).decode().splitlines()]
        assert sorted(row[0] for row in rows) == sorted(names)
        for name, digest, size in rows:
            if name == record:
                continue
            data = archive.read(name)
            found = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            assert (digest, size) == (f"sha256={found}", str(len(data))), name
        assert archive.getinfo("helenus/bin/helenus").external_attr >> 16 == 0o100755
        [wheel] = [name for name in names if name.endswith("/WHEEL")]
        assert f"Tag: {path.stem.split('-', 2)[2]}\n" in archive.read(wheel).decode()
        assert b"@VERSION@" not in archive.read("helenus/__init__.py")


def test_equal_inputs_give_equal_bytes(tmp_path):
    for package in ("python", "node"):
        one, other = build(package, tmp_path / "one"), build(package, tmp_path / "other")
        assert one.name == other.name and one.read_bytes() == other.read_bytes()


def test_an_npm_package_has_the_server_and_the_version(tmp_path):
    with tarfile.open(build("node", tmp_path)) as archive:
        manifest = json.load(archive.extractfile("package/package.json"))
        assert manifest["version"] in archive.name and manifest["cpu"] in (["x64"], ["arm64"])
        assert archive.getmember("package/bin/helenus").mode == 0o755
        for name in (manifest["main"], manifest["types"], manifest["bin"]["helenus"], "supervise.sh"):
            archive.getmember(f"package/{name}")


def test_a_program_that_a_tag_cannot_describe_is_refused(tmp_path):
    assert "is missing" in build("python", tmp_path, binary=tmp_path / "none", expect=1)
    # A program that is linked to a library that is not one of every machine's.
    name = b"libc.so.6\0"
    data = Path(os.path.realpath(PROGRAM)).read_bytes()
    assert data.count(name) == 1
    other = tmp_path / "other"
    other.write_bytes(data.replace(name, b"libz.so.6\0"))
    assert "needs libz.so.6" in build("python", tmp_path, binary=other, expect=1)
    # Another processor: the machine of the ELF header.
    other.write_bytes(data[:18] + b"\x08\0" + data[20:])
    refused = subprocess.run([sys.executable, "-B", "-c",
                              "import build, sys; build.needs(open(sys.argv[1], 'rb').read())", str(other)],
                             cwd=BUILD.parent, capture_output=True, text=True, check=False)
    assert "processor 8 of ELF" in refused.stderr


