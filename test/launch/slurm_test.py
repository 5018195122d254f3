#!/usr/bin/env python3
"""Runs the script that `automodel slurm` prints under a real Slurm: controller, node daemon and munge on loopback.

  slurm_test.py AUTOMODEL [train]     exit 77: Slurm is not installed or cannot run on this machine

With `train` two ranks train: they are told to stop in the middle, save, go back into the queue, resume, are pre-empted by
a job of a partition with priority, resume and train to the end. Without (no worker is built), the worker is a stand-in
that reports how it was started and ends with 10 once, which the script must answer with a requeue.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from slurm_cluster import Cluster, missing_programs, wait_for  # noqa: E402

SKIP = 77

RECIPE = """device: cpu
model:
  config: {model_type: llama, hidden_size: 64, intermediate_size: 128, num_hidden_layers: 2, num_attention_heads: 4,
    num_key_value_heads: 2, vocab_size: 260, max_position_embeddings: 64}
distributed: {strategy: ddp, dp_size: 2}
dataset: {_target_: mock, vocab_size: 260, seq_length: 32}
step_scheduler: {global_batch_size: 8, local_batch_size: 4, max_steps: STEPS, num_epochs: null, ckpt_every_steps: 100000}
checkpoint: {checkpoint_dir: run}
logging: {tensorboard: false}
"""
MANY = 1_000_000  # steps of the first run: more than it has time for
MORE = 100  # further steps of the last run

# Ends with 10 on SIGUSR1 the first time, and with 0 after a restart.
STAND_IN = """#!/bin/bash
trap 'echo "rank told to stop" >> seen; exit 10' USR1
echo "started ${SLURM_RESTART_COUNT:-0} ${OMPI_COMM_WORLD_SIZE:-${SLURM_NTASKS:-?}}" >> seen
[ "${SLURM_RESTART_COUNT:-0}" -gt 0 ] && exit 0
for i in $(seq 600); do sleep 0.2; done
exit 1
"""


def check(condition, message):
    if not condition:
        raise AssertionError(message)


def write_recipe(folder, steps):
    (folder / "recipe.yaml").write_text(RECIPE.replace("STEPS", str(steps)))


def script_for(automodel, folder, launcher):
    write_recipe(folder, MANY)
    made = subprocess.run([automodel, "slurm", "recipe.yaml", "--nodes", "1", "--ranks-per-node", "2", "--time", "60",
                           "--launcher", launcher, "--job-name", "tiny"], cwd=folder, capture_output=True, text=True)
    check(made.returncode == 0, made.stderr)
    for line in ("#SBATCH --nodes=1", "#SBATCH --ntasks-per-node=2", "#SBATCH --requeue", "USR1@300"):
        check(line in made.stdout, f"no '{line}' in the script:\n{made.stdout}")
    subprocess.run(["bash", "-n"], input=made.stdout, text=True, check=True)
    return made.stdout


def submit(cluster, folder, text):
    # Shortens the pause during which Slurm ends a requeued script.
    (folder / "job.sh").write_text(text.replace("sleep 60", "sleep 20"))
    return cluster.submit(folder, "job.sh")


def warn(cluster, job):
    """The signal that a job gets before its time is up."""
    cluster.run(["scancel", "--signal=USR1", "--batch", str(job)])


def preempt(cluster, release):
    """A job with priority takes the node and keeps it until the file `release` exists. Returns the job's number."""
    sent = cluster.run(["sbatch", "--parsable", "--partition=urgent", "--ntasks=2", "--output=/dev/null", "--wrap",
                        f"until [ -e '{release}' ]; do sleep 0.2; done"])
    check(sent.returncode == 0, sent.stderr)
    return int(sent.stdout.split(";")[0])


def restarts_of(cluster, job):
    return int(cluster.state(job).get("Restarts", 0))


def wait_for_run(cluster, job, restarts):
    """Waits until the job runs again, or has already ended."""
    wait_for(lambda: restarts_of(cluster, job) == restarts, 120, "the requeue")
    # A requeued job waits until the credentials of its first run are too old to be used again.
    wait_for(lambda: cluster.state(job).get("JobState") in ("RUNNING", "COMPLETING", "COMPLETED"), 120, "the next run")


def requeue(cluster, folder, script, automodel):
    """A job that is told to stop goes back into the queue and starts again."""
    stand_in = folder / "stand-in"
    stand_in.write_text(STAND_IN)
    stand_in.chmod(0o755)
    text = script.replace(f"{automodel} train", f"{stand_in} train")
    check(str(stand_in) in text, "the script does not start the program")
    job = submit(cluster, folder, text)
    seen = folder / "seen"
    wait_for(lambda: seen.exists() and seen.read_text().count("started 0") >= 2, 400, "the two ranks")
    warn(cluster, job)
    wait_for(lambda: "rank told to stop" in seen.read_text(), 120, "the signal")
    wait_for_run(cluster, job, 1)
    wait_for(lambda: cluster.state(job).get("JobState") == "COMPLETED", 400, "the end")
    check("started 1" in seen.read_text(), seen.read_text())


def steps_of(folder):
    losses = folder / "run" / "training.jsonl"
    if not losses.exists():
        return []
    return [json.loads(line)["step"] for line in losses.read_text().splitlines(keepends=True) if line.endswith("\n")]


def step_of(checkpoint):
    return int(checkpoint.resolve().name.rsplit("_", 1)[1])


def train(cluster, folder, script):
    """Two ranks train, are told to stop and then pre-empted, save each time, go on from there and train to the end."""
    job = submit(cluster, folder, script)
    latest = folder / "run" / "LATEST"
    wait_for(lambda: len(steps_of(folder)) >= 20, 400, "twenty steps")
    warn(cluster, job)
    wait_for(latest.exists, 120, "the checkpoint")
    warned = step_of(latest)
    wait_for_run(cluster, job, 1)
    wait_for(lambda: len(steps_of(folder)) > warned + 20, 400, "twenty more steps")
    release = folder / "release"
    urgent = preempt(cluster, release)
    # Slurm ends the ranks, the script and mpirun at once, and mpirun gives its ranks a second: usually enough for these
    # steps. The run resumes from the newest checkpoint, whichever that is. Slurm counts the restart before the ranks have
    # ended; the other job runs only once they have, and keeps the last run waiting until its recipe is written.
    wait_for(lambda: cluster.state(urgent).get("JobState") == "RUNNING", 120, "the job with priority")
    check(restarts_of(cluster, job) == 2, f"{restarts_of(cluster, job)} restarts")
    newest = step_of(latest)
    write_recipe(folder, newest + 1 + MORE)
    release.touch()
    wait_for_run(cluster, job, 2)
    steps = newest + 1 + MORE
    wait_for(lambda: cluster.state(job).get("JobState") in ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT"), 400, "the end")
    state = cluster.state(job)
    check(state["JobState"] == "COMPLETED" and state["ExitCode"] == "0:0" and state["Restarts"] == "2",
          f"{state['JobState']} with exit code {state['ExitCode']} after {state['Restarts']} restarts")
    check(steps_of(folder) == list(range(steps)), "the steps of all runs are not those of one")
    output = "".join(path.read_text(errors="replace") for path in [*(folder / "logs").rglob("*"), *folder.glob("*.log")] if path.is_file())
    for line in (f"stopped by a signal after step {warned}", f"step {warned} is done", f"run       steps {warned + 1} to",
                 f"step {newest} is done", f"run       steps {newest + 1} to {steps - 1}"):
        check(line in output, f"no '{line}' in the job's output:\n{output[-3000:]}")
    check(step_of(latest) == steps - 1, f"the newest checkpoint is {latest.resolve().name}")
    return warned, newest


def main():
    automodel = str(pathlib.Path(sys.argv[1]).resolve())
    if missing := missing_programs():
        print(f"skipped: no {', '.join(missing)} here (Debian: slurm-wlm, munge)")
        return SKIP
    os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMP_NUM_THREADS="1",
                      OMPI_MCA_rmaps_base_oversubscribe="1", OMPI_MCA_plm="isolated", OMPI_MCA_ras="^slurm",
                      AUTOMODEL_CALIBRATION="")
    with tempfile.TemporaryDirectory(prefix="slurm") as name:
        folder = pathlib.Path(name)
        cluster = Cluster(folder / "cluster")
        cluster.folder.mkdir()
        try:
            try:
                cluster.start()
            except (TimeoutError, subprocess.CalledProcessError) as problem:
                print(f"skipped: Slurm does not run here: {problem}")
                for log in cluster.logs():
                    print(f"--- {log.name}\n" + "\n".join(log.read_text(errors="replace").splitlines()[-8:]))
                return SKIP
            work = folder / "work"
            work.mkdir()
            script_for(automodel, work, "srun")
            script = script_for(automodel, work, "mpirun")
            if "train" in sys.argv[2:]:
                warned, newest = train(cluster, work, script)
                print(f"warned after step {warned}, pre-empted, resumed after step {newest}, trained {MORE} more")
            else:
                requeue(cluster, work, script, automodel)
                print("requeued and started again")
        except (AssertionError, TimeoutError) as problem:
            print(f"failed: {problem}")
            for log in sorted(path for path in [*(folder / "work" / "logs").rglob("*"), *(folder / "work").glob("*.log")] if path.is_file()) + cluster.logs():
                print(f"--- {log}\n" + "\n".join(log.read_text(errors="replace").splitlines()[-15:]))
            return 1
        finally:
            cluster.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
