#include "plan/fqn_split.h"

#include <algorithm>

#include <fmt/format.h>

namespace automodel::plan {

LayerRange even_layers(int stage, int stages, int layers) {
  const int each = layers / stages;
  const int longer = layers % stages;
  const int begin = stage * each + std::min(stage, longer);
  return {begin, begin + each + (stage < longer ? 1 : 0)};
}

void check_stage_count(int stages, int layers, int stages_per_rank, Diagnostics& problems) {
  if (stages < 1) {
    problems.push_back({"bad-value",
                        fmt::format("{} pipeline stages", stages),
                        "there must be at least 1",
                        {},
                        "distributed.pp_size"});
  } else if (stages > layers) {
    const int ranks = layers / std::max(1, stages_per_rank);
    const auto each = stages_per_rank > 1 ? fmt::format(" ({} a rank)", stages_per_rank) : "";
    problems.push_back({"too-many-stages",
                        fmt::format("{} pipeline stages{} for {} layers", stages, each, layers),
                        ranks >= 1 ? fmt::format("every stage needs a layer; use at most pp_size: {}", ranks)
                                   : fmt::format("every stage needs a layer; use a schedule with one stage a rank"),
                        {},
                        "distributed.pp_size"});
  }
}

std::optional<StageFqns> generate_hf_model_fqn_per_model_part(const FqnSplitRequest& request, Diagnostics& problems) {
  const std::size_t before = problems.size();
  check_stage_count(request.stages, request.layers, 1, problems);
  if (problems.size() > before) return std::nullopt;
  StageFqns out(static_cast<std::size_t>(request.stages));
  auto& first = out.front();
  if (request.embeddings) first.push_back(request.prefix + "embed_tokens");
  if (request.encoders)
    for (const auto name : kEncoderNames) first.push_back(request.prefix + std::string(name));
  first.insert(first.end(), request.extra.begin(), request.extra.end());
  const std::string layer_prefix = request.prefix + "layers.";
  for (int stage = 0; stage < request.stages; ++stage) {
    auto& names = out[static_cast<std::size_t>(stage)];
    const auto range = even_layers(stage, request.stages, request.layers);
    names.reserve(names.size() + static_cast<std::size_t>(range.size()) + 3);
    for (int layer = range.begin; layer < range.end; ++layer) names.push_back(layer_prefix + std::to_string(layer));
    if (stage + 1 == request.stages) {
      names.push_back(request.prefix + "norm");
      if (request.head) names.push_back(request.head_fqn);
    }
    if (request.rotary) names.push_back(request.prefix + "rotary_emb");
  }
  return out;
}

}  // namespace automodel::plan
