#include "metrics/tensorboard.h"

#include <bit>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <map>
#include <memory>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "base/crc32c.h"
#include "temporary_folder.h"

namespace automodel::metrics {
namespace {

/// Reads Protocol Buffers' wire format: the fields of one message, by number.
struct Message {
  std::multimap<unsigned, std::string> bytes;
  std::map<unsigned, std::uint64_t> numbers;

  explicit Message(std::string_view data) {
    while (!data.empty()) {
      const std::uint64_t key = varint(data);
      const auto field = static_cast<unsigned>(key >> 3);
      switch (key & 7U) {
        case 0: numbers[field] = varint(data); break;
        case 1: numbers[field] = fixed(data, 8); break;
        case 2: {
          const auto size = static_cast<std::size_t>(varint(data));
          REQUIRE(size <= data.size());
          bytes.emplace(field, data.substr(0, size));
          data.remove_prefix(size);
          break;
        }
        case 5: numbers[field] = fixed(data, 4); break;
        default: FAIL("wire type");
      }
    }
  }
  static std::uint64_t varint(std::string_view& data) {
    std::uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      REQUIRE(!data.empty());
      const auto byte = static_cast<unsigned char>(data.front());
      data.remove_prefix(1);
      value |= static_cast<std::uint64_t>(byte & 127U) << shift;
      if (byte < 128) return value;
    }
  }
  static std::uint64_t fixed(std::string_view& data, std::size_t size) {
    REQUIRE(data.size() >= size);
    std::uint64_t value = 0;
    for (std::size_t i = size; i-- > 0;) value = value << 8 | static_cast<unsigned char>(data[i]);
    data.remove_prefix(size);
    return value;
  }
};

/// The records of a TFRecord file; every checksum is checked.
std::vector<std::string> records_of(std::string_view data) {
  std::vector<std::string> out;
  while (!data.empty()) {
    const std::string_view length_bytes = data.substr(0, 8);
    const auto size = static_cast<std::size_t>(Message::fixed(data, 8));
    CHECK(Message::fixed(data, 4) == masked_crc32c(length_bytes));
    REQUIRE(data.size() >= size + 4);
    out.emplace_back(data.substr(0, size));
    data.remove_prefix(size);
    CHECK(Message::fixed(data, 4) == masked_crc32c(out.back()));
  }
  return out;
}

StepRecord record_of(std::int64_t step, double loss) {
  return {.step = step, .timestamp = 1000.5 + static_cast<double>(step), .loss = loss, .num_label_tokens = 300};
}

/// What a command prints; empty if it fails.
std::string output_of(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen((command + " 2>/dev/null").c_str(), "r"), pclose);
  std::string out;
  for (int c = std::fgetc(pipe.get()); c != EOF; c = std::fgetc(pipe.get())) out += static_cast<char>(c);
  return out;
}

}  // namespace

TEST_CASE("a TensorBoard event file holds the version and every number under its tag", "[metrics]") {
  const test::TemporaryFolder folder;
  EventFile file(folder.path(), 0);
  StepRecord record = record_of(7, 2.5);
  record.mfu = 0.25;
  file.append(view_of(record), "train");
  file.append(view_of(ValidationRecord{.step = 7, .val_loss = 3.0}), "validation");
  const std::string name = file.path().filename().native();
  CHECK(name.find("events.out.tfevents.") == 0);
  CHECK(std::count(name.begin(), name.end(), '.') >= 5);
  const auto records = records_of(folder.read(name));
  REQUIRE(records.size() == 3);
  CHECK(Message(records[0]).bytes.find(3)->second == "brain.Event:2");
  const Message event(records[1]);
  CHECK(std::bit_cast<double>(event.numbers.at(1)) == 1007.5);
  CHECK(event.numbers.at(2) == 7);
  std::map<std::string, float> scalars;
  const Message summary(event.bytes.find(5)->second);
  for (const auto& [field, bytes] : summary.bytes) {
    const Message value(bytes);
    scalars[value.bytes.find(1)->second] = std::bit_cast<float>(static_cast<std::uint32_t>(value.numbers.at(2)));
  }
  CHECK(scalars == std::map<std::string, float>{{"train/loss", 2.5F},
                                                {"train/grad_norm", 0.0F},
                                                {"train/lr", 0.0F},
                                                {"train/mem", 0.0F},
                                                {"train/tps", 0.0F},
                                                {"train/tps_per_gpu", 0.0F},
                                                {"train/mfu", 0.25F},
                                                {"train/num_tokens_per_step", 0.0F},
                                                {"train/num_label_tokens", 300.0F},
                                                {"train/step_time", 0.0F}});
  CHECK(records[2].find("validation/val_loss") != std::string::npos);
}

TEST_CASE("two event files created in the same second have different names", "[metrics]") {
  const test::TemporaryFolder folder;
  const EventFile a(folder.path(), 0);
  const EventFile b(folder.path(), 0);
  CHECK(a.path() != b.path());
}

TEST_CASE("TensorBoard's own reader sees each step of a resumed run once", "[metrics]") {
  const char* chosen = std::getenv("AUTOMODEL_TEST_PYTHON");
  const std::string python = chosen != nullptr ? chosen : "python3";
  if (output_of(python + " -c 'import tensorboard; print(1)'").empty()) {
    WARN("skipped: " << python << " has no tensorboard (AUTOMODEL_TEST_PYTHON names another)");
    return;
  }
  const test::TemporaryFolder folder;
  {
    EventFile file(folder.path(), 0);
    for (int step = 0; step < 6; ++step) file.append(view_of(record_of(step, 10.0 + step)), "train");
  }
  sleep(1);  // files are read in the order of the second in their names
  EventFile file(folder.path(), 4);
  for (int step = 4; step < 8; ++step) file.append(view_of(record_of(step, 20.0 + step)), "train");
  folder.write("read.py",
               "import sys, json\n"
               "from tensorboard.backend.event_processing import event_accumulator as e\n"
               "a = e.EventAccumulator(sys.argv[1])\n"
               "a.Reload()\n"
               "print(json.dumps([[s.step, s.value, s.wall_time] for s in a.Scalars('train/loss')]))\n");
  const std::string read =
      output_of(python + " " + (folder.path() / "read.py").native() + " " + folder.path().native());
  INFO(read);
  REQUIRE(!read.empty());
  const auto scalars = nlohmann::json::parse(read);
  REQUIRE(scalars.size() == 8);
  for (int step = 0; step < 8; ++step) {
    CHECK(scalars[static_cast<std::size_t>(step)][0] == step);
    CHECK(scalars[static_cast<std::size_t>(step)][1] == (step < 4 ? 10.0 : 20.0) + step);
    CHECK(scalars[static_cast<std::size_t>(step)][2] == 1000.5 + step);
  }
}

}  // namespace automodel::metrics
