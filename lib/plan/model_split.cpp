#include "plan/model_split.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "base/spelling.h"

namespace automodel::plan {
namespace {

using arch::Module;
using arch::ModuleKind;
using arch::ModuleTree;

constexpr std::string_view kSplitKey = "distributed.pipeline.module_fqns_per_model_part";

/// Whether an ancestor of the module has this mark.
bool inside_marked(const ModuleTree& tree, int module, const std::vector<int>& marks, int mark) {
  for (int at = tree[module].parent; at >= 0; at = tree[at].parent)
    if (marks[static_cast<std::size_t>(at)] == mark) return true;
  return false;
}

void keep(const ModuleTree& tree, int index, StagePart& part, std::int64_t& shared) {
  const Module& module = tree[index];
  part.parameters += module.elements;
  shared += module.shared_elements;
  switch (module.kind) {
    case ModuleKind::kLayer: part.layers.push_back(module.layer); return;
    case ModuleKind::kEmbedding: part.has_embedding = true; return;
    case ModuleKind::kNorm: part.has_norm = true; return;
    case ModuleKind::kHead: part.has_head = true; return;
    case ModuleKind::kRotary: return;
    case ModuleKind::kOther:
    case ModuleKind::kLayerList: break;
  }
  // A container module was named: search it for layers and ends. Its elements are already counted.
  StagePart inner;
  std::int64_t ignored = 0;
  for (const int child : module.children) keep(tree, child, inner, ignored);
  part.layers.insert(part.layers.end(), inner.layers.begin(), inner.layers.end());
  part.has_embedding |= inner.has_embedding;
  part.has_norm |= inner.has_norm;
  part.has_head |= inner.has_head;
}

/// "layers 2 to 4 and 7".
std::string ranges_text(const std::vector<int>& numbers) {
  std::string out;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    out += out.empty() ? "" : ", ";
    out += end - i == 1 ? fmt::format("{}", numbers[i]) : fmt::format("{} to {}", numbers[i], numbers[end - 1]);
    i = end;
  }
  return out;
}

class Check {
 public:
  Check(const ModuleTree& tree, const StageFqns& names)
      : tree_(tree), names_(names), stage_(tree.modules().size(), -1) {}

  Diagnostics run() {
    for (std::size_t stage = 0; stage < names_.size(); ++stage)
      for (const auto& fqn : names_[stage]) place(fqn, static_cast<int>(stage));
    report_missing();
    report_order();
    return std::move(problems_);
  }

 private:
  void place(const std::string& fqn, int stage) {
    const int at = tree_.find(fqn);
    if (at < 0 || (tree_[at].layer >= 0 && tree_[at].kind != ModuleKind::kLayer)) return refuse_name(fqn);
    if (tree_[at].kind == ModuleKind::kRotary) return;
    assign(at, stage, fqn);
  }

  void refuse_name(const std::string& fqn) {
    // A layer is the smallest unit: check whether the name is inside one.
    for (auto dot = fqn.rfind('.'); dot != std::string::npos && dot > 0; dot = fqn.rfind('.', dot - 1)) {
      const int up = tree_.find(std::string_view(fqn).substr(0, dot));
      if (up >= 0 && tree_[up].kind == ModuleKind::kLayer)
        return void(problems_.add("unknown-module", std::string(kSplitKey))
                        .says("'{}' is a part of a layer", fqn)
                        .hint("a layer is the smallest part of a stage; use '{}'", tree_[up].fqn));
    }
    problems_.add("unknown-module", std::string(kSplitKey))
        .says("the model has no module '{}'", fqn)
        .hint(suggestion(fqn, tree_.names(), 8));
  }

  /// Marks a module and everything below it.
  void assign(int at, int stage, const std::string& named) {
    int& mark = stage_[static_cast<std::size_t>(at)];
    if (mark >= 0 && tree_[at].kind != ModuleKind::kRotary) {
      if (tree_[at].elements == 0 && tree_[at].kind != ModuleKind::kHead) return;
      return void(problems_.add("duplicate-module", std::string(kSplitKey))
                      .says(mark == stage ? fmt::format("'{}' appears twice in stage {}", named, stage)
                                          : fmt::format("'{}' is in stage {} and in stage {}", named, mark, stage))
                      .hint("every module with parameters belongs to one stage"));
    }
    mark = stage;
    for (const int child : tree_[at].children) assign(child, stage, named);
  }

  void report_missing() {
    const auto holds = modules_around_named();
    std::vector<int> layers;
    for (std::size_t i = 0; i < tree_.modules().size(); ++i) {
      const auto& module = tree_.modules()[i];
      const bool matters = module.elements > 0 || module.kind == ModuleKind::kHead;
      if (stage_[i] >= 0 || !matters || holds[i]) continue;
      if (module.kind == ModuleKind::kLayer) {
        layers.push_back(module.layer);
        continue;
      }
      // Only the top of a missing subtree is reported.
      const bool top = module.parent < 0 || holds[static_cast<std::size_t>(module.parent)];
      if (module.layer < 0 && top)
        problems_.add("missing-module", std::string(kSplitKey))
            .says("no stage holds '{}'", module.fqn)
            .hint(where(module.kind));
    }
    if (layers.empty()) return;
    std::sort(layers.begin(), layers.end());
    problems_.add("missing-module", std::string(kSplitKey))
        .says("no stage holds layer{} {}", layers.size() > 1 ? "s" : "", ranges_text(layers))
        .hint("every layer belongs to one stage");
  }

  /// By module: whether a descendant is in a stage, or the module is or contains the layer list.
  std::vector<bool> modules_around_named() const {
    std::vector<bool> out(tree_.modules().size(), false);
    for (std::size_t i = out.size(); i-- > 0;) {  // children come after their parents
      const auto& module = tree_.modules()[i];
      if (module.kind == ModuleKind::kLayerList) out[i] = true;
      if (module.parent >= 0 && (out[i] || stage_[i] >= 0)) out[static_cast<std::size_t>(module.parent)] = true;
    }
    return out;
  }

  std::string where(ModuleKind kind) const {
    if (kind == ModuleKind::kEmbedding) return "put it into stage 0";
    if (kind == ModuleKind::kNorm || kind == ModuleKind::kHead)
      return fmt::format("put it into the last stage, {}", names_.size() - (names_.empty() ? 0 : 1));
    return "every module with parameters belongs to one stage";
  }

  void report_order() {
    const int last = static_cast<int>(names_.size()) - 1;
    for (std::size_t i = 0; i < tree_.modules().size(); ++i) {
      const auto kind = tree_.modules()[i].kind;
      const int stage = stage_[i];
      if (stage > 0 && kind == ModuleKind::kEmbedding)
        problems_.add("stage-order", std::string(kSplitKey))
            .says("'{}' is in stage {}", tree_.modules()[i].fqn, stage)
            .hint("embeddings belong to stage 0");
      if (stage >= 0 && stage < last && (kind == ModuleKind::kNorm || kind == ModuleKind::kHead))
        problems_.add("stage-order", std::string(kSplitKey))
            .says("'{}' is in stage {}", tree_.modules()[i].fqn, stage)
            .hint("it belongs to the last stage, {}", last);
    }
    int previous = -1;
    for (std::size_t stage = 0; stage < names_.size(); ++stage)
      for (const auto& fqn : names_[stage]) {
        const int at = tree_.find(fqn);
        if (at < 0 || tree_[at].kind != ModuleKind::kLayer) continue;
        if (tree_[at].layer < previous)
          return void(problems_.add("stage-order", std::string(kSplitKey))
                          .says("layer {} comes after layer {}", tree_[at].layer, previous)
                          .hint("layers must be in ascending order within a stage and from stage to stage"));
        previous = tree_[at].layer;
      }
  }

  const ModuleTree& tree_;
  const StageFqns& names_;
  std::vector<int> stage_;  ///< by module; -1: none yet
  Diagnostics problems_ = {};
};

}  // namespace

std::vector<StagePart> split_model(const ModuleTree& tree, const StageFqns& names) {
  std::vector<StagePart> out(names.size());
  std::vector<int> marks(tree.modules().size(), -1);
  for (std::size_t stage = 0; stage < names.size(); ++stage) {
    auto& part = out[stage];
    const int mark = static_cast<int>(stage);
    std::vector<int> found;
    for (const auto& fqn : names[stage]) {
      const int at = tree.find(fqn);
      if (at < 0 || marks[static_cast<std::size_t>(at)] == mark) continue;
      marks[static_cast<std::size_t>(at)] = mark;
      found.push_back(at);
    }
    std::int64_t shared = 0;
    for (const int at : found) {
      if (inside_marked(tree, at, marks, mark)) continue;
      part.modules.push_back(at);
      part.fqns.push_back(tree[at].fqn);
      keep(tree, at, part, shared);
    }
    if (!part.has_embedding) part.parameters += shared;
  }
  return out;
}

Diagnostics check_split(const ModuleTree& tree, const StageFqns& names) {
  if (!names.empty()) return Check(tree, names).run();
  Diagnostics problems;
  problems.add("bad-value", std::string(kSplitKey)).says("no stages are named").hint("name the modules of every stage");
  return problems;
}

Diagnostics check_split_schedule(int stages, int pp_size, bool single_stage, schedule::PlacementStyle placement) {
  Diagnostics problems;
  const auto refuse = [&](ProblemId id, std::string_view rule, std::string_view use) {
    problems.add(id, std::string(kSplitKey))
        .says("{} stages are named for {} pipeline ranks", stages, pp_size)
        .hint("{}; name {} stages", rule, use);
  };
  const int below = stages / pp_size * pp_size;
  const auto two = fmt::format("{}", 2 * pp_size);
  if (single_stage && stages != pp_size)
    refuse("schedule-single-stage", "this schedule runs exactly one stage per rank", fmt::format("{}", pp_size));
  else if (!single_stage && placement == schedule::PlacementStyle::kV && stages != 2 * pp_size)
    refuse("schedule-v-stages", "this schedule runs exactly two stages per rank", two);
  else if (!single_stage && stages < 2 * pp_size)
    refuse("schedule-multi-stage", "this schedule runs at least two stages per rank", two);
  else if (stages % pp_size != 0)
    refuse("indivisible", "every rank runs the same number of stages", fmt::format("{} or {}", below, below + pp_size));
  return problems;
}

}  // namespace automodel::plan
