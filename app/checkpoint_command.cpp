#include "checkpoint_command.h"

#include <array>
#include <cstdio>
#include <filesystem>

#include <fmt/format.h>

#include "base/bytes.h"
#include "base/dtype.h"
#include "base/error.h"
#include "base/text_table.h"
#include "checkpoint/dcp/export.h"
#include "checkpoint/format/export.h"
#include "checkpoint/format/file.h"
#include "checkpoint/format/manifest.h"
#include "checkpoint/format/root_folder.h"
#include "checkpoint/format/run_state.h"
#include "checkpoint/gguf/gguf_export.h"
#include "config/node.h"
#include "config/reader.h"
#include "config/value.h"
#include "plan/lr_schedule.h"
#include "report.h"

namespace automodel::app {
namespace {

namespace fs = std::filesystem;
using config::Value;

Value number(const std::optional<double>& value) {
  return value ? Value(*value) : Value(nullptr);
}

/// The checkpoints that a folder refers to: itself, or all that it contains.
std::vector<checkpoint::ListedCheckpoint> chosen(const std::string& folder) {
  auto all = checkpoint::list_checkpoints(folder);
  std::error_code error;
  if (all.empty() && fs::exists(fs::path(folder) / checkpoint::kManifestName, error))
    all.push_back({checkpoint::parse_checkpoint_name(fs::canonical(folder, error).filename().native())
                       .value_or(checkpoint::CheckpointName{}),
                   folder, true});
  if (all.empty())
    throw Error(Diagnostic{"checkpoint-missing"}
                    .says("'{}' holds no checkpoint", folder)
                    .hint("give a folder of checkpoints, or one of them")
                    .at({"command line", 0, 0}));
  return all;
}

/// One checkpoint, as `ls` shows it.
struct Line {
  std::string name = {};
  std::string marks = {};
  bool complete = false;
  std::uint64_t bytes = 0;
  checkpoint::RunState state = {};
};

Line describe(const checkpoint::ListedCheckpoint& each) {
  Line line{.name = each.path.filename().empty() ? each.path.parent_path().filename() : each.path.filename()};
  Diagnostics problems;
  if (const auto manifest = checkpoint::read_manifest(each.path, problems)) {
    checkpoint::check_sizes(each.path, *manifest, problems);
    line.bytes = manifest->bytes();
  }
  if (const auto state = checkpoint::read_run_state(each.path, problems)) line.state = *state;
  line.complete = problems.empty();
  for (const char* link : {checkpoint::kLatest, checkpoint::kLowestLoss})
    if (checkpoint::link_target(each.path.parent_path(), link) == line.name)
      line.marks += (line.marks.empty() ? "" : " ") + std::string(link);
  return line;
}

int list(const Options& options) {
  Value rows = Value::List{};
  Value::List items;
  TextTable table({"checkpoint", "step", "epoch", "loss", "val_loss", "size", "ranks", ""});
  const auto text = [](const std::optional<double>& value) { return value ? fmt::format("{:.4f}", *value) : ""; };
  for (const auto& each : chosen(options.folder)) {
    const auto line = describe(each);
    Value row;
    row.set("name", line.name);
    row.set("path", each.path.native());
    row.set("complete", line.complete);
    row.set("step", line.state.step);
    row.set("epoch", line.state.epoch);
    row.set("loss", number(line.state.loss));
    row.set("val_loss", number(line.state.val_loss));
    row.set("bytes", static_cast<std::int64_t>(line.bytes));
    row.set("marks", line.marks);
    items.push_back(row);
    table.add({line.name, std::to_string(line.state.step), std::to_string(line.state.epoch), text(line.state.loss),
               text(line.state.val_loss), format_bytes(static_cast<double>(line.bytes)),
               std::to_string(line.state.ranks), line.complete ? line.marks : "not complete"});
  }
  options.json ? out(config::to_json(Value(std::move(items)), 2) + "\n") : say(table.text());
  return static_cast<int>(ExitCode::kOk);
}

int verify(const Options& options) {
  Diagnostics problems;
  Value::List items;
  for (const auto& each : chosen(options.folder)) {
    const std::size_t before = problems.size();
    std::uint64_t bytes = 0;
    if (const auto manifest = checkpoint::read_manifest(each.path, problems)) {
      checkpoint::check_sizes(each.path, *manifest, problems);
      if (problems.size() == before)
        for (const auto& entry : manifest->files) checkpoint::check_content(each.path, entry, problems);
      if (problems.size() == before && checkpoint::is_there(each.path / checkpoint::kStateName))
        checkpoint::read_run_state(each.path, problems);
      bytes = manifest->bytes();
    }
    const bool good = problems.size() == before;
    Value row;
    row.set("path", each.path.native());
    row.set("ok", good);
    items.push_back(row);
    if (!options.json)
      out(fmt::format("{}  {}  {}\n", good ? "ok     " : "damaged", each.path.native(),
                      format_bytes(static_cast<double>(bytes))));
  }
  if (options.json) out(config::to_json(Value(std::move(items)), 2) + "\n");
  if (problems.empty()) return static_cast<int>(ExitCode::kOk);
  throw Error(ExitCode::kCheckpoint, std::move(problems));
}

constexpr const char* kDcpExample = "for example 'automodel checkpoint export DIR NEW_FOLDER --dcp torch'";
constexpr const char* kGgufExample = "for example 'automodel checkpoint export DIR MODEL.gguf --gguf --type q8_0'";

/// Rejects options that would have no effect.
void check_checkpoint_options(const Options& options) {
  const bool exports = options.action == "export";
  const bool imports = options.action == "import";
  if (!exports && (!options.dtype.empty() || !options.base.empty() || options.merge))
    throw wrong_words(fmt::format("{} takes no --dtype, --merge or --base", options.action),
                      "for example 'automodel checkpoint export DIR NEW_FOLDER --merge --base DIR'");
  if (!exports && !imports && !options.output.empty())
    throw wrong_words(fmt::format("{} takes one folder", options.action), "for example 'automodel checkpoint ls DIR'");
  if (!imports && !options.recipe.empty())
    throw wrong_words("--recipe is for import", "for example 'automodel checkpoint import SOURCE DIR --recipe RECIPE'");
  if (!exports && options.gguf) throw wrong_words("--gguf is for export", kGgufExample);
  if (!exports && !options.dcp.empty()) throw wrong_words("--dcp is for export", kDcpExample);
  if (!options.dcp.empty() && (!options.dtype.empty() || options.merge))
    throw wrong_words("--dcp takes neither --dtype nor --merge", kDcpExample);
  if (options.gguf && (!options.dtype.empty() || options.merge))
    throw wrong_words("--gguf takes neither --dtype nor --merge", kGgufExample);
  if (exports && !options.base.empty() && !options.merge)
    throw wrong_words("--base names the base model for --merge", "add --merge, or leave --base out");
}

int export_to_gguf(const Options& options) {
  using checkpoint::GgufType;
  const auto& name = options.gguf_type;
  const auto type = name == "f32"    ? GgufType::kF32
                    : name == "bf16" ? GgufType::kBf16
                    : name == "q8_0" ? GgufType::kQ8_0
                                     : GgufType::kF16;
  const auto report = checkpoint::export_gguf(options.folder, options.output, type);
  out(fmt::format("{}: {} tensors, {}, {}\n", options.output, report.tensors,
                  format_bytes(static_cast<double>(report.bytes)), report.vocabulary));
  return static_cast<int>(ExitCode::kOk);
}

/// What the optimizer of the run that saved a checkpoint goes on with.
checkpoint::OptimizerSettings settings_of(const checkpoint::RunState& state) {
  Diagnostics problems;
  const auto recipe = config::to_value(config::parse_yaml(state.resolved, checkpoint::kStateName, problems));
  const auto* optimizer = recipe.find("optimizer");
  const auto number_of = [](const Value* value, double otherwise) {
    if (value == nullptr) return otherwise;
    if (const auto* whole = value->integer()) return static_cast<double>(*whole);
    const auto* real = value->number();
    return real != nullptr ? *real : otherwise;
  };
  const auto find = [&](const char* key) { return optimizer != nullptr ? optimizer->find(key) : nullptr; };
  const auto is_set = [&](const char* key) {
    const auto* value = find(key);
    return value != nullptr && value->boolean() != nullptr && *value->boolean();
  };
  checkpoint::OptimizerSettings out{.lr = number_of(find("lr"), 0),
                                    .weight_decay = number_of(find("weight_decay"), 0),
                                    .eps = number_of(find("eps"), 1e-8),
                                    .amsgrad = is_set("amsgrad"),
                                    .momentum = number_of(find("momentum"), 0),
                                    .dampening = number_of(find("dampening"), 0),
                                    .nesterov = is_set("nesterov"),
                                    .maximize = is_set("maximize")};
  if (const auto* betas = find("betas"); betas != nullptr && betas->list() != nullptr && betas->list()->size() == 2) {
    out.beta1 = number_of(&betas->list()->at(0), out.beta1);
    out.beta2 = number_of(&betas->list()->at(1), out.beta2);
  }
  out.initial_lr = out.lr;
  if (state.lr_schedule.empty()) return out;
  plan::LrSettings rates;
  config::Origins origins;
  std::vector<config::IgnoredKey> ignored, unsupported;
  config::Reader(problems, origins, ignored, unsupported)
      .read(config::parse_yaml(state.lr_schedule, checkpoint::kStateName, problems), "lr_schedule", rates);
  const plan::LrSchedule schedule(rates);
  out.lr = schedule.learning_rate(state.step + 1);
  out.weight_decay = schedule.weight_decay(state.step + 1);
  out.initial_lr = rates.max_lr();
  return out;
}

int export_to_dcp(const Options& options) {
  checkpoint::DcpExport wish{.layout = options.dcp == "titan"  ? checkpoint::ForeignLayout::kTitan
                                       : options.dcp == "nemo" ? checkpoint::ForeignLayout::kNemo
                                                               : checkpoint::ForeignLayout::kTorch};
  Diagnostics none;  // a model folder has no state; what is wrong with a checkpoint's is said below
  const auto folder = checkpoint::model_folder_of(options.folder).parent_path();
  if (checkpoint::is_there(folder / checkpoint::kStateName))
    if (const auto state = checkpoint::read_run_state(folder, none)) wish.settings = settings_of(*state);
  const auto report = checkpoint::export_dcp(options.folder, options.output, wish);
  std::string text =
      fmt::format("{}: {} steps for {}, {} weights, {} states of the optimizer, {}\n", options.output, report.steps,
                  name_of(wish.layout), report.weights, report.states, format_bytes(static_cast<double>(report.bytes)));
  for (const auto& line : report.lines) text += line + "\n";
  out(text);
  return static_cast<int>(ExitCode::kOk);
}

int export_folder(const Options& options) {
  if (options.output.empty())
    throw wrong_words("export needs a second folder", "for example 'automodel checkpoint export DIR NEW_FOLDER'");
  if (options.gguf) return export_to_gguf(options);
  if (!options.dcp.empty()) return export_to_dcp(options);
  checkpoint::ExportOptions wanted{.merge = options.merge, .base = options.base};
  if (!options.dtype.empty()) {
    const auto dtype = parse_dtype(options.dtype);
    const auto type = dtype ? checkpoint::element_type_of(*dtype) : std::nullopt;
    if (!type || !checkpoint::is_weight_type(*type))
      throw wrong_words(fmt::format("'{}' is not a dtype for weights", options.dtype),
                        "float32, bfloat16, float16 or float64");
    wanted.type = type;
  }
  const auto report = checkpoint::export_model(options.folder, options.output, wanted);
  out(fmt::format("{}: {} tensors{}, {}, from {}\n", options.output, report.tensors,
                  report.merged > 0 ? fmt::format(", {} with their adapters", report.merged) : "",
                  format_bytes(static_cast<double>(report.bytes)),
                  checkpoint::model_folder_of(options.folder).native()));
  return static_cast<int>(ExitCode::kOk);
}

struct Action {
  std::string_view name;
  int (*run)(const Options& options);
};
constexpr std::array kActions = {Action{"ls", list}, Action{"verify", verify}, Action{"export", export_folder},
                                 Action{"import", import_checkpoint}};

}  // namespace

int run_checkpoint(const Options& given) {
  check_checkpoint_options(given);
  auto options = given;
  // "new/" is "new": what is half-written is beside it, not in it.
  while (options.output.size() > 1 && options.output.ends_with('/')) options.output.pop_back();
  for (const auto& action : kActions)
    if (action.name == options.action) return action.run(options);
  throw InternalError("the command line allows actions that are not in the table");
}

}  // namespace automodel::app
