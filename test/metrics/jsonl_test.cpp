#include "metrics/jsonl.h"

#include <cmath>
#include <csignal>
#include <limits>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <sys/resource.h>

#include "base/error.h"
#include "base/log.h"
#include "temporary_folder.h"

namespace automodel::metrics {
namespace {

StepRecord record_of(std::int64_t step) {
  return {.step = step,
          .epoch = step / 10,
          .timestamp = 1795262400.1234,
          .loss = 2.5 + static_cast<double>(step),
          .grad_norm = 0.1,
          .lr = 1e-5,
          .mem = 11.54,
          .tps = 2122.0,
          .tps_per_gpu = 1061.0,
          .mfu = 0.41,
          .num_tokens_per_step = 4096,
          .num_label_tokens = 2123,
          .step_time = 1.0 / 3};
}

/// The steps of a file, each line of which must be JSON to a strict parser.
std::vector<int> steps_of(const test::TemporaryFolder& folder) {
  std::vector<int> out;
  const std::string text = folder.read("training.jsonl");
  CHECK((text.empty() || text.back() == '\n'));
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    out.push_back(nlohmann::json::parse(text.substr(begin, end - begin))["step"].get<int>());
    begin = end + 1;
  }
  return out;
}

void append_steps(const test::TemporaryFolder& folder, std::int64_t first, std::int64_t end) {
  JsonLines file(folder.path() / "training.jsonl", first);
  for (std::int64_t step = first; step < end; ++step) file.append(view_of(record_of(step)));
}

using Steps = std::vector<int>;

}  // namespace

TEST_CASE("a classifier's and a student's figures are in their records, and in no others", "[metrics]") {
  const auto plain = nlohmann::json::parse(json_line(view_of(record_of(1))));
  for (const char* key : {"accuracy", "ce_loss", "kd_loss"}) CHECK_FALSE(plain.contains(key));
  auto record = record_of(1);
  record.accuracy = 0.75;
  CHECK(nlohmann::json::parse(json_line(view_of(record)))["accuracy"] == 0.75);
  ValidationRecord validation{.val_loss = 1, .ce_loss = 0.0, .kd_loss = 0.25};
  const auto student = nlohmann::json::parse(json_line(view_of(validation)));
  CHECK(student["ce_loss"] == 0.0);
  CHECK(student["kd_loss"] == 0.25);
  CHECK_FALSE(student.contains("accuracy"));
}

TEST_CASE("a training record has its keys in order and exact numbers", "[metrics]") {
  CHECK(json_line(view_of(record_of(3))) ==
        "{\"step\": 3, \"epoch\": 0, \"timestamp\": \"2026-11-21T12:00:00.123Z\", \"loss\": 5.5, \"grad_norm\": 0.1, "
        "\"lr\": 1e-05, \"mem\": 11.54, \"tps\": 2122.0, \"tps_per_gpu\": 1061.0, \"mfu\": 0.41, "
        "\"num_tokens_per_step\": 4096, \"num_label_tokens\": 2123, \"step_time\": 0.3333333333333333}");
}

TEST_CASE("a validation record has NeMo AutoModel's keys", "[metrics]") {
  CHECK(json_line(view_of(ValidationRecord{3, 0, 0.9996, 2.25, 1e-4, 77, 1.5})) ==
        "{\"step\": 3, \"epoch\": 0, \"timestamp\": \"1970-01-01T00:00:01.000Z\", \"val_loss\": 2.25, \"lr\": 1e-04, "
        "\"num_label_tokens\": 77, \"mem\": 1.5}");
}

TEST_CASE("values that are not finite or not known are written as strict JSON", "[metrics]") {
  StepRecord record = record_of(0);
  record.loss = std::nan("");
  record.grad_norm = std::numeric_limits<double>::infinity();
  record.lr = -std::numeric_limits<double>::infinity();
  record.mfu = std::nullopt;
  const auto json = nlohmann::json::parse(json_line(view_of(record)));
  CHECK(json["loss"] == "NaN");
  CHECK(json["grad_norm"] == "Infinity");
  CHECK(json["lr"] == "-Infinity");
  CHECK(json["mfu"].is_null());
}

TEST_CASE("numbers in records read back to the same double", "[metrics]") {
  for (const double value : {0.0, -0.0, 0.1, 1e300, 5e-324, 123456789012345680.0, 1e21, 2.0 / 3, 1e-7, 100.0}) {
    StepRecord record = record_of(0);
    record.loss = value;
    const std::string line = json_line(view_of(record));
    INFO(line);
    const auto json = nlohmann::json::parse(line);
    CHECK(json["loss"].is_number_float());
    CHECK(json["loss"].get<double>() == value);
  }
}

TEST_CASE("the file of a resumed run has each step once", "[metrics]") {
  const test::TemporaryFolder folder;
  append_steps(folder, 0, 8);
  append_steps(folder, 5, 10);
  CHECK(steps_of(folder) == Steps{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  append_steps(folder, 10, 11);
  CHECK(steps_of(folder).size() == 11);
  append_steps(folder, 0, 2);
  CHECK(steps_of(folder) == Steps{0, 1});
}

TEST_CASE("a line cut off by a crash is removed, a complete one without its line break is kept", "[metrics]") {
  const test::TemporaryFolder folder;
  append_steps(folder, 0, 4);
  const std::string text = folder.read("training.jsonl");
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    folder.write("training.jsonl", text.substr(0, cut));
    const auto whole = static_cast<int>(std::count(text.begin(), text.begin() + static_cast<long>(cut), '\n'));
    const bool only_break_missing = cut < text.size() && text[cut] == '\n';
    append_steps(folder, 4, 5);
    Steps expected;
    for (int step = 0; step < whole + (only_break_missing ? 1 : 0); ++step) expected.push_back(step);
    expected.push_back(4);
    REQUIRE(steps_of(folder) == expected);
  }
}

TEST_CASE("lines that are not records are removed, records of other programs are kept", "[metrics]") {
  const test::TemporaryFolder folder;
  folder.write("training.jsonl",
               "{\"loss\":1,\"step\":0}\nnonsense\n\n[1]\n{\"step\": \"x\"}\n{\"step\": 7, \"loss\": 1}\n{\"step\": 1, "
               "\"loss\": 2}\n");
  append_steps(folder, 2, 3);
  CHECK(steps_of(folder) == Steps{0, 1, 2});
}

TEST_CASE("a cut-off line that ends in a brace is still removed", "[metrics]") {
  const test::TemporaryFolder folder;
  folder.write("training.jsonl", "{\"step\": 0, \"a\": {\"b\": 1}}\n{\"step\": 1, \"a\": {\"b\": 1}");
  append_steps(folder, 2, 3);
  CHECK(steps_of(folder) == Steps{0, 2});
}

TEST_CASE("a record is in the file when append returns", "[metrics]") {
  const test::TemporaryFolder folder;
  JsonLines file(folder.path() / "training.jsonl", 0);
  for (int step = 0; step < 3; ++step) {
    file.append(view_of(record_of(step)));
    CHECK(steps_of(folder).size() == static_cast<std::size_t>(step + 1));
  }
}

TEST_CASE("an unwritable file is an environment error", "[metrics]") {
  const test::TemporaryFolder folder;
  try {
    JsonLines file(folder.path() / "no" / "training.jsonl", 0);
    FAIL("opened");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kEnvironment);
    CHECK(error.problems().at(0).id == "unwritable-file");
  }
}

TEST_CASE("a full disk is a warning, once until something can be written again, and leaves no half record",
          "[metrics]") {
  const test::TemporaryFolder folder;
  std::vector<std::string> warnings;
  log::set_listener([&](std::string_view text) { warnings.emplace_back(text); });
  AppendFile full("/dev/full", AppendFile::Mode::kExisting);
  full.append("a record\n");
  full.append("another\n");
  REQUIRE(warnings.size() == 1);
  CHECK(warnings[0] ==
        "'/dev/full' cannot be written (No space left on device); its newest records stay in memory until it can");
  // A file that may have ten bytes takes the first half of a record.
  rlimit limit = {}, small = {};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &limit) == 0);
  small = {10, limit.rlim_max};
  const auto path = folder.path() / "steps.jsonl";
  AppendFile file(path, AppendFile::Mode::kNew);
  file.append("12345\n");
  const auto old = std::signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &small);
  file.append("67890\n");
  setrlimit(RLIMIT_FSIZE, &limit);
  std::signal(SIGXFSZ, old);
  CHECK(folder.read("steps.jsonl") == "12345\n");
  file.append("abcdef\n");
  CHECK(folder.read("steps.jsonl") == "12345\n67890\nabcdef\n");
  CHECK(warnings.size() == 2);
  log::set_listener({});
}

}  // namespace automodel::metrics
