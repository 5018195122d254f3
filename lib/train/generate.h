// Text from the trained model, to look at. Slow and simple: the whole context runs for every token.
#pragma once

#include <cstdint>
#include <vector>

#include "train/runtime.h"

namespace automodel::train {

struct GenerateOptions {
  int tokens = 100;          ///< to add
  double temperature = 0.8;  ///< 0: always the likeliest token
  std::int64_t longest = 0;  ///< tokens of context that the model sees
  std::uint64_t seed = 42;
  std::int64_t end = -1;  ///< token that ends the text; -1: none
};

/// Continues `prompt`. All ranks call it with the same arguments and get the same tokens, the new ones only.
std::vector<std::int32_t> generate(Runtime& runtime, std::vector<std::int32_t> prompt, const GenerateOptions& options);

}  // namespace automodel::train
