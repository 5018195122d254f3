#include "arch/families/decoder.h"
#include "arch/families/family.h"
#include "arch/tensor_plan.h"

namespace automodel::arch {
namespace phi3 {

void read(ConfigReader& config, ModelSpec& spec) {
  DecoderDefaults defaults;
  defaults.max_positions = 4096;
  defaults.norm_eps = 1e-5;
  defaults.partial_rotary = 1.0;
  defaults.pad_token = 32000;
  read_decoder(config, spec, defaults);
  read_uniform_window(config, spec, 0);
  spec.embedding_dropout = config.number({"embd_pdrop"}, 0.0);
  spec.residual_dropout = config.number({"resid_pdrop"}, 0.0);
}

void lay_out_joined_attention(const ModelSpec& spec, LayerBuilder& layer) {
  const auto query = std::int64_t{spec.heads} * spec.head_dim;
  const auto key = std::int64_t{spec.kv_heads} * spec.head_dim;
  layer.linear(Part::kQkv, "self_attn.qkv_proj", spec.hidden, query + 2 * key);
  layer.linear(Part::kAttentionOut, "self_attn.o_proj", query, spec.hidden);
}

void lay_out_layer(const ModelSpec& spec, int /*number*/, LayerBuilder& layer) {
  lay_out_blocks(spec, layer, {}, lay_out_joined_mlp, lay_out_joined_attention);
}

/// Outputs of fused projections are gathered before they are split.
void plan_tensors(const Layout& layout, TensorPlan& plan) {
  const auto add = [&](const char* module, TensorStyle style) {
    plan.rows.emplace_back(layout.layers + ".*." + module, style);
  };
  add("self_attn.qkv_proj", TensorStyle::kColwiseGathered);
  add("self_attn.o_proj", TensorStyle::kRowwiseSplit);
  add("mlp.gate_up_proj", TensorStyle::kColwiseGathered);
  add("mlp.down_proj", TensorStyle::kRowwiseSplit);
}

}  // namespace phi3

extern const Family kPhi3 = {"phi3",     "Phi3ForCausalLM",   "Phi 3 and 4: Llama with fused projections and LongRoPE",
                             phi3::read, phi3::lay_out_layer, phi3::plan_tensors};

}  // namespace automodel::arch
