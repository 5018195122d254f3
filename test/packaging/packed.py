"""The packages of a build for other machines, and a recipe to test them."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

SOURCE = pathlib.Path(__file__).resolve().parents[2]

RECIPE = """device: cpu
model: {config: {model_type: llama, hidden_size: 32, intermediate_size: 64, num_hidden_layers: 2, num_attention_heads: 2,
  num_key_value_heads: 2, vocab_size: 64, max_position_embeddings: 32}}
distributed: {strategy: ddp}
dataset: {_target_: mock, vocab_size: 64, seq_length: 16, num_samples: 64}
step_scheduler: {global_batch_size: 4, local_batch_size: 2, max_steps: 4, num_epochs: null}
checkpoint: {checkpoint_dir: run}
"""


def pack(build, folder):
    """The wheel and the archive."""
    said = subprocess.run([SOURCE / "scripts/package.sh", build, folder], text=True, capture_output=True)
    assert said.returncode == 0, said.stdout + said.stderr
    print(said.stdout, end="")
    return next(folder.glob("automodel-*.whl")), next(folder.glob("*.tar.gz"))


def libtorch(build):
    """The folder `torch` of the LibTorch that the build links."""
    cache = (build / "CMakeCache.txt").read_text()
    found = re.search(r"^Torch_DIR:\w+=(.*)$|^LIBTORCH_ROOT:\w+=(.*)$|^LIBTORCH_LIBRARY\w*:\w+=(.*)$|^TORCH_\w+:FILEPATH=(.*)$", cache, re.M)
    worker = subprocess.run(["ldd", build / "bin/automodel-worker"], text=True, capture_output=True, check=True).stdout
    place = re.search(r"libtorch_cpu\.so => (\S+)", worker)
    return pathlib.Path(place.group(1) if place else found.group(1)).resolve().parents[1]


def link_tree(origin, target):
    """Hard links if possible: a symbolic link would lead through a home folder that other users cannot read."""
    target.parent.mkdir(parents=True, exist_ok=True)
    same_disk = origin.stat().st_dev == target.parent.stat().st_dev
    shutil.copytree(origin, target, copy_function=os.link if same_disk else shutil.copy2)


def torch_wheel(build, folder):
    """A stand-in for PyPI's wheel of torch (0.5 GB, and 2.5 GB of CUDA libraries): the build's LibTorch for a CPU."""
    torch = libtorch(build)
    version = re.search(r"^torch==(\S+)", (SOURCE / "third_party/pip.txt").read_text(), re.M).group(1)
    files = [path for path in sorted((torch / "lib").iterdir()) if path.name.split(".so")[0] in ("libtorch_cpu", "libc10", "libgomp", "libtorch")]
    files += sorted((torch.parent / "nvidia").rglob("*.so*"))
    info = f"torch-{version}.dist-info"
    written = {"torch/version.py": f"__version__ = '{version}'\n", f"{info}/METADATA": f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n",
               f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: false\nTag: py3-none-any\n"}
    names = [str(path.relative_to(torch.parent)) for path in files] + list(written) + [f"{info}/RECORD"]
    with zipfile.ZipFile(folder / f"torch-{version}-py3-none-any.whl", "w") as wheel:
        for path in files:
            wheel.write(path.resolve(), path.relative_to(torch.parent))
        for name, text in written.items():
            wheel.writestr(name, text)
        wheel.writestr(f"{info}/RECORD", "".join(f"{name},,\n" for name in names))


def fetch_wheels(folder, *requirements):
    """Why they are not available; empty if they are."""
    words = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--dest", folder, "--only-binary=:all:",
             "--python-version", "3.11", *requirements]
    done = subprocess.run(words, text=True, capture_output=True)
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["no reason given"])[-1]
