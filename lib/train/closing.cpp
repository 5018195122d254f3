#include "train/closing.h"

#include <fstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

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

void Closing::recall(const std::filesystem::path& folder, std::int64_t before, const std::string& validation_set) {
  const auto each_record = [&](const std::string& name, const char* key, const auto& take) {
    std::ifstream file(folder / name, std::ios::binary);
    for (std::string line; std::getline(file, line);) {
      const auto record = nlohmann::json::parse(line, nullptr, false);
      if (!record.is_object() || !record.contains("step") || !record["step"].is_number_integer()) continue;
      if (!record.contains(key) || !record[key].is_number()) continue;
      if (const auto step = record["step"].get<std::int64_t>(); step < before) take(step, record[key].get<double>());
    }
  };
  each_record("training.jsonl", "loss", [&](std::int64_t step, double loss) { add(step, loss); });
  each_record(validation_set == "default" ? "validation.jsonl" : "validation_" + validation_set + ".jsonl", "val_loss",
              [&](std::int64_t step, double loss) { add_validation(step, loss); });
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
  if (ending.has_text && (!ending.adapters || ending.has_base))
    out.push_back(fmt::format("try       automodel generate {} {}", shell_quoted(ending.checkpoint),
                              ending.pictures          ? "--image FILE --prompt \"What is this?\""
                              : !ending.prompt.empty() ? "--prompt " + shell_quoted(ending.prompt)
                              : ending.chats           ? "--chat"
                                                       : "--prompt \"Once upon a time\""));
  if (!ending.lowest.empty())
    out.push_back(fmt::format("best      {}: the lowest loss on validation data of a checkpoint, {:.4f}", ending.lowest,
                              ending.lowest_loss));
  if (ending.adapters && !ending.has_base) {
    out.push_back("          the base model was made from the seed: the adapters are of no use without it");
    return out;
  }
  out.push_back(fmt::format("export    automodel checkpoint export {} NEW_FOLDER{}",
                            shell_quoted(ending.lowest.empty() ? ending.checkpoint : ending.lowest),
                            ending.adapters ? " --merge" : ""));
  if (ending.few_bits)
    out.push_back("          adds them to the base folder's own weights, which are not rounded as those of this run");
  return out;
}

}  // namespace automodel::train
