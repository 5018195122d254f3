// Ranks that srun starts on the hosts of a Slurm allocation: parsing and rebuilding its command.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launch/hosts.h"

namespace automodel::launch {

/// What Slurm's environment variables say about the allocation that this process runs in; empty outside of one.
struct Allocation {
  std::string hosts = {};           ///< "node[01-04],gpu7"
  std::string tasks_per_node = {};  ///< "2(x3),1"
  int tasks = 0;                    ///< 0: unknown
};

Allocation this_allocation();

/// Whether the command runs srun.
bool starts_with_srun(const std::vector<std::string>& starter);

/// "node[01-03,7],gpu1" becomes node01, node02, node03, node7, gpu1. Throws Error (bad input, `usage`) if it is not a
/// host list.
std::vector<std::string> expand_hosts(std::string_view list);

/// "2(x3),1" becomes 2, 2, 2, 1; empty if it is not a list of counts.
std::vector<int> expand_counts(std::string_view list);

/// Understands -n, --ntasks, -N, --nodes, --ntasks-per-node, -w, --nodelist; defaults come from the allocation. If
/// --nodes is less than the allocation has, the remaining hosts are spares for lost ones.
HostJob take_apart_srun(const std::vector<std::string>& starter, const Allocation& allocation);

/// Adds --overlap: otherwise a step that lost a node blocks others until Slurm gives up that node.
std::vector<std::string> put_together_srun(const HostJob& job);

}  // namespace automodel::launch
