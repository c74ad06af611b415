"""Builds the wheel: the package, with libalibi.so, alibi.h and the recipes inside.

pip calls build_wheel(), as PEP 517 says. A wheel is a zip file with a list of its files, so nothing
but Python is needed, and `pip install ./python` downloads no build tools.

    python3 backend.py FOLDER           writes the wheel there

The library is built with CMake in build/release of the source tree around this folder.
ALIBI_BUILD names another build folder, whose library is taken as it is.
"""
from __future__ import annotations

import base64
import hashlib
import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
TREE = HERE.parent


def _version() -> str:
    found = re.search(r"project\(alibi VERSION ([0-9.]+)", (TREE / "CMakeLists.txt").read_text())
    if not found:
        raise SystemExit(f"'{TREE}/CMakeLists.txt' has no version of the project")
    return found[1]


def _metadata() -> str:
    return (
        "Metadata-Version: 2.1\n"
        "Name: alibi\n"
        f"Version: {_version()}\n"
        "Summary: Train language models short, test them long\n"
        "Requires-Python: >=3.9\n"
        "Requires-Dist: numpy\n"
    )


def _libraries() -> list[Path]:
    """The library, and the GPU backend that it loads from its own folder if that was built."""
    given = os.environ.get("ALIBI_BUILD")
    folder = Path(given) if given else TREE / "build" / "release"
    if not given:
        for command in (
            ["cmake", "--preset", "release"],
            ["cmake", "--build", "--preset", "release", "--target", "alibi_shared"],
        ):
            subprocess.run(command, cwd=TREE, check=True, stdout=sys.stderr)
    library = folder / "libalibi.so"
    if not library.exists():
        raise SystemExit(f"there is no library '{library}': ALIBI_BUILD must name a build folder")
    cuda = folder / "libalibi_cuda.so"
    return [library, cuda] if cuda.exists() else [library]


def _tag() -> str:
    return "py3-none-" + re.sub(r"[^A-Za-z0-9]", "_", sysconfig.get_platform())


def _hash(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None) -> str:
    files = {
        f"alibi/{path.name}": path.read_bytes()
        for path in sorted((HERE / "alibi").iterdir())
        if path.suffix == ".py" or path.name == "py.typed"
    }
    files["alibi/alibi.h"] = (TREE / "include" / "alibi.h").read_bytes()
    for path in sorted((TREE / "recipes").glob("*.json")):
        files[f"alibi/recipes/{path.name}"] = path.read_bytes()
    for library in _libraries():
        files[f"alibi/{library.name}"] = library.read_bytes()
    info = f"alibi-{_version()}.dist-info"
    files[f"{info}/METADATA"] = _metadata().encode()
    files[f"{info}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: alibi\nRoot-Is-Purelib: false\nTag: {_tag()}\n"
    ).encode()
    files[f"{info}/licenses/LICENSE"] = (TREE / "LICENSE").read_bytes()
    record = [f"{name},sha256={_hash(data)},{len(data)}" for name, data in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,", ""]).encode()
    name = f"alibi-{_version()}-{_tag()}.whl"
    with zipfile.ZipFile(Path(wheel_directory, name), "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, data in files.items():
            wheel.writestr(path, data)
    return name


def build_sdist(sdist_directory, config_settings=None) -> str:
    raise SystemExit("the package has no source archive of its own: it is part of alibi's sources")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: python3 backend.py FOLDER")
    os.makedirs(sys.argv[1], exist_ok=True)
    print(Path(sys.argv[1], build_wheel(sys.argv[1])))
