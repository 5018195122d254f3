// The hosts that mpirun or srun is told to start ranks on, and which of them respond.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace automodel::launch {

struct Host {
  std::string name = {};
  int slots = 0;  ///< number of ranks that it can take
  bool operator==(const Host&) const = default;
};

enum class Starter { kMpirun, kSrun };

/// A command that starts ranks on hosts, parsed.
struct HostJob {
  std::vector<std::string> words = {};  ///< command line without rank count and hosts
  int ranks = 0;
  std::vector<Host> hosts = {};
  Starter starter = Starter::kMpirun;
  std::size_t at_once = 0;  ///< maximum number of `hosts` to use at a time; 0: all
};

/// For srun see take_apart_srun(), within this process's allocation. Otherwise understands Open MPI's options: -np, -n,
/// -c, --np; --hostfile, --machinefile, --host, -H. A host without a slot count gets an even share of the ranks.
/// `hosts` is empty if the command names none. Throws Error (bad input, `usage`) if a hostfile cannot be read.
HostJob take_apart(const std::vector<std::string>& starter);
/// Rebuilds the command, for these ranks on all of these hosts.
std::vector<std::string> put_together(const HostJob& job);

/// The hosts on which the job's command can start a program that exits successfully within `patience`. Hosts are probed
/// several at a time; at most `at_once` of them are returned.
std::vector<Host> answering_hosts(const HostJob& job, std::chrono::seconds patience);

/// "a, b"; beyond eight hosts, "... and N more".
std::string names_of(const std::vector<Host>& hosts);

}  // namespace automodel::launch
