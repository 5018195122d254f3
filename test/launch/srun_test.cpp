#include "launch/srun.h"

#include <algorithm>

#include <catch2/catch.hpp>

#include "base/error.h"

namespace automodel::launch {
namespace {

using Words = std::vector<std::string>;

TEST_CASE("Slurm's lists of hosts and of counts are expanded, and malformed ones are refused") {
  CHECK(expand_hosts("") == Words{});
  CHECK(expand_hosts("a") == Words{"a"});
  CHECK(expand_hosts("node[08-11,3],gpu7") == Words{"node08", "node09", "node10", "node11", "node3", "gpu7"});
  CHECK(expand_hosts("r[1-2]n[01-02]-ib,x[5]") == Words{"r1n01-ib", "r1n02-ib", "r2n01-ib", "r2n02-ib", "x5"});
  for (const char* wrong : {"n[1-", "n[]", "n[2-1]", "n[a-b]", "n[1-999999999]", "n1]", "n[-3]", "n[1-99999][1-99999]"})
    CHECK_THROWS_AS(expand_hosts(wrong), Error);
  CHECK(expand_counts("2(x3),1") == std::vector<int>{2, 2, 2, 1});
  CHECK(expand_counts("4") == std::vector<int>{4});
  for (const char* wrong : {"x", "2(x)", "0", "2(x99999999)"}) CHECK(expand_counts(wrong).empty());
}

TEST_CASE("srun's ranks and hosts come from the allocation unless the command gives them") {
  const Allocation whole{"n[1-3]", "2(x3)", 6};
  auto job = take_apart_srun({"srun", "--mpi=pmix", "--kill-on-bad-exit=1"}, whole);
  CHECK(job.ranks == 6);
  CHECK(job.hosts == std::vector<Host>{{"n1", 2}, {"n2", 2}, {"n3", 2}});
  CHECK(job.words == Words{"srun", "--mpi=pmix", "--kill-on-bad-exit=1"});
  job.hosts.erase(job.hosts.begin() + 1);
  job.ranks = 4;
  CHECK(put_together_srun(job) == Words{"srun", "--mpi=pmix", "--kill-on-bad-exit=1", "--overlap", "--nodes=2",
                                        "--ntasks=4", "--nodelist=n1,n3"});
  // Outside an allocation only the hosts that are named are known.
  CHECK(take_apart_srun({"srun", "-n4"}, {}).hosts.empty());
  CHECK(take_apart_srun({"srun", "-n4", "-w", "n[1-2]"}, {}).hosts == std::vector<Host>{{"n1", 2}, {"n2", 2}});
  CHECK(take_apart_srun({"srun"}, {"n[1-2]", "3,1", 4}).hosts == std::vector<Host>{{"n1", 3}, {"n2", 1}});
}

TEST_CASE("srun's options are understood in all of their forms") {
  const Allocation whole{"n[1-4]", "8(x4)", 32};
  for (const Words& words : {Words{"srun", "-n", "8", "-N", "2"}, Words{"/usr/bin/srun", "-n8", "-N2"},
                             Words{"srun", "--ntasks=8", "--nodes=2"}, Words{"srun", "--ntasks", "8", "--nodes", "2-3"},
                             Words{"srun", "--nodes=2", "--ntasks-per-node=4"}}) {
    INFO(words.size());
    const auto job = take_apart_srun(words, whole);
    CHECK(job.ranks == 8);
    CHECK(job.words == Words{words[0]});
    // Two nodes are spares.
    CHECK(job.at_once == 2);
    CHECK(job.hosts == std::vector<Host>{{"n1", 4}, {"n2", 4}, {"n3", 4}, {"n4", 4}});
  }
  CHECK(take_apart_srun({"srun", "--overlap", "-N4"}, whole).at_once == 0);
  // A last word without its value is left to srun.
  CHECK(take_apart_srun({"srun", "-n"}, whole).words == Words{"srun", "-n"});
  CHECK(take_apart_srun({"srun", "--nodes"}, whole).words == Words{"srun", "--nodes"});
  const auto twice = put_together_srun(take_apart_srun({"srun", "--overlap"}, whole));
  CHECK(std::count(twice.begin(), twice.end(), "--overlap") == 1);
  CHECK(starts_with_srun({"/opt/slurm/bin/srun"}));
  CHECK_FALSE(starts_with_srun({"mpirun", "srun"}));
}

}  // namespace
}  // namespace automodel::launch
