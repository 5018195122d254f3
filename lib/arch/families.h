// The table of model families.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "arch/families/family.h"
#include "arch/layout.h"
#include "arch/model_spec.h"

namespace automodel::arch {

/// Every family, in table order.
std::span<const Family* const> families();
/// The family with this `model_type`, or nullptr.
const Family* find_family(std::string_view model_type);
/// Assumptions for a decoder of an unknown family: Llama's names, and experts if the config has the usual keys. Good
/// enough for planning, but not for training.
const Family& unknown_family();
std::vector<std::string_view> family_names();

/// Names and parameters of a model. Identical layers and experts are described only once.
Layout layout_of(const ModelSpec& spec);

}  // namespace automodel::arch
