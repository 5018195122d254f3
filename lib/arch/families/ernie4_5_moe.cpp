#include "arch/families/decoder.h"
#include "arch/families/experts.h"
#include "arch/families/family.h"

namespace automodel::arch {
namespace ernie4_5_moe {

void read(ConfigReader& config, ModelSpec& spec) {
  DecoderDefaults defaults;
  defaults.max_positions = 131072;
  defaults.norm_eps = 1e-5;
  defaults.rope_theta = 500'000.0;
  defaults.kv_heads = 4;
  defaults.tied = true;
  defaults.pad_token = 0;
  read_decoder(config, spec, defaults);
  spec.rope.interleaved = true;
  spec.qkv_bias = spec.output_bias = spec.mlp_bias = spec.head_bias = config.boolean({"use_bias"}, false);
  if (spec.head_bias && spec.tied_embeddings)
    config.bad_value("use_bias", "a head that is tied to the embedding and has a bias is not supported",
                     "use tie_word_embeddings: false, or use_bias: false");
  auto& moe = read_experts(config, spec, {"moe_num_experts", "num_experts", "num_local_experts"}, 0.001,
                           {"moe_k", "num_experts_per_tok"});
  moe.ffn = uniform(config, "moe_intermediate_size", 1536);
  moe.shared_ffn = moe.ffn * config.integer({"moe_num_shared_experts"}, 2, 0, 256);
  moe.shared_bias = spec.mlp_bias;
  moe.float_router = true;
  moe.correction_bias = true;
  moe.normalize_least = config.number({"moe_norm_min"}, 1e-12);
  const int start = uniform(config, "moe_layer_start_index", 1), end = uniform(config, "moe_layer_end_index", -1);
  const int last = end < 0 ? spec.layers - 1 : end,
            interval = config.integer({"moe_layer_interval"}, 1, 1, kMostLayers);
  for (int i = 0; i < spec.layers; ++i)
    spec.moe_layers[static_cast<std::size_t>(i)] = (i + 1) % interval == 0 && i >= start && i <= last;
  config.ignore({"moe_capacity", "moe_gate", "moe_use_aux_free", "moe_gate_act"});
  check_experts(config, spec);
}

void lay_out_layer(const ModelSpec& spec, int number, LayerBuilder& layer) {
  const auto experts = [](const ModelSpec& of, LayerBuilder& to) {
    lay_out_experts(of, to, {.router_bias = "mlp.moe_statics.e_score_correction_bias", .router_bias_row = true});
  };
  lay_out_blocks(spec, layer, {}, spec.is_moe(number) ? LayOut(experts) : LayOut(lay_out_mlp));
}

}  // namespace ernie4_5_moe

extern const Family kErnie45Moe = {
    "ernie4_5_moe",     "Ernie4_5_MoeForCausalLM",   "ERNIE 4.5 with experts, shared ones and a routing bias",
    ernie4_5_moe::read, ernie4_5_moe::lay_out_layer, divide_by_part};

}  // namespace automodel::arch
