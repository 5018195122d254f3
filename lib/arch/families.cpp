#include "arch/families.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "arch/families/decoder.h"

namespace automodel::arch {

// Each is defined in its own file in families/.
extern const Family kLlama;
extern const Family kMistral;
extern const Family kQwen2;
extern const Family kQwen3;
extern const Family kGemma2;
extern const Family kGemma3Text;
extern const Family kGemma4Text;
extern const Family kGpt2;
extern const Family kPhi3;
extern const Family kMixtral;
extern const Family kQwen3Moe;
extern const Family kDeepseekV3;
extern const Family kGptOss;
extern const Family kGranite;
extern const Family kGraniteMoe;
extern const Family kGraniteMoeShared;
extern const Family kCohere;
extern const Family kCohere2;
extern const Family kPhi;
extern const Family kGemma;
extern const Family kHelium;
extern const Family kGlm;
extern const Family kGlm4;
extern const Family kOlmo;
extern const Family kOlmo2;
extern const Family kOlmo3;
extern const Family kStarcoder2;
extern const Family kSeedOss;
extern const Family kErnie45;
extern const Family kErnie45Moe;
extern const Family kMinistral;
extern const Family kMinistral3;
extern const Family kSmolLm3;
extern const Family kStableLm;
extern const Family kExaone4;
extern const Family kNemotron;
extern const Family kArcee;
extern const Family kHunyuanDense;
extern const Family kHunyuanMoe;
extern const Family kApertus;
extern const Family kGptNeox;
extern const Family kOpt;
extern const Family kFalcon;
extern const Family kQwen2Moe;
extern const Family kGlm4Moe;
extern const Family kGlm4MoeLite;
extern const Family kDots1;
extern const Family kMiniMaxM2;
extern const Family kDeepseekV2;
extern const Family kOlmoe;
extern const Family kFlexOlmo;
extern const Family kPhimoe;
extern const Family kQwen3Next;
extern const Family kQwen35;
extern const Family kQwen35Moe;
extern const Family kNemotronH;
extern const Family kFalconH1;
extern const Family kBamba;
extern const Family kMamba2;
extern const Family kLfm2;
extern const Family kLfm2Moe;
extern const Family kKimiLinear;
extern const Family kBailingHybrid;
extern const Family kHyV3;
extern const Family kBailingMoe;
extern const Family kBaichuan;
extern const Family kDeepseekV32;
extern const Family kDeepseekV4;
extern const Family kGlmMoeDsa;
extern const Family kNemotronNas;
extern const Family kMistral4;
extern const Family kMiMoV2Flash;
extern const Family kLaguna;
extern const Family kMuseGlimmer;
extern const Family kMiniMaxM3;
extern const Family kStep35;
extern const Family kUnknownFamily;

namespace {

constexpr std::array kFamilies = {
    &kLlama,       &kMistral,       &kQwen2,       &kQwen3,       &kGemma2,
    &kGemma3Text,  &kGpt2,          &kPhi3,        &kMixtral,     &kQwen3Moe,
    &kDeepseekV3,  &kGptOss,        &kGranite,     &kGraniteMoe,  &kGraniteMoeShared,
    &kCohere,      &kCohere2,       &kPhi,         &kGemma,       &kHelium,
    &kGlm,         &kGlm4,          &kOlmo,        &kOlmo2,       &kOlmo3,
    &kStarcoder2,  &kSeedOss,       &kErnie45,     &kErnie45Moe,  &kMinistral,
    &kMinistral3,  &kSmolLm3,       &kStableLm,    &kExaone4,     &kNemotron,
    &kArcee,       &kHunyuanDense,  &kHunyuanMoe,  &kApertus,     &kGptNeox,
    &kOpt,         &kFalcon,        &kQwen2Moe,    &kGlm4Moe,     &kGlm4MoeLite,
    &kDots1,       &kMiniMaxM2,     &kDeepseekV2,  &kOlmoe,       &kFlexOlmo,
    &kPhimoe,      &kQwen3Next,     &kQwen35,      &kQwen35Moe,   &kNemotronH,
    &kFalconH1,    &kBamba,         &kMamba2,      &kLfm2,        &kLfm2Moe,
    &kKimiLinear,  &kBailingHybrid, &kHyV3,        &kBailingMoe,  &kBaichuan,
    &kDeepseekV32, &kGlmMoeDsa,     &kNemotronNas, &kMistral4,    &kGemma4Text,
    &kDeepseekV4,  &kMiMoV2Flash,   &kLaguna,      &kMuseGlimmer, &kMiniMaxM3,
    &kStep35,
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
  (family.lay_out_ends != nullptr ? family.lay_out_ends : lay_out_llama_ends)(spec, out);
  // Layer kinds differ in mixer, presence and width of the feed-forward block, experts and how they are chosen, token
  // index, heads, keys and compression.
  std::map<std::tuple<Mixer, bool, int, bool, bool, bool, bool, bool, int>, int> kinds;
  for (int layer = 0; layer < spec.layers; ++layer) {
    const bool chooses = spec.index && spec.index->chooses(layer);
    const auto [kind, fresh] = kinds.try_emplace(
        {spec.mixer(layer), spec.has_feed(layer), spec.ffn_of(layer), spec.is_moe(layer), chooses,
         spec.has_full_heads(layer), spec.has_keys(layer), spec.has_expert_table(layer), spec.compression(layer)},
        static_cast<int>(out.kinds.size()));
    out.kind_of.push_back(kind->second);
    if (!fresh) continue;
    LayerBuilder builder(spec, out.kinds.emplace_back());
    family.lay_out_layer(spec, layer, builder);
  }
  if (spec.vision) lay_out_vision(*spec.vision, spec.hidden, out);
  if (spec.classes > 0) out.head = "score", out.whole_head = true;
  out.head_parameter = {
      .name = out.head + ".weight", .shape = {spec.outputs(), spec.hidden}, .role = Role::kHead, .matrix = true};
  if (spec.head_bias)
    out.head_bias = {.name = out.head + ".bias", .shape = {spec.vocab}, .role = Role::kHead, .initial = Initial::kZero};
  if (spec.tied_embeddings) out.head_tied_to = out.embedding_parameters.front().name;
  return out;
}

}  // namespace automodel::arch
