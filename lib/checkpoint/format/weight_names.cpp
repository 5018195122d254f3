#include "checkpoint/format/weight_names.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <set>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "arch/families.h"
#include "arch/modules.h"

namespace automodel::checkpoint {
namespace {

using Shape = std::vector<std::int64_t>;

constexpr std::string_view kStep = "step3p5", kMiniMax = "minimax_m3_vl_text", kGranite = "granitemoe",
                           kQwenVl = "qwen3_vl_moe";

/// A stored tensor that may hold a parameter: its name, its expected shape, and where the parameter is in it
/// (WeightPlace).
struct Candidate {
  std::string name;
  Shape shape;
  std::int64_t first = 0;
  std::int64_t stride = 0;
};

/// `name` with the first occurrence of `from` replaced; "" if there is none.
std::string replaced(const std::string& name, std::string_view from, std::string_view to) {
  const auto at = name.find(from);
  return at == std::string::npos ? "" : name.substr(0, at) + std::string(to) + name.substr(at + from.size());
}

/// An expert's matrix within transformers 5's fused tensors.
struct FusedPart {
  std::string_view leaf;   ///< suffix of the expert's own name
  std::string_view fused;  ///< suffix of the fused tensor's name
  int half;                ///< which half of gate_up_proj
  int halves;
};
constexpr std::array<FusedPart, 6> kFusedParts = {{{"gate_proj.weight", "gate_up_proj", 0, 2},
                                                   {"up_proj.weight", "gate_up_proj", 1, 2},
                                                   {"down_proj.weight", "down_proj", 0, 1},
                                                   {"w1.weight", "gate_up_proj", 0, 2},
                                                   {"w3.weight", "gate_up_proj", 1, 2},
                                                   {"w2.weight", "down_proj", 0, 1}}};

/// A model's own tensors first; then, for Qwen3-VL, those of its published folders, where each expert's matrices are
/// transposed.
void add_fused(const arch::Parameter& parameter, const Shape& shape, const arch::ModelSpec& spec,
               std::vector<Candidate>& out) {
  const auto at = parameter.fqn.find(".experts.");
  if (parameter.expert < 0 || at == std::string::npos || shape.size() != 2) return;
  const std::int64_t experts = spec.moe->experts;
  for (const auto& part : kFusedParts) {
    if (!parameter.fqn.ends_with("." + std::string(part.leaf))) continue;
    const auto matrix = shape[0] * shape[1];
    const std::string_view granite = part.halves == 2 ? "input_linear.weight" : "output_linear.weight";
    const auto name =
        spec.model_type.starts_with(kGranite) ? std::string(granite) : "experts." + std::string(part.fused);
    out.push_back({parameter.fqn.substr(0, at) + "." + name,
                   {experts, part.halves * shape[0], shape[1]},
                   (std::int64_t{parameter.expert} * part.halves + part.half) * matrix});
    if (spec.nested_in != kQwenVl) continue;
    const auto wide = part.halves * shape[0];
    auto other = out.back();
    other.shape = {experts, shape[1], wide};
    other.first = std::int64_t{parameter.expert} * shape[1] * wide + part.half * shape[0];
    other.stride = wide;
    out.push_back(std::move(other));
  }
}

/// Folders of Step 3.5 hold each matrix of all experts of a layer as one tensor.
void add_stacked(const arch::Parameter& parameter, const Shape& shape, std::int64_t experts,
                 std::vector<Candidate>& out) {
  const auto each = fmt::format(".experts.{}.", parameter.expert);
  if (auto name = replaced(parameter.fqn, each, "."); parameter.expert >= 0 && !name.empty())
    out.push_back({std::move(name), {experts, shape[0], shape[1]}, parameter.expert * shape[0] * shape[1]});
}

/// A prefix of names in memory, and the published one.
using Prefixes = std::pair<std::string_view, std::string_view>;

/// Of models that are saved under published names, because transformers writes those, too.
std::span<const Prefixes> published_prefixes(const arch::ModelSpec& spec) {
  static constexpr std::array<Prefixes, 3> kOfStep = {{{"model.language_model.", "model."},
                                                       {"model.vision_model.", "vision_model."},
                                                       {"model.multi_modal_projector.", "vit_large_projector."}}};
  static constexpr std::array<Prefixes, 7> kOfMiniMax = {
      {{"model.language_model.", "language_model.model."},
       {"lm_head.", "language_model.lm_head."},
       {"model.vision_tower.embeddings.proj.", "vision_tower.vision_model.embeddings.patch_embedding."},
       {"model.vision_tower.layers.", "vision_tower.vision_model.encoder.layers."},
       {"model.vision_tower.", "vision_tower.vision_model."},
       {"model.multi_modal_projector.merge_", "patch_merge_mlp."},
       {"model.multi_modal_projector.", "multi_modal_projector."}}};
  if (spec.nested_in == "step3p7") return kOfStep;
  if (spec.nested_in == "minimax_m3_vl") return kOfMiniMax;
  return {};
}

/// MiniMax-M3's language model as transformers stores it by itself: experts joined, gates and ups of other blocks too.
Candidate minimax_in_transformers(const arch::Parameter& parameter, const Shape& shape, const arch::ModelSpec& spec) {
  std::vector<Candidate> joined;
  add_fused(parameter, shape, spec, joined);
  auto out = joined.empty() ? Candidate{parameter.fqn, shape} : joined.front();
  for (const std::string_view half : {".gate_proj.weight", ".up_proj.weight"})
    if (parameter.fqn.ends_with(half) && parameter.role != arch::Role::kTower)
      out = {replaced(parameter.fqn, half, ".gate_up_proj.weight"),
             {2 * shape[0], shape[1]},
             half.starts_with(".up") ? shape[0] * shape[1] : 0};
  for (const auto& [own, other] :
       {std::pair(".block_sparse_moe.e_score", ".mlp.gate.e_score"), std::pair(".block_sparse_moe.", ".mlp."),
        std::pair(".self_attn.index_", ".self_attn.indexer.")})
    if (auto name = replaced(out.name, own, other); !name.empty()) out.name = std::move(name);
  return out;
}

/// Other names, as published and as transformers 5 writes them, that a model with a vision tower gives the tensor.
std::vector<std::string> nested_names(const std::string& name) {
  constexpr std::array<Prefixes, 12> kPrefixes = {
      {{"model.language_model.", "language_model.model."},
       {"model.language_model.", "model."},
       {"model.visual.", "visual."},
       {"lm_head.", "language_model.lm_head."},
       {"model.vision_tower.", "vision_tower."},
       {"model.vision_tower.", "vision_tower.vision_model."},
       {"model.multi_modal_projector.", "multi_modal_projector."},
       {"model.multi_modal_projector.", "vit_large_projector."},
       {"model.vision_model.", "vision_model."},
       {"model.vision_tower.embeddings.proj.", "vision_tower.vision_model.embeddings.patch_embedding."},
       {"model.vision_tower.layers.", "vision_tower.vision_model.encoder.layers."},
       {"model.multi_modal_projector.merge_", "patch_merge_mlp."}}};
  std::vector<std::string> out;
  for (const auto& [own, other] : kPrefixes)
    if (name.starts_with(own)) out.push_back(std::string(other) + name.substr(own.size()));
  return out;
}

/// Names of a model with a vision tower.
void add_nested(std::vector<Candidate>& out) {
  for (std::size_t i = 0, n = out.size(); i < n; ++i)
    for (auto& name : nested_names(out[i].name))
      out.push_back({std::move(name), out[i].shape, out[i].first, out[i].stride});
}

std::vector<Candidate> candidates(const arch::Parameter& parameter, const arch::ModelSpec& spec,
                                  const arch::Layout& layout) {
  const Shape shape(parameter.shape.begin(), parameter.shape.end());
  std::vector<Candidate> out = {{parameter.fqn, shape}};
  add_fused(parameter, shape, spec, out);
  if (spec.model_type == kStep) add_stacked(parameter, shape, spec.moe->experts, out);
  if (spec.model_type == kMiniMax) out.push_back(minimax_in_transformers(parameter, shape, spec));
  for (std::size_t i = 0, n = out.size(); i < n; ++i)  // Mixtral in transformers 5
    if (auto name = replaced(out[i].name, ".block_sparse_moe.", ".mlp."); !name.empty())
      out.push_back({std::move(name), out[i].shape, out[i].first, out[i].stride});
  if (spec.vision) add_nested(out);
  if (spec.hyper) {  // DeepSeek V4 as published; its other names follow from leaving out "model."
    if (parameter.role == arch::Role::kEmbedding) out.push_back({"embed.weight", shape});
    if (auto name = replaced(parameter.fqn, "model.hc_head.hc_", "hc_head_"); !name.empty())
      out.push_back({std::move(name), shape});
    if (auto name = replaced(parameter.fqn, ".attn.norm.", ".attn.kv_norm."); !name.empty())
      out.push_back({std::move(name), shape});
  }
  const std::string base = layout.base + ".";
  for (std::size_t i = 0, n = out.size(); i < n; ++i)
    if (out[i].name.starts_with(base))
      out.push_back({out[i].name.substr(base.size()), out[i].shape, out[i].first, out[i].stride});
  if (parameter.fqn == layout.head_tied_to) {  // last: a folder may have both
    const auto head = layout.head + ".weight";
    out.push_back({head, shape});
    if (spec.vision)
      for (auto& name : nested_names(head)) out.push_back({std::move(name), shape});
  }
  return out;
}

/// Whether a layer's tensor is of its keys and values.
bool is_of_keys(std::string_view name) {
  constexpr std::array<std::string_view, 4> kModules = {".self_attn.k_proj.", ".self_attn.v_proj.",
                                                        ".self_attn.k_norm.", ".self_attn.v_norm."};
  return std::ranges::any_of(kModules, [&](auto module) { return name.starts_with(module); });
}

/// Tensors that a folder may contain but that are not needed.
bool is_passed_over(std::string_view name, const arch::ModelSpec& spec, const arch::Layout& layout) {
  if (name.ends_with("rotary_emb.inv_freq") || name.ends_with(".embeddings.position_ids") ||
      name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias"))
    return true;
  if (!layout.head_tied_to.empty() && name == layout.head + ".weight") return true;
  if (spec.mtp_layers > 0 && name.starts_with("mtp.")) return true;                       // Qwen3-Next and Qwen3.5
  if (spec.model_type == "mimo_v2_flash" && name.starts_with("model.mtp.")) return true;  // its config has no number
  if (spec.model_type == kMiniMax && (name.starts_with("mtp.") || name.find(".mtp.") != std::string_view::npos))
    return true;
  if (spec.vision && spec.vision->kind == arch::TowerKind::kGemma4 &&
      (name.starts_with("model.audio_tower.") || name.starts_with("model.embed_audio.")))
    return true;
  const std::string layers = layout.layers + ".";
  if (!name.starts_with(layers)) return false;
  int layer = -1;
  const auto after = std::from_chars(name.data() + layers.size(), name.data() + name.size(), layer);
  if (layer >= 0 && layer < layout.layer_count() && !spec.has_keys(layer))  // which another layer lends
    return is_of_keys(std::string_view(after.ptr, static_cast<std::size_t>(name.data() + name.size() - after.ptr)));
  return layer >= layout.layer_count() && layer < layout.layer_count() + spec.mtp_layers;
}

/// "lm_head." if the model is a classifier, whose folder may hold the head of the language model that it was; else "".
std::string head_of_language_model(const arch::ModelSpec& spec) {
  if (spec.classes == 0) return "";
  auto language = spec;
  language.classes = 0;
  return arch::layout_of(language).head + ".";
}

bool is_quantized_part(std::string_view name) {
  constexpr std::array<std::string_view, 12> kEnds = {
      ".weight_scale",  ".weight_scale_inv", "_scales",        ".qweight", ".qzeros",           "_blocks",
      ".weight_packed", ".weight_shape",     ".weight.absmax", ".SCB",     ".weight.quant_map", ".activation_scale"};
  return std::any_of(kEnds.begin(), kEnds.end(), [&](std::string_view end) { return name.ends_with(end); });
}

/// Reports one problem for all names of a kind.
void report(Diagnostics& problems, const TensorFolder& folder, ProblemId id, std::string_view verb,
            std::string_view what, const std::vector<std::string>& names, std::string help) {
  if (names.empty()) return;
  constexpr std::size_t kMost = 5;
  const auto shown =
      std::vector<std::string>(names.begin(), names.begin() + std::ptrdiff_t(std::min(kMost, names.size())));
  std::string message = fmt::format("'{}' {} {} tensor{} {}: {}", folder.path().native(), verb, names.size(),
                                    names.size() == 1 ? "" : "s", what, fmt::join(shown, ", "));
  if (names.size() > kMost) message += fmt::format(", and {} more", names.size() - kMost);
  problems.add(id).says(std::move(message)).hint(std::move(help)).at({folder.path().native(), 0, 0});
}

}  // namespace

WeightPlaces find_weights(const TensorFolder& folder, const arch::ModelSpec& spec, const arch::Layout& layout,
                          Diagnostics& problems, WantedWeights wanted) {
  WeightPlaces places;
  std::set<const TensorInfo*> used;
  std::vector<std::string> missing, unexpected, misshaped, quantized;
  for (const auto& parameter : arch::parameters(layout)) {
    if (!parameter.tied_to.empty()) continue;
    StoredTensor stored;
    Candidate chosen;
    for (auto& candidate : candidates(parameter, spec, layout)) {
      const auto found = folder.find(candidate.name);
      if (!found || (stored && found.info->shape != candidate.shape)) continue;
      stored = found;
      chosen = std::move(candidate);
      if (stored.info->shape == chosen.shape) break;
    }
    if (!stored) {
      const bool fresh = wanted == WantedWeights::kBase && spec.classes > 0 && parameter.role == arch::Role::kHead;
      const bool buffer = wanted == WantedWeights::kTrainable && !parameter.trainable;
      if (!fresh && !buffer) missing.push_back(parameter.fqn);
      continue;
    }
    used.insert(stored.info);
    const auto type = stored.info->type;
    const bool numbers = parameter.part == arch::Part::kRouterTable;
    if (numbers ? type != ElementType::kI64 && type != ElementType::kI32 : !is_weight_type(type))
      quantized.push_back(fmt::format("{} ({})", printable(stored.info->name, kMostShown), name_of(stored.info->type)));
    else if (stored.info->shape != chosen.shape)
      misshaped.push_back(fmt::format("{} is [{}] and should be [{}]", printable(stored.info->name, kMostShown),
                                      fmt::join(stored.info->shape, ", "), fmt::join(chosen.shape, ", ")));
    else
      places.emplace(parameter.fqn, WeightPlace{stored, chosen.first, chosen.stride});
  }
  const auto language_head = head_of_language_model(spec);
  for (const auto& stored : folder.tensors()) {
    const std::string& name = stored.info->name;
    if (!language_head.empty() && name.starts_with(language_head)) continue;
    if (used.contains(stored.info) || folder.find(name).info != stored.info || is_passed_over(name, spec, layout))
      continue;
    (is_quantized_part(name) ? quantized : unexpected).push_back(printable(name, kMostShown));
  }
  if (!quantized.empty()) {  // other problems would follow from their names and hide the cause
    report(problems, folder, "weights-quantized", "has", "of quantized weights", quantized,
           "quantized weights cannot be trained; use the model in bfloat16 or float32");
    return {};
  }
  const bool head = spec.classes == 0 && missing == std::vector{layout.head + ".weight"};
  report(problems, folder, "weights-missing", "lacks", "of the model", missing,
         head ? "where the head shares the embedding's values, say tie_word_embeddings: true"
              : "the folder belongs to another model, or config.json does not describe it");
  report(problems, folder, "weights-unexpected", "has", "that the model does not have", unexpected,
         "the folder belongs to another model, or config.json does not describe it");
  report(problems, folder, "weights-shape", "has", "of another shape", misshaped,
         "config.json (or an override of it) does not describe these weights");
  return missing.empty() && unexpected.empty() && misshaped.empty() ? places : WeightPlaces();
}

WrittenWeight written_as(const arch::Parameter& parameter, const arch::ModelSpec& spec) {
  const Shape shape(parameter.shape.begin(), parameter.shape.end());
  std::vector<Candidate> joined;
  if (spec.nested_in == kQwenVl || (spec.moe && spec.moe->joined)) add_fused(parameter, shape, spec, joined);
  if (spec.model_type == kStep) add_stacked(parameter, shape, spec.moe->experts, joined);
  if (spec.model_type == kMiniMax && spec.nested_in.empty())
    joined.push_back(minimax_in_transformers(parameter, shape, spec));
  WrittenWeight out{parameter.fqn, shape, 0};
  if (!joined.empty()) out = {joined.front().name, joined.front().shape, joined.front().first};
  // Step 3.7's tower is taken apart by transformers under published names only.
  for (const auto& [own, other] : published_prefixes(spec))
    if (out.name.starts_with(own)) {
      out.name = replaced(out.name, own, other);
      break;
    }
  return out;
}

bool head_differs(const TensorFolder& folder, const arch::Layout& layout) {
  if (layout.head_tied_to.empty()) return false;
  const auto head = folder.find(layout.head + ".weight");
  auto embedding = folder.find(layout.head_tied_to);
  if (!embedding && layout.head_tied_to.starts_with(layout.base + "."))
    embedding = folder.find(layout.head_tied_to.substr(layout.base.size() + 1));
  if (!head || !embedding) return false;
  if (head.info->type != embedding.info->type || head.info->shape != embedding.info->shape) return true;
  constexpr std::uint64_t kChunk = 1 << 20;
  std::vector<char> left(kChunk), right(kChunk);
  for (std::uint64_t first = 0; first < head.info->bytes(); first += kChunk) {
    const auto size = std::min(kChunk, head.info->bytes() - first);
    head.file->read(*head.info, first, left.data(), size);
    embedding.file->read(*embedding.info, first, right.data(), size);
    if (std::memcmp(left.data(), right.data(), size) != 0) return true;
  }
  return false;
}

std::int64_t unpaired_row(std::int64_t row, std::int64_t head_dim) {
  const auto in_head = row % head_dim;
  return row - in_head + in_head / 2 + in_head % 2 * (head_dim / 2);
}

}  // namespace automodel::checkpoint
