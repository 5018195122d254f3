#include <string>

#include "arch/families/decoder.h"
#include "arch/families/experts.h"
#include "arch/families/family.h"
#include "arch/families/granite_scales.h"

namespace automodel::arch {
namespace granitemoe {

void read(ConfigReader& config, ModelSpec& spec) {
  read_decoder(config, spec, {});
  read_granite_scales(config, spec);
  spec.qkv_bias = spec.output_bias = config.boolean({"attention_bias"}, false);
  auto& moe = read_experts(config, spec, {"num_local_experts"}, 0.001);
  moe.ffn = spec.ffn;
  moe.joined = true;
  moe.score = RouterScore::kSoftmaxOfChosen;
  moe.shared_ffn = config.integer({"shared_intermediate_size"}, 0, 0, kMostWidth);
  check_experts(config, spec);
}

void lay_out_granite_experts(const ModelSpec& spec, LayerBuilder& layer) {
  layer.linear(Part::kRouter, "block_sparse_moe.router.layer", spec.hidden, spec.moe->experts);
  lay_out_each_expert(spec, layer, {.experts = "block_sparse_moe.experts"});
  if (spec.moe->shared_ffn == 0) return;
  layer.linear(Part::kSharedGateUp, "shared_mlp.input_linear", spec.hidden, std::int64_t{2} * spec.moe->shared_ffn);
  layer.linear(Part::kSharedDown, "shared_mlp.output_linear", spec.moe->shared_ffn, spec.hidden);
}

void lay_out_layer(const ModelSpec& spec, int /*number*/, LayerBuilder& layer) {
  lay_out_blocks(spec, layer, {}, lay_out_granite_experts);
}

}  // namespace granitemoe

extern const Family kGraniteMoe = {"granitemoe", "GraniteMoeForCausalLM", "Granite 3 with experts", granitemoe::read,
                                   granitemoe::lay_out_layer};
/// The same with a shared expert. With hybrid layers it is a different family.
extern const Family kGraniteMoeShared = {"granitemoeshared", "GraniteMoeSharedForCausalLM",
                                         "Granite 3 with experts and a shared one", granitemoe::read,
                                         granitemoe::lay_out_layer};

}  // namespace automodel::arch
