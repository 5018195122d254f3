#include "plan/hardware.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <thread>

#include <fmt/format.h>

#include "base/bytes.h"
#include "base/json_writer.h"
#include "base/spelling.h"
#include "config/node.h"
#include "config/value.h"

namespace automodel::plan {
namespace {

constexpr double kMiB = 1024.0 * 1024.0;
constexpr double kGB = 1e9;

constexpr Link kNvLink3 = {300e9, 3e-6}, kNvLink4 = {450e9, 3e-6}, kNvLink5 = {900e9, 3e-6};
constexpr Link kPcie4 = {32e9, 8e-6}, kPcie3 = {16e9, 8e-6};
constexpr Link k100Gb = {12.5e9, 8e-6}, k200Gb = {25e9, 7e-6}, k400Gb = {50e9, 7e-6};

// Memory as the driver reports it, rates and bandwidths from the makers' data sheets (dense).
constexpr std::array kProfiles = {
    DeviceProfile{"h100", "NVIDIA H100 SXM, 80 GB", 81559 * kMiB, 989.4, 494.7, 3350 * kGB, kNvLink4, k400Gb, 8},
    DeviceProfile{"h100-pcie", "NVIDIA H100 PCIe, 80 GB", 81559 * kMiB, 756, 378, 2000 * kGB, kPcie4, k200Gb, 8},
    DeviceProfile{"h200", "NVIDIA H200 SXM, 141 GB", 143771 * kMiB, 989.4, 494.7, 4800 * kGB, kNvLink4, k400Gb, 8},
    DeviceProfile{"b200", "NVIDIA B200, 180 GB", 183359 * kMiB, 2250, 1125, 8000 * kGB, kNvLink5, k400Gb, 8},
    DeviceProfile{"a100-80", "NVIDIA A100 SXM, 80 GB", 81920 * kMiB, 312, 156, 2039 * kGB, kNvLink3, k200Gb, 8},
    DeviceProfile{"a100-40", "NVIDIA A100 SXM, 40 GB", 40960 * kMiB, 312, 156, 1555 * kGB, kNvLink3, k200Gb, 8},
    DeviceProfile{"l40s", "NVIDIA L40S, 48 GB", 46068 * kMiB, 362, 183, 864 * kGB, kPcie4, k100Gb, 8},
    DeviceProfile{"l4", "NVIDIA L4, 24 GB", 23034 * kMiB, 121, 60, 300 * kGB, kPcie4, k100Gb, 8},
    DeviceProfile{"a10", "NVIDIA A10, 24 GB", 23028 * kMiB, 125, 62.5, 600 * kGB, kPcie4, k100Gb, 4},
    DeviceProfile{"rtx4090", "NVIDIA GeForce RTX 4090, 24 GB", 24564 * kMiB, 165.2, 82.6, 1008 * kGB, kPcie4, k100Gb,
                  4},
    DeviceProfile{"rtx3090", "NVIDIA GeForce RTX 3090, 24 GB", 24576 * kMiB, 71, 35.6, 936 * kGB, kPcie4, k100Gb, 4},
    DeviceProfile{
        "v100-32", "NVIDIA V100 SXM, 32 GB (float16)", 32510 * kMiB, 125, 15.7, 900 * kGB, {150e9, 4e-6}, k100Gb, 8},
};

std::string plain(std::string_view name) {
  std::string out;
  for (const char c : name)
    if (c != '-' && c != '_' && c != ' ') out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

/// Bytes of memory of this machine; 0 where the system does not say.
double host_memory() {
  std::ifstream file("/proc/meminfo");
  std::string word;
  double kib = 0;
  if (file >> word >> kib && word == "MemTotal:") return kib * 1024;
  return 0;
}

/// Peak rate of a core in FLOP/s of float32: clock x lanes x 2 (fused multiply-add) x 2 units.
double core_peak() {
  std::ifstream file("/proc/cpuinfo");
  double clock = 2.5e9;
  double lanes = 4;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("cpu MHz")) clock = std::max(clock, std::atof(line.substr(line.find(':') + 1).c_str()) * 1e6);
    if (!line.starts_with("flags")) continue;
    lanes = line.find(" avx512f") != std::string::npos ? 16 : line.find(" avx2") != std::string::npos ? 8 : 4;
    break;
  }
  return clock * lanes * 4;
}

/// This machine's processor, shared by the ranks that run on it.
Hardware host(const HardwareRequest& request) {
  Hardware out;
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  out.per_node = request.per_node.value_or(request.world_size);
  const int local = std::min(out.per_node, request.world_size);
  out.name = "cpu";
  out.origin = fmt::format("this machine's {} cores, not calibrated", cores);
  if (const double memory = host_memory(); memory > 0) out.memory = memory / std::max(1, local);
  const double share = std::max(1, cores / std::max(1, local)) * std::min(1.0, static_cast<double>(cores) / local);
  const double type = request.compute == DType::kFloat64 ? 0.5 : 1.0;
  out.peak = core_peak() * share * type;
  out.forward_efficiency = out.backward_efficiency = out.head_efficiency = 0.5;
  out.memory_bandwidth = 8 * kGB * share;
  out.layer_overhead = 60e-6;
  out.step_overhead = 200e-6;
  out.node = {4 * kGB, 5e-6};
  out.network = {1.2 * kGB, 30e-6};
  out.framework = 220 * kMiB;
  if (const auto& c = request.calibration) {
    // Measured with one thread: ranks share the cores.
    out.origin = fmt::format("calibrated{}{}", c->when.empty() ? "" : " ", c->when);
    out.measured = true;
    out.peak = c->peak * share * type;
    out.forward_efficiency = c->forward_efficiency;
    out.backward_efficiency = c->backward_efficiency;
    out.head_efficiency = c->head_efficiency;
    out.memory_bandwidth = c->memory_bandwidth * share;
    out.layer_overhead = c->layer_overhead;
    out.step_overhead = c->step_overhead;
    out.optimizer_rate = c->optimizer_rate * share;
    if (c->link_bandwidth > 0) out.node = {c->link_bandwidth, c->link_latency};
    if (c->framework > 0) out.framework = c->framework;
  }
  return out;
}

Hardware device(const DeviceProfile& profile, const HardwareRequest& request) {
  Hardware out;
  const bool low = request.compute == DType::kBFloat16 || request.compute == DType::kFloat16;
  out.name = profile.name;
  out.origin = fmt::format("data sheet of {}", profile.doc);
  out.memory = profile.memory;
  out.peak = (low ? profile.tflops_low : profile.tflops_float) * 1e12;
  // What large products reach in practice; norms, activations and copies are counted by memory bandwidth apart.
  out.forward_efficiency = out.backward_efficiency = out.head_efficiency = 0.62;
  out.memory_bandwidth = 0.8 * profile.memory_bandwidth;
  out.layer_overhead = 40e-6;
  out.step_overhead = 5e-3;
  out.node = profile.node;
  out.network = profile.network;
  out.per_node = request.per_node.value_or(profile.per_node);
  out.framework = 1.5 * 1024 * kMiB;  // context, libraries' workspaces, communicators' buffers
  return out;
}

double number(const config::Value& map, std::string_view key) {
  const auto* found = map.find(key);
  if (found == nullptr) return 0;
  if (const auto* real = found->number()) return *real;
  if (const auto* whole = found->integer()) return static_cast<double>(*whole);
  return 0;
}

}  // namespace

std::string_view name_of(LinkClass link) {
  switch (link) {
    case LinkClass::kNone: return "none";
    case LinkClass::kNode: return "node";
    case LinkClass::kNetwork: return "network";
  }
  return "";
}

std::span<const DeviceProfile> device_profiles() {
  return kProfiles;
}

const DeviceProfile* find_device(std::string_view name) {
  const auto wanted = plain(name);
  const auto found =
      std::find_if(kProfiles.begin(), kProfiles.end(), [&](const DeviceProfile& p) { return plain(p.name) == wanted; });
  return found == kProfiles.end() ? nullptr : &*found;
}

namespace {

struct CalibrationField {
  std::string_view key;
  double Calibration::*member;
};
constexpr std::array kCalibrationFields = {
    CalibrationField{"peak_flops", &Calibration::peak},
    CalibrationField{"forward_efficiency", &Calibration::forward_efficiency},
    CalibrationField{"backward_efficiency", &Calibration::backward_efficiency},
    CalibrationField{"head_efficiency", &Calibration::head_efficiency},
    CalibrationField{"memory_bandwidth", &Calibration::memory_bandwidth},
    CalibrationField{"layer_overhead", &Calibration::layer_overhead},
    CalibrationField{"step_overhead", &Calibration::step_overhead},
    CalibrationField{"optimizer_rate", &Calibration::optimizer_rate},
    CalibrationField{"link_bandwidth", &Calibration::link_bandwidth},
    CalibrationField{"link_latency", &Calibration::link_latency},
    CalibrationField{"framework_bytes", &Calibration::framework},
};

}  // namespace

std::string calibration_path() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value != nullptr ? value : "");
  };
  if (const auto path = variable("AUTOMODEL_CALIBRATION"); !path.empty()) return path;
  const auto cache = variable("XDG_CACHE_HOME");
  return (cache.empty() ? variable("HOME") + "/.cache" : cache) + "/automodel/calibration.json";
}

std::optional<Calibration> read_calibration(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  Diagnostics problems;
  const auto value = config::to_value(config::parse_yaml(text, path, problems));  // JSON is YAML
  if (!problems.empty() || value.map() == nullptr) return std::nullopt;
  Calibration out;
  for (const auto& field : kCalibrationFields) out.*field.member = number(value, field.key);
  if (const auto* when = value.find("when"); when != nullptr && when->string() != nullptr) out.when = *when->string();
  if (const auto* type = value.find("dtype"); type != nullptr && type->string() != nullptr) out.type = *type->string();
  const bool usable = out.peak > 0 && out.forward_efficiency > 0 && out.backward_efficiency > 0 &&
                      out.head_efficiency > 0 && out.memory_bandwidth > 0 && out.optimizer_rate > 0;
  return usable ? std::optional(out) : std::nullopt;
}

std::string to_json(const Calibration& calibration) {
  JsonWriter json;
  json.begin_object();
  json.member("when", calibration.when);
  json.member("dtype", calibration.type);
  for (const auto& field : kCalibrationFields) json.member(field.key, calibration.*field.member);
  json.end_object();
  return json.take();
}

Hardware choose_hardware(const config::HardwareConfig& config, const HardwareRequest& request, Diagnostics& problems) {
  Hardware out;
  const auto& profile = config.profile();
  const DeviceProfile* found = profile ? find_device(*profile) : nullptr;
  if (profile && found == nullptr && plain(*profile) != "cpu") {
    std::vector<std::string_view> names = {"cpu"};
    for (const auto& each : kProfiles) names.push_back(each.name);
    problems.push_back({"bad-value",
                        fmt::format("there is no device '{}'", *profile),
                        suggestion(*profile, names),
                        {},
                        "hardware.profile"});
  }
  if (found != nullptr)
    out = device(*found, request);
  else if (request.cuda && !profile) {
    out = device(kProfiles[0], request);
    out.name = "cuda";
    out.origin = fmt::format("nobody says which device: rates of {}", kProfiles[0].doc);
    out.memory.reset();
  } else {
    out = host(request);
  }
  if (config.memory()) {
    const auto bytes = parse_bytes(*config.memory());
    if (bytes && *bytes > 0)
      out.memory = static_cast<double>(*bytes);
    else
      problems.push_back({"bad-value",
                          fmt::format("'{}' is no size of memory", *config.memory()),
                          "a number with a unit, for example 80GiB",
                          {},
                          "hardware.memory"});
  }
  if (config.peak_tflops()) out.peak = *config.peak_tflops() * 1e12;
  return out;
}

}  // namespace automodel::plan
