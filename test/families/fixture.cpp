#include "families/fixture.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <span>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include "arch/modules.h"
#include "base/error.h"
#include "base/random.h"
#include "checkpoint/format/weight_names.h"
#include "golden_folder.h"

namespace automodel::test {
namespace {

using Json = nlohmann::json;

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  AUTOMODEL_CHECK(file.good(), "cannot read " + path);
  return {std::istreambuf_iterator<char>(file), {}};
}

at::ScalarType type_of(const std::string& name) {
  if (name == "F32") return at::kFloat;
  if (name == "BF16") return at::kBFloat16;
  AUTOMODEL_CHECK(name == "I32", "element type " + name);
  return at::kInt;
}

void read_safetensors(const std::string& path, std::map<std::string, at::Tensor>& out) {
  std::string bytes = read_file(path);
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  const auto header = Json::parse(bytes.substr(8, length));
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    const auto begin = 8 + length + entry["data_offsets"][0].get<std::uint64_t>();
    const auto tensor = at::from_blob(bytes.data() + begin, entry["shape"].get<std::vector<std::int64_t>>(),
                                      type_of(entry["dtype"].get<std::string>()));
    out[name] = tensor.scalar_type() == at::kInt ? tensor.to(at::kLong) : tensor.clone();
  }
}

std::vector<std::int32_t> row(const at::Tensor& matrix, std::int64_t index) {
  std::vector<std::int32_t> out;
  for (std::int64_t t = 0; t < matrix.size(1); ++t)
    out.push_back(static_cast<std::int32_t>(matrix[index][t].item<std::int64_t>()));
  return out;
}

/// Recorded labels are aligned with their tokens; ours are what each position predicts.
std::vector<std::int32_t> shifted(std::vector<std::int32_t> labels) {
  labels.erase(labels.begin());
  labels.push_back(data::kIgnoredLabel);
  return labels;
}

data::Batch batch_of(const std::vector<data::Sample>& samples) {
  std::vector<std::int64_t> numbers(samples.size(), 0);
  return data::make_batch(samples, numbers, {});
}

}  // namespace

parallel::WeightSource Fixture::source(const arch::ModelSpec& spec) const {
  return [this, &spec](const model::Weight& weight, std::int64_t first, at::Tensor out) {
    const auto& info = weight.info;
    const auto own = weights.find(info.tied_to.empty() ? info.fqn : info.tied_to);
    at::Tensor flat;
    if (own != weights.end()) {
      AUTOMODEL_CHECK(own->second.sizes().vec() == weight.full, "the shape of " + info.fqn);
      flat = own->second.reshape({-1});
    } else {
      const auto written = checkpoint::written_as(info, spec);
      const auto& whole = weights.at(written.name);
      AUTOMODEL_CHECK(whole.sizes().vec() == written.shape, "the shape of " + written.name);
      flat = whole.reshape({-1}).narrow(0, written.first, info.shape.elements());
    }
    for (const auto& run : model::runs(weight.slice, weight.full, first, out.numel()))
      out.narrow(0, run.local - first, run.length).copy_(flat.narrow(0, run.full, run.length));
  };
}

std::map<std::string, at::Tensor> Fixture::as_recorded(std::map<std::string, at::Tensor> values,
                                                       const arch::ModelSpec& spec) const {
  for (const auto& parameter : arch::parameters(spec)) {
    const auto own = values.find(parameter.fqn);
    if (own == values.end() || weights.contains(parameter.fqn)) continue;
    const auto written = checkpoint::written_as(parameter, spec);
    auto& whole = values[written.name];
    if (!whole.defined()) whole = at::zeros(written.shape, own->second.options());
    whole.view({-1}).narrow(0, written.first, own->second.numel()).copy_(own->second.reshape({-1}));
    values.erase(own);
  }
  return values;
}

Fixture load_fixture(const std::string& name) {
  const bool path = name.find('/') != std::string::npos;
  const std::string folder = path ? name : automodel::golden_folder() + "/hf/models/" + name;
  Fixture out{.name = name, .model = "{pretrained_model_name_or_path: " + folder};
  out.reference = Json::parse(read_file(folder + "/reference.json"));
  read_safetensors(folder + "/reference.safetensors", out.recorded);
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string file = entry.path().filename().string();
    if (file.starts_with("model") && file.ends_with(".safetensors"))
      read_safetensors(entry.path().string(), out.weights);
  }
  return out;
}

namespace {

/// Values uniform around a mean, as test/golden/hf_families/record.py generates them.
at::Tensor generated(std::uint64_t seed, const std::string& name, const Json& rule) {
  const auto shape = rule["shape"].get<std::vector<std::int64_t>>();
  auto out = at::empty(shape, at::kFloat);
  const std::span<float> values(out.mutable_data_ptr<float>(), static_cast<std::size_t>(out.numel()));
  if (rule.contains("values")) {
    const auto given = rule["values"].get<std::vector<double>>();
    std::transform(given.begin(), given.end(), values.begin(), [](double x) { return static_cast<float>(x); });
    return out;
  }
  RandomStream(seed, name).fill_uniform(0, values);
  const double mean = rule["mean"], spread = rule["spread"];
  for (auto& value : values) value = static_cast<float>(mean + spread * (2 * static_cast<double>(value) - 1));
  return out;
}

/// The batches of all steps: random ids, every eighth label left out.
void generate_data(std::uint64_t seed, std::uint32_t vocab, std::map<std::string, at::Tensor>& out) {
  constexpr std::int64_t kSteps = 10, kRows = 2, kLength = 32;
  auto ids = at::empty({kSteps, kRows, kLength}, at::kLong), labels = at::empty_like(ids);
  const RandomStream of_ids(seed, "ids"), of_labels(seed, "labels");
  for (std::int64_t i = 0; i < ids.numel(); ++i) {
    const auto id = of_ids.bits32(static_cast<std::uint64_t>(i)) % vocab;
    ids.mutable_data_ptr<std::int64_t>()[i] = id;
    const bool ignored = of_labels.bits32(static_cast<std::uint64_t>(i)) % 8 == 0;
    labels.mutable_data_ptr<std::int64_t>()[i] = ignored ? data::kIgnoredLabel : std::int64_t{id};
  }
  out["train.input_ids"] = ids;
  out["train.labels"] = labels;
  out["plain.input_ids"] = ids[0];
  out["plain.labels"] = labels[0];
}

at::Tensor tensor_of(const Json& values, const std::vector<std::int64_t>& shape) {
  std::vector<double> flat;
  const std::function<void(const Json&)> collect = [&](const Json& each) {
    if (!each.is_array()) return flat.push_back(each.get<double>());
    for (const auto& inner : each) collect(inner);
  };
  collect(values);
  return at::from_blob(flat.data(), {static_cast<std::int64_t>(flat.size())}, at::kDouble).clone().view(shape);
}

}  // namespace

Fixture load_family(const std::string& name) {
  const auto recorded = Json::parse(read_file(automodel::golden_folder() + "/hf_families/" + name + ".json"));
  const auto& plain = recorded["plain"];
  const auto seed = recorded["seed"].get<std::uint64_t>();
  auto model = recorded["config"].dump();
  model.pop_back();
  Fixture out{.name = name, .model = model};
  for (const auto& [weight, rule] : recorded["weights"].items()) out.weights[weight] = generated(seed, weight, rule);
  generate_data(seed, recorded["config"]["vocab_size"].get<std::uint32_t>(), out.recorded);
  const auto positions = static_cast<std::int64_t>(plain["positions"].size());
  out.recorded["plain.logits_slice"] = tensor_of(plain["logits"], {2, positions, -1});
  out.recorded["plain.logits_lse"] = tensor_of(plain["logsum"], {2, -1});
  out.reference = {{"cases", {{"plain", {{"loss", plain["loss"]}, {"slice_positions", plain["positions"]}}}}},
                   {"grad_norm_total", recorded["grad_norm"]},
                   {"grad_norms", recorded["grad_norms"]},
                   {"train", recorded["train"]}};
  return out;
}

std::vector<std::string> family_fixtures() {
  std::vector<std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator(automodel::golden_folder() + "/hf_families"))
    if (entry.path().extension() == ".json") out.push_back(entry.path().stem().string());
  std::sort(out.begin(), out.end());
  return out;
}

data::Batch case_batch(const Fixture& fixture, const std::string& name, std::int64_t rows) {
  const auto& ids = fixture.at(name + ".input_ids");
  const auto& labels = fixture.at(name + ".labels");
  std::vector<data::Sample> samples;
  for (std::int64_t r = 0; r < ids.size(0); ++r) {
    data::Sample sample{.input_ids = row(ids, r), .labels = shifted(row(labels, r))};
    if (name == "packed") {
      sample.positions = row(fixture.at("packed.position_ids"), r);
      std::int32_t segment = 0;
      for (const auto position : sample.positions) sample.segments.push_back(segment += position == 0 ? 1 : 0);
    } else if (name == "leftpad") {
      sample.segments = row(fixture.at("leftpad.attention_mask"), r);
      for (std::int32_t t = 0; t < ids.size(1); ++t) sample.positions.push_back(t);
    } else if (name == "padded") {
      const auto real = fixture.at("padded.attention_mask")[r].sum().item<std::int64_t>();
      sample.input_ids.resize(static_cast<std::size_t>(real));
      sample.labels.resize(static_cast<std::size_t>(real));
    }
    samples.push_back(std::move(sample));
  }
  while (static_cast<std::int64_t>(samples.size()) < rows) samples.emplace_back();
  return batch_of(samples);
}

data::Batch training_batch(const Fixture& fixture, std::int64_t step) {
  const auto ids = fixture.at("train.input_ids")[step], labels = fixture.at("train.labels")[step];
  std::vector<data::Sample> samples;
  for (std::int64_t r = 0; r < ids.size(0); ++r)
    samples.push_back({.input_ids = row(ids, r), .labels = shifted(row(labels, r))});
  return batch_of(samples);
}

}  // namespace automodel::test
