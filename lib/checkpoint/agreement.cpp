#include "checkpoint/agreement.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <string>

#include <fmt/format.h>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "base/error.h"

namespace automodel::checkpoint {
namespace {

constexpr std::int64_t kLongest = 4096;  // maximum length of a problem's text
constexpr char kSeparator = '\x1f';      // between exit code, id, message and help

std::string cut(const std::string& text, std::size_t most) {
  return text.size() <= most ? text : text.substr(0, most) + "...";
}

std::string packed(ExitCode code, const Diagnostic& problem) {
  return fmt::format("{1}{0}{2}{0}{3}{0}{4}", kSeparator, static_cast<int>(code), problem.id.name(),
                     cut(problem.message, 2500), cut(problem.help, 1000));
}

Diagnostic unpacked(std::string_view text) {
  const auto part = [&] {
    const auto end = std::min(text.find(kSeparator), text.size());
    const std::string out(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    return out;
  };
  const auto code = static_cast<ExitCode>(std::stoi(part()));
  Diagnostic out{ProblemId::named(part()).value_or(ProblemId("internal"))};
  out.says(part()).exits(code);
  return out.hint(part());
}

/// The problem with which `work` fails, as text; "" if it succeeds. Any other exception (out of memory, a defect) ends
/// the job at once with its own cause (comm::ending).
std::string attempt(const std::function<void()>& work) {
  try {
    work();
    return "";
  } catch (const Error& error) {
    return packed(error.code(), error.problems().front());
  } catch (const std::filesystem::filesystem_error& error) {
    return packed(ExitCode::kCheckpoint, Diagnostic{"cannot-write"}.says(error.what()));
  }
}

}  // namespace

void together(comm::Communicator& group, const std::function<void()>& work) {
  const std::string mine = attempt(work);
  auto text = at::zeros({kLongest}, at::kByte);
  std::memcpy(text.mutable_data_ptr(), mine.data(), std::min<std::size_t>(mine.size(), kLongest - 1));
  auto all = at::empty({kLongest * group.size()}, at::kByte);
  group.all_gather(all, text)->wait();
  for (int rank = 0; rank < group.size(); ++rank) {
    const auto* words = static_cast<const char*>(all.const_data_ptr()) + rank * kLongest;
    if (*words == '\0') continue;
    const auto problem = unpacked(words);
    throw Error(problem.exit(), problem, group.ranks()[static_cast<std::size_t>(rank)]);
  }
}

std::vector<std::uint64_t> gather_numbers(comm::Communicator& group, const std::vector<std::uint64_t>& mine) {
  const auto count = static_cast<std::int64_t>(mine.size());
  auto sent = at::empty({count}, at::kLong);
  std::memcpy(sent.mutable_data_ptr(), mine.data(), mine.size() * sizeof(std::uint64_t));
  auto all = at::empty({count * group.size()}, at::kLong);
  if (count > 0) group.all_gather(all, sent)->wait();
  std::vector<std::uint64_t> out(static_cast<std::size_t>(all.numel()));
  std::memcpy(out.data(), all.const_data_ptr(), out.size() * sizeof(std::uint64_t));
  return out;
}

}  // namespace automodel::checkpoint
