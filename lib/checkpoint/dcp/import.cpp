#include "checkpoint/dcp/import.h"

#include <algorithm>
#include <array>
#include <map>

#include <fmt/format.h>

#include "arch/modules.h"
#include "base/error.h"
#include "base/utf8.h"
#include "checkpoint/format/file.h"
#include "checkpoint/format/folder_layout.h"
#include "checkpoint/format/manifest.h"
#include "checkpoint/format/weight_names.h"

namespace automodel::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMostModelFile = std::uint64_t{50} << 30U;  // as in export.cpp
constexpr std::array<std::string_view, 4> kStates = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer"};
constexpr std::int64_t kMostSamples = std::int64_t{1} << 53U;  // as in run_state.cpp
constexpr std::uint64_t kMostOptimizerFile = std::uint64_t{1} << 30U;

/// Elements [first, first + count) of a foreign tensor, as a tensor of ours.
struct Wanted {
  TensorInfo info = {};
  ForeignTensor from = {};
  std::int64_t first = 0;
};

std::uint64_t write_folder(const std::vector<Wanted>& wanted, const fs::path& folder, const std::string& stem,
                           std::uint64_t most_bytes) {
  std::vector<TensorInfo> infos;
  std::map<std::string, const Wanted*> by_name;
  for (const auto& each : wanted) {
    infos.push_back(each.info);
    by_name[each.info.name] = &each;
  }
  const auto layout = lay_out_folder(infos, stem, most_bytes);
  for (const auto& file : layout.files) {
    OutputFile out(folder / file.name, OutputFile::Mode::kCreate);
    out.reserve(file.layout.file_size);
    out.write(0, file.layout.head);
    for (const auto& tensor : file.layout.tensors) {
      const auto& each = *by_name.at(tensor.name);
      const auto size = static_cast<std::uint64_t>(bits_of(tensor.type)) / 8;
      for_each_run(*each.from.tensor, each.first, tensor.elements(), each.from.order,
                   [&](std::int64_t element, std::string_view bytes) {
                     out.write(file.layout.position(tensor) + static_cast<std::uint64_t>(element) * size, bytes);
                   });
    }
    out.sync();
  }
  if (!layout.index_name.empty()) write_file(folder / layout.index_name, layout.index);
  return layout.bytes;
}

/// The optimizer's states, one tensor for each parameter; notes in `lines` what is missing.
std::vector<Wanted> states_of(const ForeignRun& run, const ImportWish& wish,
                              const std::map<std::string, std::pair<std::string, std::int64_t>>& stored,
                              std::vector<std::string>& lines) {
  std::vector<Wanted> out;
  if (run.states.empty()) lines.push_back("no states of the optimizer: it begins anew, with moments of zero");
  if (run.fewest_optimizer_steps < run.optimizer_steps)
    lines.push_back(fmt::format("the optimizer has made {} to {} steps, by parameter: all go on from {}",
                                run.fewest_optimizer_steps, run.optimizer_steps, run.optimizer_steps));
  if (run.states.contains("max_exp_avg_sq"))
    lines.push_back("states max_exp_avg_sq: a run uses them with optimizer.amsgrad: true");
  std::vector<std::string> unknown;
  const auto parameters = arch::parameters(wish.layout);
  for (const auto& [state, tensors] : run.states) {
    if (std::find(kStates.begin(), kStates.end(), state) == kStates.end()) {
      unknown.push_back(state);
      continue;
    }
    std::vector<std::string> missing;
    for (const auto& parameter : parameters) {
      if (!parameter.tied_to.empty() || !parameter.trainable) continue;
      const auto& [name, first] = stored.at(parameter.fqn);
      auto found = tensors.find(name);
      for (const auto& other : parameters)  // PyTorch names the states of a tied weight by either of its names
        if (found == tensors.end() && other.tied_to == parameter.fqn) found = tensors.find(other.fqn);
      std::int64_t elements = 1, held = 1;
      for (const auto size : parameter.shape) elements *= size;
      if (found != tensors.end())
        for (const auto size : found->second.tensor->shape) held *= size;
      if (found == tensors.end() || held < first + elements) {
        missing.push_back(parameter.fqn);
        continue;
      }
      out.push_back(
          {{parameter.fqn + "." + state, found->second.tensor->type, {parameter.shape.begin(), parameter.shape.end()}},
           found->second,
           first});
    }
    if (!missing.empty())
      lines.push_back(
          fmt::format("{} of {} parameters have no {}, the first is {}: a run that trains them does not resume",
                      missing.size(), parameters.size(), state, missing.front()));
  }
  if (!unknown.empty())
    lines.push_back(fmt::format("{} kinds of states that no optimizer here has are left out, the first is {}",
                                unknown.size(), printable(unknown.front(), kMostShown)));
  return out;
}

Manifest manifest_of(const fs::path& folder) {
  Manifest out;
  Diagnostics problems;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    const auto checksum = checksum_of(entry.path(), problems);
    if (!checksum) throw Error(ExitCode::kCheckpoint, std::move(problems));
    out.files.push_back({fs::relative(entry.path(), folder).native(), entry.file_size(), *checksum});
  }
  std::sort(out.files.begin(), out.files.end(), [](const auto& a, const auto& b) { return a.file < b.file; });
  return out;
}

void write_checkpoint(const ForeignRun& run, const fs::path& folder, const ImportWish& wish, ImportReport& report) {
  if (run.steps > kMostSamples / std::max<std::int64_t>(1, wish.state.global_batch_size))
    throw Error(ExitCode::kCheckpoint,
                Diagnostic{"checkpoint-missing"}
                    .says("{} steps of {} samples are no number of samples", run.steps, wish.state.global_batch_size)
                    .hint("name the recipe of the same run: '--recipe RECIPE'")
                    .at({run.steps_from, 0, 0}));
  const auto model = folder / "model", optim = folder / "optim";
  make_folder(model);
  make_folder(optim);
  std::vector<Wanted> weights;
  for (const auto& [name, held] : run.weights) weights.push_back({{name, held.tensor->type, held.tensor->shape}, held});
  report.weights = weights.size();
  report.bytes = write_folder(weights, model, "model", kMostModelFile);

  std::map<std::string, std::pair<std::string, std::int64_t>> stored;  // parameter -> tensor, its first element
  {
    Diagnostics problems;
    const auto written = TensorFolder::open(model, "model", problems);
    const auto places = written ? find_weights(*written, wish.spec, wish.layout, problems) : WeightPlaces{};
    if (!problems.empty()) throw Error(ExitCode::kCheckpoint, std::move(problems));
    for (const auto& [fqn, place] : places) stored[fqn] = {place.stored.info->name, place.first};
  }
  const auto states = states_of(run, wish, stored, report.lines);
  report.states = states.size();
  report.bytes += write_folder(states, optim, "optim", kMostOptimizerFile);

  for (const auto& [name, text] : wish.texts) write_file(model / name, text);
  for (const auto& file : wish.copies) {
    Diagnostics problems;
    const auto text = read_file(file, problems);
    if (!text) throw Error(ExitCode::kCheckpoint, std::move(problems));
    write_file(model / file.filename(), *text);
  }
  auto state = wish.state;
  state.step = run.steps - 1;
  state.epoch = run.epoch;
  state.samples = run.steps * state.global_batch_size;
  state.optimizer = run.states.contains("exp_avg") ? "adamw" : run.states.contains("momentum_buffer") ? "sgd" : "";
  state.optimizer_steps = run.states.empty() ? 0 : run.optimizer_steps;
  write_file(folder / kStateName, to_json(state));
  write_file(folder / kManifestName, to_json(manifest_of(folder)));
  sync_folder(model);
  sync_folder(optim);
  sync_folder(folder);
}

}  // namespace

ElementType weight_type(const ForeignRun& run) {
  std::map<ElementType, std::size_t> counts;
  for (const auto& [name, held] : run.weights) ++counts[held.tensor->type];
  return std::max_element(counts.begin(), counts.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; })
      ->first;
}

ImportReport import_run(const ForeignRun& run, const fs::path& out, const ImportWish& wish) {
  require_new(out, "folder");
  ImportReport report{.steps = run.steps};
  if (run.steps_from.empty()) report.lines.push_back("no number of steps: the run begins at its first");
  if (!run.left_out.empty())
    report.lines.push_back(fmt::format("{} tensors are left out, the first is {}", run.left_out.size(),
                                       printable(run.left_out.front(), kMostShown)));
  make_new(out, [&](const fs::path& folder) {
    make_folder(folder);
    write_checkpoint(run, folder, wish, report);
  });
  return report;
}

}  // namespace automodel::checkpoint
