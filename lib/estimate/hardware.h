// The hardware of a rank as numbers: memory, rates, links; from a table of devices, from this machine's properties, or
// measured.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/diagnostic.h"
#include "base/dtype.h"
#include "base/processor.h"
#include "config/run_config.h"
#include "estimate/calibration.h"
#include "estimate/stack_rates.h"

namespace automodel::estimate {

/// One direction of a connection between two ranks.
struct Link {
  double bandwidth = 0;  ///< bytes per second
  double latency = 0;    ///< seconds until the first byte arrives
  /// Bandwidths of collectives, in bytes of the larger tensor as a ring moves it; 0: same as `bandwidth`.
  double gather = 0, scatter = 0, sum = 0;
  bool operator==(const Link&) const = default;
};

/// The class of links that a group communicates over, determined by the placement of its ranks.
enum class LinkClass : std::uint8_t { kNone, kNode, kNetwork };
std::string_view name_of(LinkClass link);

/// A device by its data sheet: dense matrix rates, without sparsity.
struct DeviceProfile {
  std::string_view name;
  std::string_view doc;
  Generation generation;
  double memory;            ///< bytes available to programs
  double tflops_float8;     ///< 0: none
  double tflops_low;        ///< bfloat16 and float16 matmuls
  double tflops_float;      ///< float32 matmuls (TF32 if supported)
  double memory_bandwidth;  ///< bytes per second
  Link node;                ///< to a device in the same machine
  Link network;             ///< to another machine, with one adapter per device
  int per_node;
};
std::span<const DeviceProfile> device_profiles();
/// Ignores case, '_' and '-'; nullptr for an unknown name.
const DeviceProfile* find_device(std::string_view name);
/// The device that the NVIDIA driver calls `model` ("NVIDIA H100 80GB HBM3"); nullptr for others.
const DeviceProfile* device_of_model(std::string_view model);

/// The machine that estimates are made for.
struct Hardware {
  std::string name = {};              ///< "h100", "cpu"
  std::string origin = {};            ///< source of the rates, for display
  std::optional<double> memory = {};  ///< bytes per rank; empty if unknown
  double peak = 0;                    ///< FLOP/s per rank in the compute dtype, the denominator of MFU
  bool peak_known = false;            ///< the recipe or, for 16-bit types, the data sheet of a known GPU gives it
  bool peak_given = false;            ///< the recipe gives it, for a rank
  /// Fractions of the peak reached by the layers' GEMMs in the forward and backward pass, and by the head's.
  double forward_efficiency = 0.5;
  double backward_efficiency = 0.5;
  double head_efficiency = 0.5;
  double attention_efficiency = 0;  ///< for scores and weighted values; 0: same as the GEMMs
  double expert_efficiency = 0;     ///< for the experts' GEMMs; 0: same as the GEMMs
  double memory_bandwidth = 0;      ///< bytes per second
  double layer_overhead = 0;        ///< seconds per layer and pass: kernel launches, allocations
  double step_overhead = 0;         ///< seconds per step
  double optimizer_rate = 0;        ///< optimizer elements per second, norm included; 0: from memory bandwidth
  Link node = {};
  Link network = {};
  int per_node = 8;  ///< ranks per machine
  double moved = 2;  ///< how often a layer's kept activations are read or written per forward pass
  KernelCosts kernels = {};
  /// Seconds per attention score in a fused kernel, beside its GEMMs; 0: attention_efficiency says it.
  double exponential = 0;
  std::optional<config::Stack> stack = {};            ///< of a GPU
  std::optional<config::Dispatcher> dispatcher = {};  ///< if the recipe sets it
  bool grouped = false;             ///< this program multiplies all experts of a rank at once if it has all of them
  double framework = 0;             ///< bytes per rank other than tensors: libraries, contexts, communicators
  std::optional<Rates> rates = {};  ///< from a calibration: measured times of the model's parts
  int threads = 1;                  ///< of a rank
  double share = 1;                 ///< fraction of a rank's threads that have a core
  bool measured() const { return rates.has_value(); }
  /// Whether a run can tell its MFU. A rank that shares its GPU has only a part of the data sheet's peak.
  bool tells_mfu(bool shares_gpu) const { return peak_given || (peak_known && !shares_gpu); }
};

/// Times of dispatching tokens to experts that are distributed over `expert_ranks` ranks.
DispatchTimes dispatch_of(const Hardware& hardware, int expert_ranks);

/// Processor and core count of this machine, which identify a calibration.
std::string machine_name();
/// Threads per rank with this many ranks on a machine: $OMP_NUM_THREADS, else the rank's share of the cores.
int threads_of_rank(int local_ranks);

struct HardwareRequest {
  bool cuda = false;
  DType compute = DType::kFloat32;
  int world_size = 1;
  std::optional<int> per_node = {};
  std::string_view gpu = {};                  ///< this machine's, as nvidia_gpu() names it
  config::Stack stack = config::Stack::kOwn;  ///< of a GPU
  bool float8 = false;                        ///< the layers' GEMMs run in float8
  bool groupable = false;  ///< experts' weights are of a kind that a GPU's grouped GEMM multiplies (ops::needs_counts)
  const Calibration* calibration = nullptr;   ///< used for the CPU
  std::optional<BFloat16Unit> bfloat16 = {};  ///< of the CPU; empty: as fast as float32
  RatesRequest rates = {};  ///< the work to look up measured rates for; without a model, table rates are used
};
/// Combines profile, recipe keys and calibration. Without a profile a plan for GPUs is for those of this machine, or,
/// if these are none or unknown, for an H100 of unknown memory. Problems: bad-value for an unknown profile or an
/// invalid size.
Hardware choose_hardware(const config::HardwareConfig& config, const HardwareRequest& request, Diagnostics& problems);

}  // namespace automodel::estimate
