#include "checkpoint/format/adapter.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_depth.h"
#include "checkpoint/format/elements.h"
#include "checkpoint/format/file.h"

namespace automodel::checkpoint {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr std::string_view kPrefix = "base_model.model.";
constexpr std::string_view kMagnitudes = ".lora_magnitude_vector";

/// Matches the experts' modules in rank_pattern.
constexpr const char* kExpertPattern = ".*experts.*";

/// Suffix of an adapter matrix's name.
std::string_view end_of(char matrix) {
  return matrix == 'A' ? ".lora_A.weight" : ".lora_B.weight";
}

std::vector<float> read_all(const StoredTensor& stored) {
  std::vector<char> bytes(stored.info->bytes());
  stored.file->read(*stored.info, 0, bytes.data(), bytes.size());
  std::vector<float> out(static_cast<std::size_t>(stored.info->elements()));
  convert_elements(stored.info->type, bytes.data(), ElementType::kF32, reinterpret_cast<char*>(out.data()),
                   stored.info->elements());
  return out;
}

/// Keys of PEFT 0.21, each between spaces, whose effect is read here, is in the tensors (which are checked), or ended
/// with the training.
constexpr std::string_view kKnownKeys =
    " alpha_pattern auto_mapping base_model_name_or_path bias corda_config ensure_weight_tying eva_config"
    " exclude_modules fan_in_fan_out inference_mode init_lora_weights layers_pattern layers_to_transform"
    " loftq_config lora_alpha lora_bias lora_dropout lora_ga_config megatron_config megatron_core"
    " modules_to_save peft_type peft_version qalora_group_size r rank_pattern revision runtime_config"
    " target_modules target_parameters task_type trainable_token_indices use_dora use_rslora"
    " velora_config ";
/// Values of init_lora_weights that leave the base model's weights as they are; PiSSA's, OLoRA's, CorDA's, LoftQ's and
/// LoRA-GA's subtract what the adapters begin with.
constexpr std::string_view kOwnWeights = " gaussian eva orthogonal ";

bool is_set(const nlohmann::json& value) {
  return !(value.is_null() || value == false || value == 0 || value == "" || (value.is_structured() && value.empty()));
}

}  // namespace

double AdapterConfig::scale(std::int64_t of_rank) const {
  const auto each = static_cast<double>(of_rank);
  return alpha / (rank_stabilized ? std::sqrt(each) : each);
}

std::string to_json(const AdapterConfig& config) {
  OrderedJson out = {{"base_model_name_or_path", config.base_model},
                     {"bias", "none"},
                     {"fan_in_fan_out", config.transposed},
                     {"inference_mode", true},
                     {"init_lora_weights", true},
                     {"lora_alpha", config.alpha},
                     {"lora_dropout", config.dropout},
                     {"modules_to_save", nullptr},
                     {"peft_type", "LORA"},
                     {"r", config.rank},
                     {"target_modules", config.target_modules},
                     {"task_type", "CAUSAL_LM"},
                     {"use_dora", config.magnitudes},
                     {"use_rslora", config.rank_stabilized}};
  if (config.expert_rank > 0 && config.expert_rank != config.rank)
    out["rank_pattern"] = {{kExpertPattern, config.expert_rank}};
  return out.dump(2) + "\n";
}

std::optional<AdapterConfig> parse_adapter_config(std::string_view text, std::string_view file, Diagnostics& problems) {
  const auto refuse = [&](const std::string& what, const std::string& help) -> std::optional<AdapterConfig> {
    problems.add("adapter-config").says("'{}': {}", file, what).hint(help).at({std::string(file), 0, 0});
    return std::nullopt;
  };
  if (nesting_of(text) > kDeepestJson)
    return refuse(fmt::format("it nests more than {} levels", kDeepestJson), "the PEFT library writes it flat");
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) return refuse("it is not a JSON object", "the PEFT library writes it beside the adapters");
  try {
    AdapterConfig out;
    if (const auto type = json.value("peft_type", "LORA"); type != "LORA")
      return refuse(fmt::format("its peft_type is '{}'", type), "only LORA is supported");
    out.magnitudes = json.value("use_dora", false);
    for (const char* key : {"rank_pattern", "alpha_pattern"}) {
      const auto found = json.find(key);
      if (found == json.end() || !found->is_object() || found->empty()) continue;
      if (key != std::string_view("rank_pattern") || found->size() != 1 || !found->contains(kExpertPattern))
        return refuse(fmt::format("{} gives individual modules their own ranks", key),
                      "one rank for all, and one for experts, are supported");
      out.expert_rank = found->at(kExpertPattern).get<int>();
    }
    for (const auto& [key, value] : json.items())
      if (is_set(value) && kKnownKeys.find(" " + key + " ") == kKnownKeys.npos)
        return refuse(fmt::format("it sets '{}', which is not known", key), "it may change what the adapters compute");
    if (const auto found = json.find("init_lora_weights"); found != json.end() && found->is_string())
      if (const auto way = found->get<std::string>(); kOwnWeights.find(" " + way + " ") == kOwnWeights.npos)
        return refuse(
            fmt::format("init_lora_weights is '{}', which may have changed the base model's weights too", way),
            "convert the adapters with PEFT's path_initial_model_for_weight_conversion first");
    if (const auto found = json.find("base_model_name_or_path"); found != json.end() && found->is_string())
      out.base_model = found->get<std::string>();
    out.rank = json.value("r", 8);
    out.alpha = json.value("lora_alpha", 8.0);
    out.dropout = json.value("lora_dropout", 0.0);
    out.rank_stabilized = json.value("use_rslora", false);
    out.transposed = json.value("fan_in_fan_out", false);
    if (out.rank < 1) return refuse(fmt::format("r is {}", out.rank), "at least 1");
    if (const auto found = json.find("target_modules"); found != json.end() && found->is_array())
      out.target_modules = found->get<std::vector<std::string>>();
    return out;
  } catch (const OrderedJson::exception& error) {
    return refuse(error.what(), "the PEFT library writes it beside the adapters");
  }
}

std::optional<AdapterConfig> read_adapter_config(const std::filesystem::path& folder, Diagnostics& problems) {
  constexpr std::uint64_t kLongest = 1 << 24;
  const auto path = folder / kAdapterConfig;
  const auto text = read_file(path, problems, kLongest);
  return text ? parse_adapter_config(*text, path.native(), problems) : std::nullopt;
}

std::vector<std::string> adapted_modules(const std::filesystem::path& folder, Diagnostics& problems) {
  const auto tensors = TensorFolder::open(folder, kAdapterStem, problems);
  std::vector<std::string> out;
  if (!tensors) return out;
  for (const auto& stored : tensors->tensors()) {
    const std::string_view name = stored.info->name;
    if (name.starts_with(kPrefix) && name.ends_with(end_of('A')))
      out.emplace_back(name.substr(kPrefix.size(), name.size() - kPrefix.size() - end_of('A').size()));
    else if (!name.starts_with(kPrefix) || (!name.ends_with(end_of('B')) && !name.ends_with(kMagnitudes)))
      problems.add("adapter-shape")
          .says("'{}': tensor '{}' is not part of a LoRA adapter", folder.native(), printable(name, kMostShown))
          .hint("an adapter is a pair lora_A [r, in], lora_B [out, r] of floating-point matrices")
          .at({folder.native(), 0, 0});
  }
  return out;
}

std::string adapter_name(std::string_view weight, char matrix) {
  if (weight.ends_with(".weight")) weight.remove_suffix(7);
  return std::string(kPrefix) + std::string(weight) + std::string(end_of(matrix));
}

std::string stored_adapter_name(std::string_view matrix) {
  return std::string(kPrefix) + std::string(matrix);
}

std::optional<Adapters> Adapters::open(const std::filesystem::path& folder, Diagnostics& problems) {
  const auto config = read_adapter_config(folder, problems);
  const auto tensors = TensorFolder::open(folder, kAdapterStem, problems);
  if (!config || !tensors) return std::nullopt;
  Adapters out;
  out.config_ = *config;
  const auto refuse = [&](const std::string& name, const std::string& what) {
    problems.add("adapter-shape")
        .says("'{}': tensor '{}' {}", folder.native(), printable(name, kMostShown), what)
        .hint(config->magnitudes ? "an adapter is lora_A [r, in], lora_B [out, r] and lora_magnitude_vector "
                                   "[out], in floating point"
                                 : "an adapter is a pair lora_A [r, in], lora_B [out, r] of floating-point "
                                   "matrices")
        .at({folder.native(), 0, 0});
  };
  const std::size_t before = problems.size();
  for (const auto& stored : tensors->tensors()) {
    const std::string& name = stored.info->name;
    const bool a = name.ends_with(end_of('A')), b = name.ends_with(end_of('B'));
    if (name.starts_with(kPrefix) && name.ends_with(kMagnitudes) && config->magnitudes) continue;
    if (!name.starts_with(kPrefix) || (!a && !b)) {
      refuse(name, "is not part of a LoRA adapter");
      continue;
    }
    if (!a) continue;
    const std::string module = name.substr(kPrefix.size(), name.size() - kPrefix.size() - end_of('A').size());
    const auto other = tensors->find(adapter_name(module, 'B'));
    const auto& shape = stored.info->shape;
    if (!other || shape.size() != 2 || !config->has_rank(shape[0]) || other.info->shape.size() != 2 ||
        other.info->shape[1] != shape[0] || !is_weight_type(stored.info->type) || !is_weight_type(other.info->type)) {
      refuse(name, fmt::format("is {} and has {} beside it", describe(*stored.info),
                               other ? describe(*other.info) : std::string("no lora_B")));
      continue;
    }
    Matrices matrices{
        .a = read_all(stored), .b = read_all(other), .rank = shape[0], .in = shape[1], .out = other.info->shape[0]};
    if (config->magnitudes) {
      const auto lengths = tensors->find(std::string(kPrefix) + module + std::string(kMagnitudes));
      if (!lengths || lengths.info->shape != std::vector<std::int64_t>{matrices.out} ||
          !is_weight_type(lengths.info->type)) {
        refuse(name, fmt::format("has {} beside it",
                                 lengths ? describe(*lengths.info) : std::string("no lora_magnitude_vector")));
        continue;
      }
      matrices.magnitudes = read_all(lengths);
    }
    out.matrices_[module + ".weight"] = std::move(matrices);
  }
  if (problems.size() > before) return std::nullopt;
  return out;
}

std::vector<std::string> Adapters::place(const std::function<std::optional<Part>(const std::string&)>& find) {
  std::vector<std::string> missing;
  for (const auto& [weight, m] : matrices_) {
    const auto part = find(weight);
    if (!part) {
      missing.push_back(weight);
      continue;
    }
    // In GPT-2, too, the head is a Linear.
    const bool transposed = config_.transposed && !weight.ends_with("lm_head.weight");
    if (part->shape != (transposed ? std::vector{m.in, m.out} : std::vector{m.out, m.in}))
      throw Error(Diagnostic{"adapter-shape"}
                      .says("the adapter of '{}' is for [{}, {}], the weight is [{}]", weight, m.out, m.in,
                            fmt::join(part->shape, ", "))
                      .hint("the adapter belongs to another base model"));
    placed_[part->stored].push_back({&m, transposed, part->first, part->stride});
  }
  return missing;
}

bool Adapters::has_magnitudes(const std::string& stored) const {
  return !placed_.at(stored).front().matrices->magnitudes.empty();
}

void Adapters::add_squares(const std::string& stored, std::int64_t first, std::span<const float> values,
                           std::vector<double>& squares) const {
  // Weights that share a tensor are as wide: its rows are counted through.
  const auto& part = placed_.at(stored).front();
  const auto in = part.matrices->in, out = part.matrices->out;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto at = first + static_cast<std::int64_t>(i);
    const auto row = static_cast<std::size_t>(part.transposed ? at % out : at / in);
    if (row >= squares.size()) squares.resize(row + 1);
    squares[row] += double{values[i]} * values[i];
  }
}

void Adapters::scale_rows(const std::string& stored, std::int64_t first, const std::vector<double>& squares,
                          std::span<float> values) const {
  for (const auto& part : placed_.at(stored)) {
    const auto in = part.matrices->in, out = part.matrices->out;
    const auto& magnitudes = part.matrices->magnitudes;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto at = first + static_cast<std::int64_t>(i) - part.first;
      if (at < 0 || at >= in * out) continue;
      const auto row = static_cast<std::size_t>(part.transposed ? at % out : at / in);
      const auto square = squares[row + static_cast<std::size_t>(part.first / in)];
      if (square > 0) values[i] = static_cast<float>(values[i] * (magnitudes[row] / std::sqrt(square)));
    }
  }
}

void Adapters::add_to(const std::string& stored, std::int64_t first, std::span<float> values) const {
  const auto end = first + static_cast<std::int64_t>(values.size());
  // Elements [begin, begin + count) of the tensor are these of the weight, counted from `offset`.
  const auto add = [&](const Placed& part, bool transposed, std::int64_t begin, std::int64_t count,
                       std::int64_t offset) {
    const auto low = std::max(begin, first), high = std::min(begin + count, end);
    if (low < high)
      add_product(*part.matrices, transposed, offset + low - begin,
                  values.subspan(static_cast<std::size_t>(low - first), static_cast<std::size_t>(high - low)));
  };
  for (const auto& part : placed_.at(stored)) {
    const auto in = part.matrices->in, out = part.matrices->out;
    if (part.stride == 0) {
      add(part, part.transposed, part.first, in * out, 0);
    } else {  // a column of the weight is a run of the tensor
      for (std::int64_t column = 0; column < in; ++column)
        add(part, true, part.first + column * part.stride, out, column * out);
    }
  }
}

void Adapters::add_product(const Matrices& m, bool transposed, std::int64_t first, std::span<float> values) const {
  const auto factor = static_cast<float>(config_.scale(m.rank));
  const auto width = transposed ? m.out : m.in;
  const auto count = static_cast<std::int64_t>(values.size());
  for (std::int64_t at = 0; at < count;) {
    const auto row = (first + at) / width, column = (first + at) % width;
    const auto some = std::min(width - column, count - at);
    auto* to = values.data() + at;
    for (std::int64_t k = 0; k < m.rank; ++k) {
      // W[o, i] += scale * B[o, k] A[k, i]; W[i, o] if transposed.
      if (transposed) {
        const float left = factor * m.a[static_cast<std::size_t>(k * m.in + row)];
        for (std::int64_t i = 0; i < some; ++i)
          to[i] += left * m.b[static_cast<std::size_t>((column + i) * m.rank + k)];
      } else {
        const float left = factor * m.b[static_cast<std::size_t>(row * m.rank + k)];
        const auto* right = m.a.data() + k * m.in + column;
        for (std::int64_t i = 0; i < some; ++i) to[i] += left * right[i];
      }
    }
    at += some;
  }
}

}  // namespace automodel::checkpoint
