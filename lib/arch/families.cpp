#include "arch/families.h"

#include <algorithm>
#include <array>

#include "arch/families/decoder.h"

namespace automodel::arch {

// One file of families/ each.
extern const Family kLlama;
extern const Family kMistral;
extern const Family kQwen2;
extern const Family kQwen3;
extern const Family kGemma2;
extern const Family kGemma3Text;
extern const Family kGpt2;
extern const Family kPhi3;
extern const Family kMixtral;
extern const Family kQwen3Moe;
extern const Family kDeepseekV3;
extern const Family kGptOss;
extern const Family kUnknownFamily;

namespace {

constexpr std::array<const Family*, 12> kFamilies = {
    &kLlama, &kMistral, &kQwen2,   &kQwen3,    &kGemma2,     &kGemma3Text,
    &kGpt2,  &kPhi3,    &kMixtral, &kQwen3Moe, &kDeepseekV3, &kGptOss,
};

}  // namespace

std::span<const Family* const> families() {
  return kFamilies;
}

const Family* find_family(std::string_view model_type) {
  const auto found = std::find_if(kFamilies.begin(), kFamilies.end(),
                                  [&](const Family* family) { return family->model_type == model_type; });
  return found == kFamilies.end() ? nullptr : *found;
}

const Family& unknown_family() {
  return kUnknownFamily;
}

std::vector<std::string_view> family_names() {
  std::vector<std::string_view> out;
  out.reserve(kFamilies.size());
  for (const Family* family : kFamilies) out.push_back(family->model_type);
  return out;
}

Layout layout_of(const ModelSpec& spec) {
  const Family* known = find_family(spec.model_type);
  const Family& family = known != nullptr ? *known : kUnknownFamily;
  Layout out;
  out.moe_layers = spec.moe_layers;
  (family.lay_out_ends != nullptr ? family.lay_out_ends : lay_out_llama_ends)(spec, out);
  const bool some_moe = std::find(spec.moe_layers.begin(), spec.moe_layers.end(), true) != spec.moe_layers.end();
  const bool some_dense = std::find(spec.moe_layers.begin(), spec.moe_layers.end(), false) != spec.moe_layers.end();
  LayerBuilder dense(out.dense_layer);
  LayerBuilder moe(out.moe_layer);
  if (some_dense) family.lay_out_layer(spec, false, dense);
  if (some_moe) family.lay_out_layer(spec, true, moe);
  out.head_parameter = {out.head + ".weight", {spec.vocab, spec.hidden}, Role::kHead, 1, true, true};
  if (spec.tied_embeddings) out.head_tied_to = out.embedding_parameters.front().name;
  return out;
}

}  // namespace automodel::arch
