// What a rank runs on, as numbers: memory, rates, links. From a table of devices, from this machine, or measured.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/diagnostic.h"
#include "base/dtype.h"
#include "config/run_config.h"

namespace automodel::plan {

/// One direction of a connection between two ranks.
struct Link {
  double bandwidth = 0;  ///< bytes a second
  double latency = 0;    ///< seconds until the first byte arrives
  bool operator==(const Link&) const = default;
};

/// Where a group of ranks lies decides over which links it communicates.
enum class LinkClass : std::uint8_t { kNone, kNode, kNetwork };
std::string_view name_of(LinkClass link);

/// A device by its data sheet: dense matrix rates, without sparsity.
struct DeviceProfile {
  std::string_view name;
  std::string_view doc;
  double memory;            ///< bytes that programs can use
  double tflops_low;        ///< matrices of bfloat16 or float16
  double tflops_float;      ///< matrices of float32 (TF32 where the device has it)
  double memory_bandwidth;  ///< bytes a second
  Link node;                ///< to a device of the same machine
  Link network;             ///< to another machine, one adapter a device
  int per_node;
};
std::span<const DeviceProfile> device_profiles();
/// Letter case, '_' and '-' are ignored; nullptr where there is none.
const DeviceProfile* find_device(std::string_view name);

/// The machine that estimates are made for.
struct Hardware {
  std::string name = {};              ///< "h100", "cpu"
  std::string origin = {};            ///< where the rates come from, for people
  std::optional<double> memory = {};  ///< bytes of a rank; absent where nobody says
  double peak = 0;                    ///< FLOP/s of a rank in the compute type: what MFU is a share of
  /// Shares of the peak that the products of layers reach in the forward and in the backward pass, and of the head.
  double forward_efficiency = 0.5;
  double backward_efficiency = 0.5;
  double head_efficiency = 0.5;
  double memory_bandwidth = 0;  ///< bytes a second
  double layer_overhead =
      0;  ///< seconds a layer and pass that no arithmetic explains: kernels started, memory asked for
  double step_overhead = 0;   ///< seconds a step
  double optimizer_rate = 0;  ///< elements a second that the optimizer updates, norm included; 0: by memory bandwidth
  Link node = {};
  Link network = {};
  int per_node = 8;       ///< ranks of one machine
  double framework = 0;   ///< bytes of a rank beside tensors: libraries, contexts, communicators
  bool measured = false;  ///< rates come from a calibration
};

/// What was measured on this machine, with one thread; a JSON file that estimates for the CPU are made with where it is
/// there. Efficiencies are shares of `peak` that whole layers and the head reach.
struct Calibration {
  double peak = 0, forward_efficiency = 0, backward_efficiency = 0, head_efficiency = 0;
  double memory_bandwidth = 0, layer_overhead = 0, step_overhead = 0, optimizer_rate = 0;
  double link_bandwidth = 0, link_latency = 0;
  double framework = 0;
  std::string type = {};  ///< the compute type it was measured in
  std::string when = {};
};
/// $AUTOMODEL_CALIBRATION, else automodel/calibration.json below $XDG_CACHE_HOME or ~/.cache.
std::string calibration_path();
/// Empty where there is no such file or it is not one.
std::optional<Calibration> read_calibration(const std::string& path);
std::string to_json(const Calibration& calibration);

struct HardwareRequest {
  bool cuda = false;
  DType compute = DType::kFloat32;
  int world_size = 1;
  std::optional<int> per_node = {};
  std::optional<Calibration> calibration = {};  ///< used for the CPU
};
/// Profile, recipe keys and calibration together. Problems: bad-value for a profile or a size that is none.
Hardware choose_hardware(const config::HardwareConfig& config, const HardwareRequest& request, Diagnostics& problems);

}  // namespace automodel::plan
