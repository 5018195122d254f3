#include "train/reports.h"

#include <cstdlib>
#include <string_view>

#include <fmt/format.h>

#include "base/log.h"

namespace automodel::train {

Reports::Reports(const config::Recipe& recipe, bool active, bool cuda, std::int64_t first_step, std::int64_t end_step,
                 metrics::EventStream* stream)
    : recipe_(recipe) {
  if (!active) return;
  stream_ = stream;
  folder_ = recipe.checkpoint->checkpoint_dir();
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (error)
    throw Error(Diagnostic{"cannot-write"}
                    .says("the folder '{}' cannot be made: {}", folder_.string(), error.message())
                    .hint("choose another checkpoint.checkpoint_dir")
                    .of("checkpoint.checkpoint_dir"));
  first_step_ = first_step;
  if (recipe.logging->jsonl()) training_.emplace(folder_ / "training.jsonl", first_step);
  if (recipe.logging->jsonl()) history_.emplace(folder_);
  if (recipe.logging->tensorboard()) events_.emplace(folder_, first_step);
  metrics::ConsoleOptions console{.progress = recipe.logging->progress(),
                                  .first_step = first_step,
                                  .end_step = end_step,
                                  .share = cuda ? "gpu" : "rank"};
  if (stream_ != nullptr && stream_->prints()) console.lines = console.bar;
  if (stream_ != nullptr) log::set_listener([stream](std::string_view text) { stream->logged(text); });
  if (const char* columns = std::getenv(metrics::kTerminalVariable)) {
    console.columns = std::atoi(columns);
    console.bar = console.lines;
  }
  console_ = std::make_unique<metrics::Console>(console);
  log::set_before_line([this] { console_->clear_bar(); });
}

Reports::~Reports() {
  if (stream_ != nullptr) log::set_listener({});
  if (console_) log::set_before_line({});
}

void Reports::line(const std::string& text) {
  if (console_) console_->line(text);
}

void Reports::status(const std::string& text) {
  if (console_) console_->status(text);
}

void Reports::step(const metrics::StepRecord& record) {
  if (!console_) return;
  console_->step(record);
  if (stream_ != nullptr) stream_->step(record);
  if (training_) training_->append(metrics::view_of(record));
  if (events_) events_->append(metrics::view_of(record), "train");
}

void Reports::validation(const metrics::ValidationRecord& record, const std::string& name) {
  if (!console_) return;
  console_->validation(record, name);
  if (stream_ != nullptr) stream_->validation(record, name);
  if (recipe_.logging->jsonl()) {
    const std::string file = name == "default" ? "validation.jsonl" : "validation_" + name + ".jsonl";
    auto found = validation_.find(name);
    if (found == validation_.end())
      found = validation_.emplace(name, std::make_unique<metrics::JsonLines>(folder_ / file, first_step_)).first;
    found->second->append(metrics::view_of(record));
  }
  if (events_) events_->append(metrics::view_of(record), name == "default" ? "validation" : "validation_" + name);
}

void Reports::ranks(const metrics::RankTimes& times) {
  if (!console_) return;
  if (stream_ != nullptr) stream_->ranks(times);
  if (!recipe_.logging->jsonl()) return;
  if (!ranks_) ranks_.emplace(folder_ / "ranks.jsonl", first_step_);
  ranks_->append(metrics::view_of(times));
}

void Reports::event(const metrics::Event& event) {
  if (history_) history_->add(event);
  if (stream_ != nullptr) stream_->add(event);
}

void Reports::end(ExitCode code) {
  if (history_) history_->add(metrics::end_event(static_cast<int>(code), ""));
}

}  // namespace automodel::train
