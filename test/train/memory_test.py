#!/usr/bin/env python3
"""The memory of runs according to their own logs.

The training process gets smaller as the strategy shards: peak resident memory of rank 0 (VmHWM) on 1, 2 and 4 ranks, for a
model dominated by weights, gradients and moments. In every phase, including training, validation and saves, the tensor bytes
are as planned.

  memory_test.py BIN_FOLDER [unittest arguments]
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

# 16 layers of 3.15 M parameters: 16 bytes each with float32 weights, gradients and two moments.
LAYERS, HIDDEN, INNER, VOCABULARY = 16, 512, 1376, 128
PARAMETERS = LAYERS * (4 * HIDDEN * HIDDEN + 3 * HIDDEN * INNER + 2 * HIDDEN) + 2 * VOCABULARY * HIDDEN + HIDDEN
WHOLE = PARAMETERS * 4 / 2**30  # GiB of one float32 number for each parameter

RECIPE = """\
device: cpu
model: {{config: {{model_type: llama, hidden_size: {hidden}, intermediate_size: {inner}, num_hidden_layers: {layers},
  num_attention_heads: 8, num_key_value_heads: 8, vocab_size: {vocabulary}, max_position_embeddings: 16}}, torch_dtype: float32}}
dataset: {{_target_: mock, vocab_size: {vocabulary}, seq_length: 8, num_samples: 64}}
logging: {{progress: false, tensorboard: false}}
distributed: {{{distributed}}}
step_scheduler: {{global_batch_size: {ranks}, local_batch_size: 1, max_steps: 2, num_epochs: null}}
checkpoint: {{enabled: false, checkpoint_dir: {folder}/run}}
"""


# Large blocks are returned to the system at once, so that live memory is measured, not holes in the heap (up to half of it).
RETURNED = {"MALLOC_MMAP_THRESHOLD_": str(4 << 20)}


def train(recipe, ranks):
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMP_NUM_THREADS="1",
                       OMPI_MCA_rmaps_base_oversubscribe="1", AUTOMODEL_CALIBRATION="", **RETURNED)
    done = subprocess.run([binaries / "automodel", "train", recipe, "--nproc-per-node", str(ranks)], env=environment,
                          capture_output=True, text=True, timeout=200)
    if done.returncode != 0:
        raise AssertionError(done.stdout + done.stderr)


class Memory(unittest.TestCase):

    def peak(self, distributed, ranks):
        """GiB of rank 0."""
        with tempfile.TemporaryDirectory() as folder:
            recipe = pathlib.Path(folder) / "memory.yaml"
            recipe.write_text(RECIPE.format(hidden=HIDDEN, inner=INNER, layers=LAYERS, vocabulary=VOCABULARY, distributed=distributed,
                                            ranks=ranks, folder=folder))
            train(recipe, ranks)
            rows = (pathlib.Path(folder) / "run/training.jsonl").read_text().splitlines()
            return json.loads(rows[-1])["mem"]

    def measure(self, distributed, sizes=(1, 4)):
        peaks = {ranks: self.peak(distributed, ranks) for ranks in sizes}
        print(f"{distributed}: " + ", ".join(f"{peak:.3f} GiB on {ranks}" for ranks, peak in peaks.items()), flush=True)
        return peaks

    def saved(self, peaks, ranks):
        """In float32 numbers per parameter."""
        return (peaks[1] - peaks[ranks]) / WHOLE

    def falls(self, distributed, numbers, sizes=(1, 4)):
        """`numbers` float32 numbers per parameter are sharded, the others are not."""
        peaks = self.measure(distributed, sizes)
        for ranks in sizes[1:]:
            expected = numbers * (1 - 1 / ranks)
            # Messages in flight, MPI buffers and holes in the heap offset part of it.
            self.assertGreater(self.saved(peaks, ranks), 0.7 * expected - 0.1, peaks)
            self.assertLess(self.saved(peaks, ranks), 1.3 * expected + 0.3, peaks)

    def test_everything_is_whole(self):
        peaks = self.measure("strategy: ddp")
        self.assertLess(abs(self.saved(peaks, 4)), 0.5, peaks)
        self.assertGreater(peaks[1], 4 * WHOLE)

    def test_optimizer_states(self):
        # One rank has weights, gradients and two moments: 4 numbers. One of four has weights and gradients whole and a quarter
        # of masters, reduced gradients and moments: 3, beside buckets of messages (25 MiB, 0.13 numbers each).
        peaks = self.measure("strategy: megatron_fsdp, zero_dp_strategy: 1")
        self.assertGreater(self.saved(peaks, 4), 0.4, peaks)
        self.assertLess(self.saved(peaks, 4), 1.3, peaks)

    def test_parameters_gradients_and_optimizer_states(self):
        self.falls("strategy: fsdp2", 4, (1, 2, 4))


PHASES = """\
device: cpu
model: {{config: {{{kind}, hidden_size: 128, num_hidden_layers: 4, num_attention_heads: 4, num_key_value_heads: 4,
  vocab_size: 1000, max_position_embeddings: 512}}, torch_dtype: float32}}
dataset: {{_target_: mock, vocab_size: 1000, seq_length: 64, num_samples: 256}}
validation_dataset: {{_target_: mock, vocab_size: 1000, seq_length: {validation}, num_samples: 16}}
logging: {{progress: false, tensorboard: false}}
distributed: {{{distributed}}}
step_scheduler: {{global_batch_size: 16, local_batch_size: 4, max_steps: 6, num_epochs: null, ckpt_every_steps: 3, val_every_steps: 2}}
checkpoint: {{enabled: true, is_async: {background}, checkpoint_dir: {folder}/run}}
"""


DENSE = "model_type: llama, intermediate_size: 352"
EXPERTS = ("model_type: qwen3_moe, head_dim: 32, num_experts: 8, num_experts_per_tok: 2, moe_intermediate_size: 96, "
           "intermediate_size: 96, tie_word_embeddings: false")


class Phases(unittest.TestCase):
    def agree(self, distributed, ranks, validation=64, background="false", kind=DENSE):
        with tempfile.TemporaryDirectory() as folder:
            recipe = pathlib.Path(folder) / "phases.yaml"
            recipe.write_text(PHASES.format(kind=kind, distributed=distributed, validation=validation, background=background,
                                            folder=folder))
            train(recipe, ranks)
            phases = json.loads((pathlib.Path(folder) / "run/estimate.json").read_text())["phases"]
        print(f"{distributed}, validation {validation}, background {background}", flush=True)
        for name, phase in phases.items():
            predicted, measured = (phase[f"{which}_tensor_bytes"] / 2**20 for which in ("predicted", "measured"))
            print(f"  {name}: predicted {predicted:.2f} MiB, measured {measured:.2f} MiB", flush=True)
        self.assertEqual(set(phases), {"initialization", "first step", "steady", "evaluation", "checkpoint"})
        for name, phase in phases.items():
            self.assertLess(abs(phase["predicted_tensor_bytes"] / phase["measured_tensor_bytes"] - 1), 0.1, name)

    def test_one_rank(self):
        self.agree("strategy: ddp", 1)

    def test_long_validation(self):
        self.agree("strategy: ddp", 1, validation=512)

    def test_copies_of_saves_in_the_background(self):
        self.agree("strategy: ddp", 1, background="true")

    def test_copies_of_what_each_rank_writes(self):
        self.agree("strategy: ddp", 2, background="true")

    def test_sharded(self):
        self.agree("strategy: fsdp2", 2, background="true")

    def test_pipeline(self):
        self.agree("strategy: ddp, pp_size: 2, pipeline: {pp_schedule: 1F1B, pp_microbatch_size: 1}", 2, validation=128, background="true")

    def test_experts(self):
        self.agree("strategy: ddp", 1, validation=512, kind=EXPERTS)

    def test_experts_on_other_ranks(self):
        self.agree("strategy: fsdp2, ep_size: 2", 2, validation=256, kind=EXPERTS)

    def test_experts_of_tensor_parallel_ranks(self):
        self.agree("strategy: fsdp2, tp_size: 2, sequence_parallel: true", 2, validation=256, kind=EXPERTS)

    def test_experts_stay_gathered(self):
        self.agree("strategy: fsdp2, dp_size: 4, ep_size: 2, moe: {reshard_after_forward: false}", 4, kind=EXPERTS)

    def test_parameters_stay_gathered(self):
        self.agree("strategy: fsdp2, dp_size: 2, reshard_after_forward: false", 2)

    def test_pipeline_of_shards(self):
        self.agree("strategy: fsdp2, dp_size: 2, pp_size: 2, pipeline: {pp_schedule: 1F1B, pp_microbatch_size: 1}", 4)


if __name__ == "__main__":
    binaries = pathlib.Path(sys.argv.pop(1))
    unittest.main()
