#include "estimate/calibration.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "arch/counts.h"
#include "base/bytes.h"
#include "base/text_table.h"

namespace automodel::estimate {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr int kVersion = 1;
constexpr std::size_t kMostSamples = 64;
constexpr std::size_t kMostRunKeys = 64;
constexpr std::size_t kMostRuns = 5;  // per key: older ones say less about the machine's current state

template <class Owner>
struct Number {
  const char* key;
  double Owner::*member;
};
constexpr std::array kPartNumbers = {
    Number<PartTime>{"work", &PartTime::work},
    Number<PartTime>{"forward", &PartTime::forward},
    Number<PartTime>{"backward", &PartTime::backward},
    Number<PartTime>{"backward_input", &PartTime::backward_input},
    Number<PartTime>{"backward_weight", &PartTime::backward_weight},
};
constexpr std::array kLinkNumbers = {
    Number<LinkSample>{"bandwidth", &LinkSample::bandwidth}, Number<LinkSample>{"latency", &LinkSample::latency},
    Number<LinkSample>{"all_gather", &LinkSample::gather},   Number<LinkSample>{"reduce_scatter", &LinkSample::scatter},
    Number<LinkSample>{"all_reduce", &LinkSample::sum},
};
constexpr std::array kSampleNumbers = {
    Number<Sample>{"peak_flops", &Sample::peak},
    Number<Sample>{"memory_bandwidth", &Sample::memory_bandwidth},
    Number<Sample>{"optimizer_rate", &Sample::optimizer_rate},
};

template <class Owner, std::size_t kCount>
void write(Json& json, const Owner& owner, const std::array<Number<Owner>, kCount>& numbers) {
  for (const auto& each : numbers) json[each.key] = owner.*each.member;
}
template <class Owner, std::size_t kCount>
void read(const Json& json, Owner& owner, const std::array<Number<Owner>, kCount>& numbers) {
  for (const auto& each : numbers) owner.*each.member = json.value(each.key, 0.0);
}

Json write_part(const PartTime& part) {
  Json out;
  write(out, part, kPartNumbers);
  return out;
}
PartTime read_part(const Json& json) {
  PartTime out;
  read(json, out, kPartNumbers);
  return out;
}

Json write_sample(const Sample& sample) {
  Json out = {{"model", sample.model},           {"dtype", sample.type},
              {"threads", sample.threads},       {"ranks", sample.ranks},
              {"microbatch", sample.microbatch}, {"sequence", sample.sequence}};
  write(out, sample, kSampleNumbers);
  for (const auto& layer : sample.layers) {
    Json part = write_part(layer.time);
    part["kind"] = layer.kind;
    out["layers"].push_back(std::move(part));
  }
  out["embedding"] = write_part(sample.embedding);
  out["head"] = write_part(sample.head);
  return out;
}
Sample read_sample(const Json& json) {
  Sample out;
  out.model = json.value("model", "");
  out.type = json.value("dtype", "");
  out.threads = json.value("threads", 1);
  out.ranks = json.value("ranks", 1);
  out.microbatch = json.value("microbatch", std::int64_t{1});
  out.sequence = json.value("sequence", std::int64_t{1});
  read(json, out, kSampleNumbers);
  for (const auto& layer : json.at("layers")) out.layers.push_back({layer.value("kind", ""), read_part(layer)});
  out.embedding = read_part(json.at("embedding"));
  out.head = read_part(json.at("head"));
  return out;
}

/// Whether every value that estimates divide by is positive.
bool usable(const Sample& sample) {
  const auto good = [](const PartTime& part) {
    return part.work > 0 && part.forward > 0 && part.backward > 0 && part.backward_input > 0 &&
           part.backward_weight > 0;
  };
  return sample.peak > 0 && sample.memory_bandwidth > 0 && sample.optimizer_rate > 0 && sample.threads > 0 &&
         sample.ranks > 0 && !sample.layers.empty() && good(sample.head) && sample.embedding.work > 0 &&
         sample.embedding.forward > 0 &&
         std::all_of(sample.layers.begin(), sample.layers.end(), [&](const auto& each) { return good(each.time); });
}

bool same_sizes(const Sample& a, const Sample& b) {
  return a.model == b.model && a.type == b.type && a.threads == b.threads && a.ranks == b.ranks &&
         a.microbatch == b.microbatch && a.sequence == b.sequence;
}

double apart(double a, double b) {
  return a > 0 && b > 0 ? std::abs(std::log(a / b)) : 100;
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

}  // namespace

PartTime PartTime::for_work(double other) const {
  const double factor = other / work;
  return {other, forward * factor, backward * factor, backward_input * factor, backward_weight * factor};
}

std::string layer_kind(const arch::ModelSpec& spec, int layer) {
  const bool sliding = spec.attention[static_cast<std::size_t>(layer)] == arch::LayerAttention::kSliding;
  if (spec.mixers.empty()) return fmt::format("{}{}", spec.is_moe(layer) ? "moe " : "", sliding ? "sliding" : "full");
  const std::string feed = !spec.has_feed(layer) ? "without feed-forward "
                           : spec.is_moe(layer)  ? "moe "
                           : !spec.ffns.empty()  ? fmt::format("mlp {} ", spec.ffn_of(layer))
                                                 : "";
  return feed + std::string(arch::name_of(spec.mixer(layer)));
}

std::string widths_text(const arch::ModelSpec& spec) {
  std::string out = fmt::format("{} hidden {} heads {}/{}x{} mlp {} vocabulary {}", spec.model_type, spec.hidden,
                                spec.heads, spec.kv_heads, spec.head_dim, spec.ffn, spec.vocab);
  if (spec.sliding_window > 0) out += fmt::format(" window {}", spec.sliding_window);
  if (spec.latent)
    out += fmt::format(" latent {}/{} {}+{}/{}", spec.latent->q_rank, spec.latent->kv_rank, spec.latent->nope_dim,
                       spec.latent->rope_dim, spec.latent->v_dim);
  if (const auto& state = spec.recurrence)
    out += fmt::format(" state {}/{} {}x{} taps {}", state->heads, state->groups, state->key_dim, state->value_dim,
                       state->taps);
  if (spec.moe)
    out += fmt::format(" experts {}/{}x{}+{}", spec.moe->top_k, spec.moe->experts, spec.moe->ffn, spec.moe->shared_ffn);
  return out;
}

void Calibration::add(Sample sample) {
  std::erase_if(samples, [&](const Sample& each) { return same_sizes(each, sample); });
  samples.push_back(std::move(sample));
  if (samples.size() > kMostSamples) samples.erase(samples.begin());
}

void Calibration::add_run(PastRuns run) {
  const auto found = std::find_if(runs.begin(), runs.end(), [&](const PastRuns& each) { return each.key == run.key; });
  if (found != runs.end()) {
    const auto append = [](std::vector<double>& older, std::vector<double>& newer) {
      older.insert(older.end(), newer.begin(), newer.end());
      if (older.size() > kMostRuns) older.erase(older.begin(), older.end() - kMostRuns);
      newer = std::move(older);
    };
    append(found->seconds, run.seconds);
    append(found->tokens, run.tokens);
    append(found->predicted, run.predicted);
    append(found->bytes, run.bytes);
    runs.erase(found);
  }
  runs.push_back(std::move(run));
  if (runs.size() > kMostRunKeys) runs.erase(runs.begin());
}

const PastRuns* Calibration::find_runs(const std::string& key) const {
  const auto found = std::find_if(runs.begin(), runs.end(), [&](const PastRuns& each) { return each.key == key; });
  return found == runs.end() || found->seconds.empty() ? nullptr : &*found;
}

std::string calibration_path() {
  if (std::getenv("AUTOMODEL_CALIBRATION") != nullptr) return variable("AUTOMODEL_CALIBRATION");
  const auto cache = variable("XDG_CACHE_HOME");
  return (cache.empty() ? variable("HOME") + "/.cache" : cache) + "/automodel/calibration.json";
}

std::string calibration_text() {
  const auto path = calibration_path();
  if (path.empty()) return "";
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::optional<Calibration> parse_calibration(const std::string& text) {
  if (text.empty()) return std::nullopt;
  try {
    const auto json = Json::parse(text);
    if (json.value("version", 0) != kVersion) return std::nullopt;
    Calibration out;
    out.machine = json.value("machine", "");
    out.when = json.value("when", "");
    out.framework = json.value("framework_bytes", 0.0);
    if (json.contains("link")) read(json.at("link"), out.link, kLinkNumbers);
    for (const auto& each : json.at("samples"))
      if (auto sample = read_sample(each); usable(sample)) out.samples.push_back(std::move(sample));
    for (const auto& each : json.at("runs"))
      out.runs.push_back({.key = each.value("key", ""),
                          .recipe = each.value("recipe", ""),
                          .when = each.value("when", ""),
                          .seconds = each.at("step_seconds").get<std::vector<double>>(),
                          .tokens = each.value("step_tokens", std::vector<double>()),
                          .predicted = each.at("predicted_seconds").get<std::vector<double>>(),
                          .bytes = each.at("tensor_bytes").get<std::vector<double>>()});
    return out;
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

std::string to_json(const Calibration& calibration) {
  Json link;
  write(link, calibration.link, kLinkNumbers);
  Json out = {{"version", kVersion},      {"machine", calibration.machine},
              {"when", calibration.when}, {"framework_bytes", calibration.framework},
              {"link", std::move(link)},  {"samples", Json::array()},
              {"runs", Json::array()}};
  for (const auto& each : calibration.samples) out["samples"].push_back(write_sample(each));
  for (const auto& each : calibration.runs)
    out["runs"].push_back({{"key", each.key},
                           {"recipe", each.recipe},
                           {"when", each.when},
                           {"step_seconds", each.seconds},
                           {"step_tokens", each.tokens},
                           {"predicted_seconds", each.predicted},
                           {"tensor_bytes", each.bytes}});
  return out.dump(1) + "\n";
}

std::string to_text(const Calibration& calibration) {
  TextTable table({"model", "microbatch", "type", "ranks x threads", "layer forward", "backward", "head forward",
                   "backward", "layer GFLOP/s", "product GFLOP/s"});
  for (const auto& sample : calibration.samples) {
    const auto& layer = sample.layers.back().time;
    table.add({sample.model, fmt::format("{} x {}", sample.microbatch, sample.sequence), sample.type,
               fmt::format("{} x {}", sample.ranks, sample.threads), format_seconds(layer.forward),
               format_seconds(layer.backward), format_seconds(sample.head.forward),
               format_seconds(sample.head.backward),
               fmt::format("{:.1f}", 3 * layer.work / (layer.forward + layer.backward) / 1e9),
               fmt::format("{:.1f}", sample.peak / 1e9)});
  }
  std::string out = fmt::format("calibration of {} ({})\n", calibration.machine, calibration.when) + table.text();
  if (const auto& link = calibration.link; link.bandwidth > 0)
    out += fmt::format("  messages  {} and {}/s; all-gather {}/s, reduce-scatter {}/s, all-reduce {}/s\n",
                       format_seconds(link.latency), format_bytes(link.bandwidth), format_bytes(link.gather),
                       format_bytes(link.scatter), format_bytes(link.sum));
  if (!calibration.runs.empty())
    out += fmt::format("  past runs of {} plan{}\n", calibration.runs.size(), calibration.runs.size() == 1 ? "" : "s");
  return out;
}

bool write_calibration(const Calibration& calibration) {
  const fs::path path = calibration_path();
  if (path.empty()) return false;
  std::error_code error;
  if (path.has_parent_path()) fs::create_directories(path.parent_path(), error);
  // Concurrent readers see either the old file or the new one.
  const fs::path part = path.string() + fmt::format(".{}", getpid());
  {
    std::ofstream file(part, std::ios::binary);
    file << to_json(calibration);
    if (!file.flush()) {
      fs::remove(part, error);
      return false;
    }
  }
  fs::rename(part, path, error);
  return !error;
}

std::string date_text() {
  return fmt::format("{:%Y-%m-%d}", fmt::localtime(std::time(nullptr)));
}

Calibration own_calibration(const std::string& machine) {
  auto found = parse_calibration(calibration_text());
  if (found && found->machine == machine) return std::move(*found);
  Calibration out;
  out.machine = machine;
  return out;
}

const PartTime& Rates::layer(const std::string& kind) const {
  const auto found = std::find_if(layers.layers.begin(), layers.layers.end(),
                                  [&](const Sample::Layer& each) { return each.kind == kind; });
  return (found == layers.layers.end() ? layers.layers.front() : *found).time;
}

std::optional<Rates> choose_rates(const Calibration& calibration, const RatesRequest& request) {
  const auto model = widths_text(*request.spec);
  const auto tokens = static_cast<double>(request.microbatch * request.sequence);
  const double layer =
      tokens * arch::layer_flops_per_token(*request.spec, *request.layout, request.spec->layers - 1, request.sequence);
  const double head = tokens * arch::head_flops_per_token(*request.spec);
  const Sample *layers = nullptr, *heads = nullptr;
  double layers_apart = 1e300, heads_apart = 1e300;
  for (const auto& sample : calibration.samples) {
    if (sample.type != request.type) continue;
    const double machine = 0.5 * apart(sample.threads, request.threads) + 0.2 * apart(sample.ranks, request.ranks) +
                           (sample.model == model ? 0 : 0.5);
    const bool same = sample.sequence == request.sequence && sample.microbatch == request.microbatch;
    // Compare only the last kind of layer; other kinds are of the same order of magnitude.
    const double a = machine + apart(sample.layers.back().time.work, layer) + (same ? 0 : 0.01);
    const double b = machine + apart(sample.head.work, head) + (same ? 0 : 0.01);
    if (a <= layers_apart) layers = &sample, layers_apart = a;
    if (b <= heads_apart) heads = &sample, heads_apart = b;
  }
  if (layers == nullptr) return std::nullopt;
  Rates out{.layers = *layers, .head = *heads};
  out.exact = layers == heads && layers->model == model && layers->threads == request.threads &&
              layers->ranks == request.ranks && layers->microbatch == request.microbatch &&
              layers->sequence == request.sequence;
  return out;
}

}  // namespace automodel::estimate
