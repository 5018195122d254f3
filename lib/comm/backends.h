// The table of communication backends.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "comm/world.h"

namespace automodel::comm {

struct Backend {
  std::string_view name;  ///< as in recipes
  std::string_view doc;
  /// Why this build cannot use it with tensors on this device; "" if it can.
  std::string (*unavailable)(at::DeviceType device);
  /// Called once per process.
  std::unique_ptr<World> (*open)(const WorldOptions& options);
  /// Makes the groups for tensors on a device, see World::use_device; null if the host's groups carry them.
  DeviceGroups (*device_groups)();
};

/// All backends known to this program, including those not built in.
std::span<const Backend> backends();

/// Null for an unknown name.
const Backend* find_backend(std::string_view name);

/// Opens the backend with this name. Throws Error: kBadInput (id `unknown-backend`) if the name is not in the table,
/// kEnvironment (id `backend-unavailable`) if it cannot be used in this build.
std::unique_ptr<World> open_world(std::string_view backend, const WorldOptions& options);

/// Sets the device of `world`, which any backend may have opened, and the backend for its tensors: for a program that
/// learns both from a recipe that the ranks read together. Throws like open_world and World::use_device.
void use_device(World& world, at::Device device, std::string_view backend);

}  // namespace automodel::comm
