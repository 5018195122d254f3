// long: one case per guarantee of Communicator and World, run on every backend and number of ranks.
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include "comm/reduce.h"
#include "comm/transport.h"
#include "rank_suite.h"

namespace automodel::test {
namespace {

using comm::Communicator;
using comm::ReduceOp;
using comm::WorkPtr;
using comm::World;

constexpr std::array kDtypes = {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf,
                                at::kLong,  at::kInt,    at::kByte,     at::kBool};
constexpr std::array kOps = {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin};
/// Zero, one, odd, around a power of two, more than is reduced in one step and, for two types, several chunks and a
/// remainder.
constexpr std::array<std::int64_t, 7> kCounts = {0, 1, 7, 1024, 2049, 40'003, 1'200'007};
constexpr std::int64_t kManyChunks = kCounts.back();

at::TensorOptions like(at::ScalarType dtype) {
  return at::TensorOptions().dtype(dtype);
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.nbytes() == b.nbytes() && a.scalar_type() == b.scalar_type() &&
         (a.nbytes() == 0 || std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0);
}

/// Values of rank `rank` that every rank can compute: different for each rank and element, with sums that depend on the
/// order of summation, and of magnitudes that a 16-bit type has to round.
at::Tensor values(int rank, std::int64_t count, at::ScalarType dtype, int salt = 0) {
  const at::Tensor out = at::empty({count}, like(at::kDouble));
  auto* numbers = out.mutable_data_ptr<double>();
  const double size = 0.0137 * (1.0 + 100.0 * (rank % 3));
  for (std::int64_t i = 0; i < count; ++i) {
    const auto mixed = static_cast<double>((i * 40'507 + (rank + 1) * 40'503 + salt * 97) % 1009);
    numbers[i] = dtype == at::kBool           ? std::fmod(mixed, 3.0) == 0.0
                 : dtype == at::kByte         ? std::fmod(mixed, 251.0)
                 : !at::isFloatingType(dtype) ? mixed - 500
                                              : (mixed - 500) * size;
  }
  return out.to(dtype);
}

/// The expected result of a reduction over ranks 0 ... size-1 of a group, element by element.
at::Tensor expected_reduction(int size, std::int64_t count, at::ScalarType dtype, ReduceOp op, int salt = 0) {
  const bool half = dtype == at::kBFloat16 || dtype == at::kHalf;
  at::Tensor sum = values(0, count, dtype, salt);
  if (half) sum = sum.to(at::kFloat);
  for (int r = 1; r < size; ++r) {
    const at::Tensor next = values(r, count, dtype, salt).to(sum.scalar_type());
    if (op == ReduceOp::kSum) sum = dtype == at::kBool ? sum.logical_or(next) : sum + next;
    if (op == ReduceOp::kMax) sum = dtype == at::kBool ? sum.logical_or(next) : sum.maximum(next);
    if (op == ReduceOp::kMin) sum = dtype == at::kBool ? sum.logical_and(next) : sum.minimum(next);
  }
  return sum.to(dtype);
}

std::vector<int> everyone(const World& world) {
  std::vector<int> ranks(static_cast<std::size_t>(world.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

template <class Function>
void for_each_kind(const Function& function) {
  for (const auto dtype : kDtypes)
    for (const std::int64_t count : kCounts)
      if (count != kManyChunks || dtype == at::kFloat || dtype == at::kBFloat16) function(dtype, count);
}

void places(World& world) {
  RANK_CHECK(world.rank() >= 0 && world.rank() < world.size());
  RANK_CHECK(world.local_rank() < world.local_size() && world.local_size() <= world.size());
  const auto all = world.group(everyone(world), "all");
  RANK_EQUAL(all->rank(), world.rank());
  RANK_EQUAL(all->size(), world.size());
  RANK_CHECK(all->ranks() == everyone(world));
  RANK_CHECK(all->name() == "all");
}

void all_reduces(World& world) {
  const auto all = world.group(everyone(world), "all");
  for (const auto op : kOps)
    for_each_kind([&](at::ScalarType dtype, std::int64_t count) {
      const at::Tensor inout = values(all->rank(), count, dtype);
      all->all_reduce(inout, op)->wait();
      if (!same_bits(inout, expected_reduction(all->size(), count, dtype, op)))
        rank_check_failed(__FILE__, __LINE__,
                          fmt::format("all_reduce {} of {} {}", name_of(op), count, toString(dtype)));
    });
}

void all_gathers(World& world) {
  const auto all = world.group(everyone(world), "all");
  for_each_kind([&](at::ScalarType dtype, std::int64_t count) {
    const at::Tensor out = at::zeros({all->size(), count}, like(dtype));
    const at::Tensor out_in_place = at::zeros({all->size(), count}, like(dtype));
    all->all_gather(out, values(all->rank(), count, dtype))->wait();
    const at::Tensor own = out_in_place.select(0, all->rank());
    own.copy_(values(all->rank(), count, dtype));
    all->all_gather(out_in_place, own)->wait();
    for (int r = 0; r < all->size(); ++r) {
      RANK_CHECK(same_bits(out.select(0, r), values(r, count, dtype)));
      RANK_CHECK(same_bits(out_in_place.select(0, r), values(r, count, dtype)));
    }
  });
}

void reduce_scatters(World& world) {
  const auto all = world.group(everyone(world), "all");
  for (const auto op : kOps)
    for_each_kind([&](at::ScalarType dtype, std::int64_t most) {
      const std::int64_t count = most < 1000 ? most : most / all->size();
      const std::int64_t total = count * all->size();
      const at::Tensor in = values(all->rank(), total, dtype);
      const at::Tensor out = at::empty({count}, like(dtype));
      all->reduce_scatter(out, in, op)->wait();
      const at::Tensor expected =
          expected_reduction(all->size(), total, dtype, op).narrow(0, all->rank() * count, count);
      RANK_CHECK(same_bits(out, expected));
      const at::Tensor own = in.narrow(0, all->rank() * count, count);
      all->reduce_scatter(own, in, op)->wait();
      RANK_CHECK(same_bits(own, expected));
    });
}

/// Number of rows that rank `from` sends to rank `to`: uneven, sometimes zero.
std::int64_t rows_between(int from, int to, std::int64_t scale) {
  return ((from * 5 + to * 3) % 4) * scale;
}

void all_to_alls(World& world) {
  const auto all = world.group(everyone(world), "all");
  const int me = all->rank();
  for (const auto dtype : kDtypes)
    for (const std::int64_t scale : {0, 1, 900}) {
      std::vector<std::int64_t> in_rows;
      std::vector<std::int64_t> out_rows;
      for (int r = 0; r < all->size(); ++r) {
        in_rows.push_back(rows_between(me, r, scale));
        out_rows.push_back(rows_between(r, me, scale));
      }
      const auto total = [](const auto& rows) { return std::accumulate(rows.begin(), rows.end(), std::int64_t{0}); };
      const at::Tensor in = at::empty({total(in_rows), 33}, like(dtype));
      const at::Tensor out = at::empty({total(out_rows), 33}, like(dtype));
      std::int64_t begin = 0;
      for (int r = 0; r < all->size(); begin += in_rows[static_cast<std::size_t>(r++)]) {
        const auto rows = in_rows[static_cast<std::size_t>(r)];
        in.narrow(0, begin, rows).copy_(values(me, rows * 33, dtype, r).view({rows, 33}));
      }
      all->all_to_all(out, in, out_rows, in_rows)->wait();
      begin = 0;
      for (int r = 0; r < all->size(); begin += out_rows[static_cast<std::size_t>(r++)]) {
        const auto rows = out_rows[static_cast<std::size_t>(r)];
        RANK_CHECK(same_bits(out.narrow(0, begin, rows), values(r, rows * 33, dtype, me).view({rows, 33})));
      }
    }
}

void broadcasts(World& world) {
  const auto all = world.group(everyone(world), "all");
  for (int root = 0; root < all->size(); root += 1 + all->size() / 4)
    for_each_kind([&](at::ScalarType dtype, std::int64_t count) {
      const at::Tensor inout = values(all->rank(), count, dtype);
      all->broadcast(inout, root)->wait();
      RANK_CHECK(same_bits(inout, values(root, count, dtype)));
    });
}

void exchanges(World& world) {
  // With both neighbours of a ring, in both directions, several tags in opposite orders.
  const auto all = world.group(everyone(world), "all");
  const int n = all->size();
  const int next = (all->rank() + 1) % n;
  const int previous = (all->rank() + n - 1) % n;
  for (const std::int64_t count : kCounts) {
    std::vector<comm::Transfer> sends;
    std::vector<comm::Transfer> receives;
    for (int tag = 0; tag < 3; ++tag) {
      sends.push_back({values(all->rank(), count, at::kFloat, tag), next, tag});
      sends.push_back({values(all->rank(), count, at::kBFloat16, tag + 10), previous, tag + 10});
    }
    for (int tag = 2; tag >= 0; --tag) {
      receives.push_back({at::zeros({count}, like(at::kBFloat16)), next, tag + 10});
      receives.push_back({at::zeros({count}, like(at::kFloat)), previous, tag});
    }
    all->exchange(sends, receives)->wait();
    for (const comm::Transfer& got : receives)
      RANK_CHECK(same_bits(got.tensor, values(got.peer, count, got.tensor.scalar_type(), got.tag)));
  }
  all->exchange({}, {})->wait();
}

void largest_tag(World& world) {
  const auto all = world.group(everyone(world), "all");
  const at::Tensor got = at::zeros({3}, like(at::kLong));
  const int next = (all->rank() + 1) % all->size();
  const int previous = (all->rank() + all->size() - 1) % all->size();
  all->exchange({{values(all->rank(), 3, at::kLong), next, all->max_tag()}}, {{got, previous, all->max_tag()}})->wait();
  RANK_CHECK(same_bits(got, values(previous, 3, at::kLong)));
  bool refused = false;
  try {
    all->exchange({{got, next, -1}}, {});
  } catch (const InternalError&) {
    refused = true;
  }
  RANK_CHECK(refused);
}

void one_way(World& world) {
  // Sends that are never waited for, and whose tensors the caller drops.
  const auto all = world.group(everyone(world), "all");
  constexpr std::int64_t kCount = 300'000;
  if (all->rank() == 0)
    for (int peer = 1; peer < all->size(); ++peer)
      for (int k = 0; k < 4; ++k) all->exchange({{values(peer, kCount, at::kFloat, k), peer, k}}, {});
  if (all->rank() != 0)
    for (int k = 3; k >= 0; --k) {
      const at::Tensor got = at::zeros({kCount}, like(at::kFloat));
      all->exchange({}, {{got, 0, k}})->wait();
      RANK_CHECK(same_bits(got, values(all->rank(), kCount, at::kFloat, k)));
    }
}

void barriers(World& world) {
  // On one host, so that all clocks agree: no rank leaves before the last has arrived.
  const auto all = world.group(everyone(world), "all");
  const auto now = [] { return std::chrono::steady_clock::now().time_since_epoch().count(); };
  for (int late = 0; late < all->size(); ++late) {
    if (all->rank() == late) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const at::Tensor came = at::full({1}, static_cast<std::int64_t>(now()), like(at::kLong));
    all->barrier()->wait();
    const auto left = static_cast<std::int64_t>(now());
    all->all_reduce(came, ReduceOp::kMax)->wait();
    RANK_CHECK(left >= *came.const_data_ptr<std::int64_t>());
  }
}

void check_group_sum(Communicator& group, std::int64_t count) {
  const at::Tensor inout = values(group.rank(), count, at::kFloat);
  group.all_reduce(inout, ReduceOp::kSum)->wait();
  RANK_CHECK(same_bits(inout, expected_reduction(group.size(), count, at::kFloat, ReduceOp::kSum)));
}

void subsets(World& world) {
  // Even and odd ranks; then all in reverse order; then a pair with each other rank, created in an order that all ranks
  // agree on.
  std::vector<int> mine;
  for (int r = world.rank() % 2; r < world.size(); r += 2) mine.push_back(r);
  check_group_sum(*world.group(mine, "parity"), 5000);
  auto reversed = everyone(world);
  std::ranges::reverse(reversed);
  const auto backwards = world.group(reversed, "backwards");
  RANK_EQUAL(backwards->rank(), world.size() - 1 - world.rank());
  check_group_sum(*backwards, 50'000);
  const at::Tensor gathered = at::zeros({world.size()}, like(at::kLong));
  backwards->all_gather(gathered, at::full({1}, world.rank(), like(at::kLong)))->wait();
  for (int i = 0; i < world.size(); ++i) RANK_EQUAL(gathered.const_data_ptr<std::int64_t>()[i], world.size() - 1 - i);
  for (int a = 0; a < world.size(); ++a)
    for (int b = a + 1; b < world.size(); ++b)
      if (world.rank() == a || world.rank() == b) check_group_sum(*world.group({b, a}, "pair"), 100);
}

void same_group_twice(World& world) {
  // Two groups with the same ranks and name do not receive each other's messages.
  const auto first = world.group(everyone(world), "twin");
  const auto second = world.group(everyone(world), "twin");
  const at::Tensor a = values(first->rank(), 3000, at::kFloat, 1);
  const at::Tensor b = values(first->rank(), 3000, at::kFloat, 2);
  WorkPtr work_a;
  WorkPtr work_b;
  if (world.rank() % 2 == 0) {
    work_a = first->all_reduce(a, ReduceOp::kSum);
    work_b = second->all_reduce(b, ReduceOp::kSum);
  } else {
    work_b = second->all_reduce(b, ReduceOp::kSum);
    work_a = first->all_reduce(a, ReduceOp::kSum);
  }
  work_b->wait();
  work_a->wait();
  RANK_CHECK(same_bits(a, expected_reduction(world.size(), 3000, at::kFloat, ReduceOp::kSum, 1)));
  RANK_CHECK(same_bits(b, expected_reduction(world.size(), 3000, at::kFloat, ReduceOp::kSum, 2)));
}

void many_outstanding(World& world) {
  // Operations of three groups and many sizes in flight at once, waited for in a different order on each rank.
  const auto all = world.group(everyone(world), "all");
  auto reversed = everyone(world);
  std::ranges::reverse(reversed);
  const auto backwards = world.group(reversed, "backwards");
  const auto exchange = world.group(everyone(world), "exchange");
  const int n = all->size();
  std::vector<WorkPtr> works;
  std::vector<at::Tensor> sums;
  std::vector<at::Tensor> backward_sums;
  std::vector<at::Tensor> received;
  const auto count_of = [](int k) { return kCounts[static_cast<std::size_t>(k) % kCounts.size()]; };
  constexpr int kOperations = 14;
  for (int k = 0; k < kOperations; ++k) {
    sums.push_back(values(all->rank(), count_of(k), at::kFloat, k));
    works.push_back(all->all_reduce(sums.back(), ReduceOp::kSum));
    backward_sums.push_back(values(backwards->rank(), count_of(k), at::kBFloat16, k));
    works.push_back(backwards->all_reduce(backward_sums.back(), ReduceOp::kSum));
    received.push_back(at::zeros({count_of(k)}, like(at::kFloat)));
    works.push_back(
        exchange->exchange({{values(exchange->rank(), count_of(k), at::kFloat, k), (exchange->rank() + 1) % n, k}},
                           {{received.back(), (exchange->rank() + n - 1) % n, k}}));
  }
  std::rotate(works.begin(), works.begin() + (world.rank() * 7) % static_cast<int>(works.size()), works.end());
  if (world.rank() % 2 == 1) std::ranges::reverse(works);
  for (const WorkPtr& work : works) work->wait();
  for (int k = 0; k < kOperations; ++k) {
    const auto i = static_cast<std::size_t>(k);
    RANK_CHECK(same_bits(sums[i], expected_reduction(n, count_of(k), at::kFloat, ReduceOp::kSum, k)));
    RANK_CHECK(same_bits(backward_sums[i], expected_reduction(n, count_of(k), at::kBFloat16, ReduceOp::kSum, k)));
    RANK_CHECK(same_bits(received[i], values((exchange->rank() + n - 1) % n, count_of(k), at::kFloat, k)));
  }
}

void polling(World& world) {
  const auto all = world.group(everyone(world), "all");
  const at::Tensor inout = values(all->rank(), 700'000, at::kFloat);
  const WorkPtr work = all->all_reduce(inout, ReduceOp::kSum);
  while (!work->done()) std::this_thread::yield();
  work->wait();
  RANK_CHECK(work->done());
  work->wait();  // waiting a second time is allowed
  RANK_CHECK(same_bits(inout, expected_reduction(all->size(), 700'000, at::kFloat, ReduceOp::kSum)));
}

void two_threads(World& world) {
  const auto first = world.group(everyone(world), "first");
  const auto second = world.group(everyone(world), "second");
  std::exception_ptr error;
  std::thread other([&] {
    try {
      for (int k = 0; k < 50; ++k) check_group_sum(*second, 1 + k * 997);
    } catch (...) {
      error = std::current_exception();
    }
  });
  std::exception_ptr own_error;
  try {
    for (int k = 0; k < 50; ++k) check_group_sum(*first, 1 + k * 797);
  } catch (...) {
    own_error = std::current_exception();
  }
  other.join();
  if (own_error) std::rethrow_exception(own_error);
  if (error) std::rethrow_exception(error);
}

void size_mismatch(World& world) {
  const auto pair = world.rank() < 2 ? world.group({0, 1}, "pair") : nullptr;
  if (world.rank() == 0) {
    // Loopback reports it to the sender too.
    try {
      pair->exchange({{values(0, 3, at::kFloat), 1, 5}}, {})->wait();
    } catch (const InternalError&) {
    }
  }
  if (world.rank() == 1) {
    bool noticed = false;
    try {
      pair->exchange({}, {{at::zeros({4}, like(at::kFloat)), 0, 5}})->wait();
    } catch (const InternalError& error) {
      noticed = std::string(error.what()).find("12 bytes") != std::string::npos;
    }
    RANK_CHECK(noticed);
  }
}

void different_members(World& world) {
  // Ranks that disagree on a group's members get an error instead of waiting.
  bool noticed = false;
  try {
    world.group(world.rank() == 0 ? std::vector{0, 1} : std::vector{1, 0}, "disputed");
  } catch (const InternalError& error) {
    noticed = std::string(error.what()).find("'disputed' of different ranks") != std::string::npos;
  }
  RANK_CHECK(noticed);
}

void texts(World& world) {
  const std::string big(3'000'001, 'x');
  for (const std::string& text : {std::string(), std::string("recipe\0with a zero", 18), big})
    for (const int root : {0, world.size() - 1})
      RANK_CHECK(world.broadcast_text(world.rank() == root ? text : "not mine", root) == text);
  const auto gathered = world.gather_text(std::string(static_cast<std::size_t>(world.rank()), 'a'));
  RANK_EQUAL(gathered.size(), world.rank() == 0 ? static_cast<std::size_t>(world.size()) : std::size_t{0});
  for (std::size_t r = 0; r < gathered.size(); ++r) RANK_EQUAL(gathered[r], std::string(r, 'a'));
}

void parts_and_whole(World& world) {
  // A sum has the same bits by itself and at an odd offset inside a larger buffer.
  const auto all = world.group(everyone(world), "all");
  const std::int64_t count = 3001;
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const at::Tensor alone = values(all->rank(), count, dtype);
    const at::Tensor buffer = at::zeros({1'000'000}, like(dtype));
    buffer.narrow(0, 777'777, count).copy_(alone);
    all->all_reduce(alone, ReduceOp::kSum)->wait();
    all->all_reduce(buffer, ReduceOp::kSum)->wait();
    RANK_CHECK(same_bits(alone, buffer.narrow(0, 777'777, count)));
  }
}

void not_a_number(World& world) {
  const auto all = world.group(everyone(world), "all");
  for (const auto op : kOps) {
    const at::Tensor inout = at::full({9}, world.rank() == world.size() - 1 ? std::nan("") : 1.0, like(at::kFloat));
    all->all_reduce(inout, op)->wait();
    RANK_CHECK(std::isnan(inout.const_data_ptr<float>()[8]));
  }
}

void random_storm(World& world) {
  // A few hundred random exchanges between random pairs, the same list on all ranks; waits in a random order.
  const auto all = world.group(everyone(world), "all");
  std::uint64_t state = 12345;
  const auto random = [&state](std::uint64_t below) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (state >> 33) % below;
  };
  std::vector<WorkPtr> works;
  std::vector<std::pair<at::Tensor, at::Tensor>> results;
  for (int k = 0; k < 300; ++k) {
    const int from = static_cast<int>(random(static_cast<std::uint64_t>(all->size())));
    const int to = static_cast<int>(random(static_cast<std::uint64_t>(all->size())));
    const int tag = static_cast<int>(random(1000));
    const auto count = static_cast<std::int64_t>(random(k % 10 == 0 ? 100'000 : 500));
    if (from == to) continue;
    if (all->rank() == from) works.push_back(all->exchange({{values(from, count, at::kFloat, k), to, tag}}, {}));
    if (all->rank() == to) {
      results.emplace_back(at::zeros({count}, like(at::kFloat)), values(from, count, at::kFloat, k));
      works.push_back(all->exchange({}, {{results.back().first, from, tag}}));
    }
  }
  state += static_cast<std::uint64_t>(world.rank()) * 7919;
  while (!works.empty()) {
    std::swap(works[random(works.size())], works.back());
    works.back()->wait();
    works.pop_back();
  }
  for (const auto& [got, expected] : results) RANK_CHECK(same_bits(got, expected));
}

void background(World& world) {
  // Rank 0 starts a large send and then computes; rank 1 receives it long before rank 0 is done.
  const auto pair = world.group({0, 1}, "pair");
  constexpr std::int64_t kCount = 4 << 20;
  const auto nap = std::chrono::milliseconds(700);
  for (int round = 0; round < 2; ++round) {
    pair->barrier()->wait();
    const auto begin = std::chrono::steady_clock::now();
    if (world.rank() == 0) {
      const WorkPtr work = pair->exchange({{values(0, kCount, at::kFloat), 1, 0}}, {});
      std::this_thread::sleep_for(nap);
      work->wait();
    } else {
      const at::Tensor got = at::zeros({kCount}, like(at::kFloat));
      pair->exchange({}, {{got, 0, 0}})->wait();
      RANK_CHECK(std::chrono::steady_clock::now() - begin < nap / 2 || round == 0);
      RANK_CHECK(same_bits(got, values(0, kCount, at::kFloat)));
    }
  }
}

void many_groups(World& world) {
  std::vector<std::shared_ptr<Communicator>> groups;
  for (int k = 0; k < 100; ++k) groups.push_back(world.group(everyone(world), fmt::format("group {}", k)));
  for (const auto& group : groups) check_group_sum(*group, 10);
}

void huge_message(World& world) {
  // More than 2^31 elements: more than an int can count.
  const auto pair = world.group({0, 1}, "pair");
  const std::int64_t count = (std::int64_t{1} << 31) + 12'345;
  const at::Tensor data = at::full({count}, world.rank() == 0 ? 7 : 0, like(at::kByte));
  if (world.rank() == 0) data.mutable_data_ptr<std::uint8_t>()[count - 1] = 9;
  if (world.rank() == 0)
    pair->exchange({{data, 1, 0}}, {})->wait();
  else
    pair->exchange({}, {{data, 0, 0}})->wait();
  RANK_EQUAL(data.const_data_ptr<std::uint8_t>()[count - 1], 9);
  RANK_EQUAL(data.const_data_ptr<std::uint8_t>()[count - 2], 7);
  pair->all_reduce(data, ReduceOp::kSum)->wait();
  RANK_EQUAL(data.const_data_ptr<std::uint8_t>()[count - 1], 18);
  RANK_EQUAL(data.const_data_ptr<std::uint8_t>()[count / 2], 14);
}

void cut_message(World& world) {
  const auto pair = world.group({0, 1}, "pair");
  const std::int64_t count = comm::kLargestPiece + 17;
  const at::Tensor data = at::full({count}, world.rank() == 0 ? 7 : 0, like(at::kByte));
  if (world.rank() == 0) {
    data.mutable_data_ptr<std::uint8_t>()[count - 1] = 9;
    pair->exchange({{data, 1, 0}}, {})->wait();
  } else {
    pair->exchange({}, {{data, 0, 0}})->wait();
    RANK_EQUAL(data.const_data_ptr<std::uint8_t>()[count - 1], 9);
    RANK_EQUAL(data.const_data_ptr<std::uint8_t>()[comm::kLargestPiece], 7);
  }
}

const std::vector<RankCase> kCases = {
    {"a rank knows its rank and the sizes of world, host and group", places},
    {"all_reduce gives the sum in rank order, bit for bit", all_reduces},
    {"all_gather collects in rank order, also in place", all_gathers},
    {"reduce_scatter gives each rank its part of all_reduce's result", reduce_scatters},
    {"all_to_all moves uneven rows", all_to_alls},
    {"broadcast copies from any root", broadcasts},
    {"exchange moves messages both ways and matches tags", exchanges, 2},
    {"the largest tag works and a negative one is refused", largest_tag, 2},
    {"a send may be posted and forgotten", one_way, 2},
    {"no rank leaves a barrier before all have arrived", barriers},
    {"a group may have any ranks in any order", subsets},
    {"two groups of the same ranks do not receive each other's messages", same_group_twice},
    {"many operations may be outstanding and waited for in any order", many_outstanding, 2},
    {"an operation can be polled with done until it ends", polling},
    {"two threads may use two groups at once", two_threads},
    {"a receive of the wrong size is an internal error", size_mismatch, 2},
    {"ranks that disagree on a group's members get an error", different_members, 2, 2},
    {"texts are broadcast and gathered unchanged", texts},
    {"a sum does not depend on its offset in the buffer", parts_and_whole},
    {"NaN survives every reduction", not_a_number},
    {"random exchanges all arrive", random_storm, 2},
    {"many groups can be open at once", many_groups},
    {"a large send progresses while its rank computes (background)", background, 2, 2, true},
    {"a message of more than one piece arrives (cut)", cut_message, 2, 2, true},
    {"a message of more than 2^31 elements arrives (huge)", huge_message, 2, 2, true},
};

}  // namespace
}  // namespace automodel::test

int main(int argc, char** argv) {
  return automodel::test::run_rank_suite(argc, argv, automodel::test::kCases);
}
