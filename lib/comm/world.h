// A rank's view of the job: its identity, its groups, and how the job ends.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "base/error.h"
#include "comm/activity.h"
#include "comm/communicator.h"
#include "comm/host_communicator.h"

namespace automodel::comm {

class World;
/// Makes a device backend's group from the group that carries host tensors. Empty: use the host's group itself.
using DeviceGroups =
    std::function<std::shared_ptr<Communicator>(World&, std::shared_ptr<HostCommunicator>, Traffic traffic)>;

/// Options for opening a World (backends.h).
struct WorldOptions {
  /// Where this rank's tensors are. A device without an index becomes local rank modulo number of devices.
  at::Device device = at::kCPU;
  /// A wait longer than this counts as a hang.
  std::chrono::milliseconds deadline = std::chrono::minutes(10);
  /// Progress operations on a separate thread while the rank computes. Otherwise large messages wait for the sender's
  /// next call.
  bool background_progress = true;
  /// Sizes at which collectives switch algorithms.
  RoundLimits limits = {};
  /// Stage host tensors too, as is done for tensors on another device (for tests).
  bool stage_all = false;
  /// Makes groups that carry host tensors in place of the host's own (for tests): imitates a device's backend.
  std::function<DeviceGroups()> imitation = {};
};

/// Thrown on the ranks of a loopback job that another rank has ended; means "return quietly".
class JobEnded : public std::exception {
 public:
  const char* what() const noexcept override { return "another rank has ended the job"; }
};

/// Created once per process by a backend (backends.h); lives as long as its communicators and works.
class World {
 public:
  virtual ~World() = default;
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int rank() const { return place_.rank; }
  int size() const { return place_.size; }
  /// This rank's index among the ranks of its host, and their number.
  int local_rank() const { return place_.local_rank; }
  int local_size() const { return place_.local_size; }
  const std::string& host_name() const { return place_.host; }
  at::Device device() const { return device_; }
  std::chrono::milliseconds deadline() const { return runtime_.engine->deadline(); }
  void set_deadline(std::chrono::milliseconds deadline) { runtime_.engine->set_deadline(deadline); }

  /// Sets where this rank's tensors are from now on, as WorldOptions::device, and which groups carry them. Call before
  /// the first group(); all ranks must pass the same type of device and the same groups. Throws Error (kEnvironment, id
  /// `no-device`) if this host has no device of that type.
  void use_device(at::Device wanted, DeviceGroups groups);

  /// What this rank is doing. Must be kept up to date: hang reports show it.
  Activity& activity() { return runtime_.engine->activity(); }

  /// The report of a wait for these world ranks that took too long, as activity() shows it. For device backends, whose
  /// operations the host does not wait for.
  HangError hang_error(const std::vector<int>& peers) { return runtime_.engine->hang_error(peers); }

  /// The group of these world ranks, in this order; this rank must be among them. Called only by the members, from one
  /// thread, all with the same list and name; two ranks must create the groups that they share in the same order. Costs
  /// one small message to each member. Waiting for a member that never comes is reported like any other hang. The group
  /// carries only `traffic`; if that is empty it carries host tensors only.
  std::shared_ptr<Communicator> group(const std::vector<int>& ranks, const std::string& name, Traffic traffic = {});
  /// The group of all ranks for host tensors, which always exists: control messages, counts, texts.
  Communicator& control() { return *control_; }

  /// Returns the text (any bytes) of `root` on every rank.
  std::string broadcast_text(const std::string& text, int root = 0);
  /// Returns the texts (any bytes) of all ranks in rank order on rank 0, and nothing on the others.
  std::vector<std::string> gather_text(const std::string& text);

  /// Orderly end: completes outstanding operations and waits for all ranks. May throw whatever a wait may.
  virtual void finish();
  /// End after a failure, callable from any thread: ends the whole job with this exit code. The first line of `text` is
  /// the cause; the job's last line on standard error is `rank R: CAUSE`, preceded by the whole text if it has more
  /// lines. If several ranks fail at about the same time, only the first of them reports. R is `culprit`, the rank at
  /// fault. `before_end` is called once the report is printed, or left to another rank.
  [[noreturn]] virtual void abort(ExitCode code, const std::string& text, int culprit,
                                  const std::function<void()>& before_end = {}) = 0;

 protected:
  struct Place {
    int rank = 0;
    int size = 1;
    int local_rank = 0;
    int local_size = 1;
    std::string host = {};
  };
  World() = default;
  /// Called by the backend once it can carry messages between all ranks; control() works from then on.
  void begin(Place place, const WorldOptions& options, std::shared_ptr<Transport> control);
  Engine& engine() { return *runtime_.engine; }
  std::weak_ptr<Engine> weak_engine() const { return runtime_.engine; }
  /// Must come first in a backend's destructor: device watchers call this world from their own threads.
  void leave_device() { device_groups_ = {}; }
  /// The text that abort() prints.
  static std::string last_words(const std::string& text, int culprit);

  /// Makes the transport of a group; all members are inside group() when it is called.
  virtual std::shared_ptr<Transport> connect(const std::vector<int>& ranks, const std::string& name) = 0;

 private:
  void check_members(const std::vector<int>& ranks, const std::string& name) const;
  void meet(const std::vector<int>& ranks, const std::string& name);

  Place place_;
  at::Device device_ = at::kCPU;
  HostRuntime runtime_;
  std::shared_ptr<HostCommunicator> host_control_;  ///< null if there is only one rank
  std::shared_ptr<Communicator> control_;
  std::function<DeviceGroups()> imitation_;
  DeviceGroups device_groups_;  ///< may own threads that use the other members; see leave_device()
};

/// Runs `body` as this rank's entire work: any exception ends the job (World::abort with the error's exit code, 70 for
/// a defect); otherwise calls World::finish. Only JobEnded is passed on.
void run_guarded(World& world, const std::function<void(World&)>& body);

}  // namespace automodel::comm
