// Frozen weights in 4 or 8 bits: a mesh trains the adapters that one rank trains, because blocks and scales are those
// of whole weights, however these are sharded; and a rank holds no more bytes than expected.
#include <cmath>

#include <fmt/format.h>

#include "parity/session.h"
#include "rank_suite.h"

namespace automodel {
namespace {

const std::string kPeft = "peft: {dim: 4, alpha: 6}\n";
/// Rows of 32 elements: two share a block, and shards along rows split blocks.
const std::vector<std::string> kFormats = {
    "quantization: {load_in_4bit: true, bnb_4bit_compute_dtype: float64}\n",
    "quantization: {load_in_4bit: true, bnb_4bit_use_double_quant: false, bnb_4bit_compute_dtype: float64}\n",
    "quantization: {load_in_8bit: true}\n"};

void check(comm::World& w, const std::string& format, const std::string& distributed, int data,
           const std::string& megatron = "", const std::string& model = "", const std::string& family = "llama") {
  test::TinyRun run{
      .global_batch = 8, .local_batch = 8 / data, .family = family, .model = model, .sections = kPeft + format};
  run.distributed = distributed;
  run.model_parallel = megatron;
  run.steps = 3;
  test::check_parity(w, run, fmt::format("{} {}, {}", format, distributed, model));
}

/// Bytes of the parameters of a stage on one rank.
std::int64_t bytes_of(comm::World& w, const std::string& sections, const std::string& distributed) {
  test::TinyRun run{.global_batch = 2 * w.size(), .local_batch = 2, .dtype = "bfloat16", .sections = kPeft + sections};
  run.distributed = distributed;
  test::Session session(w, test::recipe_text(run, false));
  session.step(0);
  std::int64_t out = 0;
  for (auto* stage : session.runtime().stages()) {
    const auto bytes = stage->data_parallel().bytes();
    out += bytes.parameters + bytes.masters;
  }
  return out;
}

const std::vector<test::RankCase> kCases = {
    {"whatever is sharded",
     [](comm::World& w) {
       for (const auto& format : kFormats)
         for (const std::string strategy :
              {"strategy: ddp", "strategy: fsdp2", "strategy: fsdp2, reshard_after_forward: true",
               "strategy: fsdp2, reshard_after_forward: true, activation_checkpointing: full",
               "strategy: fsdp2, offload_policy: {}", "strategy: megatron_fsdp, zero_dp_strategy: 2",
               "strategy: megatron_fsdp, zero_dp_strategy: 3"})
           check(w, format, strategy, w.size());
     }},
    {"tensor-parallel ranks cut weights through blocks",
     [](comm::World& w) {
       for (const auto& format : kFormats) {
         check(w, format, "strategy: ddp, tp_size: 2", w.size() / 2);
         check(w, format, "strategy: fsdp2, tp_size: 2, sequence_parallel: true", w.size() / 2);
         check(w, format, "strategy: ddp, tp_size: 2", w.size() / 2, "sequence_parallel: true, tp_comm_overlap: true");
         check(w, format, "strategy: fsdp2, tp_size: 2", w.size() / 2, "",
               "original_max_position_embeddings: 32, pad_token_id: 0", "phi3");  // fused weights
       }
     },
     2},
    {"in a pipeline, and with experts",
     [](comm::World& w) {
       for (const auto& format : kFormats) {
         for (const std::string schedule : {"1F1B", "InterleavedZeroBubble"})
           check(w, format,
                 fmt::format("strategy: fsdp2, pp_size: 2, pipeline: {{pp_schedule: {}, pp_microbatch_size: 1}}",
                             schedule),
                 w.size() / 2, fmt::format("virtual_pipeline_model_parallel_size: {}", schedule == "1F1B" ? 1 : 2));
         test::TinyRun run{.layers = 2, .global_batch = 8, .local_batch = 8 / w.size(), .family = "qwen3_moe"};
         run.model =
             "num_experts: 4, num_experts_per_tok: 2, moe_intermediate_size: 12, norm_topk_prob: true, head_dim: 8";
         run.sections = "peft: {dim: 4, target_modules: ['*attn*_proj*']}\n" + format;
         run.distributed = "strategy: fsdp2, ep_size: 2";
         test::check_parity(w, run, format + run.distributed);
       }
     },
     2},
    {"weights of few bits are other weights, and near",
     [](comm::World& w) {
       const auto losses = [&](const std::string& sections) {
         test::TinyRun run{
             .global_batch = 4 * w.size(), .local_batch = 4, .dtype = "float32", .sections = kPeft + sections};
         run.distributed = "strategy: fsdp2";
         return train::results_of_steps(test::load_recipe(test::recipe_text(run, false)), w, 8);
       };
       const auto exact = losses("");
       for (const char* format : {"quantization: {load_in_4bit: true}\n", "quantization: {load_in_8bit: true}\n"}) {
         const auto low = losses(format);
         for (std::size_t i = 0; i < exact.size(); ++i)
           RANK_CHECK(std::abs(low[i].loss - exact[i].loss) < 0.05 * exact[i].loss);
         RANK_CHECK(low[0].loss != exact[0].loss);
       }
     },
     1, 2},
    {"a rank holds as many bytes as the formats take",
     [](comm::World& w) {
       for (const std::string strategy : {"strategy: ddp", "strategy: fsdp2"}) {
         const double shards = strategy == "strategy: ddp" ? 1 : w.size();
         const auto plain = bytes_of(w, "", strategy);
         for (const auto& [format, bits] : std::vector<std::pair<std::string, double>>{
                  {"quantization: {load_in_4bit: true}\n", 4 + 8.0 / 64},
                  {"quantization: {load_in_4bit: true, bnb_4bit_use_double_quant: false}\n", 4 + 32.0 / 64},
                  {"quantization: {load_in_8bit: true}\n", 8 + 32.0 / 32}}) {
           const auto loaded =
               test::load_recipe(test::recipe_text({.dtype = "bfloat16", .sections = kPeft + format}, true));
           const auto plan = estimate::make_plan(loaded, {}).plan;
           double packed = 0, weights = 0;
           for (const auto& info : plan->adapters->all)
             if (info.bits > 0) packed += static_cast<double>(info.shape.elements()), ++weights;
           const auto saved = static_cast<double>(plain - bytes_of(w, format, strategy));
           const double expected = packed * (16 - bits) / 8 / shards;
           // The three parts of a weight are aligned to 16 bytes; there are nested scales; rows of the MLP are longer.
           const double slack = weights * 64 + 0.02 * expected;
           if (std::abs(saved - expected) > slack)
             test::rank_check_failed(
                 __FILE__, __LINE__,
                 fmt::format("{} {}: {} bytes saved, expected {:.0f}", strategy, format, saved, expected));
         }
       }
     }},
};

}  // namespace
}  // namespace automodel

int main(int argc, char** argv) {
  return automodel::test::run_rank_suite(argc, argv, automodel::kCases);
}
