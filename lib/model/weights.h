// The parameters of a rank's modules, by Hugging Face name, grouped into units that are gathered, reduced and freed
// together.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "arch/modules.h"
#include "model/slice.h"
#include "ops/parameter.h"

namespace automodel::model {

struct Weight {
  arch::Parameter info = {};            ///< name and shape of the whole tensor
  std::vector<std::int64_t> full = {};  ///< shape of the whole tensor, again
  Slice slice = {};                     ///< this rank's part
  ops::Parameter parameter = {};        ///< its name and shape; value and gradient once storage is bound
  int unit = 0;
  bool trained = true;
  bool expert = false;          ///< belongs to the expert grid: reduced among the ranks that hold the same experts
  bool tensor_sharded = false;  ///< each tp rank has a different part
  bool tensor_partial = false;  ///< tp ranks have equal values and partial gradients, which must be summed
  int tensor_replicas = 1;      ///< number of neighbouring tp ranks that hold the same part, each with a partial
                                ///< gradient
  /// Number of elements in flat value buffers: 0 if the weight is quantized.
  std::int64_t floats() const { return parameter.quantized ? 0 : parameter.numel(); }
  bool copy = false;  ///< second copy of a tied weight, whose gradient is added to that of the first
};

/// A parameter that is not divided, without its value.
Weight whole_weight(const arch::Parameter& info);

/// The weights of a decoder layer, of the embedding, or of norm and head. A tied head is a unit of its own, with the
/// same layout as the embedding, so that their shards correspond. A layer's adapters are a separate unit, because they
/// are trained while the weights that they adapt are not.
struct Unit {
  std::string name = {};
  std::vector<Weight*> weights = {};
  bool expert = false;
  bool trained() const;  ///< whether any of them is
};

/// The rank-local part of a tensor; the whole tensor if it is not sharded.
struct Placement {
  Slice slice = {};
  bool present = true;  ///< false: on another expert-parallel rank
  bool trained = true;
  bool tensor_sharded = false;
  bool tensor_partial = false;
  int tensor_replicas = 1;
};
using PlacementRule = std::function<Placement(const arch::Parameter&)>;

class Weights {
 public:
  /// The parameters of `list` that `rule` places on this rank. Units follow the order of layers; within a unit matrices
  /// come before vectors, so that projections of one input are adjacent in memory. `whole_stage`: all layers form one
  /// unit.
  Weights(const std::vector<arch::Parameter>& list, const PlacementRule& rule, bool whole_stage = false);

  const std::vector<std::unique_ptr<Weight>>& all() const { return weights_; }
  const std::vector<Unit>& units() const { return units_; }
  /// Numbers of the units with such weights, in the weights' order. Frozen ones have units of their own.
  std::vector<int> units_of(const std::function<bool(const Weight&)>& such) const;
  /// Null if this rank has no such weight.
  Weight* find(std::string_view fqn) const;
  /// The tensor of `fqn`, or null.
  ops::Parameter* parameter(std::string_view fqn) const;
  std::int64_t elements() const;
  /// Autocast: of all matrices but the embedding.
  void set_matmul_type(at::ScalarType type);

 private:
  std::vector<std::unique_ptr<Weight>> weights_ = {};
  std::vector<Unit> units_ = {};
  std::unordered_map<std::string, Weight*> index_ = {};
};

}  // namespace automodel::model
