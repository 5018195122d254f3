// The first line of a plan.
#include <catch2/catch.hpp>

#include "planned.h"
#include "report/plan_text.h"
#include "report/plan_verdict.h"

namespace automodel::report {
namespace {

const std::string kModel =
    "device: cpu\nmodel: {config: {model_type: llama, hidden_size: 64, intermediate_size: 128, num_hidden_layers: 4, "
    "num_attention_heads: 4, num_key_value_heads: 4, vocab_size: 256, max_position_embeddings: 64}}\n"
    "dataset: {_target_: mock, vocab_size: 256, seq_length: 64}\n"
    "step_scheduler: {global_batch_size: 8, local_batch_size: 8, max_steps: 4}\n";
const std::string kPipeline = "distributed: {pp_size: 2, pipeline: {pp_schedule: 1F1B, pp_microbatch_size: 4}}\n";

bool holds(const std::string& text, const std::string& part) {
  UNSCOPED_INFO(text);
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a plan's first line says whether it fits, how fast it is and what takes the time", "[plan]") {
  const auto plan = test::planned(kModel + kPipeline + "hardware: {memory: 8GiB}\n");
  const auto line = verdict(plan);
  CHECK(line.starts_with("fits, "));
  CHECK(holds(line, " of 8.00 GiB; "));
  CHECK(holds(line, " tokens/s; slowest part: "));
  CHECK(holds(line, "pipeline waits ("));  // two microbatches on two ranks: a third of the schedule
  const auto text = to_text(plan);
  CHECK(text.starts_with("plan of recipe.yaml: " + line + "\n"));
  const auto full = to_text(plan, ActionFormat::kNone, estimate::Detail::kFull);
  CHECK(full.starts_with("plan of recipe.yaml: " + line + "\n"));
  for (const auto* detail :
       {"FLOP per step = 3 x forward", "phases of the heaviest", "microbatches in flight", "forward per microbatch"}) {
    CHECK(full.find(detail) != std::string::npos);
    CHECK(text.find(detail) == std::string::npos);
  }
  CHECK(holds(text, "proved: every send meets its receive"));
}

TEST_CASE("a plan's times and sizes name only what there is, in units", "[plan]") {
  const auto single = to_text(test::planned(kModel + "hardware: {memory: 8GiB}\n"));
  CHECK(holds(single, " per step: forward and backward "));
  for (const auto* absent : {"bubble", "data parallel ", " 0 s", "e+"}) CHECK_FALSE(holds(single, absent));
  CHECK(holds(single, " x 1 accumulation step x "));
  const auto piped = test::planned(kModel + kPipeline + "hardware: {memory: 8GiB}\n");
  const auto full = to_text(piped, ActionFormat::kNone, estimate::Detail::kFull);
  CHECK(holds(full, " per step: schedule "));
  CHECK(holds(full, "(estimated bubble "));
  CHECK_FALSE(holds(full, "e+"));
  CHECK_FALSE(holds(full, " 0 s"));
}

TEST_CASE("a verdict names a plan that does not fit, and has no pipeline to name without one", "[plan]") {
  CHECK(verdict(test::planned(kModel + "hardware: {memory: 1MiB}\n")).starts_with("DOES NOT FIT, "));
  const auto single = verdict(test::planned(kModel + "hardware: {memory: 8GiB}\n"));
  CHECK(holds(single, "slowest part: computation ("));
  CHECK(single.find("pipeline") == std::string::npos);
}

}  // namespace automodel::report
