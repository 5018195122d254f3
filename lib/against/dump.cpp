#include "against/dump.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file_text.h"
#include "base/json_depth.h"
#include "checkpoint/format/elements.h"
#include "checkpoint/format/file.h"
#include "checkpoint/format/tensor_file.h"
#include "checkpoint/format/weight_names.h"

namespace automodel::against {
namespace {

namespace fs = std::filesystem;
using checkpoint::ElementType;

constexpr std::uint64_t kMostMeta = 1 << 16;   // bytes of meta.json
constexpr std::int64_t kMostTokens = 1 << 20;  // of a batch: hours in float64 on a processor
constexpr const char* kHowTo = "docs/verify-against.md has the ten lines of PyTorch that write it";

bool there(const fs::path& file, Diagnostics& problems) {
  std::error_code error;
  if (fs::is_regular_file(file, error)) return true;
  problems.add("missing-file")
      .says("there is no '{}'", file.filename().native())
      .hint(kHowTo)
      .at({file.native(), 0, 0});
  return false;
}

struct Meta {
  double loss = 0;
  Reduction reduction = Reduction::kMean;
};

std::optional<Meta> read_meta(const fs::path& path, Diagnostics& problems) {
  if (!there(path, problems)) return std::nullopt;
  const auto refuse = [&](std::string what, std::string hint) {
    problems.add("dump-meta").says(std::move(what)).hint(std::move(hint)).at({path.native(), 0, 0});
    return std::nullopt;
  };
  constexpr const char* kExample = "write {\"loss\": 4.158}: the number that the trainer reported for this batch";
  const auto file = file_text(path, kMostMeta);
  if (!file.problem.empty()) return refuse(file.problem, kExample);
  if (nesting_of(file.text) > kDeepestJson)
    return refuse(fmt::format("this nests more than {} levels", kDeepestJson), kExample);
  const auto json = nlohmann::json::parse(file.text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return refuse("this is not a JSON object", kExample);
  const auto loss = json.find("loss"), reduction = json.find("reduction");
  if (loss == json.end() || !loss->is_number()) return refuse("there is no number 'loss'", kExample);
  Meta out{.loss = loss->get<double>()};
  if (!std::isfinite(out.loss)) return refuse("'loss' is not finite", kExample);
  if (reduction == json.end() || *reduction == "mean") return out;
  if (*reduction != "sum")
    return refuse(fmt::format("'reduction' is {}", printable(reduction->dump(-1, ' ', true), checkpoint::kMostShown)),
                  "'mean' (over the label tokens of the batch; the default) or 'sum' (over them)");
  out.reduction = Reduction::kSum;
  return out;
}

/// Whole numbers of any width, and booleans.
std::optional<std::int64_t> integer_at(ElementType type, const char* bytes) {
  const auto as = [&]<class T>(T value) {
    std::memcpy(&value, bytes, sizeof value);
    return static_cast<std::int64_t>(value);
  };
  if (type == ElementType::kI64) return as(std::int64_t{});
  if (type == ElementType::kI32) return as(std::int32_t{});
  if (type == ElementType::kI16) return as(std::int16_t{});
  if (type == ElementType::kI8) return as(std::int8_t{});
  if (type == ElementType::kU32) return as(std::uint32_t{});
  if (type == ElementType::kU16) return as(std::uint16_t{});
  if (type == ElementType::kU8 || type == ElementType::kBool) return as(std::uint8_t{});
  return std::nullopt;
}

/// Reads and checks DIR/batch.safetensors.
class BatchReader {
 public:
  BatchReader(fs::path path, const arch::ModelSpec& spec, Diagnostics& problems)
      : path_(std::move(path)), spec_(spec), problems_(problems) {}

  std::optional<DumpedBatch> read() {
    const std::size_t before = problems_.size();
    if (!there(path_, problems_)) return std::nullopt;
    const auto file = checkpoint::TensorFile::open(path_, problems_);
    if (!file) return std::nullopt;
    DumpedBatch out;
    out.ids = numbers(*file, "input_ids", true, out);
    if (problems_.size() == before) out.labels = numbers(*file, "labels", true, out);
    if (problems_.size() == before) out.mask = numbers(*file, "attention_mask", false, out);
    if (problems_.size() == before) out.positions = numbers(*file, "position_ids", false, out);
    for (const auto& tensor : file->header().tensors)
      if (tensor.name != "input_ids" && tensor.name != "labels" && tensor.name != "attention_mask" &&
          tensor.name != "position_ids")
        refuse(fmt::format("there is a tensor '{}'", printable(tensor.name, checkpoint::kMostShown)),
               "input_ids, labels, attention_mask and position_ids are read; leave others out if the loss does not "
               "depend on them");
    if (problems_.size() > before) return std::nullopt;
    check_values(out);
    if (problems_.size() > before) return std::nullopt;
    return out;
  }

 private:
  void refuse(std::string what, std::string hint) {
    problems_.add("dump-batch").says(std::move(what)).hint(std::move(hint)).at({path_.native(), 0, 0});
  }

  /// The first tensor determines the shape of all.
  std::vector<std::int64_t> numbers(const checkpoint::TensorFile& file, const std::string& name, bool required,
                                    DumpedBatch& batch) {
    const auto* info = file.find(name);
    if (info == nullptr) {
      if (required) refuse(fmt::format("there is no tensor '{}'", name), kHowTo);
      return {};
    }
    const bool first = batch.rows == 0;
    const bool one_row = name == "position_ids" && info->shape.size() == 2 && info->shape[0] == 1;
    const auto& shape = info->shape;
    const bool sized = shape.size() == 2 && shape[0] > 0 && shape[1] > 0 && shape[0] <= kMostTokens &&
                       shape[1] <= kMostTokens && shape[0] * shape[1] <= kMostTokens;
    const bool fits = first ? sized : sized && shape[1] == batch.tokens && (shape[0] == batch.rows || one_row);
    if (!fits || !integer_at(info->type, "\0\0\0\0\0\0\0")) {
      refuse(fmt::format("'{}' is {}", name, checkpoint::describe(*info)),
             first ? fmt::format("whole numbers [rows, tokens], at most {} tokens in all", kMostTokens)
                   : fmt::format("whole numbers [{}, {}], as input_ids", batch.rows, batch.tokens));
      return {};
    }
    if (first) {
      batch.rows = shape[0];
      batch.tokens = shape[1];
    }
    std::string bytes(info->bytes(), '\0');
    file.read(*info, 0, bytes.data(), bytes.size());
    const auto width = static_cast<std::size_t>(checkpoint::bits_of(info->type) / 8);
    std::vector<std::int64_t> out;
    out.reserve(static_cast<std::size_t>(batch.rows * batch.tokens));
    for (std::size_t at = 0; at < bytes.size(); at += width) out.push_back(*integer_at(info->type, bytes.data() + at));
    while (one_row && std::ssize(out) < batch.rows * batch.tokens)
      out.insert(out.end(), out.begin(), out.begin() + batch.tokens);
    return out;
  }

  std::string place(std::int64_t index, const DumpedBatch& batch) const {
    return fmt::format("row {}, token {}", index / batch.tokens, index % batch.tokens);
  }

  void check_values(const DumpedBatch& batch) {
    std::int64_t counted = 0;
    for (std::int64_t i = 0; i < batch.rows * batch.tokens; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const auto id = batch.ids[at], label = batch.labels[at];
      if (id < 0 || id >= spec_.vocab || (label != kIgnored && (label < 0 || label >= spec_.vocab))) {
        const bool is_id = id < 0 || id >= spec_.vocab;
        problems_.add("token-out-of-range")
            .says("{} is {} ({}), the model's vocabulary has {} tokens", is_id ? "an input id" : "a label",
                  is_id ? id : label, place(i, batch), spec_.vocab)
            .hint("ids are 0 to {}; labels that are not counted are {}", spec_.vocab - 1, kIgnored)
            .at({path_.native(), 0, 0});
        return;
      }
      if (!batch.mask.empty() && batch.mask[at] != 0 && batch.mask[at] != 1)
        return refuse(fmt::format("attention_mask is {} ({})", batch.mask[at], place(i, batch)),
                      "it is 1 for tokens and 0 for padding; masks of pairs of tokens are not read");
      if (!batch.positions.empty() && (batch.positions[at] < 0 || batch.positions[at] >= spec_.max_positions))
        return refuse(fmt::format("position_ids is {} ({})", batch.positions[at], place(i, batch)),
                      fmt::format("the model has positions 0 to {}", spec_.max_positions - 1));
      if (i % batch.tokens == 0 || label == kIgnored) continue;
      if (!batch.real(i - 1))
        return refuse(
            fmt::format("the label at {} counts, but attention_mask hides the token that predicts it", place(i, batch)),
            fmt::format("what a token without context predicts depends on the attention's kernel; its label "
                        "must be {}",
                        kIgnored));
      ++counted;
    }
    if (spec_.position_limit() && batch.positions.empty() && batch.tokens > *spec_.position_limit())
      return refuse(fmt::format("rows have {} tokens, the model {} positions", batch.tokens, *spec_.position_limit()),
                    "dump a batch that the model can take");
    if (counted == 0)
      refuse("no label counts", fmt::format("labels stand under their own token, {} is not counted; the first of a row "
                                            "is predicted by none",
                                            kIgnored));
  }

  fs::path path_;
  const arch::ModelSpec& spec_;
  Diagnostics& problems_;
};

/// Says of gradients what find_weights says of weights.
void rename(Diagnostics& problems, std::size_t from, const fs::path& file) {
  for (std::size_t i = from; i < problems.size(); ++i) {
    auto& problem = problems[i];
    problem.where = {file.native(), 0, 0};
    problem.help = problem.id == "weights-missing"
                       ? "save the gradient of every parameter that the model trains; zeros where p.grad is None"
                   : problem.id == "weights-shape"
                       ? "save whole tensors: '.full_tensor()' of a DTensor, joined shards of a tensor-parallel weight"
                       : "names are those of the checkpoint or of transformers' named_parameters(), without a "
                         "wrapper's prefix such as 'module.' or '_orig_mod.'";
  }
}

}  // namespace

std::int64_t DumpedBatch::real_tokens() const {
  return mask.empty() ? rows * tokens : std::ranges::count(mask, 1);
}

std::optional<Dump> Dump::open(const fs::path& folder, const arch::ModelSpec& spec, const arch::Layout& layout,
                               Diagnostics& problems) {
  const std::size_t before = problems.size();
  const auto meta = read_meta(folder / "meta.json", problems);
  auto batch = BatchReader(folder / "batch.safetensors", spec, problems).read();
  const fs::path file = folder / "gradients.safetensors";
  std::optional<checkpoint::TensorFolder> files;
  if (checkpoint::has_tensors(folder, "gradients") || there(file, problems))
    files = checkpoint::TensorFolder::open(folder, "gradients", problems);
  if (!files) return std::nullopt;
  Dump out(std::move(*files));
  const std::size_t opened = problems.size();
  const auto places =
      checkpoint::find_weights(out.files_, spec, layout, problems, checkpoint::WantedWeights::kTrainable);
  rename(problems, opened, file);
  if (checkpoint::head_differs(out.files_, layout))
    problems.add("weights-not-tied")
        .says("'{}.weight' has another gradient than '{}', though config.json ties them", layout.head,
              layout.head_tied_to)
        .hint(
            "if the trainer keeps two weights, the tie is broken: each is trained with its part of the gradient; if "
            "it adds the parts before the optimizer's step, save their sum once")
        .at({file.native(), 0, 0});
  if (problems.size() > before) return std::nullopt;
  out.batch_ = std::move(*batch);
  out.loss_ = meta->loss;
  out.reduction_ = meta->reduction;
  std::map<const checkpoint::TensorInfo*, std::size_t> seen;
  for (auto& parameter : arch::parameters(layout)) {
    const auto place = places.find(parameter.fqn);
    if (!parameter.tied_to.empty() || !parameter.trainable || place == places.end()) continue;
    const auto [entry, is_new] = seen.emplace(place->second.stored.info, out.gradients_.size());
    if (is_new) out.gradients_.push_back({.stored = place->second.stored});
    const auto type = place->second.stored.info->type;
    if (roundoff(type) > roundoff(out.type_)) out.type_ = type;
    const std::int64_t first = place->second.first;
    out.gradients_[entry->second].parts.push_back({std::move(parameter), first});
  }
  return out;
}

std::vector<double> Dump::read(const DumpedGradient& gradient) const {
  const auto& info = *gradient.stored.info;
  const auto count = static_cast<std::size_t>(info.elements());
  std::string bytes(info.bytes(), '\0');
  gradient.stored.file->read(info, 0, bytes.data(), bytes.size());
  std::vector<double> out(count);
  if (info.type == ElementType::kF64)
    std::memcpy(out.data(), bytes.data(), bytes.size());
  else
    checkpoint::convert_elements(info.type, bytes.data(), ElementType::kF64, reinterpret_cast<char*>(out.data()),
                                 info.elements());
  const auto bad = std::ranges::find_if(out, [](double value) { return !std::isfinite(value); });
  if (bad != out.end())
    throw Error(Diagnostic{"dump-not-finite"}
                    .says("'{}' has the value {} (element {})", printable(info.name, checkpoint::kMostShown), *bad,
                          bad - out.begin())
                    .hint("look for the first layer with such values in that trainer; gradients are compared where the "
                          "loss is finite")
                    .at({gradient.stored.file->path().native(), 0, 0}));
  return out;
}

double roundoff(ElementType type) {
  const int digits = type == ElementType::kF64   ? 53
                     : type == ElementType::kF32 ? 24
                     : type == ElementType::kF16 ? 11
                                                 : 8;
  return std::ldexp(1.0, -digits);
}

}  // namespace automodel::against
