// The optimizer over this rank's shards: Adam, AdamW, SGD and Muon, with factors for groups of parameters.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>

#include "arch/modules.h"
#include "ops/orthogonal.h"
#include "optim/matrix_exchange.h"
#include "plan/optimizer_plan.h"

namespace automodel::optim {

/// Where a parameter is in the model: Muon uses separate rates for embedding and head.
enum class Place : std::uint8_t { kLayers, kEmbedding, kHead };

/// A contiguous range of one parameter's elements in a target's buffers.
struct Range {
  std::string name = {};    ///< of the parameter
  std::string group = {};   ///< name that param_group_overrides match, if not `name`: that of the original for a
                            ///< tied copy
  std::int64_t first = 0;   ///< index of its first element in the rank-local parameter, before data-parallel
                            ///< sharding
  std::int64_t offset = 0;  ///< offset in the buffers
  std::int64_t length = 0;
  bool trained = true;
  bool counted = true;  ///< whether this rank counts these elements in norms
  Place place = Place::kLayers;
  int matrix = -1;  ///< index into Target::matrices; -1: not part of a matrix that is changed as a whole
};

/// Buffers of one unit of parameters. The optimizer owns the corresponding states.
struct Target {
  at::Tensor value = {};                      ///< master values, updated by a step
  std::function<at::Tensor()> gradient = {};  ///< reduced gradient of the same elements
  std::vector<Range> ranges = {};
  bool expert = false;  ///< counted in the sum over expert parameters
  /// The unit's matrices that the optimizer changes as a whole (needs_whole_matrix()), whether parts of them are on
  /// this rank or not.
  std::vector<Matrix> matrices = {};
  MatrixGroups groups = {};
};

/// Whether this optimizer needs the whole of `parameter` to update any part of it.
bool needs_whole_matrix(const plan::OptimizerPlan& plan, const arch::Parameter& parameter);

/// An optimizer state, which checkpoints store along with the master values.
struct State {
  /// The parameters that have this state.
  enum class Of : std::uint8_t { kAll, kMatrices, kRest };
  std::string name = {};   ///< "exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer": PyTorch's names
  at::Tensor tensor = {};  ///< for elements [first, first + numel) of the target's buffers
  std::int64_t first = 0;
  Of of = Of::kAll;
  /// `whole`: needs_whole_matrix() of the parameter.
  bool belongs_to(bool whole) const { return of == Of::kAll || whole == (of == Of::kMatrices); }
};

class Optimizer {
 public:
  Optimizer(plan::OptimizerPlan plan, std::vector<Target> targets);

  const std::vector<Target>& targets() const { return targets_; }
  /// Sums of squares of the counted gradients of {dense, expert} parameters, in float64.
  std::pair<double, double> square_sums() const;
  /// Name of a parameter with a non-finite gradient on this rank, or "".
  std::string not_finite() const;
  /// One update, with the gradient multiplied by `gradient_scale`. `lr` and `weight_decay` are the schedule's values,
  /// which each parameter's factors multiply.
  void step(double lr, double weight_decay, double gradient_scale);

  /// Number of steps so far, for bias correction.
  std::int64_t steps() const { return steps_; }
  void set_steps(std::int64_t steps) { steps_ = steps; }
  /// Names of the states of a trained parameter; `whole`: needs_whole_matrix() of the parameter.
  std::vector<std::string> state_names(bool whole = false) const;
  /// Type of the state `name`, for masters of type `master`.
  at::ScalarType state_type(std::string_view name, at::ScalarType master) const;
  /// The states of target `index`; two of them may share a tensor.
  std::vector<State> states(std::size_t index) const;
  std::int64_t state_bytes() const;

 private:
  /// Adjacent ranges with the same factors.
  struct Piece {
    std::int64_t offset, length;
    double lr_factor, decay_factor;
    int matrix = -1;
  };
  /// The state's tensor for elements [first, first + numel) of a target's buffers.
  struct Kept {
    at::Tensor tensor = {};
    std::int64_t first = 0;
    at::Tensor part(const Piece& piece) const { return tensor.narrow(0, piece.offset - first, piece.length); }
  };

  void step_adam(const plan::AdamRule& rule, double lr, double weight_decay, double gradient_scale);
  void step_sgd(const plan::SgdRule& rule, double lr, double weight_decay, double gradient_scale);
  void step_muon(const plan::MuonRule& rule, double lr, double weight_decay, double gradient_scale);
  void add_pieces(const Target& target);
  void add_states(const Target& target);
  double rate_factor(const Range& range) const;
  /// Calls `update(value, gradient, states, piece)` for every piece of every trained target.
  template <class Update>
  void for_pieces(const Update& update);

  plan::OptimizerPlan plan_;
  std::vector<Target> targets_;
  /// The states of each target, in the order of state_names(). With Muon the first is the momentum of matrices and the
  /// first moment of all else, the second is AdamW's second moment of all else. Empty if everything is frozen.
  std::vector<std::vector<Kept>> states_;
  std::vector<std::vector<Piece>> pieces_;
  std::vector<std::unique_ptr<MatrixExchange>> exchanges_;  ///< one per target; null without matrices
  std::int64_t steps_ = 0;
};

/// Factor that limits the norm of gradients to `max_norm` (torch.nn.utils.clip_grad_norm_).
double clip_factor(double norm, double max_norm);

}  // namespace automodel::optim
