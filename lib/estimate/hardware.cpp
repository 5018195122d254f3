#include "estimate/hardware.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <thread>

#include <fmt/format.h>

#include "base/bytes.h"
#include "base/proc_field.h"
#include "base/spelling.h"
#include "estimate/cpu_rates.h"

namespace automodel::estimate {
namespace {

constexpr double kMiB = 1024.0 * 1024.0;
constexpr double kGB = 1e9;

constexpr Link kNvLink3 = {300e9, 3e-6}, kNvLink4 = {450e9, 3e-6}, kNvLink5 = {900e9, 3e-6};
constexpr Link kPcie4 = {32e9, 8e-6}, kPcie3 = {16e9, 8e-6}, kInfinity = {448e9, 4e-6}, kNvLink2 = {150e9, 4e-6};
constexpr Link k100Gb = {12.5e9, 8e-6}, k200Gb = {25e9, 7e-6}, k400Gb = {50e9, 7e-6}, k800Gb = {100e9, 7e-6};
constexpr auto kOlder = Generation::kOlder, kAmpere = Generation::kAmpere, kHopper = Generation::kHopper,
               kBlackwell = Generation::kBlackwell;

// Memory as reported by the driver; rates and bandwidths from vendor data sheets (dense). A GB200 rack is one NVLink
// domain.
constexpr std::array kProfiles = {
    DeviceProfile{"h100", "NVIDIA H100 SXM, 80 GB", kHopper, 81559 * kMiB, 1978.9, 989.4, 494.7, 3350 * kGB, kNvLink4,
                  k400Gb, 8},
    DeviceProfile{"h100-pcie", "NVIDIA H100 PCIe, 80 GB", kHopper, 81559 * kMiB, 1513, 756, 378, 2000 * kGB, kPcie4,
                  k200Gb, 8},
    DeviceProfile{"h200", "NVIDIA H200 SXM, 141 GB", kHopper, 143771 * kMiB, 1978.9, 989.4, 494.7, 4800 * kGB, kNvLink4,
                  k400Gb, 8},
    DeviceProfile{"h200-nvl", "NVIDIA H200 NVL, 141 GB, bridges over four", kHopper, 143771 * kMiB, 1671, 835.5, 417.5,
                  4800 * kGB, kNvLink4, k200Gb, 4},
    DeviceProfile{"gh200", "NVIDIA GH200, 96 GB, four a machine", kHopper, 97871 * kMiB, 1978.9, 989.4, 494.7,
                  4000 * kGB, kNvLink4, k200Gb, 4},
    DeviceProfile{"b200", "NVIDIA B200, 180 GB", kBlackwell, 183359 * kMiB, 4500, 2250, 1125, 8000 * kGB, kNvLink5,
                  k400Gb, 8},
    DeviceProfile{"gb200", "NVIDIA GB200 NVL72, 186 GB", kBlackwell, 189471 * kMiB, 4900, 2450, 1225, 8000 * kGB,
                  kNvLink5, k400Gb, 72},
    DeviceProfile{"b300", "NVIDIA B300, 270 GB", kBlackwell, 275040 * kMiB, 4500, 2250, 1125, 8000 * kGB, kNvLink5,
                  k800Gb, 8},
    DeviceProfile{"a100-80", "NVIDIA A100 SXM, 80 GB", kAmpere, 81920 * kMiB, 0, 312, 156, 2039 * kGB, kNvLink3, k200Gb,
                  8},
    DeviceProfile{"a100-40", "NVIDIA A100 SXM, 40 GB", kAmpere, 40960 * kMiB, 0, 312, 156, 1555 * kGB, kNvLink3, k200Gb,
                  8},
    DeviceProfile{"mi300x", "AMD Instinct MI300X, 192 GB", kHopper, 196592 * kMiB, 2614.9, 1307.4, 653.7, 5300 * kGB,
                  kInfinity, k400Gb, 8},
    DeviceProfile{"l40s", "NVIDIA L40S, 48 GB", kAmpere, 46068 * kMiB, 733, 362, 183, 864 * kGB, kPcie4, k100Gb, 8},
    DeviceProfile{"l4", "NVIDIA L4, 24 GB", kAmpere, 23034 * kMiB, 242, 121, 60, 300 * kGB, kPcie4, k100Gb, 8},
    DeviceProfile{"a10", "NVIDIA A10, 24 GB", kAmpere, 23028 * kMiB, 0, 125, 62.5, 600 * kGB, kPcie4, k100Gb, 4},
    DeviceProfile{"rtx4090", "NVIDIA GeForce RTX 4090, 24 GB", kAmpere, 24564 * kMiB, 330.3, 165.2, 82.6, 1008 * kGB,
                  kPcie4, k100Gb, 4},
    DeviceProfile{"rtx3090", "NVIDIA GeForce RTX 3090, 24 GB", kAmpere, 24576 * kMiB, 0, 71, 35.6, 936 * kGB, kPcie4,
                  k100Gb, 4},
    DeviceProfile{"v100-32", "NVIDIA V100 SXM, 32 GB (float16)", kOlder, 32510 * kMiB, 0, 125, 15.7, 900 * kGB,
                  kNvLink2, k100Gb, 8},
};

/// What the NVIDIA driver calls the devices of some profiles.
struct Model {
  std::string_view model, profile;
};
constexpr std::array kModels = {
    Model{"NVIDIA H100 80GB HBM3", "h100"},
    Model{"NVIDIA H100 PCIe", "h100-pcie"},
    Model{"NVIDIA H200", "h200"},
    Model{"NVIDIA H200 NVL", "h200-nvl"},
    Model{"NVIDIA GH200 480GB", "gh200"},  // named by the host's memory
    Model{"NVIDIA GH200 120GB", "gh200"},
    Model{"NVIDIA B200", "b200"},
    Model{"NVIDIA GB200", "gb200"},
    Model{"NVIDIA B300 SXM6 AC", "b300"},
    Model{"NVIDIA A100-SXM4-80GB", "a100-80"},
    Model{"NVIDIA A100-SXM4-40GB", "a100-40"},
    Model{"NVIDIA L40S", "l40s"},
    Model{"NVIDIA L4", "l4"},
    Model{"NVIDIA A10", "a10"},
    Model{"NVIDIA GeForce RTX 4090", "rtx4090"},
    Model{"NVIDIA GeForce RTX 3090", "rtx3090"},
    Model{"Tesla V100-SXM2-32GB", "v100-32"},
};

std::string plain(std::string_view name) {
  std::string out;
  for (const char c : name)
    if (c != '-' && c != '_' && c != ' ') out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

int cores() {
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

/// Uses the measurements of this machine.
void use_calibration(Hardware& out, const HardwareRequest& request, int local) {
  const auto& calibration = *request.calibration;
  if (calibration.machine != machine_name()) {
    if (!calibration.samples.empty()) out.origin += "; the calibration is of another machine";
    return;
  }
  if (calibration.framework > 0) out.framework = calibration.framework;
  if (const auto& link = calibration.link; link.bandwidth > 0)
    out.node = {link.bandwidth, link.latency, link.gather, link.scatter, link.sum};
  if (request.rates.spec == nullptr) return;
  auto wanted = request.rates;
  wanted.type = name_of(request.compute);
  wanted.threads = out.threads;
  wanted.ranks = std::min(local, std::max(1, cores() / out.threads));
  out.rates = choose_rates(calibration, wanted);
  if (!out.rates) return;
  const auto& rates = *out.rates;
  const auto& layer = rates.layers.layers.back().time;
  // Rates are scaled in proportion to the number of threads.
  const double threads = static_cast<double>(out.threads) / rates.layers.threads;
  out.share *= threads;
  out.origin = fmt::format("calibrated {}", calibration.when);
  if (!rates.exact) out.origin += " at other sizes; --calibrate measures these sizes";
  // A peak is what nothing exceeds: layers may do better than the matmul that is measured beside them.
  const auto& head = rates.head.head;
  const double forward = layer.work / layer.forward, backward = 2 * layer.work / layer.backward;
  const double both = 3 * head.work / (head.forward + head.backward);
  const double peak = std::max({rates.layers.peak, forward, backward, both});
  out.peak = peak * out.share;
  out.memory_bandwidth = rates.layers.memory_bandwidth * out.share;
  out.optimizer_rate = rates.layers.optimizer_rate * out.share;
  out.forward_efficiency = forward / peak;
  out.backward_efficiency = backward / peak;
  out.head_efficiency = both / peak;
  out.layer_overhead = 0;
}

/// Bandwidths in the recipe override those of data sheet and calibration.
void use_bandwidths(Hardware& out, const config::HardwareConfig& config) {
  if (config.node_bandwidth()) out.node.bandwidth = *config.node_bandwidth() * kGB;
  if (config.network_bandwidth()) out.network.bandwidth = *config.network_bandwidth() * kGB;
}

/// Rate of layers and head on a CPU as a share of what matmuls reach (docs/estimates.md).
constexpr double kLayers = 0.9;

/// This machine's CPU, divided among the ranks that run on it.
Hardware host(const config::HardwareConfig& config, const HardwareRequest& request) {
  Hardware out;
  out.per_node = request.per_node.value_or(request.world_size);
  const int local = std::max(1, std::min(out.per_node, request.world_size));
  out.name = "cpu";
  out.origin = fmt::format("this machine's {} cores, not calibrated", cores());
  if (const double memory = proc_field("/proc/meminfo", "MemTotal"); memory > 0) out.memory = memory / local;
  out.threads = threads_of_rank(local);
  out.share = std::min(1.0, static_cast<double>(cores()) / (static_cast<double>(local) * out.threads));
  const double threads = out.threads * out.share;
  const auto rates = cpu_rates();
  out.peak = rates.float32 * threads * (request.compute == DType::kFloat64 ? 0.5 : 1.0);
  if (request.compute == DType::kBFloat16 && request.bfloat16) out.peak *= rates.gain(*request.bfloat16);
  out.forward_efficiency = out.backward_efficiency = out.head_efficiency = kLayers;
  out.memory_bandwidth = rates.memory * threads;
  out.layer_overhead = 60e-6;
  out.step_overhead = 200e-6;
  out.node = {4 * kGB, 5e-6};
  out.network = {1.2 * kGB, 30e-6};
  out.framework = 220 * kMiB;
  if (request.calibration != nullptr) use_calibration(out, request, local);
  use_bandwidths(out, config);
  return out;
}

bool is_low(DType type) {
  return type == DType::kBFloat16 || type == DType::kFloat16;
}

Hardware device(const DeviceProfile& profile, const config::HardwareConfig& config, const HardwareRequest& request) {
  Hardware out;
  const bool low = is_low(request.compute);
  out.name = profile.name;
  out.memory = profile.memory;
  out.node = profile.node;
  out.network = profile.network;
  use_bandwidths(out, config);
  out.per_node = request.per_node.value_or(profile.per_node);
  out.stack = request.stack;
  out.dispatcher = config.dispatcher();
  // Others' grouped GEMM is a loop over the experts.
  out.grouped = request.groupable && (profile.generation == kHopper || profile.generation == kBlackwell);
  const auto rates = stack_rates(request.stack, profile.generation);
  out.origin = fmt::format("data sheet of {}, kernels of {}", profile.doc, name_of(request.stack));
  if (request.float8 && request.stack == config::Stack::kOwn && profile.generation != kHopper)
    out.origin += "; float8 is not calibrated there";
  // A peak above any 16-bit rate is the 8-bit rate.
  const double sheet = low ? profile.tflops_low : profile.tflops_float;
  const bool float8 =
      low && (config.peak_tflops() ? *config.peak_tflops() > 1.5 * sheet : request.float8 && profile.tflops_float8 > 0);
  const double peak = config.peak_tflops().value_or(float8 ? profile.tflops_float8 : sheet);
  out.peak = peak * 1e12;
  const double others = float8 ? sheet / peak : 1;  // efficiency factor for parts that stay in 16 bits
  out.forward_efficiency = out.backward_efficiency = float8 ? rates.products_float8 : rates.products;
  out.head_efficiency = others * rates.products;
  out.attention_efficiency = others * rates.attention;
  out.expert_efficiency = float8 ? rates.experts / rates.products * rates.products_float8 : rates.experts;
  out.moved = rates.moved;
  out.kernels = rates.kernels;
  // A multiprocessor's special function units compute 16 exponentials while its tensor cores do 4,096 FLOPs.
  if (low && rates.kernels.exponentials > 0)
    out.exponential = 4096.0 / 16 / (rates.kernels.exponentials * profile.tflops_low * 1e12);
  out.memory_bandwidth = 0.8 * profile.memory_bandwidth;
  out.layer_overhead = rates.layer_overhead;
  out.step_overhead = 5e-3;
  out.framework = 1.5 * 1024 * kMiB;  // CUDA context, library workspaces, communicator buffers
  return out;
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

const DeviceProfile* device_of_model(std::string_view model) {
  const auto found =
      std::find_if(kModels.begin(), kModels.end(), [&](const Model& each) { return each.model == model; });
  return found == kModels.end() ? nullptr : find_device(found->profile);
}

DispatchTimes dispatch_of(const Hardware& hardware, int expert_ranks) {
  if (!hardware.stack) return {};
  const bool own = *hardware.stack == config::Stack::kOwn, apart = !own && expert_ranks > hardware.per_node;
  const auto dispatcher =
      hardware.dispatcher.value_or(apart ? config::Dispatcher::kDeduplicated : config::Dispatcher::kNccl);
  return own && dispatcher == config::Dispatcher::kNccl
             ? own_dispatch_times(expert_ranks > 1, hardware.grouped && expert_ranks == 1)
             : dispatch_times(dispatcher);
}

std::string machine_name() {
  return fmt::format("{}, {} cores", cpu_rates().name, cores());
}

int threads_of_rank(int local_ranks) {
  const char* given = std::getenv("OMP_NUM_THREADS");
  const int wanted = given != nullptr ? std::atoi(given) : 0;
  return wanted > 0 ? wanted : std::max(1, cores() / std::max(1, local_ranks));
}

Hardware choose_hardware(const config::HardwareConfig& config, const HardwareRequest& request, Diagnostics& problems) {
  Hardware out;
  const auto& profile = config.profile();
  const DeviceProfile* found = profile ? find_device(*profile) : device_of_model(request.gpu);
  if (profile && found == nullptr && plain(*profile) != "cpu") {
    std::vector<std::string_view> names = {"cpu"};
    for (const auto& each : kProfiles) names.push_back(each.name);
    problems.add("bad-value", "hardware.profile")
        .says("there is no device '{}'", *profile)
        .hint("there are {}", fmt::join(names, ", "));
  }
  if (found != nullptr && request.cuda) {
    out = device(*found, config, request);
    out.peak_known = is_low(request.compute);  // float32 does not run at the data sheet's rate, which is of TF32
    if (!profile)
      out.origin = fmt::format("the GPU of this machine, {}{}; {}", request.gpu,
                               request.world_size > out.per_node ? ", taken for that of all hosts" : "", out.origin);
  } else if (request.cuda && !profile) {
    out = device(kProfiles[0], config, request);
    out.name = "cuda";
    out.origin = fmt::format("no device profile given; assuming {}", kProfiles[0].doc);
    out.memory.reset();
  } else {
    out = host(config, request);
  }
  if (config.memory()) {
    const auto bytes = parse_bytes(*config.memory());
    if (bytes && static_cast<double>(*bytes) >= kMiB)  // "80" is bytes
      out.memory = static_cast<double>(*bytes);
    else
      problems.add("bad-value", "hardware.memory")
          .says("'{}' is not the memory of a device", *config.memory())
          .hint("a number with a unit, for example 80GiB");
  }
  if (config.peak_tflops()) {
    out.peak_known = out.peak_given = true;
    if (found == nullptr || !request.cuda) out.peak = *config.peak_tflops() * 1e12;
  }
  return out;
}

}  // namespace automodel::estimate
