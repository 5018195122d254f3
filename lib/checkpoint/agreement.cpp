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
constexpr char kSeparator = '\x1f';      // between the problem's id, message and help

std::string cut(const std::string& text, std::size_t most) {
  return text.size() <= most ? text : text.substr(0, most) + "...";
}

std::string packed(const Diagnostic& problem) {
  return problem.id + kSeparator + cut(problem.message, 2500) + kSeparator + cut(problem.help, 1000);
}

Diagnostic unpacked(const std::string& text) {
  const auto first = text.find(kSeparator), second = text.find(kSeparator, first + 1);
  return {text.substr(0, first), text.substr(first + 1, second - first - 1), text.substr(second + 1), {}, ""};
}

/// The problem with which `work` fails, as text; "" if it succeeds. Any other exception (out of memory, a defect) ends
/// the job at once with its own cause (comm::ending).
std::string attempt(const std::function<void()>& work) {
  try {
    work();
    return "";
  } catch (const Error& error) {
    return packed(error.problems().front());
  } catch (const std::filesystem::filesystem_error& error) {
    return packed({"cannot-write", error.what(), "", {}, ""});
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
    if (*words != '\0')
      throw Error(ExitCode::kCheckpoint, unpacked(words), group.ranks()[static_cast<std::size_t>(rank)]);
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
