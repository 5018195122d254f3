#include "plan/storage_units.h"

#include <algorithm>
#include <array>
#include <cctype>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace automodel::plan {
namespace {

constexpr const char* kUnitsKey = "distributed.megatron_fsdp_unit_modules";
constexpr const char* kBufferKey = "distributed.fsdp_double_buffer";
constexpr std::array<std::string_view, 5> kLayerWords = {"decoderlayer", "transformerlayer", "transformerblock",
                                                         "block", "layer"};

/// Lower-case letters and digits only, so that "GPT2Block" and "gpt2_block" compare equal.
std::string plain(std::string_view text) {
  std::string out;
  for (const char c : text)
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

/// "qwen3moe" of "Qwen3MoeForCausalLM".
std::string family_of(const std::string& architecture) {
  return plain(architecture.substr(0, std::min(architecture.find("For"), architecture.find("LMHead"))));
}

}  // namespace

bool is_decoder_layer(std::string_view module_class, const arch::ModelSpec& spec) {
  const auto dot = module_class.rfind('.');
  const auto name = plain(dot == std::string_view::npos ? module_class : module_class.substr(dot + 1));
  for (const auto word : kLayerWords) {
    if (!name.ends_with(word)) continue;
    const auto family = name.substr(0, name.size() - word.size());
    return family.empty() || family == family_of(spec.architecture) || family == plain(spec.model_type);
  }
  return false;
}

void choose_storage_units(Sharding& sharding, const config::DistributedConfig& distributed, const arch::ModelSpec* spec,
                          Located& report) {
  const auto* megatron = std::get_if<config::MegatronFSDPConfig>(&distributed.strategy());
  if (megatron == nullptr) return;
  if (const auto& classes = megatron->megatron_fsdp_unit_modules(); classes && spec != nullptr) {
    const bool named =
        std::ranges::any_of(*classes, [&](const std::string& each) { return is_decoder_layer(each, *spec); });
    if (!sharding.parameters) {
      report.warn("no-effect", kUnitsKey)
          .says("unit modules define what is gathered together, but no parameters are sharded")
          .hint("set distributed.zero_dp_strategy: 3, or remove the key");
    } else if (!named && !sharding.whole_stage) {
      sharding.whole_stage = true;
      sharding.double_buffer = false;
      sharding.bucket_bytes.reset();
      report.warn("unit-modules", kUnitsKey)
          .says(
              "none of [{}] is the decoder layer of {}: a whole stage is gathered at once and stays "
              "gathered until its backward pass is done",
              fmt::join(*classes, ", "), spec->architecture)
          .hint("name the model's decoder layer, or remove the key: layers are then units");
    }
  }
  if (megatron->fsdp_double_buffer() && !sharding.double_buffer)
    report.warn("no-effect", kBufferKey)
        .says(!sharding.parameters ? "no parameters are gathered for use"
              : sharding.whole_stage
                  ? "a stage is one unit: there is nothing to alternate with"
                  : "gathered parameters are kept until the backward pass: each layer needs its own buffer")
        .hint("it takes effect with zero_dp_strategy 3, without a pipeline, if layers are units");
}

}  // namespace automodel::plan
