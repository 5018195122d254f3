// Assembles whole tensors from the ranks' parts, for comparison. For small models only: every rank gets all of them.
#pragma once

#include <map>
#include <string>

#include <ATen/core/Tensor.h>

#include "train/runtime.h"

namespace automodel::train {

/// The whole gradient of each trained parameter, by name, in float64. Call after finish_gradients. Collective.
std::map<std::string, at::Tensor> gather_gradients(Runtime& runtime);
/// The whole master value of each parameter.
std::map<std::string, at::Tensor> gather_values(Runtime& runtime);

}  // namespace automodel::train
