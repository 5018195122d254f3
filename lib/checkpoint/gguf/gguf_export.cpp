#include "checkpoint/gguf/gguf_export.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <numbers>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "arch/families.h"
#include "arch/hf_config.h"
#include "arch/modules.h"
#include "base/error.h"
#include "checkpoint/format/adapter.h"
#include "checkpoint/format/elements.h"
#include "checkpoint/format/export.h"
#include "checkpoint/format/file.h"
#include "checkpoint/format/weight_names.h"
#include "checkpoint/gguf/gguf_vocabulary.h"

namespace automodel::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kAtOnce = std::int64_t{1} << 20U;  // elements; whole blocks

struct GgufFamily {
  std::string_view model_type, architecture;
  bool paired = false;  ///< llama.cpp rotates pairs of adjacent rows: those of q and k are reordered
};
constexpr std::array kFamilies = {GgufFamily{"llama", "llama", true}, GgufFamily{"mistral", "llama", true},
                                  GgufFamily{"qwen2", "qwen2"}, GgufFamily{"qwen3", "qwen3"},
                                  GgufFamily{"qwen3_moe", "qwen3moe"}};

struct NamePair {
  std::string_view ours, theirs;
};
constexpr std::array kEnds = {NamePair{"model.embed_tokens.", "token_embd."}, NamePair{"model.norm.", "output_norm."},
                              NamePair{"lm_head.", "output."}};
constexpr std::array kOfLayers = {
    NamePair{"input_layernorm.", "attn_norm."},    NamePair{"self_attn.q_proj.", "attn_q."},
    NamePair{"self_attn.k_proj.", "attn_k."},      NamePair{"self_attn.v_proj.", "attn_v."},
    NamePair{"self_attn.o_proj.", "attn_output."}, NamePair{"self_attn.q_norm.", "attn_q_norm."},
    NamePair{"self_attn.k_norm.", "attn_k_norm."}, NamePair{"post_attention_layernorm.", "ffn_norm."},
    NamePair{"mlp.gate_proj.", "ffn_gate."},       NamePair{"mlp.up_proj.", "ffn_up."},
    NamePair{"mlp.down_proj.", "ffn_down."},       NamePair{"mlp.gate.", "ffn_gate_inp."}};
constexpr std::array kOfExperts = {NamePair{"gate_proj.", "ffn_gate_exps."}, NamePair{"up_proj.", "ffn_up_exps."},
                                   NamePair{"down_proj.", "ffn_down_exps."}};

[[noreturn]] void refuse(const std::string& what) {
  std::vector<std::string_view> known;
  for (const auto& family : kFamilies) known.push_back(family.model_type);
  throw Error(ExitCode::kBadInput,
              Diagnostic{"unsupported-model"}
                  .says("a GGUF file cannot say {}", what)
                  .hint("families that are written: {}; the Hugging Face folder has no such limit: leave --gguf out",
                        fmt::join(known, ", "))
                  .at({"command line", 0, 0}));
}

const GgufFamily& family_of(const arch::ModelSpec& spec) {
  for (const auto& family : kFamilies)
    if (family.model_type == spec.model_type) return family;
  refuse(fmt::format("what a model of type '{}' is", spec.model_type));
}

/// llama.cpp computes what its architecture says, whatever config.json says beside it.
void check_settings(const arch::ModelSpec& spec, const GgufFamily& family) {
  using arch::RopeKind;
  const auto& rope = spec.rope;
  if (spec.vision) refuse("what a vision tower is");
  if (spec.activation != arch::Activation::kSilu || !spec.gated_mlp) refuse("which activation the MLP has");
  if (rope.rotary_dim != spec.head_dim) refuse("that only a part of each head is rotated");
  if (rope.interleaved || spec.sliding_rope || !spec.rope_layers.empty()) refuse("how its layers rotate");
  const bool known =
      rope.kind == RopeKind::kDefault || rope.kind == RopeKind::kLinear || rope.kind == RopeKind::kLlama3;
  // Its factors are a tensor, rope_freqs.weight, which llama.cpp reads for this architecture alone.
  if (rope.kind == RopeKind::kLlama3 && family.architecture != "llama")
    refuse(fmt::format("rope_type llama3 of a model of type '{}'", spec.model_type));
  if (!known) refuse(fmt::format("rope_type {} as transformers computes it", arch::name_of(rope.kind)));
  for (int layer = 0; layer < spec.layers; ++layer)
    if (spec.slides(layer) && spec.sliding_window < spec.max_positions) refuse("that its layers slide over a window");
  if ((spec.mlp_bias || spec.output_bias) && family.architecture != "llama") refuse("biases of these projections");
  if (spec.attention_scale != 0 || spec.attention_softcap != 0 || spec.logit_softcap != 0 || spec.logit_scale != 1 ||
      spec.residual_scale != 1 || spec.embedding_scale != 1)
    refuse("the model's scales");
  if (!spec.moe) return;
  const auto& moe = *spec.moe;
  if (std::find(spec.moe_layers.begin(), spec.moe_layers.end(), false) != spec.moe_layers.end())
    refuse("that some layers have no experts");
  if (!moe.normalize_top_k || moe.shared_ffn > 0 || moe.scaling != 1 || moe.groups != 1 || moe.bias)
    refuse("how its experts are chosen");
}

void add_settings(const arch::ModelSpec& spec, std::string_view arch, const std::string& name, GgufType type,
                  GgufHead& head) {
  const auto number = [&](const char* key, std::int64_t value) {
    head.add(fmt::format("{}.{}", arch, key), static_cast<std::uint32_t>(value));
  };
  const auto real = [&](const char* key, double value) {
    head.add(fmt::format("{}.{}", arch, key), static_cast<float>(value));
  };
  head.add("general.architecture", arch);
  head.add("general.type", "model");
  head.add("general.name", name);
  // llama.cpp's numbers of files with mostly such tensors.
  const std::map<GgufType, std::uint32_t> types = {
      {GgufType::kF32, 0}, {GgufType::kF16, 1}, {GgufType::kQ8_0, 7}, {GgufType::kBf16, 32}};
  head.add("general.file_type", types.at(type));
  head.add("general.quantization_version", std::uint32_t{2});
  number("vocab_size", spec.vocab);
  number("context_length", spec.max_positions);
  number("embedding_length", spec.hidden);
  number("block_count", spec.layers);
  number("feed_forward_length", spec.ffn);
  number("attention.head_count", spec.heads);
  number("attention.head_count_kv", spec.kv_heads);
  number("attention.key_length", spec.head_dim);
  number("attention.value_length", spec.head_dim);
  real("attention.layer_norm_rms_epsilon", spec.norm_eps);
  number("rope.dimension_count", spec.head_dim);
  real("rope.freq_base", spec.rope.theta);
  if (spec.rope.kind == arch::RopeKind::kLinear) {
    head.add(fmt::format("{}.rope.scaling.type", arch), "linear");
    real("rope.scaling.factor", spec.rope.factor);
  }
  if (spec.moe) {
    number("expert_count", spec.moe->experts);
    number("expert_used_count", spec.moe->top_k);
    number("expert_feed_forward_length", spec.moe->ffn);
  }
}

/// Divisors of the frequencies, by which llama.cpp expresses Llama 3's scaling (transformers' formula).
std::vector<float> frequency_factors(const arch::Rope& rope) {
  std::vector<float> out;
  const double longest = rope.original_max_positions / rope.low_freq_factor;
  const double shortest = rope.original_max_positions / rope.high_freq_factor;
  for (int i = 0; i < rope.rotary_dim; i += 2) {
    const double wave = 2 * std::numbers::pi * std::pow(rope.theta, static_cast<double>(i) / rope.rotary_dim);
    double factor = 1;
    if (wave > longest) {
      factor = rope.factor;
    } else if (wave >= shortest) {
      const double smooth =
          (rope.original_max_positions / wave - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
      factor = 1 / ((1 - smooth) / rope.factor + smooth);
    }
    out.push_back(static_cast<float>(factor));
  }
  return out;
}

/// A tensor of the file and the weights that it consists of: one, or one of each expert.
struct Planned {
  GgufTensor tensor = {};
  std::vector<WeightPlace> parts = {};
  std::vector<float> values = {};  ///< instead of parts
  bool paired = false;             ///< rows are put in pairs
};

/// The name in the file of a parameter; `expert` if it is one expert's part of a tensor.
std::optional<std::string> gguf_name(std::string_view fqn, bool& expert) {
  const auto replaced = [](std::string_view name, const auto& table) -> std::optional<std::string> {
    for (const auto& row : table)
      if (name.starts_with(row.ours)) return std::string(row.theirs) + std::string(name.substr(row.ours.size()));
    return std::nullopt;
  };
  constexpr std::string_view kLayers = "model.layers.", kExperts = "mlp.experts.";
  if (!fqn.starts_with(kLayers)) return replaced(fqn, kEnds);
  const auto dot = fqn.find('.', kLayers.size());
  if (dot == std::string_view::npos) return std::nullopt;
  auto rest = fqn.substr(dot + 1);
  expert = rest.starts_with(kExperts);
  if (expert) rest = rest.substr(std::min(rest.size(), rest.find('.', kExperts.size()) + 1));
  const auto found = expert ? replaced(rest, kOfExperts) : replaced(rest, kOfLayers);
  if (!found) return std::nullopt;
  return fmt::format("blk.{}.{}", fqn.substr(kLayers.size(), dot - kLayers.size()), *found);
}

std::vector<Planned> plan_tensors(const arch::ModelSpec& spec, const arch::Layout& layout, const WeightPlaces& places,
                                  bool paired, GgufType type) {
  std::vector<Planned> out;
  std::map<std::string, std::size_t> stacks;
  for (const auto& parameter : arch::parameters(layout)) {
    if (!parameter.tied_to.empty()) continue;  // llama.cpp takes the embedding where there is no head
    bool expert = false;
    const auto name = gguf_name(parameter.fqn, expert);
    if (!name) refuse(fmt::format("what '{}' is", parameter.fqn));
    if (const auto found = stacks.find(*name); found != stacks.end()) {
      auto& stack = out[found->second];
      stack.parts.push_back(places.at(parameter.fqn));
      ++stack.tensor.shape[0];
      continue;
    }
    Planned planned{.tensor = {.name = *name, .shape = {parameter.shape.begin(), parameter.shape.end()}}};
    planned.parts.push_back(places.at(parameter.fqn));
    const bool vector = planned.tensor.shape.size() == 1 || name->find("ffn_gate_inp") != std::string::npos;
    planned.tensor.type = vector                                                                   ? GgufType::kF32
                          : type == GgufType::kQ8_0 && planned.tensor.shape.back() % kQ8Block != 0 ? GgufType::kF16
                                                                                                   : type;
    planned.paired =
        paired && (name->find(".attn_q.") != std::string::npos || name->find(".attn_k.") != std::string::npos);
    if (expert) {
      planned.tensor.shape.insert(planned.tensor.shape.begin(), 1);
      stacks[*name] = out.size();
    }
    out.push_back(std::move(planned));
  }
  if (spec.rope.kind == arch::RopeKind::kLlama3) {
    Planned factors{.tensor = {.name = "rope_freqs.weight"}, .values = frequency_factors(spec.rope)};
    factors.tensor.shape = {static_cast<std::int64_t>(factors.values.size())};
    out.push_back(std::move(factors));
  }
  return out;
}

/// Blocks of 32: a scale in F16, and whole numbers of at most 127 times it.
std::string to_q8(const float* values, std::int64_t count) {
  std::string out;
  out.reserve(gguf_bytes(GgufType::kQ8_0, count));
  for (std::int64_t at = 0; at < count; at += kQ8Block) {
    float most = 0;
    for (std::int64_t i = 0; i < kQ8Block; ++i) most = std::max(most, std::fabs(values[at + i]));
    const float scale = most / 127.0F, inverse = scale > 0 ? 1 / scale : 0;
    const auto bits = to_f16(scale);
    out += static_cast<char>(bits & 0xFFU);
    out += static_cast<char>(bits >> 8U);
    for (std::int64_t i = 0; i < kQ8Block; ++i)
      out += static_cast<char>(static_cast<std::int8_t>(std::lround(values[at + i] * inverse)));
  }
  return out;
}

/// `count` elements from element `first` of a weight, in the file's type.
std::string read_converted(const WeightPlace& place, std::int64_t first, std::int64_t count, const GgufTensor& to) {
  const auto& info = *place.stored.info;
  const auto size = static_cast<std::uint64_t>(bits_of(info.type)) / 8;
  std::string bytes(static_cast<std::size_t>(count) * size, '\0');
  place.stored.file->read(info, static_cast<std::uint64_t>(place.first + first) * size, bytes.data(), bytes.size());
  std::vector<float> values(static_cast<std::size_t>(count));
  convert_elements(info.type, bytes.data(), ElementType::kF32, reinterpret_cast<char*>(values.data()), count);
  // Infinity is the largest value that F16 rounds to; a scale of Q8_0 is a 127th of one.
  const float limit = to.type == GgufType::kF16 ? 65520.0F : to.type == GgufType::kQ8_0 ? 65520.0F * 127 : INFINITY;
  for (const float value : values)
    if (!std::isfinite(value) || std::fabs(value) >= limit)
      throw Error(ExitCode::kBadInput,
                  Diagnostic{"bad-value"}
                      .says("'{}' has the value {}, which this type does not have", info.name, value)
                      .hint("name another one: '--type bf16' or '--type f32'")
                      .at({"command line", 0, 0}));
  if (to.type == GgufType::kQ8_0) return to_q8(values.data(), count);
  const auto type = to.type == GgufType::kF32   ? ElementType::kF32
                    : to.type == GgufType::kF16 ? ElementType::kF16
                                                : ElementType::kBF16;
  std::string out(gguf_bytes(to.type, count), '\0');
  convert_elements(ElementType::kF32, reinterpret_cast<const char*>(values.data()), type, out.data(), count);
  return out;
}

void write_tensor(const Planned& planned, std::int64_t head_dim, std::uint64_t begin, OutputFile& out) {
  const auto& tensor = planned.tensor;
  auto at = begin + tensor.offset;
  if (!planned.values.empty())
    return out.write(at, {reinterpret_cast<const char*>(planned.values.data()), planned.values.size() * sizeof(float)});
  const auto elements = tensor.elements() / static_cast<std::int64_t>(planned.parts.size());
  const auto columns = tensor.shape.size() > 1 ? tensor.shape.back() : 1;
  for (const auto& part : planned.parts) {
    const auto step = planned.paired ? columns : kAtOnce;
    for (std::int64_t first = 0; first < elements; first += step) {
      auto from = first;
      if (planned.paired) {
        // Rows i and head_dim / 2 + i of a head become 2 i and 2 i + 1.
        from = unpaired_row(first / columns, head_dim) * columns;
      }
      const auto bytes = read_converted(part, from, std::min(step, elements - first), tensor);
      out.write(at, bytes);
      at += bytes.size();
    }
  }
}

}  // namespace

GgufReport export_gguf(const fs::path& from, const fs::path& out, GgufType type) {
  const auto folder = model_folder_of(from);
  require_new(out, "file");
  if (is_there(folder / kAdapterConfig))
    throw Error(Diagnostic{"missing-option"}
                    .says("'{}' holds adapters, not a model", folder.native())
                    .hint("merge them first: 'automodel checkpoint export DIR MODEL --merge', and export that")
                    .at({"command line", 0, 0}));
  check_model_files(folder);
  Diagnostics problems;
  const auto config = read_file(folder / "config.json", problems, std::uint64_t{1} << 26U);
  if (!config) throw Error(ExitCode::kCheckpoint, std::move(problems));
  auto parsed = arch::parse_hf_config(*config, (folder / "config.json").native());
  if (!parsed.spec) throw Error(ExitCode::kCheckpoint, std::move(parsed.errors));
  const auto& spec = *parsed.spec;
  const auto& family = family_of(spec);
  check_settings(spec, family);
  const auto layout = arch::layout_of(spec);
  const auto weights = TensorFolder::open(folder, "model", problems);
  const auto places = weights ? find_weights(*weights, spec, layout, problems) : WeightPlaces{};
  if (!problems.empty()) throw Error(ExitCode::kCheckpoint, std::move(problems));

  GgufHead head;
  std::error_code error;
  const auto name = fs::absolute(out, error).stem().native();
  add_settings(spec, family.architecture, name, type, head);
  GgufReport report{.vocabulary = add_vocabulary(folder, spec, head)};
  auto planned = plan_tensors(spec, layout, places, family.paired, type);
  std::vector<GgufTensor> tensors;
  for (const auto& each : planned) tensors.push_back(each.tensor);
  const auto bytes = head.finish(tensors);
  report.tensors = tensors.size();
  report.bytes = bytes.size() + tensors.back().offset + gguf_bytes(tensors.back().type, tensors.back().elements());

  make_new(out, [&](const fs::path& made) {
    OutputFile file(made, OutputFile::Mode::kCreate);
    file.reserve(report.bytes);
    file.write(0, bytes);
    for (std::size_t i = 0; i < planned.size(); ++i) {
      planned[i].tensor = tensors[i];
      write_tensor(planned[i], spec.head_dim, bytes.size(), file);
    }
    file.sync();
  });
  return report;
}

}  // namespace automodel::checkpoint
