// Every parameter of a model by its Hugging Face name, and the module tree that contains them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "arch/layout.h"
#include "arch/model_spec.h"

namespace automodel::arch {

/// One tensor under its checkpoint name.
struct Parameter {
  std::string fqn = {};
  Shape shape = {};
  Role role = Role::kMlp;
  Part part = Part::kNone;
  int layer = -1;  ///< -1 outside the layers
  /// Expert index; -1 if the tensor belongs to no expert or is one tensor for all experts.
  int expert = -1;
  bool trainable = true;    ///< false: a buffer stored in checkpoints
  bool transposed = false;  ///< stored [in, out]
  Initial initial = Initial::kNormal;
  double start = 0;
  /// FQN of the parameter whose storage this one shares; such a tensor is not stored on disk.
  std::string tied_to = {};
  std::string adapts = {};  ///< for an adapter parameter: FQN of the adapted weight
  bool frozen = false;      ///< not trained; adapters are trained instead
  int bits = 0;             ///< frozen weight quantised to 4 or 8 bits; 0: not quantised
  bool cached = false;      ///< frozen, and no stage has it: what it would give is read from a cache
  bool trained() const { return trainable && !frozen; }
  /// Belongs to an expert or to an expert's adapter.
  bool is_expert() const { return role == Role::kExpert || (role == Role::kAdapter && expert >= 0); }
  /// Belongs to a vision tower or its projector, or to an adapter there.
  bool in_tower() const { return role == Role::kTower || part == Part::kTowerProduct; }
  /// FQN of the owning module.
  std::string_view module() const { return std::string_view(fqn).substr(0, fqn.rfind('.')); }
};

/// Whether a parameter belongs to a portion of the model with these layers and ends. A tied head counts only if the
/// portion lacks the embedding; adapters of a vision tower belong with it, others outside the layers with the head.
/// Cached ones belong nowhere.
bool stands_in(const Parameter& parameter, const std::vector<int>& layers, bool embeddings, bool norm, bool head);

/// Whether this is a matrix inside a layer, or a stack of one matrix per expert: the parameters that matrix optimizers
/// such as Muon update. Excludes embeddings, positions, the head, norms, biases and convolutions.
bool is_hidden_matrix(const Parameter& parameter);
bool is_hidden_matrix(const ParameterTemplate& parameter);

/// Parameters of one layer, in forward order.
std::vector<Parameter> layer_parameters(const Layout& layout, int layer);
/// Embeddings, vision tower, layers, final norm, head. A tied head is included last, with `tied_to` set.
std::vector<Parameter> parameters(const Layout& layout);
std::vector<Parameter> parameters(const ModelSpec& spec);

/// A module's significance for pipeline splitting.
enum class ModuleKind : std::uint8_t {
  kOther,
  kEmbedding,  ///< of tokens or positions; on the first stage
  kLayerList,
  kLayer,
  kNorm,  ///< the final norm, before the head
  kHead,
  kRotary,  ///< no parameters; every stage has one
};

struct Module {
  std::string fqn = {};
  ModuleKind kind = ModuleKind::kOther;
  int parent = -1;                   ///< index in the tree, -1 at the top
  int layer = -1;                    ///< index of the layer that this module is or belongs to
  std::int64_t elements = 0;         ///< parameters in this module and its descendants; 0 for a tied head
  std::int64_t shared_elements = 0;  ///< for a tied head: those shared with the embedding
  std::vector<int> children = {};
};

/// How deep a module tree goes.
enum class TreeDepth : std::uint8_t { kLayers, kLeaves };

/// Modules by FQN. Parents come before their children.
class ModuleTree {
 public:
  ModuleTree() = default;
  /// Builds the tree of `layout`. At kLayers the cost does not depend on the number of parameters per layer.
  explicit ModuleTree(const Layout& layout, TreeDepth depth = TreeDepth::kLayers);

  /// Adds `fqn` and any missing ancestors; `elements` is added to it and all its ancestors. Returns its index.
  int add(std::string_view fqn, std::int64_t elements = 0, ModuleKind kind = ModuleKind::kOther);
  /// Marks the children of `list`, whose names must be numbers, as layers. Their submodules get that layer index.
  void mark_layers(std::string_view list);

  /// The index of a module, or -1.
  int find(std::string_view fqn) const;
  const Module& operator[](int index) const { return modules_[static_cast<std::size_t>(index)]; }
  const std::vector<Module>& modules() const { return modules_; }
  /// FQNs of all modules, for suggestions.
  std::vector<std::string_view> names() const;

 private:
  struct TextHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };
  std::vector<Module> modules_ = {};
  std::unordered_map<std::string, int, TextHash, std::equal_to<>> index_ = {};
};

}  // namespace automodel::arch
