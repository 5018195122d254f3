#include "plan/model_names.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>

#include "base/spelling.h"

namespace automodel::plan {
namespace {

using arch::ModuleKind;
using arch::ModuleTree;

constexpr std::array<std::string_view, 3> kTextNames = {"language_model", "text_model", "text_decoder"};

/// Names inside the decoder.
struct Convention {
  std::array<std::string_view, 2> embeddings;
  std::string_view layers;
  std::string_view norm;
};
constexpr std::array<Convention, 2> kConventions = {
    Convention{{"embed_tokens", ""}, "layers", "norm"},
    Convention{{"wte", "wpe"}, "h", "ln_f"},
};

bool has(const ModuleTree& tree, const std::string& fqn) {
  return tree.find(fqn) >= 0;
}

/// Where the decoder and its neighbours stand; prefixes end in a dot or are empty.
struct Places {
  std::string base;     ///< around decoder and encoders
  std::string text;     ///< FQN of a nested text model, else empty
  std::string decoder;  ///< around the layers
};

Places find_places(const ModuleTree& tree) {
  Places out;
  out.base = has(tree, "model") ? "model." : has(tree, "transformer") ? "transformer." : "";
  for (const auto name : kTextNames)
    if (has(tree, out.base + std::string(name))) {
      out.text = out.base + std::string(name);
      break;
    }
  out.decoder = out.text.empty() ? out.base : out.text + ".";
  if (!out.text.empty() && has(tree, out.decoder + "model")) out.decoder += "model.";
  return out;
}

/// Modules with parameters of which no ancestor and no descendant is in `placed`.
void report_unplaced(const ModuleTree& tree, const std::vector<std::string>& placed, Diagnostics& problems) {
  std::vector<bool> covered(tree.modules().size(), false);  // placed, or below one that is
  std::vector<bool> above(tree.modules().size(), false);    // holds one that is placed
  for (const auto& fqn : placed)
    if (const int at = tree.find(fqn); at >= 0) {
      covered[static_cast<std::size_t>(at)] = true;
      for (int up = tree[at].parent; up >= 0; up = tree[up].parent) above[static_cast<std::size_t>(up)] = true;
    }
  for (std::size_t i = 0; i < tree.modules().size(); ++i) {
    const auto& module = tree.modules()[i];
    if (module.parent >= 0 && covered[static_cast<std::size_t>(module.parent)]) covered[i] = true;
    const bool parent_open = module.parent < 0 || above[static_cast<std::size_t>(module.parent)];
    if (covered[i] || above[i] || !parent_open || module.elements == 0) continue;
    problems.push_back({"unplaced-module",
                        fmt::format("no rule says which stage '{}' belongs to", module.fqn),
                        "name the modules of every stage in module_fqns_per_model_part",
                        {},
                        "distributed.pipeline.module_fqns_per_model_part"});
  }
}

/// The first of `candidates` that the tree has; empty where it has none.
std::string first_of(const ModuleTree& tree, const std::vector<std::string>& candidates) {
  const auto found =
      std::find_if(candidates.begin(), candidates.end(), [&](const auto& fqn) { return has(tree, fqn); });
  return found == candidates.end() ? "" : *found;
}

}  // namespace

ModelNames names_of(const arch::Layout& layout) {
  return {layout.embeddings, {}, layout.layers, layout.layer_count(), layout.norm, layout.head, layout.rotary};
}

std::optional<ModelNames> discover_names(ModuleTree& tree, const DiscoverOptions& options, Diagnostics& problems) {
  const std::size_t before = problems.size();
  const auto places = find_places(tree);
  const auto convention = std::find_if(kConventions.begin(), kConventions.end(), [&](const Convention& c) {
    return has(tree, places.decoder + std::string(c.layers));
  });
  if (convention == kConventions.end()) {
    problems.push_back({"no-layers", fmt::format("the model has no '{}layers'", places.decoder),
                        "a pipeline cuts a list of decoder layers"});
    return std::nullopt;
  }
  ModelNames out;
  const auto keep = [&](std::vector<std::string>& list, const std::string& fqn) {
    if (has(tree, fqn)) list.push_back(fqn);
  };
  for (const auto name : convention->embeddings)
    if (!name.empty()) keep(out.embeddings, places.decoder + std::string(name));
  for (const auto name : kEncoderNames) keep(out.encoders, places.base + std::string(name));
  for (const auto& fqn : options.extra) {
    if (has(tree, fqn))
      out.encoders.push_back(fqn);
    else
      problems.push_back({"unknown-module",
                          fmt::format("the model has no module '{}'", fqn),
                          suggestion(fqn, tree.names()),
                          {},
                          "extra_module_fqns"});
  }
  out.layers = places.decoder + std::string(convention->layers);
  tree.mark_layers(out.layers);
  out.layer_count = static_cast<int>(tree[tree.find(out.layers)].children.size());
  out.norm = first_of(tree, {places.decoder + std::string(convention->norm)});
  out.rotary = first_of(tree, {places.decoder + "rotary_emb"});
  out.head = options.head.empty() ? first_of(tree, {places.text.empty() ? "lm_head" : places.text + ".lm_head",
                                                    "lm_head", places.base + "lm_head"})
                                  : options.head;
  if (!options.head.empty() && !has(tree, options.head))
    problems.push_back({"unknown-module",
                        fmt::format("the model has no module '{}'", options.head),
                        suggestion(options.head, tree.names()),
                        {},
                        "lm_head_fqn"});
  std::vector<std::string> placed = out.embeddings;
  placed.insert(placed.end(), out.encoders.begin(), out.encoders.end());
  for (const auto& fqn : {out.layers, out.norm, out.head, out.rotary}) placed.push_back(fqn);
  report_unplaced(tree, placed, problems);
  if (problems.size() > before) return std::nullopt;
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
