#include "comm/mpi/mpi.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include "base/host_name.h"
#include "comm/monitor.h"
#include "comm/mpi/launcher.h"
#include "comm/mpi/transport.h"

namespace automodel::comm {
namespace {

/// Time for other ranks' earlier output to be printed before the final message.
constexpr std::chrono::milliseconds kDrain{100};
/// Time for the reporting rank to end the others.
constexpr std::chrono::seconds kSilence{30};

/// Time for the launcher to end ranks on other hosts.
constexpr std::chrono::seconds kLauncherPatience{20};

/// Every rank's text, indexed by rank. Blocking, and only for startup: MPI_Init has just synchronised all ranks anyway,
/// and MPI's own algorithm opens fewer connections than sending to every rank.
std::vector<std::string> all_texts(const std::string& text, int size) {
  const int length = static_cast<int>(text.size());
  std::vector<int> lengths(static_cast<std::size_t>(size));
  check_mpi(MPI_Allgather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, MPI_COMM_WORLD), "MPI_Allgather");
  std::vector<int> begins(lengths.size(), 0);
  for (std::size_t i = 1; i < begins.size(); ++i) begins[i] = begins[i - 1] + lengths[i - 1];
  std::string all(static_cast<std::size_t>(begins.back() + lengths.back()), ' ');
  check_mpi(MPI_Allgatherv(text.data(), length, MPI_CHAR, all.data(), lengths.data(), begins.data(), MPI_CHAR,
                           MPI_COMM_WORLD),
            "MPI_Allgatherv");
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < begins.size(); ++i)
    texts.push_back(all.substr(static_cast<std::size_t>(begins[i]), static_cast<std::size_t>(lengths[i])));
  return texts;
}

/// 128 random bits, generated on rank 0.
std::string shared_secret() {
  std::string secret;
  std::random_device random;
  for (int i = 0; i < 4; ++i) secret += fmt::format("{:08x}", random());
  check_mpi(MPI_Bcast(secret.data(), static_cast<int>(secret.size()), MPI_CHAR, 0, MPI_COMM_WORLD), "MPI_Bcast");
  return secret;
}

/// The machine part of a host id: ranks in different network namespaces of a machine still share its devices.
std::string machine_of(const std::string& id) {
  return id.substr(0, id.rfind('/'));
}

int ignore_help(const char* /*file*/, const char* /*topic*/, int /*want_header*/, ...) {
  return 0;
}

/// Open MPI prints a banner from MPI_Abort through a function pointer; our message must be the last line.
void silence_abort_banner() {
  if (auto* hook = static_cast<int (**)(const char*, const char*, int, ...)>(dlsym(RTLD_DEFAULT, "opal_show_help")))
    *hook = &ignore_help;
}

MPI_Comm initialised_world() {
  // Serialized access is enough: Engine's lock covers every call.
  int level = MPI_THREAD_SINGLE;
  check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level), "MPI_Init_thread");
  if (level < MPI_THREAD_SERIALIZED)
    throw Error(Diagnostic{"mpi-threads"}
                    .says("this MPI cannot be called from more than one thread")
                    .hint("use an MPI built with thread support (MPI_THREAD_SERIALIZED or better)"));
  check_mpi(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  MPI_Comm copy = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &copy), "MPI_Comm_dup");
  return copy;
}

class MpiWorld : public World {
 public:
  MpiWorld(const WorldOptions& options, DeviceGroups device_groups) {
    auto control = std::make_shared<MpiTransport>(initialised_world());
    Place place;
    MPI_Comm_rank(MPI_COMM_WORLD, &place.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &place.size);
    place.host = automodel::host_name();
    const auto ids = all_texts(host_id(), place.size);
    place.local_size = 0;
    for (int r = 0; r < place.size; ++r) {
      if (machine_of(ids[static_cast<std::size_t>(r)]) != machine_of(host_id())) continue;
      if (r < place.rank) ++place.local_rank;
      ++place.local_size;
    }
    monitor_ = std::make_unique<Monitor>(place.rank, std::set(ids.begin(), ids.end()).size() == 1);
    begin(place, options, control);
    control->set_engine(weak_engine());
    std::vector<MonitorAddress> addresses;
    for (const std::string& line : all_texts(to_wire(monitor_->address()), place.size))
      addresses.push_back(monitor_address_from_wire(line));
    monitor_->begin(std::move(addresses), shared_secret(), activity());
    engine().set_prober(monitor_.get());
    try {
      use_device(options.device, std::move(device_groups));
    } catch (const Error& error) {
      abort(error.code(), error.what(), rank(), {});
    }
  }

  ~MpiWorld() override {
    leave_device();
    engine().set_prober(nullptr);
    monitor_.reset();
    // After a failure the other ranks are not in MPI_Finalize, which would wait for them; the launcher notices that
    // this rank has left.
    if (finished_) MPI_Finalize();
  }

  void finish() override {
    World::finish();
    finished_ = true;
  }

  [[noreturn]] void abort(ExitCode code, const std::string& text, int culprit,
                          const std::function<void()>& before_end) override {
    std::fflush(nullptr);
    if (monitor_->claim_last_words()) {
      monitor_->silence_others();
      std::this_thread::sleep_for(kDrain);
      write_to_stderr(last_words(text, culprit));
      if (before_end) before_end();
      silence_abort_banner();
      if (local_size() < size()) end_stuck_launcher_after(kLauncherPatience);
      const auto lock = engine().exclusive_or_give_up();
      MPI_Abort(MPI_COMM_WORLD, static_cast<int>(code));
    } else {
      if (before_end) before_end();
      std::this_thread::sleep_for(kSilence);
    }
    std::_Exit(static_cast<int>(code));
  }

 protected:
  std::shared_ptr<Transport> connect(const std::vector<int>& ranks, const std::string& /*name*/) override {
    const auto lock = engine().exclusive();
    MPI_Group everybody = MPI_GROUP_NULL;
    MPI_Group members = MPI_GROUP_NULL;
    MPI_Comm communicator = MPI_COMM_NULL;
    check_mpi(MPI_Comm_group(MPI_COMM_WORLD, &everybody), "MPI_Comm_group");
    check_mpi(MPI_Group_incl(everybody, static_cast<int>(ranks.size()), ranks.data(), &members), "MPI_Group_incl");
    check_mpi(MPI_Comm_create_group(MPI_COMM_WORLD, members, 0, &communicator), "MPI_Comm_create_group");
    MPI_Group_free(&members);
    MPI_Group_free(&everybody);
    auto transport = std::make_shared<MpiTransport>(communicator);
    transport->set_engine(weak_engine());
    return transport;
  }

 private:
  /// In a single write, so that lines of other ranks do not come in between.
  static void write_to_stderr(const std::string& text) {
    for (std::size_t done = 0; done < text.size();) {
      const auto count = ::write(STDERR_FILENO, text.data() + done, text.size() - done);
      if (count <= 0) return;
      done += static_cast<std::size_t>(count);
    }
  }

  std::unique_ptr<Monitor> monitor_;
  bool finished_ = false;
};

}  // namespace

std::unique_ptr<World> open_mpi(const WorldOptions& options, DeviceGroups device_groups) {
  return std::make_unique<MpiWorld>(options, std::move(device_groups));
}

}  // namespace automodel::comm
