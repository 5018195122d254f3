#include <cmath>
#include <string>

#include <fmt/format.h>

#include "arch/families/decoder.h"
#include "arch/families/experts.h"
#include "arch/families/family.h"
#include "arch/families/latent.h"
#include "arch/rope_config.h"

namespace automodel::arch {
namespace mistral4 {

/// The config gives RoPE's width twice: as qk_rope_head_dim, and as a share of the whole head.
void check_rotary_share(ConfigReader& config, const ModelSpec& spec) {
  auto scaling = rope_settings(config);
  const auto share = scaling ? scaling->number("partial_rotary_factor") : config.number("partial_rotary_factor");
  const auto& latent = *spec.latent;
  if (share && std::abs(*share * (latent.nope_dim + latent.rope_dim) - latent.rope_dim) >= 1)
    config.bad_value(
        "qk_rope_head_dim",
        fmt::format("'qk_rope_head_dim' is {}, and 'partial_rotary_factor' {} of a head's {} rotates {:.0f}",
                    latent.rope_dim, *share, latent.nope_dim + latent.rope_dim,
                    std::floor(*share * (latent.nope_dim + latent.rope_dim))),
        "leave partial_rotary_factor out");
}

void read(ConfigReader& config, ModelSpec& spec) {
  DecoderDefaults defaults;
  defaults.max_positions = 1048576;
  defaults.partial_rotary = 1.0;  // checked below
  defaults.pad_token = 11;
  config.ignore({"pretraining_tp"});
  read_latent_decoder(config, spec, defaults,
                      {.q_rank = 1024, .kv_rank = 256, .nope_dim = 64, .rope_dim = 64, .v_dim = 128});
  check_rotary_share(config, spec);
  spec.rope.rotary_dim = spec.latent->rope_dim;
  spec.rope.interleaved = config.boolean({"rope_interleave"}, true);
  read_query_growth(config, spec);

  auto& moe = read_experts(config, spec, {"n_routed_experts", "num_local_experts", "num_experts"}, 0.0);
  moe.ffn = config.required({"moe_intermediate_size"}, 1, kMostWidth);
  moe.float_router = moe.joined = true;
  moe.groups = config.integer({"n_group"}, 1, 1, kMostLayers);
  moe.top_groups = config.integer({"topk_group"}, 1, 1, kMostLayers);
  moe.normalize_top_k = config.boolean({"norm_topk_prob"}, true);
  moe.normalize_added = 1e-20;
  moe.scaling = config.number({"routed_scaling_factor"}, 1.0);
  moe.shared_ffn = moe.ffn * config.integer({"n_shared_experts"}, 1, 0, 256);
  leave_dense(spec, config.integer({"first_k_dense_replace"}, 0, 0, kMostLayers));
  check_experts(config, spec);
}

void lay_out_layer(const ModelSpec& spec, int number, LayerBuilder& layer) {
  lay_out_blocks(spec, layer, {}, spec.is_moe(number) ? LayOut(lay_out_experts) : LayOut(lay_out_mlp),
                 lay_out_latent_attention);
}

}  // namespace mistral4

extern const Family kMistral4 = {
    "mistral4",     "Mistral4ForCausalLM",   "Mistral 4: latent attention, queries scaled by position, grouped experts",
    mistral4::read, mistral4::lay_out_layer, divide_by_part};

}  // namespace automodel::arch
