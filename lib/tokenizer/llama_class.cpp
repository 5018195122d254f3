#include "tokenizer/llama_class.h"

#include <algorithm>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/json_depth.h"
#include "tokenizer/unicode.h"

namespace automodel::tokenizer {
namespace {

using nlohmann::json;

/// Model types whose tokenizer.json transformers 5.23 reads as written although it names LlamaTokenizer: those that
/// TOKENIZER_MAPPING_NAMES maps to TokenizersBackend or MistralCommonBackend, and those of
/// MODELS_WITH_INCORRECT_HUB_TOKENIZER_CLASS. Each between spaces.
constexpr std::string_view kAsWritten =
    " EvollaModel arctic aria beam bigbird_pegasus camembertv2-base canary chatlm cohere_asr ernie4_5 ernie4_5_moe"
    " flex_olmo fuyu glm glm4 glm4_moe glm4_moe_lite glm4v glm4v_moe glm_image glmasr got_ocr2 gpt_bigcode"
    " gradium_phonon_tts granite granitemoe granitemoehybrid granitemoeshared h2ovl_chat hyperclovax"
    " hyperclovax_vision_v2 hyperclovax_vlm internlm2 internlm3 iquestcoder jamba kimi_k25 kimi_linear kosmos-2"
    " llava llava_next mimo_v2_flash minicpm3 minicpm_ocr minicpmv minicpmv4_6 minicpmv4_7 minimax_m2 ministral"
    " ministral3 mistral mistral3 mistral_large4 mixtral modernbert modernbert-decoder molmo molmo2 nemo_speechlm"
    " nemotron nvfp4 nystromformer olmo2 olmo3 olmo_hybrid opencua openvla paddleocr_vl pegasus_x persimmon phi3"
    " phi3_v phimoe pix2struct pixtral pocket_tts qwen2 qwen3_5 qwen3_5_moe qwen3_5_moe_text qwen4_exp siglip2"
    " smolvlm stablelm step3_vl umt5 vipllava voxtral voxtral_realtime xlm-roberta-xl"
    " ";

bool is_byte_level(const json& part) {
  if (!part.is_object()) return false;
  if (part.value("type", json()) == "ByteLevel") return true;
  for (const char* list : {"pretokenizers", "decoders"})
    if (const auto found = part.find(list); found != part.end() && found->is_array())
      return std::ranges::any_of(*found, is_byte_level);
  return false;
}

/// An object; empty if the text is none. Broken files are reported where they are read.
json object_of(const std::optional<std::string>& text) {
  if (nesting_of(text.value_or("")) > kDeepestJson) return json::object();
  auto out = json::parse(text.value_or("{}"), nullptr, false);
  return out.is_object() ? out : json::object();
}

std::string text_of(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

bool has_own_code(const json& config) {
  const auto found = config.find("auto_map");
  return found != config.end() && (found->is_array() || (found->is_object() && found->contains("AutoTokenizer")));
}

/// A member as Python would read it; `otherwise` if absent or null.
bool truth(const json& config, const char* key, bool otherwise) {
  const auto found = config.find(key);
  return found != config.end() && found->is_boolean() ? found->get<bool>() : otherwise;
}

}  // namespace

bool rebuild_as_llama(json& document, const std::optional<std::string>& config,
                      const std::optional<std::string>& model) {
  const auto own = object_of(config), whole = object_of(model);
  auto name = text_of(own, "tokenizer_class");
  if (name.empty()) name = text_of(whole, "tokenizer_class");
  if ((name != "LlamaTokenizer" && name != "LlamaTokenizerFast") || has_own_code(own)) return false;
  if (kAsWritten.find(" " + text_of(whole, "model_type") + " ") != kAsWritten.npos) return false;
  if (is_byte_level(document.value("pre_tokenizer", json())) || is_byte_level(document.value("decoder", json())))
    return false;
  const bool prefix = truth(own, "add_prefix_space", true);
  const json mark = kSpaceMark;
  document["normalizer"] = nullptr;
  document["pre_tokenizer"] = {{"type", "Metaspace"},
                               {"replacement", mark},
                               {"prepend_scheme", !prefix                       ? "never"
                                                  : truth(own, "legacy", false) ? "always"
                                                                                : "first"},
                               {"split", false}};
  json steps = json::array({{{"type", "Replace"}, {"pattern", {{"String", mark}}}, {"content", " "}},
                            {{"type", "ByteFallback"}},
                            {{"type", "Fuse"}}});
  if (prefix) steps.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  document["decoder"] = {{"type", "Sequence"}, {"decoders", std::move(steps)}};
  return true;
}

}  // namespace automodel::tokenizer
