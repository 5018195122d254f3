// The recipe's optimizer section in resolved form, for estimates and for the runtime.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/dtype.h"

namespace automodel::plan {

struct AdamRule {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  bool decoupled = true;  ///< decoupled weight decay (AdamW) rather than L2 regularisation (Adam)
  bool amsgrad = false, maximize = false;
};
struct SgdRule {
  double momentum = 0, dampening = 0;
  bool nesterov = false, maximize = false;
};
/// Factor of Muon's update for a matrix [rows, columns].
enum class MatrixScale {
  kOriginal,       ///< sqrt(max(1, rows / columns))
  kMatchRmsAdamW,  ///< 0.2 sqrt(max(rows, columns))
  kSpectralNorm,   ///< sqrt(rows / columns)
  kNone,
};
struct MuonRule {
  double momentum = 0.95;
  bool summed = false;  ///< momentum accumulates a sum of gradients instead of an average
  bool nesterov = true;
  /// Newton-Schulz coefficients, one row per iteration.
  std::vector<std::array<double, 3>> coefficients = {};
  double eps = 1e-7;       ///< for the norm by which the matrix is divided
  bool eps_added = false;  ///< `eps` is added to the norm; else it is the lower bound
  MatrixScale scale = MatrixScale::kOriginal;
  AdamRule rest = {};                                             ///< for all other parameters
  double rest_factor = 1, embedding_factor = 1, head_factor = 1;  ///< learning rate factors for these
  bool ends_decay = true;                                         ///< apply weight decay to embeddings and head
};

/// Learning rate and weight decay factors of matching parameters.
struct RateGroup {
  std::string pattern = {};  ///< a regular expression
  double lr = 1;
  double weight_decay = 1;
};

struct OptimizerPlan {
  std::string name = {};  ///< "adamw", as recipes name it
  std::variant<AdamRule, SgdRule, MuonRule> rule = AdamRule{};
  std::vector<RateGroup> groups = {};  ///< the first match applies
  // Dtypes of Adam's moments if the recipe sets them; else the master weights' dtype.
  std::optional<DType> first_moment = {}, second_moment = {};
  /// Whether the matrices of layers are updated as a whole, rather than element by element.
  bool takes_matrices() const { return std::holds_alternative<MuonRule>(rule); }
};

/// The factors of parameter `name`, from the first group whose pattern matches; 1 and 1 if none does.
struct Factors {
  double lr = 1;
  double weight_decay = 1;
};
Factors factors_of(const std::vector<RateGroup>& groups, const std::string& name);

}  // namespace automodel::plan
