// Experts and latent attention under tensor, sequence and context parallelism compute the gradients of one rank.
#include <fmt/format.h>

#include "parity/parity.h"
#include "rank_suite.h"

namespace automodel {
namespace {

struct Model {
  const char* family;
  const char* keys;
};
const std::vector<Model> kModels = {
    {"mixtral", "num_local_experts: 4, num_experts_per_tok: 2, sliding_window: null"},
    {"qwen3_moe",
     "num_experts: 8, num_experts_per_tok: 3, moe_intermediate_size: 12, norm_topk_prob: true, head_dim: 8, "
     "mlp_only_layers: [1]"},
    {"deepseek_v3",
     "n_routed_experts: 8, num_experts_per_tok: 2, moe_intermediate_size: 12, n_group: 4, topk_group: 2, "
     "n_shared_experts: 1, first_k_dense_replace: 1, q_lora_rank: 16, kv_lora_rank: 12, qk_nope_head_dim: 8, "
     "qk_rope_head_dim: 4, v_head_dim: 6"},
    {"gpt_oss", "num_local_experts: 4, num_experts_per_tok: 2, head_dim: 8, sliding_window: 8"},
};

void check(comm::World& w, const Model& model, const std::string& sizes, int dp, const std::string& megatron = {}) {
  const auto distributed = "strategy: fsdp2, " + sizes;
  test::check_parity(w,
                     {.layers = 2,
                      .global_batch = 4 * dp,
                      .local_batch = 2,
                      .family = model.family,
                      .model = model.keys,
                      .distributed = distributed,
                      .model_parallel = megatron},
                     fmt::format("{}: {}, {}", model.family, distributed, megatron));
}

const std::vector<test::RankCase> kCases = {
    {"tensor parallelism",
     [](comm::World& w) {
       for (const auto& model : kModels) {
         check(w, model, "tp_size: 2", 1);
         check(w, model, "tp_size: 2, ep_size: 2", 1);
       }
     },
     2, 2},
    {"sequence parallelism",
     [](comm::World& w) {
       for (const auto& model : kModels) {
         check(w, model, "tp_size: 2, sequence_parallel: true", 1);
         check(w, model, "tp_size: 2, ep_size: 2, sequence_parallel: true", 1);
       }
     },
     2, 2},
    {"context parallelism",
     [](comm::World& w) {
       for (const auto& model : kModels) {
         check(w, model, "cp_size: 2", 1);
         check(w, model, "cp_size: 2, ep_size: 2", 1, "cp_comm_type: a2a");
       }
     },
     2, 2},
    {"all of them",
     [](comm::World& w) {
       for (const auto& model : kModels) {
         check(w, model, "tp_size: 2, cp_size: 2, ep_size: 4, sequence_parallel: true", 1);
         check(w, model, "tp_size: 2, ep_size: 2, sequence_parallel: true", 2);
       }
     },
     4, 4},
};

}  // namespace
}  // namespace automodel

int main(int argc, char** argv) {
  return automodel::test::run_rank_suite(argc, argv, automodel::kCases);
}
