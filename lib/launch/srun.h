// Ranks that srun starts on the hosts of a Slurm allocation: its words, taken apart and put together again.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launch/hosts.h"

namespace automodel::launch {

/// What Slurm's environment says of the allocation that this process runs in; empty outside of one.
struct Allocation {
  std::string hosts = {};           ///< "node[01-04],gpu7"
  std::string tasks_per_node = {};  ///< "2(x3),1"
  int tasks = 0;                    ///< 0: not said
};

Allocation this_allocation();

/// Whether the command's program is srun.
bool starts_with_srun(const std::vector<std::string>& starter);

/// "node[01-03,7],gpu1" as node01, node02, node03, node7, gpu1. Throws Error (bad input, `usage`) where it is no list
/// of hosts.
std::vector<std::string> expand_hosts(std::string_view list);

/// "2(x3),1" as 2, 2, 2, 1; empty where it is something else.
std::vector<int> expand_counts(std::string_view list);

/// -n, --ntasks, -N, --nodes, --ntasks-per-node, -w, --nodelist; what they do not say is the allocation's. With fewer
/// --nodes than the allocation has the others stand in for lost ones.
HostJob take_apart_srun(const std::vector<std::string>& starter, const Allocation& allocation);

/// With --overlap: a step that lost a node holds the others until Slurm gives that node up.
std::vector<std::string> put_together_srun(const HostJob& job);

}  // namespace automodel::launch
