// Command-line overrides, one per line of the input, applied to a recipe.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "config/recipe.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace automodel;  // NOLINT(google-build-using-namespace)
  std::vector<std::string> words(1);
  for (std::size_t i = 0; i < size; ++i) {
    if (data[i] == '\n')
      words.emplace_back();
    else
      words.back() += static_cast<char>(data[i]);
  }
  if (words.size() > 200) return 0;
  Diagnostics problems;
  const auto overrides = config::parse_overrides(words, problems);
  const auto loaded = config::read_recipe(
      "model: {config: {model_type: llama}}\ndistributed: {tp_size: 2}\n", "fuzz.yaml", overrides,
      [](const std::string& name) { return name == "A" ? std::optional<std::string>("1") : std::nullopt; });
  for (const auto& problem : loaded.problems)
    if (problem.message.empty()) std::abort();
  return 0;
}
