#!/usr/bin/env python3
"""Plants faults in the pipeline, the storage of weights and the model, one at a time, and checks that the unit tests
(pipeline_test, parallel_test, model_test) find each.

  planted_pipeline.py SOURCE_DIR BUILD_DIR

How: planted_faults.py.
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
import planted_faults

EXECUTOR, LINKS = "lib/pipeline/executor.cpp", "lib/pipeline/links.cpp"
TRAINING, STORAGE = "lib/pipeline/training_runner.cpp", "lib/parallel/data/unit_storage.cpp"
# (file, program, cases, text, replacement)
FAULTS = [
    # Order and direction.
    (EXECUTOR, "pipeline_test", "*", "const bool sends = action.op() == Op::kSendBackward;", "const bool sends = action.op() != Op::kSendBackward;"),
    (EXECUTOR, "pipeline_test", "*", "? stage(number).backward_input(microbatch, gradient)", "? stage(number).backward(microbatch, gradient)"),
    (EXECUTOR, "pipeline_test", "*", "for (const auto& each : std::exchange(run.delayed, {})) weight_gradients(each);", "if (sends) for (const auto& each : std::exchange(run.delayed, {})) weight_gradients(each);"),
    (LINKS, "pipeline_test", "*", "return direction == Direction::kForward ? stage + 1 : stage - 1;", "return stage + 1;"),
    # What is waited for.
    (LINKS, "pipeline_test", "*", "if (arrival.work) arrival.work->wait();", ""),
    (STORAGE, "parallel_test", "*", "void UnitStorage::finish_publish() { if (gathering_.empty()) return; wait_all(gathering_);", "void UnitStorage::finish_publish() { if (gathering_.empty()) return; gathering_.clear();"),
    (STORAGE, "parallel_test", "*", "if (in_flight_.empty()) return; advance_reduce(); wait_all(reducing_);", "if (in_flight_.empty()) return; advance_reduce(); reducing_.clear();"),
    # Sharding.
    (EXECUTOR, "pipeline_test", "*", "if (sharding != nullptr) sharding->reshard();", ""),
    (EXECUTOR, "pipeline_test", "*", "sharding->reduce(run.options.last_run);", "sharding->reduce(true);"),
    (EXECUTOR, "pipeline_test", "*", "--left == 0 && run.options.last_run", "--left == 1 && run.options.last_run"),
    (STORAGE, "parallel_test", "*", "if (groups_.replicate) reducing_.push_back", "if (false) reducing_.push_back"),
    (STORAGE, "parallel_test", "*", "if (!values_.defined()) return false;", ""),
    ("lib/parallel/data/data_parallel.cpp", "parallel_test", "*", "if (!at(unit).start_gather()) { free_buffer(unit); at(unit).start_gather(); }", "at(unit).start_gather();"),
    # What a microbatch contributes.
    (TRAINING, "pipeline_test", "*", ".loss_scale = run_->options.loss_scales[at]", ".loss_scale = run_->options.loss_scales[0]"),
    (TRAINING, "pipeline_test", "*", "at::full({}, run_->options.seed,", "at::full({}, 1.0,"),
    (TRAINING, "pipeline_test", "*", "const int number = run_->forwards++;", "const int number = microbatch;"),
    # Parts of the model.
    ("lib/model/slice.cpp", "model_test", "*", "begin += section;", "begin += each;"),
    ("lib/model/weights.cpp", "model_test", "*", 'return info.tied_to.empty() ? "head" : "tied head";', 'return "embedding";'),
    ("lib/model/key_value_cache.cpp", "model_test", "*", "kept.narrow(1, tokens_, added.size(1)).copy_(added);", "kept.narrow(1, 0, added.size(1)).copy_(added);"),
    ("lib/arch/tensor_plan.cpp", "parallel_test", "*", "block->role == Role::kAttention ? gather_attention : gather_mlp", "block->role == Role::kAttention || gather_mlp"),
]


def main():
    source, build = sys.argv[1:3]
    like = "lib/pipeline/captured_microbatches.cpp"
    return planted_faults.run_all(source, FAULTS, lambda target: planted_faults.Program(source, build, target, like, "pipeline_test"))


sys.exit(main())
