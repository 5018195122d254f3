// Where the parameters of a model stand: Hugging Face names and shapes, a layer described once for all that are alike.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "arch/shape.h"

namespace automodel::arch {

/// What a parameter is for.
enum class Role : std::uint8_t {
  kEmbedding,
  kPositions,
  kNorm,
  kAttention,
  kMlp,
  kRouter,
  kExpert,
  kSharedExpert,
  kHead,
  kAdapter,  ///< a matrix of a low-rank adapter (adapters.h); in no layout
};
inline constexpr std::size_t kRoleCount = 10;
std::string_view name_of(Role role);

/// A parameter of a layer, or of the ends of the model. In a name "{}" stands for the number of the expert.
struct ParameterTemplate {
  std::string name = {};  ///< relative to the layer; of the ends: the whole FQN
  Shape shape = {};
  Role role = Role::kMlp;
  int copies = 1;         ///< one for each expert where the checkpoint holds experts apart
  bool matrix = false;    ///< multiplied with every token that reaches it
  bool trainable = true;  ///< false: a buffer that checkpoints hold
};

/// The names a model's modules have and the parameters in them.
struct Layout {
  std::string base = {};    ///< module around the decoder: "model", "transformer", "model.language_model"
  std::string layers = {};  ///< FQN of the list of layers: "model.layers"
  std::vector<std::string> embeddings = {};  ///< FQNs of modules that only the first stage has
  std::string norm = {};
  std::string head = {};
  std::string rotary = {};  ///< a module without parameters that every stage has; empty where there is none
  std::vector<ParameterTemplate> embedding_parameters = {};
  std::vector<ParameterTemplate> norm_parameters = {};
  ParameterTemplate head_parameter = {};
  /// FQN of the parameter that the head shares; empty where it has its own.
  std::string head_tied_to = {};
  std::vector<ParameterTemplate> dense_layer = {};
  std::vector<ParameterTemplate> moe_layer = {};
  std::vector<bool> moe_layers = {};  ///< one a layer

  int layer_count() const { return static_cast<int>(moe_layers.size()); }
  const std::vector<ParameterTemplate>& layer(int index) const {
    return moe_layers[static_cast<std::size_t>(index)] ? moe_layer : dense_layer;
  }
  std::string layer_fqn(int index) const { return layers + "." + std::to_string(index); }
};

/// Appends templates of the usual modules to a list.
class LayerBuilder {
 public:
  explicit LayerBuilder(std::vector<ParameterTemplate>& out) : out_(out) {}
  /// `name`.weight [out, in] and, with `bias`, `name`.bias [out].
  void linear(std::string_view name, std::int64_t in, std::int64_t out, bool bias, Role role);
  /// GPT-2's transposed linear layer: weight [in, out], always with bias.
  void conv1d(std::string_view name, std::int64_t in, std::int64_t out, Role role);
  /// `name`.weight [width] and, with `bias`, `name`.bias [width].
  void norm(std::string_view name, std::int64_t width, bool bias = false);
  /// A weight that tokens are multiplied with, of any shape.
  void matrix(std::string_view name, Shape shape, Role role);
  /// Anything else: tables, vectors, biases.
  void tensor(std::string_view name, Shape shape, Role role, bool trainable = true);
  /// Makes every parameter added from now on stand once for each of `copies` experts; 1 ends it.
  void copies(int copies) { copies_ = copies; }

 private:
  std::vector<ParameterTemplate>& out_;
  int copies_ = 1;
};

}  // namespace automodel::arch
