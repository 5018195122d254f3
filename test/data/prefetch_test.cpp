#include "data/prefetch.h"

#include <atomic>
#include <chrono>
#include <stdexcept>

#include <catch2/catch.hpp>

namespace automodel::data {

TEST_CASE("prefetched items arrive in order, and each is made once", "[data]") {
  std::atomic<int> made = 0;
  Prefetcher<std::int64_t> prefetcher(
      [&](std::int64_t index) {
        ++made;
        return index * index;
      },
      3, 60);
  for (std::int64_t i = 3; i < 60; ++i) CHECK(prefetcher.next() == i * i);
  CHECK(made == 57);
  CHECK_THROWS_AS(prefetcher.next(), InternalError);
}

TEST_CASE("the prefetch thread is ahead by at most one waiting item and one in progress", "[data]") {
  std::atomic<int> made = 0;
  Prefetcher<int> prefetcher(
      [&](std::int64_t index) {
        ++made;
        return static_cast<int>(index);
      },
      0, 1000);
  prefetcher.next();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  CHECK(made <= 3);
  CHECK(made >= 2);
}

TEST_CASE("an exception is thrown at its item's position and by every later call", "[data]") {
  Prefetcher<int> prefetcher(
      [](std::int64_t index) -> int {
        if (index == 2) throw std::runtime_error("broken row");
        return static_cast<int>(index);
      },
      0, 10);
  CHECK(prefetcher.next() == 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the exception has happened before item 1 is taken
  CHECK(prefetcher.next() == 1);
  CHECK_THROWS_WITH(prefetcher.next(), "broken row");
  CHECK_THROWS_WITH(prefetcher.next(), "broken row");
}

TEST_CASE("a prefetcher stops at once, whether its thread is waiting or working", "[data]") {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 100; ++i) {
    Prefetcher<int> prefetcher([](std::int64_t index) { return static_cast<int>(index); }, 0, 1'000'000'000);
    if (i % 2 == 0) prefetcher.next();
  }
  {
    const Prefetcher<int> slow(
        [](std::int64_t) {
          std::this_thread::sleep_for(std::chrono::milliseconds(30));
          return 0;
        },
        0, 1'000'000'000);
  }
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(2));
}

}  // namespace automodel::data
