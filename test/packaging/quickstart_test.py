#!/usr/bin/env python3
"""What scripts/quickstart.sh builds and prints with and without a GPU: quickstart_test.py (stand-ins for the tools)"""
import os
import pathlib
import shutil
import subprocess
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parents[2]


def tool(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)


def quickstart(gpus, compiler):
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        for file in ("scripts/quickstart.sh", "scripts/cuda_tools.sh", "third_party/pip.txt"):
            (root / file).parent.mkdir(exist_ok=True)
            shutil.copy(SOURCE / file, root / file)
        note = f'echo "$(basename "$0") $*" >> {root}/calls\n'
        tool(root / "scripts/install_dependencies.sh", note)
        tool(root / "bin/cmake", note)
        tool(root / "bin/nvidia-smi", "".join(f"echo 'GPU {i}: NVIDIA H100 80GB HBM3 (UUID: GPU-{i})'\n" for i in range(gpus)))
        for preset in ("release", "cuda"):
            tool(root / f"build/{preset}/bin/automodel", f'echo "{preset} $*" >> {root}/calls\n')
        environment = {"PATH": f"{root}/bin:/usr/bin:/bin", "HOME": name, "CUDA_HOME": f"{root}/cuda", "NCCL_HOME": f"{root}/nccl"}
        if compiler:
            tool(root / "bin/nvcc", "")
            (root / "nccl/include").mkdir(parents=True)
            (root / "nccl/include/nccl.h").touch()
        done = subprocess.run([root / "scripts/quickstart.sh"], env=environment, text=True, capture_output=True)
        assert done.returncode == 0, done.stdout + done.stderr
        said = [line for line in done.stdout.splitlines() if line.startswith("quickstart: ")]
        assert len(said) == 1, done.stdout
        return said[0], (root / "calls").read_text()


said, calls = quickstart(0, True)
assert said == "quickstart: no NVIDIA GPU found; training on the CPU", said
assert "--preset release" in calls and "automodel_cuda" not in calls and "--device" not in calls and "--gpu" not in calls, calls

said, calls = quickstart(2, True)
assert "NVIDIA GPUs: 2; builds the CUDA half too" in said, said
assert "--preset cuda" in calls and "--target automodel automodel-worker automodel_cuda" in calls and "sh --gpu" in calls, calls
assert "cuda train recipes/quickstart.yaml --nproc-per-node 2 --device auto" in calls, calls

if not any(pathlib.Path(place, "include/nccl.h").exists() for place in ("/usr/local", "/usr")):  # otherwise NCCL is installed
    said, calls = quickstart(1, False)
    assert "nvcc or NCCL is missing; training on the CPU" in said and "--preset release" in calls, said + calls
print("quickstart: ok", os.fspath(SOURCE / "scripts/quickstart.sh"))
