#include "plan/model_names.h"

#include <algorithm>
#include <utility>

namespace automodel::plan {
namespace {

/// The sizes of a tower or projector that is trained here (arch/vision.h), by its parameters.
void set_sizes(arch::Tower& tower, const ModelChoice& model) {
  tower.hidden = tower.projects() ? model.spec.hidden : model.spec.vision->hidden;
  tower.layers = tower.projects() ? 1 : model.spec.vision->layers;
  tower.parameters = 0;
  for (const auto& parameter : model.layout.tower_parameters) {
    if (!parameter.name.starts_with(tower.fqn + ".")) continue;
    *tower.parameters += parameter.shape.elements();
    const auto has = [&](const char* part) { return parameter.name.find(part) != std::string::npos; };
    // Matrices that every patch meets; positions are added. Step's convolutions have a row for 4 patches and for 16.
    const bool before_merger = !has("merger") && !has("projector") && !has("pos_embed") && !has("position");
    double rows = has("downsampler1") ? 1.0 / 4 : has("downsampler2") ? 1.0 / 16 : 1;
    // A projector's rows are those of the decoder, but MiniMax's begins with patches.
    if (has("projector.linear_") && model.spec.vision->kind == arch::TowerKind::kMiniMax)
      rows = model.spec.vision->merge * model.spec.vision->merge;
    if ((tower.projects() || before_merger) && parameter.shape.rank() > 1)
      tower.token_flops += 2 * rows * static_cast<double>(parameter.shape.elements());
  }
}

}  // namespace

ModelNames names_of(const ModelChoice& model) {
  const auto& layout = model.layout;
  ModelNames out{layout.embeddings, {}, layout.layers, layout.layer_count(), layout.norm, layout.head, layout.rotary};
  for (auto& tower : towers_of(model)) out.encoders.push_back(std::move(tower.fqn));
  return out;
}

std::vector<arch::Tower> towers_of(const ModelChoice& model) {
  if (model.spec.nested_in.empty()) return {};
  auto out = arch::towers_of(model.config_text, model.spec.hidden);
  std::erase_if(out, [](const arch::Tower& tower) { return tower.fqn.empty(); });
  for (auto& tower : out) {
    if (model.spec.vision && !tower.parameters) set_sizes(tower, model);
    tower.cached = std::ranges::any_of(model.layout.tower_parameters, [&](const arch::ParameterTemplate& parameter) {
      return parameter.cached && parameter.name.starts_with(tower.fqn + ".");
    });
  }
  // Pictures of any size are counted with the most pixels that the processor leaves them, but at most 1,280 tokens of
  // the decoder: the default of Qwen2-VL's processor. Qwen3-VL's allows 16,384 and Pixtral's 3,025, which few pictures
  // have.
  if (model.spec.vision && model.spec.vision->any_size() && model.processor && model.processor->patches) {
    constexpr std::int64_t kUsual = 1280;
    const auto& patches = *model.processor->patches;
    const auto tokens = std::min(patches.most_tokens(), kUsual);
    for (auto& tower : out) tower.set_tokens(tower.projects() ? tokens : tokens * patches.merge * patches.merge);
  }
  return out;
}

std::vector<arch::Tower> towers_of(const ModelChoice& model, const StagePart& part) {
  auto out = towers_of(model);
  std::erase_if(out, [&](const arch::Tower& tower) {
    return std::find(part.fqns.begin(), part.fqns.end(), tower.fqn) == part.fqns.end();
  });
  return out;
}

std::optional<StageFqns> stage_fqns(const ModelNames& names, int stages, int stages_per_rank, Diagnostics& problems) {
  const std::size_t before = problems.size();
  check_stage_count(stages, names.layer_count, stages_per_rank, problems);
  if (problems.size() > before) return std::nullopt;
  std::vector<LayerRange> ranges;
  ranges.reserve(static_cast<std::size_t>(stages));
  for (int stage = 0; stage < stages; ++stage) ranges.push_back(even_layers(stage, stages, names.layer_count));
  return stage_fqns(names, ranges);
}

StageFqns stage_fqns(const ModelNames& names, const std::vector<LayerRange>& ranges) {
  StageFqns out(ranges.size());
  const std::string prefix = names.layers + ".";
  for (std::size_t stage = 0; stage < ranges.size(); ++stage) {
    auto& fqns = out[stage];
    if (stage == 0) {
      fqns = names.embeddings;
      fqns.insert(fqns.end(), names.encoders.begin(), names.encoders.end());
    }
    fqns.reserve(fqns.size() + static_cast<std::size_t>(ranges[stage].size()) + 3);
    for (int layer = ranges[stage].begin; layer < ranges[stage].end; ++layer)
      fqns.push_back(prefix + std::to_string(layer));
    if (stage + 1 == ranges.size()) {
      if (!names.norm.empty()) fqns.push_back(names.norm);
      if (!names.head.empty()) fqns.push_back(names.head);
    }
    if (!names.rotary.empty()) fqns.push_back(names.rotary);
  }
  return out;
}

}  // namespace automodel::plan
