// lib/comm/nccl on imitated GPUs, which reveal its synchronization mistakes.
#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include "base/error.h"
#include "comm/carrier.h"
#include "comm/imitated_gpu/cuda_runtime_api.h"
#include "comm/imitated_gpu/gpu.h"
#include "comm/loopback/loopback.h"
#include "torch_catch.h"

namespace automodel {
namespace {

using comm::World;
using std::chrono::milliseconds;

at::Tensor of(double value, std::int64_t count = 1000) {
  return at::full({count}, value, at::TensorOptions().dtype(at::kFloat));
}

comm::JobOutcome run(int ranks, const std::function<void(World&)>& body, test::GpuBehaviour behaviour = {},
                     milliseconds deadline = milliseconds(20'000)) {
  test::set_gpus(behaviour);
  return comm::run_ranks(ranks, body, test::carried({.deadline = deadline, .background_progress = false}));
}

std::shared_ptr<comm::Communicator> everyone(World& world, comm::Traffic traffic = {}) {
  std::vector<int> ranks;
  for (int r = 0; r < world.size(); ++r) ranks.push_back(r);
  return world.group(ranks, "all", traffic);
}

constexpr milliseconds kSlow{50};

}  // namespace

TEST_CASE("what is read before its operation is waited for is NaN", "[nccl]") {
  const auto outcome = run(2,
                           [](World& world) {
                             const auto group = everyone(world);
                             const auto sum = of(world.rank() + 1.0);
                             const auto work = group->all_reduce(sum, comm::ReduceOp::kSum);
                             AUTOMODEL_CHECK(sum.isnan().all().item<bool>(), "the imitation shows a result too early");
                             work->wait();
                             AUTOMODEL_CHECK(sum.eq(3).all().item<bool>(), "the sum is wrong");
                           },
                           {.most_delay = kSlow});
  CHECK(outcome.text == "");
  CHECK(test::gpu_mistake() == "");
}

TEST_CASE("polling an operation leaves no CUDA error behind for the next kernel launch", "[nccl]") {
  const auto outcome = run(2,
                           [](World& world) {
                             const auto group = everyone(world);
                             int waited = 0;
                             for (int turn = 0; turn < 4; ++turn) {
                               const auto work = group->all_reduce(of(1), comm::ReduceOp::kSum);
                               for (; !work->done(); ++waited)
                                 AUTOMODEL_CHECK(cudaGetLastError() == cudaSuccess, "the question left an error");
                               work->wait();
                             }
                             AUTOMODEL_CHECK(waited > 0, "every operation was over at once");
                           },
                           {.most_delay = kSlow});
  CHECK(outcome.text == "");
}

TEST_CASE("leaving a group with an operation in flight leaves no CUDA error behind", "[nccl]") {
  const auto outcome = run(2,
                           [](World& world) {
                             auto group = everyone(world);
                             const auto sum = of(1);
                             static_cast<void>(group->all_reduce(sum, comm::ReduceOp::kSum));
                             group.reset();  // waits for it
                             AUTOMODEL_CHECK(cudaGetLastError() == cudaSuccess, "the wait left an error");
                           },
                           {.most_delay = kSlow});
  CHECK(outcome.text == "");
}

TEST_CASE("writing to a buffer while an operation uses it is detected", "[nccl]") {
  for (const bool sent : {true, false}) {
    const auto outcome = run(2,
                             [sent](World& world) {
                               const auto group = everyone(world);
                               const auto mine = of(1), theirs = of(0);
                               const int other = 1 - world.rank();
                               const auto work = group->exchange({{mine, other, 0}}, {{theirs, other, 0}});
                               (sent ? mine : theirs).fill_(7);
                               work->wait();
                             },
                             {.most_delay = kSlow});
    CHECK(outcome.text == "");
    CHECK(test::gpu_mistake() ==
          std::string(sent ? "the input of send" : "the output of receive") + " was written to while it was under way");
  }
}

TEST_CASE("tensors are kept alive until the device is done with them", "[nccl]") {
  const auto outcome = run(2,
                           [](World& world) {
                             const auto group = everyone(world);
                             for (int i = 0; i < 20; ++i) {
                               const auto got = of(0);
                               const int other = 1 - world.rank();
                               const auto arrives = group->exchange({}, {{got, other, i}});
                               static_cast<void>(group->exchange({{of(i + 0.5), other, i}}, {}));  // not kept
                               std::vector<at::Tensor> memory;
                               for (int k = 0; k < 10; ++k) memory.push_back(of(-1));
                               arrives->wait();
                               AUTOMODEL_CHECK(got.eq(i + 0.5).all().item<bool>(), "a message has lost its tensor");
                             }
                             group->barrier()->wait();
                           },
                           {.most_delay = milliseconds(5)});
  CHECK(outcome.text == "");
  CHECK(test::gpu_mistake() == "");
}

TEST_CASE("a send does not wait behind a receive that was posted earlier", "[nccl]") {
  const auto outcome = run(
      4,
      [](World& world) {
        const auto group = everyone(world, {.collectives = false, .all_to_all = false});
        const int me = world.rank(), size = world.size();
        const int next = (me + 1) % size, before = (me + size - 1) % size;
        const auto got = of(0);
        if (me % 2 == 0) {  // its answer arrives only after its own message
          const auto answer = group->exchange({}, {{got, before, 0}});
          group->exchange({{of(me), next, 0}}, {})->wait();
          answer->wait();
        } else {
          group->exchange({}, {{got, before, 0}})->wait();
          group->exchange({{of(me), next, 0}}, {})->wait();
        }
        AUTOMODEL_CHECK(got.eq(before).all().item<bool>(), "another message than expected");
      },
      {}, milliseconds(5'000));
  CHECK(outcome.text == "");
}

TEST_CASE("pairs are connected when their group is created, not inside their first messages", "[nccl]") {
  const auto outcome = run(
      2,
      [](World& world) {
        const auto group = everyone(world);
        const int other = 1 - world.rank();
        const auto a = of(0), b = of(0);
        // Each rank first launches what the other launches last.
        const auto first =
            world.rank() == 0 ? group->exchange({}, {{a, other, 0}}) : group->exchange({}, {{b, other, 1}});
        const auto second =
            world.rank() == 0 ? group->exchange({{of(1), other, 1}}, {}) : group->exchange({{of(2), other, 0}}, {});
        first->wait();
        second->wait();
        AUTOMODEL_CHECK((world.rank() == 0 ? a.eq(2) : b.eq(1)).all().item<bool>(), "another message than expected");
      },
      {}, milliseconds(5'000));
  CHECK(outcome.text == "");
}

TEST_CASE("messages of one call are matched by their tags", "[nccl]") {
  const auto outcome = run(2, [](World& world) {
    const auto group = everyone(world);
    const int other = 1 - world.rank();
    const auto a = of(0), b = of(0);
    group->exchange({{of(5), other, 5}, {of(3), other, 3}}, {{a, other, 3}, {b, other, 5}})->wait();
    AUTOMODEL_CHECK(a.eq(3).all().item<bool>() && b.eq(5).all().item<bool>(), "a message has another's tag");
  });
  CHECK(outcome.text == "");
  CHECK(test::gpu_mistake() == "");
}

TEST_CASE("a rank that does not arrive is reported after the deadline, and communicators are aborted", "[nccl]") {
  const auto outcome = run(
      2,
      [](World& world) {
        const auto group = everyone(world);
        group->all_reduce(of(1), comm::ReduceOp::kSum)->wait();  // the first one waits for the other host
        if (world.rank() == 1) return std::this_thread::sleep_for(milliseconds(3'000));
        group->all_reduce(of(1), comm::ReduceOp::kSum)->wait();
        group->barrier()->wait();
      },
      {}, milliseconds(500));
  CHECK(outcome.code == ExitCode::kHang);
  CHECK(outcome.rank == 0);
  CHECK(outcome.text.find("all_reduce") != std::string::npos);
  CHECK(test::aborted_communicators() > 0);
  CHECK(test::gpu_mistake() == "");
}

TEST_CASE("a hang inside a call of NCCL is reported as one, and its communicator is not freed under the call",
          "[nccl]") {
  const auto outcome = run(
      2,
      [](World& world) {
        const auto group = everyone(world);
        if (world.rank() == 1) return std::this_thread::sleep_for(milliseconds(1'500));
        group->all_reduce(of(1), comm::ReduceOp::kSum)->wait();  // waits for the other host
      },
      {.longest = milliseconds(5'000)}, milliseconds(500));
  CHECK(outcome.code == ExitCode::kHang);
  CHECK(outcome.rank == 0);
  CHECK(outcome.text.find("all_reduce") != std::string::npos);
  CHECK(test::gpu_mistake() == "");
}

TEST_CASE("a rank that waits for its device takes no step after an abort", "[nccl]") {
  std::atomic<bool> step_taken = false;
  const auto outcome = run(
      2,
      [&step_taken](World& world) {
        const auto group = everyone(world);
        group->all_reduce(of(1), comm::ReduceOp::kSum)->wait();
        if (world.rank() == 1) return std::this_thread::sleep_for(milliseconds(3'000));
        group->all_reduce(of(1), comm::ReduceOp::kSum)->wait();  // the device: an abort ends this, with garbage
        step_taken = true;
      },
      {}, milliseconds(500));
  CHECK(outcome.code == ExitCode::kHang);
  CHECK_FALSE(step_taken);
}

TEST_CASE("messages between neighbours prepare no others, with few CTAs", "[nccl]") {
  for (const bool ring : {true, false}) {
    const auto outcome = run(6, [ring](World& world) {
      const auto group = everyone(world, {.collectives = false, .all_to_all = false, .ring = ring});
      const int next = (world.rank() + 1) % 6, before = (world.rank() + 5) % 6;
      const auto got = of(0);
      group->exchange({{of(world.rank()), next, 0}}, {{got, before, 0}})->wait();
      AUTOMODEL_CHECK(got.eq(before).all().item<bool>(), "another message than expected");
      group->exchange({{of(world.rank()), before, 0}}, {{got, next, 0}})->wait();
      AUTOMODEL_CHECK(got.eq(next).all().item<bool>(), "another message than expected");
    });
    CHECK(outcome.text == "");
    CHECK(test::gpu_mistake() == "");
    CHECK(test::message_buffers() == 8 * 6 * (ring ? 2 : 5));  // 8 CTAs, 6 receivers, their senders
  }
  const auto far = run(4, [](World& world) {
    const auto group = everyone(world, {.collectives = false, .all_to_all = false, .ring = true});
    const auto got = of(0);
    group->exchange({{of(1), (world.rank() + 2) % 4, 0}}, {{got, (world.rank() + 2) % 4, 0}})->wait();
  });
  CHECK(far.code == ExitCode::kInternal);
  CHECK(far.text.find("a message between positions that were not joined") != std::string::npos);
}

TEST_CASE("a driver that does not answer ends the job", "[nccl]") {
  const auto outcome = run(
      2,
      [](World& world) {
        const auto group = everyone(world);
        group->all_reduce(of(1), comm::ReduceOp::kSum)->wait();  // the first one waits for the other host
        if (world.rank() == 0) {  // an operation is in flight, so that there is an event to query
          const auto work = group->all_reduce(of(1), comm::ReduceOp::kSum);
          test::stall_driver(true);
          std::this_thread::sleep_for(milliseconds(1'500));
          test::stall_driver(false);
        } else {
          std::this_thread::sleep_for(milliseconds(2'000));
        }
        group->barrier()->wait();
      },
      {}, milliseconds(500));
  test::stall_driver(false);
  CHECK(outcome.code == ExitCode::kEnvironment);
  CHECK(outcome.text.find("[cuda-failed]: the CUDA driver has not answered for") != std::string::npos);
}

TEST_CASE("a communicator error ends the job", "[nccl]") {
  const auto outcome = run(2, [](World& world) {
    const auto group = everyone(world);
    test::break_communicators(true);
    std::this_thread::sleep_for(milliseconds(500));
    group->barrier()->wait();
  });
  test::break_communicators(false);
  CHECK(outcome.code == ExitCode::kEnvironment);
  CHECK(outcome.text.find("[transport-failed]") != std::string::npos);
  CHECK(outcome.text.find("remote process exited") != std::string::npos);
}

TEST_CASE("ranks that share a GPU are refused", "[nccl]") {
  const auto outcome = run(2, [](World& world) { everyone(world); }, {.one_gpu = true});
  CHECK(outcome.code == ExitCode::kEnvironment);
  CHECK(outcome.text.find("[gpu-shared]: ranks 0 and 1 are on the same GPU") != std::string::npos);
}

TEST_CASE("ranks share a GPU where NCCL was told to let them", "[nccl]") {
  const auto sum = [](World& world) {
    const auto ones = of(1);
    everyone(world)->all_reduce(ones, comm::ReduceOp::kSum)->wait();
    AUTOMODEL_CHECK(ones.eq(2).all().item<bool>(), "the sum is wrong");
  };
  const auto run_with = [&](const char* enabled, int version) {
    ::setenv("NCCL_MULTI_RANK_GPU_ENABLE", enabled, 1);
    const auto outcome = run(2, sum, {.one_gpu = true, .nccl_version = version});
    ::unsetenv("NCCL_MULTI_RANK_GPU_ENABLE");
    return outcome.code;
  };
  CHECK(run_with("1", 23007) == ExitCode::kOk);
  CHECK(run_with("0", 23007) == ExitCode::kEnvironment);
  CHECK(run_with("1", 22809) == ExitCode::kEnvironment);
}

TEST_CASE("a group allows only the traffic that it was created for", "[nccl]") {
  const auto messages = run(2, [](World& world) {
    everyone(world, {.messages = false})->exchange({{of(1), 1 - world.rank(), 0}}, {});
  });
  CHECK(messages.code == ExitCode::kInternal);
  CHECK(messages.text.find("exchange in group 'all', which was not made for it") != std::string::npos);
  const auto host = run(2, [](World& world) {
    const auto group = everyone(world, comm::kHostTensors);
    const auto sum = of(1);
    group->all_reduce(sum, comm::ReduceOp::kSum)->wait();
    AUTOMODEL_CHECK(sum.eq(2).all().item<bool>(), "the sum is wrong");
  });
  CHECK(host.text == "");
}

}  // namespace automodel
