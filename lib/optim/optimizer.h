// The optimizer over the shards that this rank keeps: Adam, AdamW and SGD, with factors for groups of parameters.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>

#include "base/diagnostic.h"
#include "config/training_config.h"

namespace automodel::optim {

/// A run of one parameter's elements inside a target's buffers.
struct Range {
  std::string name = {};    ///< of the parameter
  std::string group = {};   ///< name that param_group_overrides match: of the original where this is a tied copy
  std::int64_t first = 0;   ///< in the parameter's elements on this rank, before data-parallel sharding
  std::int64_t offset = 0;  ///< in the buffers
  std::int64_t length = 0;
  bool trained = true;
  bool counted = true;  ///< this rank is the one that counts these elements in norms
};

/// Buffers of one unit of parameters. The optimizer owns states of the same length.
struct Target {
  at::Tensor value = {};                      ///< master values, changed by a step
  std::function<at::Tensor()> gradient = {};  ///< reduced gradient of the same elements
  std::vector<Range> ranges = {};
  bool expert = false;  ///< counted among the ranks of the expert grid
};

/// The states that a checkpoint holds, beside the master values.
struct State {
  std::string name;   ///< "exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer": PyTorch's names
  at::Tensor tensor;  ///< as long as the target's buffers
};

class Optimizer {
 public:
  Optimizer(const config::OptimizerConfig& config, std::vector<Target> targets);

  const std::vector<Target>& targets() const { return targets_; }
  /// Sum of squares of the counted gradients, in float64: {dense, expert} parameters.
  std::pair<double, double> square_sums() const;
  /// Name of a parameter whose gradient here is not finite, or "".
  std::string not_finite() const;
  /// One update with the gradient times `gradient_scale`. `lr` and `weight_decay` are the schedule's values; each
  /// parameter's factors multiply them.
  void step(double lr, double weight_decay, double gradient_scale);

  /// Steps done so far (of the bias correction).
  std::int64_t steps() const { return steps_; }
  void set_steps(std::int64_t steps) { steps_ = steps; }
  /// Names of the states that a trained target has.
  std::vector<std::string> state_names() const;
  /// Of target `index`.
  std::vector<State> states(std::size_t index) const;
  std::int64_t state_bytes() const;

 private:
  struct Adam {
    double beta1, beta2, eps;
    bool decoupled, amsgrad, maximize;
  };
  struct Sgd {
    double momentum, dampening;
    bool nesterov, maximize;
  };
  /// Neighbouring ranges with the same factors.
  struct Piece {
    std::int64_t offset, length;
    double lr_factor, decay_factor;
  };

  void step_adam(const Adam& rule, double lr, double weight_decay, double gradient_scale);
  void step_sgd(const Sgd& rule, double lr, double weight_decay, double gradient_scale);
  /// Calls `update(value, gradient, states, piece)` for every piece of every trained target.
  template <class Update>
  void for_pieces(const Update& update);

  std::variant<Adam, Sgd> rule_;
  std::vector<Target> targets_;
  std::vector<std::vector<at::Tensor>>
      states_;  ///< of a target, in the order of state_names(); none where all is frozen
  std::vector<std::vector<Piece>> pieces_;
  std::int64_t steps_ = 0;
};

/// Factors of parameter `name`: those of the first override whose pattern it matches, else 1 and 1.
struct Factors {
  double lr = 1;
  double weight_decay = 1;
};
Factors factors_of(const std::vector<config::ParamGroupOverride>& overrides, const std::string& name);

/// The factor for gradients that makes their norm at most `max_norm` (torch.nn.utils.clip_grad_norm_).
double clip_factor(double norm, double max_norm);

}  // namespace automodel::optim
