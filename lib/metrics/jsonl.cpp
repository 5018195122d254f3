#include "metrics/jsonl.h"

#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <ctime>
#include <fstream>
#include <iterator>
#include <optional>
#include <string_view>
#include <system_error>
#include <variant>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace automodel::metrics {
namespace {

/// How every line that json_line writes begins.
constexpr std::string_view kStart = "{\"step\": ";

struct ValueText {
  std::string operator()(std::nullptr_t) const { return "null"; }
  std::string operator()(std::int64_t value) const { return std::to_string(value); }
  std::string operator()(double value) const { return number_text(value); }
  std::string operator()(const std::vector<double>& values) const {
    std::string out = "[";
    for (const double value : values) out += (out.size() > 1 ? ", " : "") + number_text(value);
    return out + "]";
  }
};

/// The step of a record, or empty if the line is not a record. Complete lines in json_line's format are not fully
/// parsed: only the last line of a file can be torn, and that one has no line break.
std::optional<std::int64_t> step_of(std::string_view line, bool whole) {
  if (whole && line.starts_with(kStart) && line.ends_with('}')) {
    std::int64_t step = 0;
    const auto [end, error] = std::from_chars(line.data() + kStart.size(), line.data() + line.size(), step);
    if (error == std::errc{} && *end == ',') return step;
  }
  const auto object = nlohmann::json::parse(line, nullptr, false);
  if (!object.is_object() || !object.contains("step") || !object["step"].is_number_integer()) return std::nullopt;
  return object["step"].get<std::int64_t>();
}

/// The lines of `text` to keep: complete records of steps before `first_step`.
std::string kept_lines(std::string_view text, std::int64_t first_step) {
  std::string kept;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    const std::string_view line = text.substr(begin, end - begin);
    const auto step = step_of(line, end != std::string_view::npos);
    if (step && *step < first_step) kept.append(line).append("\n");
    begin += line.size() + 1;
  }
  return kept;
}

/// Removes stale records from the file and returns its path. If what remains is a prefix of the file, the file is
/// truncated in place, so that a program following it can continue; otherwise a new file is written and renamed over
/// it, so that a crash in between loses nothing.
std::filesystem::path repaired(const std::filesystem::path& path, std::int64_t first_step) {
  std::string text;
  {
    std::ifstream old(path, std::ios::binary);
    if (old) text.assign(std::istreambuf_iterator<char>(old), {});
  }
  const std::string kept = kept_lines(text, first_step);
  if (kept == text) return path;
  if (text.starts_with(kept)) {
    AppendFile(path, AppendFile::Mode::kExisting).truncate(static_cast<std::int64_t>(kept.size()));
    return path;
  }
  const std::filesystem::path fresh = path.native() + ".new";
  std::ofstream out(fresh, std::ios::binary | std::ios::trunc);
  out.write(kept.data(), static_cast<std::streamsize>(kept.size()));
  out.close();
  if (!out) fail_unwritable(fresh, "the folder cannot be written to, or the disk is full");
  std::error_code error;
  std::filesystem::rename(fresh, path, error);
  if (error) fail_unwritable(path, error.message());
  return path;
}

}  // namespace

std::string number_text(double value) {
  if (std::isnan(value)) return "\"NaN\"";
  if (std::isinf(value)) return value > 0 ? "\"Infinity\"" : "\"-Infinity\"";
  std::array<char, 32> buffer;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr;
  std::string text(buffer.data(), end);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string time_text(double timestamp) {
  const auto milliseconds = static_cast<std::int64_t>(std::llround(timestamp * 1000));
  const auto seconds = static_cast<std::time_t>(milliseconds / 1000);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday,
                     utc.tm_hour, utc.tm_min, utc.tm_sec, milliseconds % 1000);
}

std::string json_text(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string json_line(const RecordView& record) {
  std::string out = fmt::format("{{\"step\": {}, \"epoch\": {}, \"timestamp\": \"{}\"", record.step, record.epoch,
                                time_text(record.timestamp));
  for (const auto& [key, value] : record.metrics)
    out += fmt::format(", \"{}\": {}", key, std::visit(ValueText{}, value));
  return out + "}";
}

JsonLines::JsonLines(const std::filesystem::path& path, std::int64_t first_step)
    : file_(repaired(path, first_step), AppendFile::Mode::kExisting) {}

void JsonLines::append(const RecordView& record) {
  file_.append(json_line(record) + "\n");
}

}  // namespace automodel::metrics
