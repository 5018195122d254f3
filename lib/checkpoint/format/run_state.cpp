#include "checkpoint/format/run_state.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "checkpoint/format/file.h"
#include "checkpoint/format/root_folder.h"

namespace automodel::checkpoint {
namespace {

using OrderedJson = nlohmann::ordered_json;

template <class T>
OrderedJson optional_json(const std::optional<T>& value) {
  return value ? OrderedJson(*value) : OrderedJson(nullptr);
}

/// Parses objects that are kept as text; null if invalid.
OrderedJson embedded(const std::string& text) {
  auto json = OrderedJson::parse(text, nullptr, false);
  return json.is_discarded() ? OrderedJson(nullptr) : json;
}

/// Reads members of an object and records the first error (missing member or wrong type).
class Members {
 public:
  explicit Members(const OrderedJson& json) : json_(json) {}
  /// A whole number of at least `least`; the largest leaves room for what a run adds.
  void take(const char* key, std::int64_t least, std::int64_t& out) {
    constexpr std::int64_t kMost = std::int64_t{1} << 53;
    const auto fits = [&](const OrderedJson& j) {
      if (j.is_number_unsigned() && j.get<std::uint64_t>() > kMost) return false;
      return j.is_number_integer() && j.get<std::int64_t>() >= least;
    };
    if (const auto* found = find(key, fits)) out = found->get<std::int64_t>();
  }
  void take(const char* key, std::uint64_t& out) {
    if (const auto* found = find(key, [](const OrderedJson& j) { return j.is_number_unsigned(); }))
      out = found->get<std::uint64_t>();
  }
  void take(const char* key, std::string& out) {
    if (const auto* found = find(key, [](const OrderedJson& j) { return j.is_string(); }))
      out = found->get<std::string>();
  }
  void take(const char* key, std::optional<double>& out) {
    const auto* found = find(key, [](const OrderedJson& j) { return j.is_null() || j.is_number(); });
    if (found != nullptr && !found->is_null()) out = found->get<double>();
  }
  /// Reads a list of numbers, which older releases do not write.
  void take_any(const char* key, std::vector<double>& out) {
    if (!json_.contains(key)) return;
    const auto* found = find(key, [](const OrderedJson& j) {
      return j.is_array() && std::ranges::all_of(j, [](const auto& each) { return each.is_number(); });
    });
    if (found != nullptr) out = found->get<std::vector<double>>();
  }
  void take_object(const char* key, std::string& out) {
    if (const auto* found = find(key, [](const OrderedJson& j) { return j.is_null() || j.is_object(); }))
      out = found->is_null() ? "" : found->dump();
  }
  void take(const char* key, std::optional<LossScale>& out) {
    const auto* found = find(key, [](const OrderedJson& j) { return j.is_null() || j.is_object(); });
    if (found == nullptr || found->is_null()) return;
    Members inner(*found);
    std::optional<double> scale;
    inner.take("scale", scale);
    out.emplace();
    inner.take("growth_steps", 0, out->growth_steps);
    // Each overflow lowers it by one until a step succeeds, so it is negative while a scale is being found.
    inner.take("hysteresis", std::numeric_limits<std::int32_t>::min(), out->hysteresis);
    out->scale = scale.value_or(1);
    if (wrong_.empty()) wrong_ = inner.wrong();
  }
  /// Reads the trend of validations, which older releases do not write.
  void take_any(const char* key, ValidationTrend& out) {
    if (!json_.contains(key)) return;
    const auto* found = find(key, [](const OrderedJson& j) { return j.is_object(); });
    if (found == nullptr) return;
    Members inner(*found);
    inner.take("lowest", out.lowest);
    inner.take("not_lower", 0, out.not_lower);
    if (wrong_.empty()) wrong_ = inner.wrong();
  }
  const std::string& wrong() const { return wrong_; }

 private:
  template <class Fits>
  const OrderedJson* find(const char* key, Fits&& fits) {
    const auto found = json_.find(key);
    if (found != json_.end() && fits(*found)) return &*found;
    if (wrong_.empty()) wrong_ = key;
    return nullptr;
  }
  const OrderedJson& json_;
  std::string wrong_;
};

}  // namespace

std::string to_json(const RunState& state) {
  const OrderedJson out = {
      {"format", 1},
      {"step", state.step},
      {"epoch", state.epoch},
      {"samples_consumed", state.samples},
      {"optimizer", state.optimizer},
      {"optimizer_steps", state.optimizer_steps},
      {"seed", state.seed},
      {"global_batch_size", state.global_batch_size},
      {"lr_schedule", embedded(state.lr_schedule)},
      {"loss_scale", state.loss_scale ? OrderedJson{{"scale", state.loss_scale->scale},
                                                    {"growth_steps", state.loss_scale->growth_steps},
                                                    {"hysteresis", state.loss_scale->hysteresis}}
                                      : OrderedJson(nullptr)},
      {"loss", optional_json(state.loss)},
      {"val_loss", optional_json(state.val_loss)},
      {"best_val_loss", optional_json(state.best_val_loss)},
      {"best", state.best},
      {"validations",
       {{"lowest", optional_json(state.validations.lowest)}, {"not_lower", state.validations.not_lower}}},
      {"recent_losses", state.recent_losses},
      {"ranks", state.ranks},
      {"automodel", state.version},
      {"recipe", state.recipe},
      {"resolved", embedded(state.resolved)}};
  return out.dump(1, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

std::optional<RunState> parse_run_state(std::string_view text, std::string_view file, Diagnostics& problems) {
  const auto refuse = [&](const std::string& what) -> std::optional<RunState> {
    problems.add("state-syntax")
        .says("'{}' is not the state of a run: {}", file, what)
        .hint("the checkpoint is damaged or from a different release; use another one (checkpoint.restore_from)")
        .at({std::string(file), 0, 0});
    return std::nullopt;
  };
  const auto json = OrderedJson::parse(text, nullptr, false);
  if (!json.is_object()) return refuse("it is not a JSON object");
  RunState out;
  Members members(json);
  std::int64_t format = 0, ranks = 0;
  members.take("format", 0, format);
  members.take("step", -1, out.step);
  members.take("epoch", 0, out.epoch);
  members.take("samples_consumed", 0, out.samples);
  members.take("optimizer", out.optimizer);
  members.take("optimizer_steps", 0, out.optimizer_steps);
  members.take("seed", out.seed);
  members.take("global_batch_size", 0, out.global_batch_size);
  members.take_object("lr_schedule", out.lr_schedule);
  members.take("loss_scale", out.loss_scale);
  members.take("loss", out.loss);
  members.take("val_loss", out.val_loss);
  members.take("best_val_loss", out.best_val_loss);
  members.take("best", out.best);
  members.take_any("validations", out.validations);
  members.take_any("recent_losses", out.recent_losses);
  members.take("ranks", 1, ranks);
  members.take("automodel", out.version);
  members.take("recipe", out.recipe);
  members.take_object("resolved", out.resolved);
  out.ranks = static_cast<int>(ranks);
  if (!members.wrong().empty())
    return refuse(fmt::format("'{}' is missing, of the wrong type or out of range", members.wrong()));
  if (format != 1) return refuse(fmt::format("its format is {}; only 1 is known", format));
  if (!out.best.empty() && !parse_checkpoint_name(out.best))
    return refuse(fmt::format("'best' is '{}', which is not the name of a checkpoint", out.best));
  if (ranks > std::numeric_limits<int>::max()) return refuse("'ranks' is out of range");
  return out;
}

std::optional<RunState> read_run_state(const std::filesystem::path& checkpoint, Diagnostics& problems) {
  const auto path = checkpoint / kStateName;
  const auto text = read_file(path, problems, std::uint64_t{1} << 26);
  return text ? parse_run_state(*text, path.native(), problems) : std::nullopt;
}

}  // namespace automodel::checkpoint
