#include "checkpoint/dcp/export.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "arch/families.h"
#include "arch/hf_config.h"
#include "arch/modules.h"
#include "base/error.h"
#include "checkpoint/dcp/pickled.h"
#include "checkpoint/dcp/titan_names.h"
#include "checkpoint/format/adapter.h"
#include "checkpoint/format/export.h"
#include "checkpoint/format/manifest.h"
#include "checkpoint/format/run_state.h"
#include "checkpoint/format/tensor_folder.h"
#include "checkpoint/format/weight_names.h"

namespace automodel::checkpoint {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::uint64_t kAtOnce = std::uint64_t{4} << 20U;  // bytes
constexpr std::array<std::string_view, 4> kAdamStates = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer"};
constexpr const char* kNemoShard = "shard-00001-model-00001-of-00001.safetensors";

/// A tensor as it is written: stored tensors one after the other, whose rows torchtitan may have in pairs.
struct Source {
  std::vector<StoredTensor> parts = {};
  std::vector<std::int64_t> shape = {};
  std::int64_t head_dim = 0;  ///< of the paired rows; 0: rows stay where they are
  ElementType type() const { return parts.front().info->type; }
};

/// Hands over bytes [first, first + size) of the parts.
void read_bytes(const Source& source, std::uint64_t first, std::uint64_t size, const Sink& sink) {
  std::string buffer;
  std::uint64_t begin = 0;  // of the part
  for (const auto& part : source.parts) {
    const auto bytes = part.info->bytes();
    while (size > 0 && first < begin + bytes) {
      const auto some = std::min({size, begin + bytes - first, kAtOnce});
      buffer.resize(some);
      part.file->read(*part.info, first - begin, buffer.data(), some);
      sink(buffer);
      first += some;
      size -= some;
    }
    begin += bytes;
  }
}

RowSource rows_of(const Source& source) {
  return [&source](std::int64_t first, std::int64_t count, const Sink& sink) {
    const auto bytes = tensor_bytes(source.type(), source.shape).value();
    const auto rows = source.shape.empty() ? 1 : std::max<std::int64_t>(1, source.shape[0]);
    const auto row = bytes / static_cast<std::uint64_t>(rows);
    if (source.head_dim == 0)
      return read_bytes(source, static_cast<std::uint64_t>(first) * row, static_cast<std::uint64_t>(count) * row, sink);
    for (auto each = first; each < first + count; ++each)
      read_bytes(source, static_cast<std::uint64_t>(unpaired_row(each, source.head_dim)) * row, row, sink);
  };
}

/// Everything that a checkpoint holds, by Hugging Face names.
struct Saved {
  std::optional<TensorFolder> model, optimizer;
  std::optional<RunState> state;
  std::string config = {};
  std::map<std::string, Source> weights = {};
  std::map<std::string, std::map<std::string, Source>> states = {};  ///< by weight, then by state
};

void throw_if(Diagnostics& problems) {
  if (!problems.empty()) throw Error(ExitCode::kCheckpoint, std::move(problems));
}

void verify(const fs::path& checkpoint) {
  Diagnostics problems;
  const auto manifest = read_manifest(checkpoint, problems);
  throw_if(problems);
  check_sizes(checkpoint, *manifest, problems);
  throw_if(problems);
  for (const auto& entry : manifest->files) check_content(checkpoint, entry, problems);
  throw_if(problems);
}

/// The parameters that a stored tensor holds, in their order in it.
std::map<std::string, std::vector<std::string>> parameters_of(const WeightPlaces& places) {
  std::map<std::string, std::map<std::int64_t, std::string>> ordered;
  for (const auto& [fqn, place] : places) ordered[place.stored.info->name][place.first] = fqn;
  std::map<std::string, std::vector<std::string>> out;
  for (const auto& [name, parameters] : ordered)
    for (const auto& [first, fqn] : parameters) out[name].push_back(fqn);
  return out;
}

/// The states `name` of these parameters as one tensor of this shape; empty if one is missing.
std::optional<Source> joined(const TensorFolder& optimizer, const std::vector<std::string>& parameters,
                             std::string_view name, const std::vector<std::int64_t>& shape) {
  Source out{.shape = shape};
  std::uint64_t bytes = 0;
  for (const auto& fqn : parameters) {
    out.parts.push_back(optimizer.find(fmt::format("{}.{}", fqn, name)));
    if (!out.parts.back() || out.parts.back().info->type != out.parts.front().info->type) return std::nullopt;
    bytes += out.parts.back().info->bytes();
  }
  if (out.parts.empty() || bytes != tensor_bytes(out.type(), shape)) return std::nullopt;
  return out;
}

Saved read_saved(const fs::path& from) {
  const auto folder = model_folder_of(from);
  if (is_there(folder / kAdapterConfig))
    throw Error(Diagnostic{"missing-option"}
                    .says("'{}' holds adapters, not a model", folder.native())
                    .hint("merge them first: 'automodel checkpoint export DIR MODEL --merge', and export that")
                    .at({"command line", 0, 0}));
  const auto checkpoint = folder.parent_path();
  std::error_code error;
  const bool whole = fs::canonical(from, error) != folder && is_there(checkpoint / kManifestName);
  whole ? verify(checkpoint) : check_model_files(folder);
  Saved out;
  Diagnostics problems;
  auto config = read_file(folder / "config.json", problems, std::uint64_t{1} << 26U);
  throw_if(problems);
  out.config = std::move(*config);
  out.model = TensorFolder::open(folder, "model", problems);
  if (whole) out.state = read_run_state(checkpoint, problems);
  throw_if(problems);
  if (whole && !out.state->optimizer.empty() && has_tensors(checkpoint / "optim", "optim"))
    out.optimizer = TensorFolder::open(checkpoint / "optim", "optim", problems);
  throw_if(problems);
  return out;
}

/// Finds weights and states.
void arrange(Saved& saved, const arch::ModelSpec& spec, const arch::Layout& layout, DcpReport& report) {
  Diagnostics problems;
  const auto places = find_weights(*saved.model, spec, layout, problems);
  throw_if(problems);
  bool masters = false;
  for (const auto& [name, parameters] : parameters_of(places)) {
    const auto stored = saved.model->find(name);
    const auto& shape = stored.info->shape;
    const auto master = saved.optimizer ? joined(*saved.optimizer, parameters, "master", shape) : std::nullopt;
    masters = masters || master;
    saved.weights[name] = master.value_or(Source{.parts = {stored}, .shape = shape});
    if (!saved.optimizer) continue;
    for (const auto state : kAdamStates)
      if (auto found = joined(*saved.optimizer, parameters, state, shape)) {
        saved.states[name][std::string(state)] = std::move(*found);
        ++report.states;
      }
  }
  if (masters) report.lines.push_back("weights are the optimizer's master values");
  if (saved.states.empty()) report.lines.push_back("no states of the optimizer: it begins anew");
}

using pickled::boolean;
using pickled::integer;
using pickled::real;
using pickled::text;

/// The members of a group of PyTorch's optimizer but its parameters: names and pickles.
std::vector<std::pair<std::string, std::string>> group_of(const std::string& optimizer, const OptimizerSettings& is) {
  std::vector<std::pair<std::string, std::string>> out = {{"lr", real(is.lr)}};
  if (optimizer == "sgd") {
    out.insert(out.end(), {{"momentum", real(is.momentum)},
                           {"dampening", real(is.dampening)},
                           {"weight_decay", real(is.weight_decay)},
                           {"nesterov", boolean(is.nesterov)}});
  } else {
    out.insert(out.end(), {{"betas", pickled::tuple({real(is.beta1), real(is.beta2)})},
                           {"eps", real(is.eps)},
                           {"weight_decay", real(is.weight_decay)},
                           {"amsgrad", boolean(is.amsgrad)},
                           {"capturable", boolean(false)},
                           {"decoupled_weight_decay", boolean(optimizer == "adamw")}});
  }
  out.insert(out.end(), {{"maximize", boolean(is.maximize)},
                         {"foreach", pickled::none()},
                         {"differentiable", boolean(false)},
                         {"fused", pickled::none()},
                         {"initial_lr", real(is.initial_lr)}});
  return out;
}

/// The state of torch.optim.lr_scheduler.LambdaLR, with which torchtitan and NeMo AutoModel save it.
std::vector<std::pair<std::string, std::string>> scheduler_of(std::int64_t steps, const OptimizerSettings& is) {
  return {{"base_lrs", pickled::list({real(is.initial_lr)})},
          {"last_epoch", integer(steps)},
          {"_step_count", integer(steps + 1)},
          {"_is_initial", boolean(false)},
          {"_get_lr_called_within_step", boolean(false)},
          {"_last_lr", pickled::list({real(is.lr)})},
          {"lr_lambdas", pickled::list({pickled::none()})}};
}

/// Writes one layout.
class Exporting {
 public:
  Exporting(const Saved& saved, const DcpExport& wish, const arch::ModelSpec& spec, const arch::Layout& layout,
            DcpReport& report)
      : saved_(saved), wish_(wish), spec_(spec), layout_(layout), report_(report) {}

  void write(const fs::path& folder) {
    const bool nemo = wish_.layout == ForeignLayout::kNemo;
    if (nemo) {
      write_shard(folder / "model");
      make_folder(folder / "optim");
    }
    DcpWriter out(nemo ? folder / "optim" : folder, wish_.largest_part);
    if (!nemo) add_weights(out);
    if (saved_.optimizer) add_optimizer(out);
    if (saved_.state) add_steps(out, folder);
    report_.bytes += out.finish();
    write_file(nemo ? folder / "model" / ".hf_metadata" / "config.json" : folder / "config.json", saved_.config);
  }

 private:
  bool titan() const { return wish_.layout == ForeignLayout::kTitan; }

  /// A weight's name there.
  Renamed renamed(const std::string& name) const {
    if (!titan()) return {name};
    if (auto known = to_titan(name, spec_.model_type)) return *known;
    throw Error(ExitCode::kCheckpoint,
                Diagnostic{"checkpoint-missing"}
                    .says("torchtitan's name of '{}' of a {} model is not known", name, spec_.model_type)
                    .hint("those of llama and qwen3 are; '--dcp torch' has Hugging Face's")
                    .at({"command line", 0, 0}));
  }

  Source ordered(const Source& source, const Renamed& there) const {
    auto out = source;
    if (there.paired_rows) out.head_dim = spec_.head_dim;
    return out;
  }

  /// `path` of a name in a state dict that has the part before the first dot as its first key.
  static std::vector<std::string> path_of(const std::string& key, const std::string& rest) {
    return {text(key), text(rest)};
  }

  void add_weight(DcpWriter& out, const std::string& name, const Source& source) {
    const auto there = renamed(name);
    const auto given = ordered(source, there);
    if (titan())
      out.add_tensor(there.name, {text(there.name)}, given.type(), given.shape, rows_of(given));
    else
      out.add_tensor("model." + there.name, path_of("model", there.name), given.type(), given.shape, rows_of(given));
    ++report_.weights;
  }

  void add_weights(DcpWriter& out) {
    for (const auto& [name, source] : saved_.weights) add_weight(out, name, source);
    // PyTorch's state dict has a tied weight under both of its names.
    for (const auto& parameter : arch::parameters(layout_))
      if (const auto kept = saved_.weights.find(parameter.tied_to);
          !parameter.tied_to.empty() && kept != saved_.weights.end() && !saved_.weights.contains(parameter.fqn))
        add_weight(out, parameter.fqn, kept->second);
  }

  /// One file as of one rank, with where its tensors begin in the whole ones.
  void write_shard(const fs::path& folder) {
    make_folder(folder);
    make_folder(folder / ".hf_metadata");
    std::vector<TensorInfo> infos;
    Json offsets = Json::object(), files = Json::object();
    for (const auto& [name, source] : saved_.weights) {
      infos.push_back({.name = name, .type = source.type(), .shape = source.shape});
      offsets[name] = {{"saved_offsets", std::vector<int>(source.shape.size(), 0)}};
      files[name] = 1;
    }
    const auto layout = lay_out(infos, {{"DCP_VERSION", "1.0"}, {"DCP_SHARDING_INFO", offsets.dump()}});
    OutputFile out(folder / kNemoShard, OutputFile::Mode::kCreate);
    out.reserve(layout.file_size);
    out.write(0, layout.head);
    for (const auto& tensor : layout.tensors) {
      auto at = layout.position(tensor);
      read_bytes(saved_.weights.at(tensor.name), 0, tensor.bytes(), [&](std::string_view bytes) {
        out.write(at, bytes);
        at += bytes.size();
      });
    }
    out.sync();
    write_file(folder / ".hf_metadata" / "fqn_to_file_index_mapping.json", files.dump());
    report_.bytes += layout.file_size;
    report_.weights = infos.size();
  }

  void add_optimizer(DcpWriter& out) {
    const auto& optimizer = saved_.state->optimizer;
    const std::string key = wish_.layout == ForeignLayout::kNemo ? "optim" : "optimizer";
    const bool nested = wish_.layout == ForeignLayout::kTorch;
    const auto group = group_of(optimizer, wish_.settings);
    const auto steps = static_cast<float>(saved_.state->optimizer_steps);
    const std::string_view step_bytes(reinterpret_cast<const char*>(&steps), sizeof steps);
    std::vector<std::string> parameters;
    for (const auto& [weight, states] : saved_.states) {
      const auto is = renamed(weight);
      const auto& there = is.name;
      parameters.push_back(text(there));
      const auto path = [&](const std::string& state) -> std::vector<std::string> {
        if (nested) return {text(key), text("state"), text(there), text(state)};
        return path_of(key, fmt::format("state.{}.{}", there, state));
      };
      for (const auto& [state, source] : states) {
        const auto given = ordered(source, is);
        out.add_tensor(fmt::format("{}.state.{}.{}", key, there, state), path(state), given.type(), given.shape,
                       rows_of(given));
      }
      if (optimizer != "sgd")
        out.add_tensor(fmt::format("{}.state.{}.step", key, there), path("step"), ElementType::kF32, {},
                       [&](std::int64_t, std::int64_t, const Sink& sink) { sink(step_bytes); });
      if (nested) continue;
      for (const auto& [member, value] : group) {
        const auto rest = fmt::format("param_groups.{}.{}", there, member);
        out.add_value(fmt::format("{}.{}", key, rest), path_of(key, rest), value);
      }
    }
    if (!nested) return;
    const auto add = [&](const std::string& member, const std::string& value) {
      out.add_value(fmt::format("{}.param_groups.0.{}", key, member),
                    {text(key), text("param_groups"), integer(0), text(member)}, value);
    };
    for (const auto& [member, value] : group) add(member, value);
    add("params", pickled::list(parameters));
  }

  void add_steps(DcpWriter& out, const fs::path& folder) {
    const auto steps = report_.steps = saved_.state->step + 1;
    const auto add_all = [&](const std::string& key) {
      for (const auto& [member, value] : scheduler_of(steps, wish_.settings))
        out.add_value(key + "." + member, path_of(key, member), value);
    };
    if (titan()) {
      out.add_value("train_state.step", path_of("train_state", "step"), integer(steps));
      add_all("lr_scheduler");
    } else if (wish_.layout == ForeignLayout::kNemo) {
      add_all("sched");
      ArchiveFile file(folder / "step_scheduler.pt");
      file.add_value(pickled::dict({text("step"), integer(steps), text("epoch"), integer(saved_.state->epoch)}));
      file.sync();
    } else {
      out.add_tensor("step", {text("step")}, ElementType::kI64, {}, [&](std::int64_t, std::int64_t, const Sink& sink) {
        sink({reinterpret_cast<const char*>(&steps), sizeof steps});
      });
    }
  }

  const Saved& saved_;
  const DcpExport& wish_;
  const arch::ModelSpec& spec_;
  const arch::Layout& layout_;
  DcpReport& report_;
};

}  // namespace

DcpReport export_dcp(const fs::path& from, const fs::path& out, const DcpExport& wish) {
  require_new(out, "folder");
  auto saved = read_saved(from);
  auto parsed = arch::parse_hf_config(saved.config, (model_folder_of(from) / "config.json").native());
  if (!parsed.spec) throw Error(ExitCode::kCheckpoint, std::move(parsed.errors));
  const auto& spec = *parsed.spec;
  const auto layout = arch::layout_of(spec);
  if (saved.optimizer && saved.state->optimizer != "adam" && saved.state->optimizer != "adamw" &&
      saved.state->optimizer != "sgd")
    throw Error(
        Diagnostic{"bad-value"}
            .says("states of the optimizer '{}' have no place in these layouts", saved.state->optimizer)
            .hint("those of adamw, adam and sgd have; for the weights alone, name the folder 'model' of the checkpoint")
            .at({"command line", 0, 0}));
  DcpReport report;
  arrange(saved, spec, layout, report);
  make_new(out, [&](const fs::path& folder) {
    make_folder(folder);
    Exporting(saved, wish, spec, layout, report).write(folder);
    sync_folder(folder);
  });
  return report;
}

}  // namespace automodel::checkpoint
