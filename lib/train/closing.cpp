#include "train/closing.h"

#include <fmt/format.h>

#include "base/shell_word.h"

namespace automodel::train {

void Closing::add(std::int64_t step, double loss) {
  last_ = Point{step, loss};
  if (!first_) first_ = last_;
  if (!best_ || loss < best_->loss) best_ = last_;
}

void Closing::add_validation(std::int64_t step, double loss) {
  validated_ = Point{step, loss};
  if (!best_validated_ || loss < best_validated_->loss) best_validated_ = validated_;
}

std::vector<std::string> Closing::lines(const Ending& ending) const {
  std::vector<std::string> out;
  if (first_)
    out.push_back(fmt::format("loss      first {:.4f} (step {}), last {:.4f} (step {}), best {:.4f} (step {})",
                              first_->loss, first_->step, last_->loss, last_->step, best_->loss, best_->step));
  if (validated_)
    out.push_back(fmt::format("          on validation data: last {:.4f} (step {}), best {:.4f} (step {})",
                              validated_->loss, validated_->step, best_validated_->loss, best_validated_->step));
  if (ending.checkpoint.empty()) {
    out.push_back(ending.stopped ? fmt::format("Stopped after step {}. Nothing is saved: checkpoint.enabled is false.",
                                               last_ ? last_->step : ending.steps_done - 1)
                                 : "model     not saved: checkpoint.enabled is false");
    return out;
  }
  out.push_back(fmt::format("model     {}/model: {}", ending.checkpoint,
                            ending.adapters ? "adapters in the PEFT library's format"
                                            : "a Hugging Face folder, which transformers opens as it is"));
  if (ending.stopped) {
    out.push_back(
        fmt::format("Saved at step {}. Run the same command to resume.", last_ ? last_->step : ending.steps_done - 1));
    return out;
  }
  if (ending.has_text && !ending.adapters)
    out.push_back(
        fmt::format("try       automodel generate {} --prompt \"Once upon a time\"", shell_quoted(ending.checkpoint)));
  out.push_back(fmt::format("export    automodel checkpoint export {} NEW_FOLDER{}", shell_quoted(ending.checkpoint),
                            ending.adapters ? " --merge" : ""));
  if (ending.few_bits)
    out.push_back("          adds them to the base folder's own weights, which are not rounded as those of this run");
  return out;
}

}  // namespace automodel::train
