// Arbitrary bytes as a recipe: it is read, or refused with problems that have ids and locations; nothing is thrown.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "config/recipe.h"
#include "estimate/estimated_plan.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace automodel;  // NOLINT(google-build-using-namespace)
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto loaded = config::read_recipe(text, "fuzz.yaml", {}, [](const std::string&) { return std::nullopt; });
  for (const auto& problem : loaded.problems)
    if (problem.message.empty()) std::abort();
  if (!loaded.problems.empty()) return 0;
  // A recipe that was read can be written and read again, and planning it gives a plan or problems.
  const auto again = config::read_recipe(config::to_yaml(config::to_dict(loaded.recipe)), "again.yaml", {},
                                         [](const std::string&) { return std::nullopt; });
  if (!again.problems.empty() || !(config::to_dict(again.recipe) == config::to_dict(loaded.recipe))) std::abort();
  const auto& d = loaded.recipe.distributed();
  for (const auto& axis : {d.pp_size(), d.tp_size(), d.cp_size(), d.dp_size(), d.ep_size()})
    if (axis.value_or(1) > 64) return 0;  // large plans are for the benchmark
  if (loaded.recipe.step_scheduler->local_batch_size() > 256) return 0;
  const auto result = estimate::make_plan(loaded, {});
  if (!result.plan && result.problems.empty()) std::abort();
  return 0;
}
