// The last lines of a run: how it went, where the model is, and what to do with it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "config/recipe.h"

namespace automodel::train {

/// Collects losses over a run.
class Closing {
 public:
  void add(std::int64_t step, double loss);
  void add_validation(std::int64_t step, double loss);
  /// Adds the losses of steps before `before` from the files in `folder`, so that a run that was resumed ends with
  /// the losses of all its attempts.
  void recall(const std::filesystem::path& folder, std::int64_t before, const std::string& validation_set);

  /// What the last lines depend on besides the losses.
  struct Ending {
    bool stopped = false;         ///< by a signal
    std::string checkpoint = {};  ///< folder of the newest one; empty: nothing was saved
    bool adapters = false;        ///< the model folder holds only adapters
    bool few_bits = false;        ///< they were trained on top of weights of 4 or 8 bits
    bool has_base = false;        ///< those adapters belong to a model in a folder
    bool has_text = false;        ///< the data has a tokenizer, so that prompts can be tried
    bool pictures = false;        ///< and the model takes pictures
    std::string prompt = {};      ///< to try; empty: any
    bool chats = false;           ///< the data are conversations
    std::string lowest = {};  ///< path of the checkpoint with the lowest validation loss; empty: the newest, or none
    double lowest_loss = 0;   ///< that loss
    std::int64_t steps_done = 0;  ///< before this run, which may make no step itself
  };
  std::vector<std::string> lines(const Ending& ending) const;

 private:
  struct Point {
    std::int64_t step = 0;
    double loss = 0;
  };
  std::optional<Point> first_, last_, best_, validated_, best_validated_;
};

}  // namespace automodel::train
