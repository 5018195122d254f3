#include "metrics/tensorboard.h"

#include <bit>
#include <chrono>
#include <variant>

#include <fmt/format.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/host_name.h"

namespace automodel::metrics {
namespace {

// Protocol Buffers' wire format: a field is (number << 3 | wire type) and its value.

void put_varint(std::string& out, std::uint64_t value) {
  while (value >= 128) {
    out += static_cast<char>(value | 128);
    value >>= 7;
  }
  out += static_cast<char>(value);
}

template <class Word>
void put_fixed(std::string& out, Word value) {
  for (std::size_t byte = 0; byte < sizeof(Word); ++byte) out += static_cast<char>(value >> (8 * byte));
}

void put_integer(std::string& out, unsigned field, std::int64_t value) {
  put_varint(out, field << 3);
  put_varint(out, static_cast<std::uint64_t>(value));
}
void put_double(std::string& out, unsigned field, double value) {
  put_varint(out, field << 3 | 1U);
  put_fixed(out, std::bit_cast<std::uint64_t>(value));
}
void put_bytes(std::string& out, unsigned field, std::string_view value) {
  put_varint(out, field << 3 | 2U);
  put_varint(out, value.size());
  out += value;
}
void put_float(std::string& out, unsigned field, float value) {
  put_varint(out, field << 3 | 5U);
  put_fixed(out, std::bit_cast<std::uint32_t>(value));
}

// Field numbers of event.proto and summary.proto.
constexpr unsigned kEventWallTime = 1;
constexpr unsigned kEventStep = 2;
constexpr unsigned kEventFileVersion = 3;
constexpr unsigned kEventSummary = 5;
constexpr unsigned kEventSessionLog = 7;
constexpr unsigned kSessionLogStatus = 1;
constexpr std::int64_t kSessionLogStart = 1;
constexpr unsigned kSummaryValue = 1;
constexpr unsigned kValueTag = 1;
constexpr unsigned kValueSimpleValue = 2;

std::string event_at(double wall_time, std::int64_t step) {
  std::string event;
  put_double(event, kEventWallTime, wall_time);
  put_integer(event, kEventStep, step);
  return event;
}

/// A TFRecord: length, CRC of the length, data, CRC of the data.
std::string record_of(const std::string& data) {
  std::string out;
  put_fixed(out, static_cast<std::uint64_t>(data.size()));
  put_fixed(out, masked_crc32c(out));
  out += data;
  put_fixed(out, masked_crc32c(data));
  return out;
}

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

EventFile::EventFile(const std::filesystem::path& folder, std::int64_t first_step) {
  const double time = now();
  std::filesystem::path path;
  int number = 0;  // distinguishes files that this process creates within the same second
  do {
    path = folder / fmt::format("events.out.tfevents.{:010}.{}.{}.{}", static_cast<std::int64_t>(time), host_name(),
                                getpid(), number++);
  } while (std::filesystem::exists(path));
  file_ = std::make_unique<AppendFile>(path, AppendFile::Mode::kNew);
  std::string version = event_at(time, 0);
  put_bytes(version, kEventFileVersion, "brain.Event:2");
  file_->append(record_of(version));
  if (first_step == 0) return;
  std::string session;
  put_integer(session, kSessionLogStatus, kSessionLogStart);
  std::string restart = event_at(time, first_step);
  put_bytes(restart, kEventSessionLog, session);
  file_->append(record_of(restart));
}

void EventFile::append(const RecordView& record, std::string_view prefix) {
  std::string summary;
  for (const auto& [key, value] : record.metrics) {
    const auto* integer = std::get_if<std::int64_t>(&value);
    if (integer == nullptr && !std::holds_alternative<double>(value)) continue;  // unknown, or not a scalar
    std::string scalar;
    put_bytes(scalar, kValueTag, fmt::format("{}/{}", prefix, key));
    put_float(scalar, kValueSimpleValue,
              static_cast<float>(integer != nullptr ? static_cast<double>(*integer) : std::get<double>(value)));
    put_bytes(summary, kSummaryValue, scalar);
  }
  std::string event = event_at(record.timestamp, record.step);
  put_bytes(event, kEventSummary, summary);
  file_->append(record_of(event));
}

}  // namespace automodel::metrics
