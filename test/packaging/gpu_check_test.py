#!/usr/bin/env python3
"""scripts/gpu_check.sh with programs that fail, hang and pass: the other steps still run, and results are kept."""
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

SOURCE = pathlib.Path(__file__).resolve().parents[2]

with tempfile.TemporaryDirectory(prefix="automodel-check-") as name:
    place = pathlib.Path(name)
    bundle, tools, torch = place / "bundle", place / "tools", place / "torch"
    for folder in (bundle / "libexec", bundle / "bin", tools, torch / "lib"):
        folder.mkdir(parents=True)
    (torch / "lib/libtorch_cpu.so").touch()
    for script in ("gpu_check.sh", "gpu_table.py"):
        shutil.copy(SOURCE / "scripts" / script, bundle)
    (bundle / "torch_compiled.py").write_text("import sys\nsys.exit(1)\n")

    def program(path, text):
        path.write_text("#!/bin/sh\n" + text)
        path.chmod(0o755)

    program(bundle / "libexec/automodel-worker", "exit 0\n")
    program(bundle / "libexec/comm_bench", 'echo "bench $*"\n')
    program(tools / "mpirun", 'while [ "$1" != -np ]; do shift; done; export RANKS=$2; shift 2; exec "$@"\n')
    program(tools / "nvidia-smi", 'case "$1" in -L) for i in $GPUS; do echo "GPU $i: a card"; done ;; *) echo table ;; esac\n')
    parity = 'echo "parity $* on ${RANKS:-1}"\n'
    program(bundle / "libexec/device_parity", parity)
    # Training runs write metrics; the adapter run stops halfway.
    program(bundle / "bin/automodel", """
[ "$1" = train ] || exit 0
for word in "$@"; do case "$word" in --checkpoint.checkpoint_dir=*) out=${word#*=} ;; esac; done
[ -n "$out" ] || exit 0
mkdir -p "$out"
for i in 1 2 3 4 5 6 7 8; do echo '{"step_time": 0.5, "mfu": 0.4, "num_tokens_per_step": 100}'; done > "$out/training.jsonl"
echo '{"data": [0.1], "compute": [0.1], "gradients": [0.1], "optimizer": [0.1]}' > "$out/ranks.jsonl"
case "$2" in *adapters*) printf '{"half' >> "$out/training.jsonl"; exec sleep 60 ;; esac
""")

    def check(*words, code=0, gpus="", **more):
        environment = {"PATH": f"{tools}:/usr/bin:/bin", "AUTOMODEL_LIBTORCH": str(torch), "TMPDIR": name, "GPUS": gpus, **more}
        done = subprocess.run([bundle / "gpu_check.sh", *map(str, words)], text=True, capture_output=True, env=environment)
        assert done.returncode == code, f"{words}: exit {done.returncode}, not {code}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    said = check("--device", "cpu", "--only", "parity")
    assert "parity --on cpu --backend loopback --ranks 1 on 1" in said and "on 4" in said and "gpu_check: ok" in said, said
    assert "bench --backend mpi" in said and "NCCL" in said and not list(place.glob("tmp.*")), said
    assert "usage: scripts/gpu_check.sh" in check("--only", "nothing", code=2) and "usage" in check("--minutes", "soon", code=2)
    assert "no NVIDIA GPU here" in check(code=4)

    # Only visible GPUs count.
    assert "on 2" in check("--only", "nccl", gpus="0 1") and "--carry nccl" in check("--only", "nccl", gpus="0 1 2 3")
    assert "was not run" in check("--only", "nccl", gpus="0 1 2 3", CUDA_VISIBLE_DEVICES="2")
    # With one GPU, two ranks share it if NCCL was told to let them, without timings.
    said = check("--only", "nccl", gpus="0", NCCL_MULTI_RANK_GPU_ENABLE="1")
    assert "--carry nccl --deadline 120 on 2" in said and "bench" not in said, said

    # A failure does not end the check, and everything is kept.
    program(bundle / "libexec/device_parity", parity + '[ "${RANKS:-1}" != 2 ] || exit 70\n')
    out = place / "out"
    said = check("--device", "cpu", "--only", "parity", "--output", out, code=1)
    summary = (out / "summary.txt").read_text()
    assert "exit code 70  two-ranks" in summary and "ok           four-ranks" in summary and "ok           train" in summary, summary
    assert summary in said and "gpu_check: ok" not in said, said
    assert "on 4" in (out / "four-ranks.log").read_text(), said

    # Steps that hang are killed, and steps that would begin after the time limit are skipped.
    program(bundle / "libexec/device_parity", "sleep 300\n")
    began = time.monotonic()
    said = check("--device", "cpu", "--only", "one-rank,communicators", "--minutes", 0, "--output", out, code=1)
    assert "left out     one-rank" in said and "left out     communicators" in said, said
    text = (bundle / "gpu_check.sh").read_text()
    (bundle / "gpu_check.sh").write_text(text.replace("step one-rank 600", "step one-rank 2"))
    said = check("--device", "cpu", "--only", "one-rank,communicators", "--output", out, code=1)
    assert "cut off      one-rank, after 2 s" in said and "ok           communicators" in said, said
    assert time.monotonic() - began < 60

    # The table has a row for the killed run, from the steps that it completed, and the rows after it.
    recipes = bundle / "recipes/gpu"
    recipes.mkdir(parents=True)
    done = subprocess.run(["python3", bundle / "gpu_table.py", bundle / "bin/automodel", recipes, out / "times", "--device", "cpu",
                           "--limit", "2"], text=True, capture_output=True)
    rows = [line for line in done.stdout.splitlines() if line.startswith("| ")]
    assert done.returncode == 1 and len(rows) == 6, done.stdout + done.stderr
    assert "adapters, cut off | 200 | 40.0 %" in rows[4] and "failed: llama_8b_adapters" in done.stderr, done.stdout + done.stderr
    assert (out / "times/table.md").read_text().count("\n") == 6
    program(bundle / "bin/automodel", '[ "$1" = train ] || exit 0\necho "error[cuda-failed]: it fell" >&2; exit 4\n')
    done = subprocess.run(["python3", bundle / "gpu_table.py", bundle / "bin/automodel", recipes, out / "more", "--device", "cpu"],
                          text=True, capture_output=True)
    assert done.stdout.count("failed, exit code 4: error[cuda-failed]: it fell") == 4, done.stdout

    # With --quick the table comes first, and PyTorch's row is left out; kernels are timed on GPUs only.
    shutil.copy(SOURCE / "scripts/gpu_check.sh", bundle)
    program(bundle / "libexec/device_parity", parity)
    program(bundle / "libexec/kernel_bench", 'echo "kernel bench"\n')
    said = check("--quick", "--device", "cpu", "--only", "table,one-rank,kernels", code=1)
    assert 0 < said.index("| Llama-3.2-1B") < said.index("parity --on cpu") and "PyTorch" not in said and "kernel bench" not in said, said
    said = check("--only", "table,one-rank,kernels", gpus="0", code=1)
    assert 0 < said.index("parity --on cuda") < said.index("kernel bench") < said.index("| Llama-3.2-1B") and "by PyTorch" in said, said
print("ok")
