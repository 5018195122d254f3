#include "checkpoint/format/export.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "arch/families.h"
#include "arch/hf_config.h"
#include "arch/modules.h"
#include "base/error.h"
#include "checkpoint/format/adapter.h"
#include "checkpoint/format/elements.h"
#include "checkpoint/format/file.h"
#include "checkpoint/format/folder_layout.h"
#include "checkpoint/format/manifest.h"
#include "checkpoint/format/root_folder.h"
#include "checkpoint/format/tensor_folder.h"
#include "checkpoint/format/weight_names.h"

namespace automodel::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMostFileBytes = std::uint64_t{50} << 30;  // maximum per file, as in transformers 5
constexpr std::int64_t kExportedAtOnce = 1 << 20;                  // elements

void throw_if(Diagnostics& problems) {
  if (!problems.empty()) throw Error(ExitCode::kCheckpoint, std::move(problems));
}

/// Files to copy along: everything except weights, config.json and what does not belong to the model.
bool is_companion(const fs::path& file) {
  const std::string name = file.filename().native();
  return !name.ends_with(".safetensors") && !name.ends_with(".index.json") && name != "config.json" &&
         name != kAdapterConfig && !name.ends_with(".bin") && !name.ends_with(".md") && !name.starts_with(".");
}

std::string config_with_type(const fs::path& file, std::optional<ElementType> type) {
  Diagnostics problems;
  const auto text = read_file(file, problems, 1 << 26);
  throw_if(problems);
  if (!type) return *text;
  auto json = nlohmann::ordered_json::parse(*text, nullptr, false);
  if (!json.is_object())
    throw Error(ExitCode::kCheckpoint,
                Diagnostic{"bad-json"}.says("'{}' is not a JSON object", file.native()).at({"command line", 0, 0}));
  const auto dtype = dtype_of(*type);
  json["dtype"] = json["torch_dtype"] = std::string(automodel::name_of(*dtype));
  return json.dump(2) + "\n";
}

/// Copies one tensor in chunks, converting and merging as needed.
void write_tensor(const StoredTensor& stored, const TensorInfo& to, std::uint64_t offset, const Adapters* adapters,
                  OutputFile& out) {
  const auto from_size = bits_of(stored.info->type) / 8, to_size = bits_of(to.type) / 8;
  const bool merged = adapters != nullptr && adapters->has(to.name);
  std::string bytes, converted;
  std::vector<float> values;
  const auto read = [&](std::int64_t at, std::int64_t some) {
    bytes.resize(static_cast<std::size_t>(some * from_size));
    stored.file->read(*stored.info, static_cast<std::uint64_t>(at * from_size), bytes.data(), bytes.size());
  };
  const auto read_merged = [&](std::int64_t at, std::int64_t some) {
    read(at, some);
    values.resize(static_cast<std::size_t>(some));
    convert_elements(stored.info->type, bytes.data(), ElementType::kF32, reinterpret_cast<char*>(values.data()), some);
    adapters->add_to(to.name, at, values);
  };
  const auto count = to.elements();
  std::vector<double> squares;  // squared norms for DoRA: known only after a pass over the whole tensor
  if (merged && adapters->has_magnitudes(to.name))
    for (std::int64_t at = 0; at < count; at += kExportedAtOnce) {
      read_merged(at, std::min(kExportedAtOnce, count - at));
      adapters->add_squares(to.name, at, values, squares);
    }
  for (std::int64_t at = 0; at < count; at += kExportedAtOnce) {
    const auto some = std::min(kExportedAtOnce, count - at);
    std::string_view result;
    if (merged) {
      read_merged(at, some);
      if (!squares.empty()) adapters->scale_rows(to.name, at, squares, values);
      converted.resize(static_cast<std::size_t>(some * to_size));
      convert_elements(ElementType::kF32, reinterpret_cast<const char*>(values.data()), to.type, converted.data(),
                       some);
      result = converted;
    } else if (read(at, some); stored.info->type != to.type) {
      converted.resize(static_cast<std::size_t>(some * to_size));
      convert_elements(stored.info->type, bytes.data(), to.type, converted.data(), some);
      result = converted;
    } else {
      result = bytes;
    }
    out.write(offset + static_cast<std::uint64_t>(at * to_size), result);
  }
}

/// Weights under other names than the adapters', and those that share a tensor with others, as experts do in folders
/// of transformers 5: both follow from the model's config.json.
std::map<std::string, Adapters::Part> parts_of_model(const TensorFolder& folder) {
  Diagnostics problems;
  const auto text = read_file(folder.path() / "config.json", problems, 1 << 26);
  const auto parsed = text ? arch::parse_hf_config(*text, "config.json") : arch::HfConfig();
  if (!parsed.spec) return {};
  const auto layout = arch::layout_of(*parsed.spec);
  std::map<std::string, Adapters::Part> parts;
  const auto places = find_weights(folder, *parsed.spec, layout, problems);
  for (const auto& parameter : arch::parameters(layout))
    if (const auto place = places.find(parameter.fqn); place != places.end())
      parts[parameter.fqn] = {.stored = place->second.stored.info->name,
                              .shape = {parameter.shape.begin(), parameter.shape.end()},
                              .first = place->second.first,
                              .stride = place->second.stride};
  return parts;
}

void place_adapters(const TensorFolder& folder, Adapters& adapters) {
  std::optional<std::map<std::string, Adapters::Part>> parts;  // read only if a name is not the folder's
  const auto missing = adapters.place([&](const std::string& weight) -> std::optional<Adapters::Part> {
    if (const auto stored = folder.find(weight)) return Adapters::Part{weight, stored.info->shape};
    if (!parts) parts = parts_of_model(folder);
    const auto found = parts->find(weight);
    return found == parts->end() ? std::nullopt : std::optional(found->second);
  });
  if (!missing.empty())
    throw Error(Diagnostic{"adapter-shape"}
                    .says("the base model '{}' has no '{}'", folder.path().native(), missing.front())
                    .hint("the adapters belong to another model; name theirs with --base")
                    .at({"command line", 0, 0}));
}

ExportReport write_weights(const TensorFolder& folder, Adapters* adapters, const fs::path& out,
                           const ExportOptions& options) {
  std::vector<TensorInfo> infos;
  for (const auto& stored : folder.tensors()) {
    if (folder.find(stored.info->name).info != stored.info) continue;
    infos.push_back({stored.info->name, stored.info->type, stored.info->shape});
    if (options.type && is_weight_type(stored.info->type)) infos.back().type = *options.type;
  }
  if (adapters != nullptr) place_adapters(folder, *adapters);
  const auto layout = lay_out_folder(infos, "model", kMostFileBytes);
  ExportReport report{.bytes = layout.bytes};
  for (const auto& file : layout.files) {
    OutputFile written(out / file.name, OutputFile::Mode::kCreate);
    written.reserve(file.layout.file_size);
    written.write(0, file.layout.head);
    for (const auto& tensor : file.layout.tensors) {
      write_tensor(folder.find(tensor.name), tensor, file.layout.position(tensor), adapters, written);
      ++report.tensors;
      if (adapters != nullptr && adapters->has(tensor.name)) ++report.merged;
    }
    written.sync();
  }
  if (!layout.index_name.empty()) write_file(out / layout.index_name, layout.index);
  return report;
}

void copy_companions(const fs::path& from, const fs::path& to) {
  Diagnostics problems;
  for (const auto& path : entries_of(from)) {
    std::error_code error;
    if (!fs::is_regular_file(path, error) || !is_companion(path) || is_there(to / path.filename())) continue;
    const auto text = read_file(path, problems);
    throw_if(problems);
    write_file(to / path.filename(), *text);
  }
}

}  // namespace

void check_model_files(const fs::path& model) {
  const auto checkpoint = model.parent_path();
  if (model.filename() != "model" || !is_there(checkpoint / kManifestName)) return;
  Diagnostics problems;
  const auto manifest = read_manifest(checkpoint, problems);
  throw_if(problems);
  Manifest ours;
  for (const auto& entry : manifest->files)
    if (entry.file.starts_with("model/")) ours.files.push_back(entry);
  check_sizes(checkpoint, ours, problems);
  throw_if(problems);
  for (const auto& entry : ours.files) check_content(checkpoint, entry, problems);
  throw_if(problems);
}

fs::path model_folder_of(const fs::path& path) {
  std::error_code error;
  const auto has_model = [](const fs::path& folder) {
    return has_tensors(folder, "model") || is_there(folder / kAdapterConfig);
  };
  if (has_model(path)) return fs::canonical(path, error);
  auto checkpoint = path;
  if (!is_there(path / kManifestName)) checkpoint = newest_checkpoint(path);
  if (!checkpoint.empty() && has_model(checkpoint / "model")) return fs::canonical(checkpoint / "model", error);
  throw Error(Diagnostic{"checkpoint-missing"}
                  .says("'{}' does not hold a complete checkpoint", path.native())
                  .hint("give a checkpoint (epoch_0_step_99), a folder of them, or a model folder")
                  .at({"command line", 0, 0}));
}

ExportReport export_model(const fs::path& from, const fs::path& out, const ExportOptions& options) {
  const auto model = model_folder_of(from);
  require_new(out, "folder");
  check_model_files(model);
  Diagnostics problems;
  const bool adapted = is_there(model / kAdapterConfig);
  std::optional<Adapters> adapters;
  fs::path base = model;
  if (adapted) {
    if (!options.merge)
      throw Error(Diagnostic{"missing-option"}
                      .says("'{}' holds adapters, not a model", model.native())
                      .hint("add --merge to add them to their base model; the folder itself opens in the PEFT library")
                      .at({"command line", 0, 0}));
    adapters = Adapters::open(model, problems);
    throw_if(problems);
    base = options.base.empty() ? fs::path(adapters->config().base_model) : fs::path(options.base);
    if (base.empty() || !has_tensors(base, "model"))
      throw Error(Diagnostic{"model-not-found"}
                      .says("the base model '{}' is not here", base.native())
                      .hint("name its folder with --base")
                      .at({"command line", 0, 0}));
  } else if (options.merge) {
    throw Error(Diagnostic{"bad-value"}
                    .says("'{}' has no adapters to merge", model.native())
                    .hint("leave --merge out")
                    .at({"command line", 0, 0}));
  }
  const auto folder = TensorFolder::open(base, "model", problems);
  throw_if(problems);

  ExportReport report;
  make_new(out, [&](const fs::path& made) {
    make_folder(made);
    report = write_weights(*folder, adapters ? &*adapters : nullptr, made, options);
    write_file(made / "config.json", config_with_type(base / "config.json", options.type));
    copy_companions(model, made);
    copy_companions(base, made);
    sync_folder(made);
  });
  return report;
}

}  // namespace automodel::checkpoint
