#!/usr/bin/env python3
"""The program without its CUDA half, with one from another build and with one that needs a missing library.

  plugin_test.py MPIRUN BIN_FOLDER FAKES_FOLDER        FAKES_FOLDER: other-build.so, needs-missing.so, without-entry.so
  plugin_test.py MPIRUN BIN_FOLDER --loaded PLUGIN     trains on the CPU with and without PLUGIN loaded (77: not loadable)
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

MPIRUN, BIN, *REST = sys.argv[1:]
BIN = pathlib.Path(BIN).resolve()
RECIPE = """model: {config: {model_type: llama, hidden_size: 32, intermediate_size: 64, num_hidden_layers: 2, num_attention_heads: 2,
  num_key_value_heads: 2, vocab_size: 64, max_position_embeddings: 32}}
distributed: {strategy: fsdp2}
dataset: {_target_: mock, vocab_size: 64, seq_length: 16, num_samples: 64}
step_scheduler: {global_batch_size: 4, local_batch_size: 2, max_steps: 5, num_epochs: null}
checkpoint: {enabled: false, checkpoint_dir: run}
"""
ENVIRONMENT = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_NUM_THREADS": "1",
               "AUTOMODEL_CALIBRATION": "",
               "CUDA_VISIBLE_DEVICES": ""}  # as if there were no GPU
ENVIRONMENT.pop("AUTOMODEL_CUDA_PLUGIN", None)


def run(words, folder, plugin=None, **more):
    environment = {**ENVIRONMENT, **({"AUTOMODEL_CUDA_PLUGIN": str(plugin)} if plugin else {}), **more}
    return subprocess.run([str(word) for word in words], cwd=folder, env=environment, text=True, capture_output=True, timeout=240)


class Case(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.folder = pathlib.Path(place.name)
        (self.folder / "r.yaml").write_text(RECIPE)

    def train(self, device, plugin, ranks=1, output="run"):
        words = [BIN / "automodel", "train", "r.yaml", "--device", device, "--checkpoint.checkpoint_dir", output]
        return run([*words, "--nproc-per-node", ranks], self.folder, plugin)


class Lacking(Case):
    def refused(self, plugin, *said, ranks=1):
        done = self.train("cuda", plugin, ranks)
        self.assertEqual(done.returncode, 4, done.stdout + done.stderr)
        errors = [line for line in done.stderr.splitlines() if "error[" in line]
        self.assertTrue(errors and all("error[no-cuda-half]" in line for line in errors), done.stderr)
        for text in said:
            self.assertIn(text, errors[0])
        self.assertIn("help: ", done.stderr)
        return done.stderr

    def test_no_plugin(self):
        nowhere = self.folder / "nowhere.so"
        self.refused(nowhere, "is not installed", str(nowhere))
        # Two ranks: the job ends, and one of them says why.
        said = self.refused(nowhere, "is not installed", ranks=2)
        self.assertEqual(said.count("help: "), 1, said)
        self.assertRegex(said.strip().splitlines()[-1], r"rank [01]: error\[no-cuda-half\]")

    def test_another_build(self):
        self.refused(FAKES / "other-build.so", "belongs to another build of this program (0000000000000000, not ")
        (self.folder / "text.so").write_text("no program")
        self.refused(self.folder / "text.so", "belongs to another build of this program (no stamp, not ")

    def test_another_build_is_taken_if_asked(self):
        done = run([BIN / "automodel-worker", "--load-cuda-half"], self.folder, FAKES / "other-build.so", AUTOMODEL_CUDA_ANY_BUILD="1")
        self.assertEqual(done.returncode, 4, done.stdout + done.stderr)  # it has nothing but its stamp
        self.assertNotIn("another build", done.stderr)

    def test_a_library_is_missing(self):
        said = self.refused(FAKES / "needs-missing.so")
        # If LibTorch cannot load its own CUDA half, that is reported first.
        self.assertRegex(said, r"libautomodel-missing\.so is not found|LibTorch's CUDA half cannot be loaded: \S+ is not found"
                               r"|is the CPU build")

    def test_without_entry(self):
        said = self.refused(FAKES / "without-entry.so")
        self.assertRegex(said, r"undefined symbol: automodel_cuda_half|LibTorch's CUDA half cannot be loaded|is the CPU build")

    def test_auto_takes_the_processor(self):
        done = self.train("auto", FAKES / "other-build.so", ranks=2)
        self.assertEqual(done.returncode, 0, done.stderr)
        said = [line for line in done.stdout.splitlines() if line.startswith("warning   device: auto uses the CPU: ")]
        self.assertEqual(len(said), 1, done.stdout)
        self.assertIn("belongs to another build", said[0])
        self.assertIn("step 4 ", done.stdout)

    def test_doctor(self):
        done = run([BIN / "automodel", "doctor"], self.folder, FAKES / "other-build.so")
        self.assertIn("belongs to another build", done.stdout)
        done = run([BIN / "automodel", "doctor", "--json"], self.folder, self.folder / "nowhere.so")
        self.assertIn("no automodel-cuda.so beside the program", done.stdout)


class Loaded(Case):
    def losses(self, output):
        return [json.loads(line)["loss"] for line in (self.folder / output / "training.jsonl").read_text().splitlines()]

    def test_same_losses(self):
        for ranks in (1, 2):
            without = self.train("cpu", None, ranks, f"without{ranks}")
            self.assertEqual(without.returncode, 0, without.stderr)
            self.assertNotIn("uses the CPU", without.stdout)
            loaded = self.train("auto", PLUGIN, ranks, f"loaded{ranks}")
            self.assertEqual(loaded.returncode, 0, loaded.stderr)
            self.assertEqual(loaded.stdout.count(f"uses the CPU: {ranks} of {ranks} ranks see no CUDA device"), 1, loaded.stdout)
            self.assertEqual(len(self.losses(f"without{ranks}")), 5)
            self.assertEqual(self.losses(f"without{ranks}"), self.losses(f"loaded{ranks}"))

    def test_no_device(self):
        done = self.train("cuda", PLUGIN)
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertIn("error[no-device]: no cuda device on host", done.stderr)

    def test_doctor(self):
        done = run([BIN / "automodel", "doctor"], self.folder, PLUGIN)
        self.assertRegex(done.stdout, r"loads: CUDA 1\d\.\d, NCCL 2\.\d+.*; NVRTC compiles kernels")

    def test_boundary(self):
        program = PLUGIN.parent.parent / "test/cuda_half_boundary"
        if program.exists():
            done = run([program], self.folder, PLUGIN)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_other_programs(self):
        """They provide what the CUDA half needs from a program."""
        for program in (PLUGIN.parent.parent / "bench/comm_bench", PLUGIN.parent.parent / "test/device_parity"):
            if not program.exists():
                continue
            device = ["--device", "cuda"] if program.name == "comm_bench" else ["--on", "cuda", "--ranks", "2"]
            done = run([program, "--backend", "loopback", *device], self.folder)
            self.assertEqual(done.returncode, 4, done.stdout + done.stderr)
            self.assertIn("no cuda device on host", done.stderr)


if REST[0] == "--loaded":
    PLUGIN = pathlib.Path(REST[1]).resolve()
    probe = run([BIN / "automodel-worker", "--load-cuda-half"], "/", PLUGIN)
    if re.search(r"LibTorch's CUDA half cannot be loaded: \S+ is not found", probe.stderr):
        print("skipped:", probe.stderr.strip())
        sys.exit(77)
    del Lacking
else:
    FAKES = pathlib.Path(REST[0]).resolve()
    del Loaded
unittest.main(argv=sys.argv[:1], verbosity=2)
