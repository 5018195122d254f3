#include "launch/hosts.h"

#include <catch2/catch.hpp>

#include "base/error.h"
#include "temporary_folder.h"

namespace automodel::launch {
namespace {

TEST_CASE("hosts are read from an mpirun command, and the command is rebuilt for fewer hosts") {
  const test::TemporaryFolder folder;
  folder.write("hosts", "# ours\nnode1 slots=4\nnode2 slots=4 max_slots=8\n\nnode3 slots=2  # small\n");
  const auto file = (folder.path() / "hosts").string();
  auto job = take_apart({"mpirun", "-np", "8", "--hostfile", file, "--mca", "btl", "tcp,self"});
  CHECK(job.ranks == 8);
  CHECK(job.words == std::vector<std::string>{"mpirun", "--mca", "btl", "tcp,self"});
  CHECK(job.hosts == std::vector<Host>{{"node1", 4}, {"node2", 4}, {"node3", 2}});
  job.ranks = 6;
  job.hosts.erase(job.hosts.begin());
  CHECK(put_together(job) ==
        std::vector<std::string>{"mpirun", "--mca", "btl", "tcp,self", "-np", "6", "--host", "node2:4,node3:2"});
}

TEST_CASE("hosts without a number of slots get a default") {
  // Open MPI: each time --host names a host it adds a slot.
  CHECK(take_apart({"mpirun", "-H", "a,b,a"}).hosts == std::vector<Host>{{"a", 2}, {"b", 1}});
  CHECK(take_apart({"mpirun", "--host", "a:3,b:1"}).ranks == 4);
  const test::TemporaryFolder folder;
  folder.write("hosts", "a\nb\n");
  const auto job = take_apart({"mpirun", "-n", "7", "--machinefile", (folder.path() / "hosts").string()});
  CHECK(job.hosts == std::vector<Host>{{"a", 4}, {"b", 4}});
  CHECK(take_apart({"bash", "start.sh"}).hosts.empty());
  CHECK_THROWS_AS(take_apart({"mpirun", "--hostfile", (folder.path() / "none").string()}), Error);
}

TEST_CASE("hosts that do not answer in time are left out") {
  const test::TemporaryFolder folder;
  // Stands in for mpirun: its fourth argument is the host with its slots.
  folder.write("starter", "#!/bin/sh\ncase $4 in good*) exec $5;; slow*) sleep 60;; *) exit 1;; esac\n");
  std::filesystem::permissions(folder.path() / "starter", std::filesystem::perms::owner_all);
  const HostJob job{{(folder.path() / "starter").string()}, 4, {{"good1", 1}, {"slow", 1}, {"bad", 1}, {"good2", 1}}};
  CHECK(answering_hosts(job, std::chrono::seconds(1)) == std::vector<Host>{{"good1", 1}, {"good2", 1}});
  CHECK(answering_hosts({{"/nowhere/mpirun"}, 1, {{"a", 1}}}, std::chrono::seconds(1)).empty());
}

TEST_CASE("a long list of hosts is shortened to the first eight") {
  std::vector<Host> hosts;
  for (int i = 0; i < 10; ++i) hosts.push_back({"n" + std::to_string(i), 1});
  CHECK(names_of(hosts) == "n0, n1, n2, n3, n4, n5, n6, n7 and 2 more");
  hosts.resize(2);
  CHECK(names_of(hosts) == "n0, n1");
}

}  // namespace
}  // namespace automodel::launch
