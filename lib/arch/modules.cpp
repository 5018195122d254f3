#include "arch/modules.h"

#include <algorithm>
#include <charconv>

#include "arch/counts.h"
#include "arch/families.h"
#include "base/error.h"

namespace automodel::arch {
namespace {

/// "mlp.experts.{}.up_proj" with the expert's number filled in.
std::string numbered(const std::string& name, int expert) {
  const auto at = name.find("{}");
  return at == std::string::npos ? name : name.substr(0, at) + std::to_string(expert) + name.substr(at + 2);
}

Parameter whole(const ParameterTemplate& from) {
  return {.fqn = from.name,
          .shape = from.shape,
          .role = from.role,
          .part = from.part,
          .trainable = from.trainable,
          .transposed = from.transposed,
          .initial = from.initial,
          .start = from.start,
          .cached = from.cached};
}

/// `apart`: each expert is a separate two-dimensional tensor, rather than part of a three-dimensional stack.
bool is_matrix(Role role, const Shape& shape, bool apart) {
  if (role == Role::kEmbedding || role == Role::kPositions || role == Role::kHead || role == Role::kNorm) return false;
  return shape.rank() == (role == Role::kExpert && !apart ? 3U : 2U);
}

}  // namespace

bool stands_in(const Parameter& parameter, const std::vector<int>& layers, bool embeddings, bool norm, bool head) {
  if (parameter.cached) return false;
  if (parameter.layer >= 0) return std::find(layers.begin(), layers.end(), parameter.layer) != layers.end();
  if (parameter.role == Role::kEmbedding || parameter.role == Role::kPositions || parameter.in_tower() ||
      parameter.role == Role::kLayerInputs)
    return embeddings;
  if (parameter.role == Role::kHead || parameter.role == Role::kAdapter)
    return head && (parameter.tied_to.empty() || !embeddings);
  return norm;
}

bool is_hidden_matrix(const Parameter& parameter) {
  return parameter.layer >= 0 && is_matrix(parameter.role, parameter.shape, parameter.expert >= 0);
}

bool is_hidden_matrix(const ParameterTemplate& parameter) {
  return is_matrix(parameter.role, parameter.shape, parameter.name.find("{}") != std::string::npos);
}

std::vector<Parameter> layer_parameters(const Layout& layout, int layer) {
  const auto prefix = layout.layer_fqn(layer) + ".";
  const auto& templates = layout.layer(layer);
  std::vector<Parameter> out;
  for (std::size_t i = 0; i < templates.size();) {
    // Adjacent templates with the same number of copies are expanded together: all of expert 0 first, then all of
    // expert 1, ...
    std::size_t end = i + 1;
    while (templates[i].copies > 1 && end < templates.size() && templates[end].copies == templates[i].copies) ++end;
    const bool expert = templates[i].role == Role::kExpert && templates[i].name.find("{}") != std::string::npos;
    for (int copy = 0; copy < templates[i].copies; ++copy)
      for (std::size_t k = i; k < end; ++k) {
        auto& parameter = out.emplace_back(whole(templates[k]));
        parameter.fqn = prefix + numbered(templates[k].name, copy);
        parameter.layer = layer;
        if (expert) parameter.expert = copy;
      }
    i = end;
  }
  return out;
}

std::vector<Parameter> parameters(const Layout& layout) {
  std::vector<Parameter> out;
  for (const auto& parameter : layout.embedding_parameters) out.push_back(whole(parameter));
  for (const auto& parameter : layout.tower_parameters) out.push_back(whole(parameter));
  for (int layer = 0; layer < layout.layer_count(); ++layer)
    for (auto& parameter : layer_parameters(layout, layer)) out.push_back(std::move(parameter));
  for (const auto& parameter : layout.norm_parameters) out.push_back(whole(parameter));
  out.push_back(whole(layout.head_parameter));
  out.back().tied_to = layout.head_tied_to;
  if (layout.head_bias) out.push_back(whole(*layout.head_bias));
  return out;
}

std::vector<Parameter> parameters(const ModelSpec& spec) {
  return parameters(layout_of(spec));
}

ModuleTree::ModuleTree(const Layout& layout, TreeDepth depth) {
  const auto add_all = [&](const std::vector<Parameter>& list) {
    for (const auto& parameter : list) add(parameter.module(), parameter.shape.elements());
  };
  for (const auto& name : layout.embeddings) add(name, 0, ModuleKind::kEmbedding);
  for (const auto& parameter : layout.embedding_parameters) add(whole(parameter).module(), parameter.shape.elements());
  add(layout.layers, 0, ModuleKind::kLayerList);
  for (int layer = 0; layer < layout.layer_count(); ++layer) {
    if (depth == TreeDepth::kLeaves)
      add_all(layer_parameters(layout, layer));
    else
      add(layout.layer_fqn(layer), count_layer(layout, layer).total());
  }
  mark_layers(layout.layers);
  add(layout.norm, 0, ModuleKind::kNorm);
  for (const auto& parameter : layout.norm_parameters) add(whole(parameter).module(), parameter.shape.elements());
  if (!layout.rotary.empty()) add(layout.rotary, 0, ModuleKind::kRotary);
  const auto elements = layout.head_parameter.shape.elements();
  const bool tied = !layout.head_tied_to.empty();
  const int head = add(layout.head, tied ? 0 : elements, ModuleKind::kHead);
  if (tied) modules_[static_cast<std::size_t>(head)].shared_elements = elements;
  if (layout.head_bias) add(layout.head, layout.head_bias->shape.elements(), ModuleKind::kHead);
}

int ModuleTree::add(std::string_view fqn, std::int64_t elements, ModuleKind kind) {
  int index = find(fqn);
  if (index < 0) {
    const auto dot = fqn.rfind('.');
    const int parent = dot == std::string_view::npos ? -1 : add(fqn.substr(0, dot));
    index = static_cast<int>(modules_.size());
    const int layer = parent < 0 ? -1 : modules_[static_cast<std::size_t>(parent)].layer;
    modules_.push_back({std::string(fqn), ModuleKind::kOther, parent, layer, 0, 0, {}});
    index_.emplace(fqn, index);
    if (parent >= 0) modules_[static_cast<std::size_t>(parent)].children.push_back(index);
  }
  if (kind != ModuleKind::kOther) modules_[static_cast<std::size_t>(index)].kind = kind;
  for (int at = index; at >= 0; at = modules_[static_cast<std::size_t>(at)].parent)
    modules_[static_cast<std::size_t>(at)].elements += elements;
  return index;
}

void ModuleTree::mark_layers(std::string_view list) {
  const int at = find(list);
  AUTOMODEL_CHECK(at >= 0, "no such list of layers");
  modules_[static_cast<std::size_t>(at)].kind = ModuleKind::kLayerList;
  std::vector<int> pending;
  for (const int child : modules_[static_cast<std::size_t>(at)].children) {
    auto& module = modules_[static_cast<std::size_t>(child)];
    const auto name = std::string_view(module.fqn).substr(list.size() + 1);
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), module.layer);
    AUTOMODEL_CHECK(error == std::errc{} && end == name.data() + name.size(), "layers are named by numbers");
    module.kind = ModuleKind::kLayer;
    pending.push_back(child);
  }
  while (!pending.empty()) {
    const auto& module = modules_[static_cast<std::size_t>(pending.back())];
    pending.pop_back();
    for (const int child : module.children) {
      modules_[static_cast<std::size_t>(child)].layer = module.layer;
      pending.push_back(child);
    }
  }
}

int ModuleTree::find(std::string_view fqn) const {
  const auto found = index_.find(fqn);
  return found == index_.end() ? -1 : found->second;
}

std::vector<std::string_view> ModuleTree::names() const {
  std::vector<std::string_view> out;
  for (const auto& module : modules_) out.emplace_back(module.fqn);
  return out;
}

}  // namespace automodel::arch
