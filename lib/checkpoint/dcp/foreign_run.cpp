#include "checkpoint/dcp/foreign_run.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "arch/modules.h"
#include "base/error.h"
#include "base/json_depth.h"
#include "checkpoint/dcp/titan_names.h"
#include "checkpoint/format/tensor_file.h"
#include "checkpoint/format/weight_names.h"

namespace automodel::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr const char* kAccelerateModel = "pytorch_model_fsdp_0";
constexpr const char* kAccelerateOptimizer = "optimizer_0";
constexpr const char* kNemoSteps = "step_scheduler.pt";
/// Keys under which training loops store the model's and the optimizer's state dict.
constexpr std::array<std::string_view, 5> kModelKeys = {"", "model.", "app.model.", "state_dict.", "module."};
constexpr std::array<std::string_view, 4> kOptimizerKeys = {"optimizer.", "optim.", "app.optimizer.", "app.optim."};
constexpr double kMostSteps = 1e12;
constexpr std::int64_t kComparedAtOnce = std::int64_t{1} << 20U;  // elements

[[noreturn]] void fail_layout(const fs::path& folder, const std::string& what, const std::string& help) {
  throw Error(
      ExitCode::kCheckpoint,
      Diagnostic{"checkpoint-missing"}.says("'{}': {}", folder.native(), what).hint(help).at({folder.native(), 0, 0}));
}

std::vector<fs::path> entries(const fs::path& folder) {
  auto out = entries_of(folder);
  std::sort(out.begin(), out.end());
  return out;
}

bool is_shard(const fs::path& file) {
  return file.extension() == ".safetensors" && file.filename().native().starts_with("shard-");
}

bool has_shards(const fs::path& folder) {
  const auto all = entries(folder);
  return std::any_of(all.begin(), all.end(), is_shard);
}

bool holds_checkpoint(const fs::path& folder) {
  return is_there(folder / kDcpMetadata) || is_there(folder / kAccelerateModel / kDcpMetadata) ||
         has_shards(folder / "model") || is_there(folder / "model" / kDcpMetadata);
}

/// The part of a name after the optimizer's key and "state."; empty if it has none.
std::string_view after_state(std::string_view name) {
  for (const auto key : kOptimizerKeys)
    if (name.starts_with(key) && name.substr(key.size()).starts_with("state."))
      return name.substr(key.size() + std::string_view("state.").size());
  return {};
}

/// What is read by its own rules: the optimizer's tensors, and the number of steps.
bool is_read_elsewhere(std::string_view name) {
  return name == "step" || name.starts_with("train_state.") ||
         std::any_of(kOptimizerKeys.begin(), kOptimizerKeys.end(),
                     [&](std::string_view key) { return name.starts_with(key); });
}

}  // namespace

std::string_view name_of(ForeignLayout layout) {
  static constexpr std::array<std::string_view, 4> kNames = {"torch.distributed.checkpoint", "torchtitan",
                                                             "NeMo AutoModel", "accelerate"};
  return kNames[static_cast<std::size_t>(layout)];
}

ForeignCheckpoint::ForeignCheckpoint(const fs::path& folder) : folder_(folder) {
  if (is_there(folder / kDcpMetadata)) {
    model_ = std::make_unique<DcpFolder>(folder);
    optimizer_ = model_.get();
    if (model_->tensor("tok_embeddings.weight") != nullptr) layout_ = ForeignLayout::kTitan;
  } else if (is_there(folder / kAccelerateModel / kDcpMetadata)) {
    layout_ = ForeignLayout::kAccelerate;
    model_ = std::make_unique<DcpFolder>(folder / kAccelerateModel);
    if (is_there(folder / kAccelerateOptimizer / kDcpMetadata))
      separate_ = std::make_unique<DcpFolder>(folder / kAccelerateOptimizer);
  } else if (holds_checkpoint(folder)) {
    layout_ = ForeignLayout::kNemo;
    if (has_shards(folder / "model"))
      read_shards(folder / "model");
    else
      model_ = std::make_unique<DcpFolder>(folder / "model");
    if (is_there(folder / "optim" / kDcpMetadata)) separate_ = std::make_unique<DcpFolder>(folder / "optim");
  } else {
    std::string below;
    for (const auto& each : entries(folder))
      if (below.empty() && holds_checkpoint(each)) below = each.native();
    fail_layout(folder, "it holds no distributed checkpoint of PyTorch",
                below.empty() ? "name the folder with .metadata, NeMo's epoch_*_step_*, or accelerate's with "
                                "pytorch_model_fsdp_0"
                              : fmt::format("name the folder of one step, such as '{}'", below));
  }
  if (separate_) optimizer_ = separate_.get();
  for (const auto& each : {folder / "model" / ".hf_metadata", folder / "model", folder})
    if (model_files_.empty() && is_there(each / "config.json")) model_files_ = each;
}

void ForeignCheckpoint::read_shards(const fs::path& folder) {
  for (const auto& path : entries(folder)) {
    if (!is_shard(path)) continue;
    Diagnostics problems;
    const auto file = TensorFile::open(path, problems);
    auto bytes = file ? InputFile::open(path, problems) : std::nullopt;
    if (!bytes) throw Error(ExitCode::kCheckpoint, std::move(problems));
    shards_.push_back(std::make_unique<InputFile>(std::move(*bytes)));
    const auto& header = file->header();
    nlohmann::json offsets;
    for (const auto& [key, text] : header.metadata)
      if (key == "DCP_SHARDING_INFO") {
        if (nesting_of(text) > kDeepestJson) fail_dcp_file(path.native(), "its DCP_SHARDING_INFO is nested too deep");
        offsets = nlohmann::json::parse(text, nullptr, false);
      }
    if (!offsets.is_null() && !offsets.is_object()) fail_dcp_file(path.native(), "its DCP_SHARDING_INFO is not JSON");
    for (const auto& info : header.tensors) {
      Chunk chunk{.offsets = std::vector<std::int64_t>(info.shape.size()), .sizes = info.shape};
      chunk.part = {shards_.back().get(), header.data_begin + info.begin, info.bytes()};
      if (const auto found = offsets.find(info.name); found != offsets.end()) {
        const auto member = found->is_object() ? found->find("saved_offsets") : found;
        if (found->is_object() && member == found->end())
          fail_dcp_file(path.native(), "its DCP_SHARDING_INFO does not fit its tensors");
        const auto& saved = *member;
        const bool fits = saved.is_array() && saved.size() == info.shape.size() &&
                          std::all_of(saved.begin(), saved.end(), [](const auto& each) {
                            return each.is_number_unsigned() && each.template get<std::uint64_t>() < (1ULL << 62U);
                          });
        if (!fits) fail_dcp_file(path.native(), "its DCP_SHARDING_INFO does not fit its tensors");
        for (std::size_t i = 0; i < info.shape.size(); ++i) chunk.offsets[i] = saved[i].get<std::int64_t>();
      }
      auto& tensor = sharded_[info.name];
      if (tensor.chunks.empty()) {
        tensor = {.name = info.name, .type = info.type, .shape = info.shape};
      } else if (tensor.type != info.type || tensor.shape.size() != info.shape.size()) {
        fail_dcp_file(path.native(), "a tensor that is of another type or dimension than in the other shards");
      }
      // Nothing says how large the whole is: as far as its last part goes.
      for (std::size_t i = 0; i < info.shape.size(); ++i)
        tensor.shape[i] = std::max(tensor.shape[i], chunk.offsets[i] + chunk.sizes[i]);
      tensor.chunks.push_back(std::move(chunk));
    }
  }
  for (const auto& [name, tensor] : sharded_) check_cover(tensor, folder.native());
}

void ForeignCheckpoint::compare_tied(const std::string& name, const ChunkedTensor& tensor,
                                     const ForeignTensor& with) const {
  bool same = tensor.type == with.tensor->type && tensor.shape == with.tensor->shape;
  const auto bytes = same ? tensor_bytes(tensor.type, tensor.shape).value_or(0) : 0;
  const auto size = static_cast<std::uint64_t>(bits_of(tensor.type)) / 8;
  const auto elements = static_cast<std::int64_t>(bytes / size);
  for (std::int64_t first = 0; same && first < elements; first += kComparedAtOnce) {
    const auto count = std::min(kComparedAtOnce, elements - first);
    const auto read = [&](const ForeignTensor& from) {
      std::string out(static_cast<std::size_t>(count) * size, '\0');
      for_each_run(*from.tensor, first, count, from.order, [&](std::int64_t element, std::string_view run) {
        out.replace(static_cast<std::size_t>(element) * size, run.size(), run);
      });
      return out;
    };
    same = read({&tensor, {}}) == read(with);
  }
  if (!same)
    throw Error(
        Diagnostic{"weights-not-tied"}
            .says("'{}' and '{}' in '{}' differ, but the model's configuration ties them", name, with.tensor->name,
                  folder_.native())
            .hint("say tie_word_embeddings: false there (its config.json, or the recipe's model), which keeps both")
            .at({folder_.native(), 0, 0}));
}

void ForeignCheckpoint::find_weights(const arch::ModelSpec& spec, const arch::Layout& layout, ForeignRun& run) const {
  std::set<std::string, std::less<>> expected, heads;
  std::map<std::string, std::string, std::less<>> tied;
  std::map<std::string, const ChunkedTensor*, std::less<>> copies;  // of tied weights
  for (const auto& parameter : arch::parameters(layout)) {
    if (parameter.tied_to.empty())
      expected.insert(parameter.fqn);
    else
      tied[parameter.fqn] = parameter.tied_to;
    heads.insert(parameter.fqn.substr(0, parameter.fqn.find('.')));
  }
  const auto order_of = [&](bool paired) -> RowOrder {
    if (!paired) return {};
    return [head_dim = std::int64_t{spec.head_dim}](std::int64_t row) { return unpaired_row(row, head_dim); };
  };
  if (layout_ == ForeignLayout::kTitan) {
    if (!has_titan_names(spec.model_type))
      fail_layout(folder_, fmt::format("torchtitan's names of '{}' are not known", spec.model_type),
                  "those of llama and qwen3 are; or save with torchtitan's convert_to_hf and start from these weights");
    for (const auto& [name, tensor] : weights()) {
      if (is_read_elsewhere(name)) continue;
      const auto known = from_titan(name, spec.model_type);
      if (!known)
        run.left_out.push_back(name);
      else if (tied.contains(known->name))
        copies[known->name] = &tensor;
      else
        run.weights[known->name] = {&tensor, order_of(known->paired_rows)};
    }
  } else {
    std::string_view key;
    std::ptrdiff_t most = 0;
    for (const auto candidate : kModelKeys) {
      const auto count = std::count_if(expected.begin(), expected.end(), [&](const auto& name) {
        return weights().contains(std::string(candidate) + name);
      });
      if (count > most) key = candidate;
      most = std::max(most, count);
    }
    for (const auto& [name, tensor] : weights()) {
      if (is_read_elsewhere(name)) continue;
      const auto fqn = name.starts_with(key) ? name.substr(key.size()) : "";
      if (fqn.empty() || (key.empty() && !heads.contains(fqn.substr(0, fqn.find('.')))))
        run.left_out.push_back(name);
      else if (tied.contains(fqn))
        copies[std::string(fqn)] = &tensor;
      else
        run.weights[std::string(fqn)] = {&tensor, {}};
    }
    if (most == 0) run.weights.clear();
  }
  if (run.weights.empty())
    fail_layout(folder_, fmt::format("none of its tensors has the name of a weight of this {} model", spec.model_type),
                "name the recipe of the same model: '--recipe RECIPE'");
  for (const auto& [name, tensor] : copies)
    if (const auto kept = run.weights.find(tied.at(name)); kept != run.weights.end())
      compare_tied(tensor->name, *tensor, kept->second);
  for (const auto& [name, held] : run.weights)
    if (held.order &&
        (held.tensor->shape.empty() || spec.head_dim % 2 != 0 || held.tensor->shape[0] % spec.head_dim != 0))
      fail_layout(folder_, fmt::format("'{}' does not consist of heads of {} rows", name, spec.head_dim),
                  "name the recipe of the same model: '--recipe RECIPE'");
}

void ForeignCheckpoint::find_states(const arch::ModelSpec& spec, ForeignRun& run) const {
  if (optimizer_ == nullptr) return;
  bool counted = false;
  for (const auto& [name, tensor] : optimizer_->tensors()) {
    const auto rest = after_state(name);
    const auto dot = rest.rfind('.');
    if (rest.empty() || dot == std::string_view::npos) {
      if (optimizer_ != model_.get()) run.left_out.push_back(name);
      continue;
    }
    const auto state = rest.substr(dot + 1);
    if (state == "step") {
      const auto steps = optimizer_->number(name);
      if (!steps || !(*steps >= 0) || *steps > kMostSteps || *steps != std::floor(*steps))
        fail_layout(folder_, fmt::format("'{}' is not a number of steps", name), "save it again");
      const auto made = static_cast<std::int64_t>(*steps);
      run.fewest_optimizer_steps = std::min(counted ? run.fewest_optimizer_steps : made, made);
      run.optimizer_steps = std::max(run.optimizer_steps, made);
      counted = true;
      continue;
    }
    std::string parameter(rest.substr(0, dot));
    if (layout_ == ForeignLayout::kTitan) {
      const auto known = from_titan(parameter, spec.model_type);
      if (!known) {
        run.left_out.push_back(name);
        continue;
      }
      parameter = known->name;
    }
    const auto weight = run.weights.find(parameter);
    if (weight != run.weights.end() && weight->second.tensor->shape != tensor.shape)
      fail_layout(folder_, fmt::format("'{}' has another shape than its weight", name), "save it again");
    run.states[std::string(state)][parameter] = {&tensor,
                                                 weight == run.weights.end() ? RowOrder{} : weight->second.order};
  }
}

void ForeignCheckpoint::find_steps(ForeignRun& run) const {
  std::optional<double> steps, epoch;
  const auto look = [&](std::optional<double> found, const std::string& from) {
    if (steps || !found) return;
    steps = found;
    run.steps_from = from;
  };
  if (model_) {
    look(model_->number("train_state.step"), "train_state.step");
    look(model_->number("step"), "step");
  }
  if (is_there(folder_ / kNemoSteps)) {
    Diagnostics problems;
    const auto file = InputFile::open(folder_ / kNemoSteps, problems);
    if (!file) throw Error(ExitCode::kCheckpoint, std::move(problems));
    const Archive archive({&*file, 0, file->size()});
    const auto number = [&](const char* key) -> std::optional<double> {
      const auto* node = archive.value().find(archive.value().root(), key);
      if (node == nullptr || node->kind != Pickle::Kind::kInt) return std::nullopt;
      return static_cast<double>(node->number);
    };
    look(number("step"), kNemoSteps);
    epoch = number("epoch");
  }
  if (run.optimizer_steps > 0) look(static_cast<double>(run.optimizer_steps), "the optimizer's step");
  const auto whole = [](double value) { return value >= 0 && value <= kMostSteps && value == std::floor(value); };
  if (!whole(steps.value_or(0)) || !whole(epoch.value_or(0)))
    fail_layout(folder_, fmt::format("{} is not a number of steps", run.steps_from), "save it again");
  run.steps = static_cast<std::int64_t>(steps.value_or(0));
  run.epoch = static_cast<std::int64_t>(epoch.value_or(0));
}

ForeignRun ForeignCheckpoint::run_of(const arch::ModelSpec& spec, const arch::Layout& layout) const {
  ForeignRun run;
  find_weights(spec, layout, run);
  find_states(spec, run);
  find_steps(run);
  // Without steps of its own the optimizer has made as many as the run.
  if (run.optimizer_steps == 0 && !run.states.empty()) run.fewest_optimizer_steps = run.optimizer_steps = run.steps;
  return run;
}

}  // namespace automodel::checkpoint
