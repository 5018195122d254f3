// Module names shared by the Ling families.
#pragma once

#include "arch/families/decoder.h"
#include "arch/families/experts.h"
#include "arch/families/family.h"

namespace automodel::arch {

inline void lay_out_bailing_experts(const ModelSpec& spec, LayerBuilder& layer) {
  lay_out_experts(spec, layer, {.router_bias = "mlp.gate.expert_bias"});
}
inline void lay_out_bailing_ends(const ModelSpec& spec, Layout& layout) {
  lay_out_ends(spec, layout, {.embedding = "word_embeddings"});
}

}  // namespace automodel::arch
