// A model's parameters by Hugging Face names and shapes, with identical layers described only once.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "arch/model_spec.h"
#include "arch/part.h"
#include "arch/shape.h"

namespace automodel::arch {

/// How a parameter is initialised.
enum class Initial : std::uint8_t {
  kNormal,  ///< normal with standard deviation ModelSpec::initializer_range
  kZero,
  kOne,
  kValue,       ///< the constant `start`
  kLogUniform,  ///< log(u) with u uniform in (0, start)
  kLogCount,    ///< log(1), log(2), log(3), ...
  kStepBias,    ///< softplus(value) is log-uniform in [0.001, 0.1] (Mamba-2)
  kInTurn,      ///< 0, 1, ..., `start` - 1, 0, 1, ...
};

/// A parameter of a layer, or of the ends (embeddings, final norm, head). "{}" in a name stands for the number of the
/// expert, or of the head for per-head norms.
struct ParameterTemplate {
  std::string name = {};  ///< relative to the layer; for the ends the full FQN
  Shape shape = {};
  Role role = Role::kMlp;
  Part part = Part::kNone;
  int copies = 1;           ///< number of experts (or heads) if checkpoints store a tensor for each
  bool matrix = false;      ///< a weight in a matmul with every token that reaches it
  bool trainable = true;    ///< false: a buffer stored in checkpoints
  bool transposed = false;  ///< stored [in, out]: GPT-2's
  bool cached = false;      ///< as in Parameter
  Initial initial = Initial::kNormal;
  double start = 0;
};

/// A kind of decoder layer: its parameters in forward order, and the module that implements each part.
struct LayerLayout {
  std::vector<ParameterTemplate> parameters = {};
  std::array<std::string, kPartCount> modules = {};  ///< names relative to the layer; empty: no such part
  bool has(Part part) const { return !module(part).empty(); }
  const std::string& module(Part part) const { return modules[static_cast<std::size_t>(part)]; }
};

/// Module names and parameters of a whole model.
struct Layout {
  std::string base = {};    ///< module that contains the decoder: "model", "transformer", "model.language_model"
  std::string layers = {};  ///< FQN of the layer list: "model.layers"
  std::vector<std::string> embeddings = {};  ///< FQNs of the modules that only the first stage has
  std::string norm = {};
  std::string head = {};
  std::string rotary = {};  ///< a parameter-free module present on every stage; empty: none
  std::vector<ParameterTemplate> embedding_parameters = {};
  std::vector<ParameterTemplate> tower_parameters = {};  ///< vision tower and projector, on the first stage
  std::vector<ParameterTemplate> norm_parameters = {};
  ParameterTemplate head_parameter = {};
  std::optional<ParameterTemplate> head_bias = {};
  bool whole_head = false;  ///< tensor-parallel ranks do not divide the head: a classifier's is small
  /// FQN of the parameter whose storage the head shares; empty if it has its own.
  std::string head_tied_to = {};
  std::vector<LayerLayout> kinds = {};  ///< the distinct layer kinds
  std::vector<int> kind_of = {};        ///< per layer: index into `kinds`

  int layer_count() const { return static_cast<int>(kind_of.size()); }
  const LayerLayout& kind(int layer) const {
    return kinds[static_cast<std::size_t>(kind_of[static_cast<std::size_t>(layer)])];
  }
  const std::vector<ParameterTemplate>& layer(int index) const { return kind(index).parameters; }
  std::string layer_fqn(int index) const { return layers + "." + std::to_string(index); }
};

/// Appends the modules of a layer in forward order. Each module must be added only once.
class LayerBuilder {
 public:
  LayerBuilder(const ModelSpec& spec, LayerLayout& out) : spec_(spec), out_(out) {}
  /// `name`.weight [out, in] and, with `bias`, `name`.bias [out].
  void linear(Part part, std::string_view name, std::int64_t in, std::int64_t out, bool bias = false);
  /// A linear module stored as [in, out] and always with a bias: GPT-2's Conv1D.
  void transposed(Part part, std::string_view name, std::int64_t in, std::int64_t out);
  /// A norm of the model's kind (ModelSpec::norm) with its parameters; OLMo's have none.
  void norm(Part part, std::string_view name, std::int64_t width);
  /// Query and key head norms, if the spec has them (ModelSpec::head_norm). Names contain "{}" if every head has its
  /// own module.
  void head_norms(std::string_view query, std::string_view key);
  /// An RMSNorm, regardless of the model's norm kind.
  void rms_norm(Part part, std::string_view name, std::int64_t width);
  /// A LayerNorm with a bias, regardless of the model's norm kind.
  void layer_norm(Part part, std::string_view name, std::int64_t width);
  /// A depthwise convolution: `name`.weight [channels, 1, taps] and, with `bias`, `name`.bias.
  void conv(Part part, std::string_view name, std::int64_t channels, int taps, bool bias);
  /// A bare parameter that implements the part itself, without a module around it.
  void numbers(Part part, std::string_view name, Shape shape, Initial initial, double start = 0);
  /// Anything else: a parameter of `module`, or a bare one with the same name.
  void tensor(Part part, std::string_view module, ParameterTemplate parameter);
  /// Parameters added after this call exist `copies` times, until copies(1).
  void copies(int copies) { copies_ = copies; }

 private:
  void name(Part part, std::string_view module);
  void add(Part part, ParameterTemplate parameter);

  const ModelSpec& spec_;
  LayerLayout& out_;
  int copies_ = 1;
};

/// A lookup table for tokens or positions.
ParameterTemplate table(std::string name, std::int64_t rows, std::int64_t width, Role role);
/// Parameters of a norm of the model's kind outside the layers.
std::vector<ParameterTemplate> norm_parameters(const ModelSpec& spec, std::string_view name, std::int64_t width);

}  // namespace automodel::arch
