// Shared by the mixture-of-experts families.
#pragma once

#include <string_view>

#include "arch/config_reader.h"
#include "arch/layout.h"
#include "arch/model_spec.h"

namespace automodel::arch {

/// Reads the number of experts, experts per token and the auxiliary loss coefficient (`router_aux_loss_coef`, with this
/// default). All layers become MoE layers.
MixtureOfExperts& read_experts(ConfigReader& config, ModelSpec& spec, Keys count_keys, double aux_loss_coefficient,
                               Keys top_k_keys = {"num_experts_per_tok"});

/// Checks top_k and groups against the number of experts.
void check_experts(ConfigReader& config, const ModelSpec& spec);

/// Defaults of a family with DeepSeek-V3's router.
struct SigmoidDefaults {
  bool normalize = true;
  double scaling = 1.0;
  int groups = 1, top_groups = 1, shared = 1;
  int ffn = 0;  ///< 0: required
};
/// The keys of such a family: n_routed_experts, moe_intermediate_size, n_shared_experts, n_group, topk_group,
/// norm_topk_prob, routed_scaling_factor. All layers become MoE layers.
MixtureOfExperts& read_sigmoid_experts(ConfigReader& config, ModelSpec& spec, const SigmoidDefaults& defaults);
/// DeepSeek-V3's router: sigmoid scores, a selection bias, a float32 projection.
void set_sigmoid_router(MixtureOfExperts& moe);
/// An integer, or a list of equal integers, for sizes that a config may give per layer.
int uniform(ConfigReader& config, std::string_view key, int otherwise);
/// Rejects a config that sets this key, true by default, to false.
void require_true(ConfigReader& config, const char* key);
/// The first `dense` layers have no experts.
void leave_dense(ModelSpec& spec, int dense);
/// `mlp_layer_types` ("dense", "sparse") if the config has it, else first_k_dense_replace with this default.
void read_mlp_layer_types(ConfigReader& config, ModelSpec& spec, int dense);
/// Qwen's rule: experts in every decoder_sparse_step-th layer except those in mlp_only_layers.
void read_sparse_steps(ConfigReader& config, ModelSpec& spec);

/// Names of the expert modules, relative to the layer.
struct ExpertNames {
  std::string_view router = "mlp.gate";
  std::string_view router_bias = "mlp.gate.e_score_correction_bias";
  bool router_bias_row = false;  ///< its shape is [1, experts]
  std::string_view experts = "mlp.experts";
  std::string_view gate = "gate_proj", up = "up_proj", down = "down_proj";
  std::string_view shared = "mlp.shared_experts";
  std::string_view shared_switch = "";
  std::string_view latent_in = "", latent_out = "";
};
inline constexpr ExpertNames kMixtralExperts = {.router = "block_sparse_moe.gate",
                                                .router_bias = "block_sparse_moe.e_score_correction_bias",
                                                .experts = "block_sparse_moe.experts",
                                                .gate = "w1",
                                                .up = "w3",
                                                .down = "w2"};

/// The matrices of every expert.
void lay_out_each_expert(const ModelSpec& spec, LayerBuilder& layer, const ExpertNames& names);
/// Router, individual experts and, if the spec has them, shared experts.
void lay_out_experts(const ModelSpec& spec, LayerBuilder& layer, const ExpertNames& names);
/// The same with the names of most families.
void lay_out_experts(const ModelSpec& spec, LayerBuilder& layer);

}  // namespace automodel::arch
