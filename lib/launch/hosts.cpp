#include "launch/hosts.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <csignal>
#include <fstream>
#include <sstream>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "launch/srun.h"

namespace automodel::launch {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kAtOnce = 32;  // hosts probed at a time
constexpr std::size_t kNamed = 8;
constexpr std::chrono::milliseconds kLook{20};

constexpr std::array kCountOptions = {"-np", "-n", "-c", "--np", "--n"};
constexpr std::array kHostOptions = {"--host", "-host", "-H"};
constexpr std::array kFileOptions = {"--hostfile", "-hostfile", "--machinefile", "-machinefile", "--default-hostfile"};

bool is_one_of(const std::string& word, const auto& options) {
  return std::ranges::find(options, word) != options.end();
}

int number_of(const std::string& text) {
  int out = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc{} && end == text.data() + text.size() ? out : 0;
}

/// Adds slots to a host, which may be listed already; a host without a slot count gets 0.
void add(std::vector<Host>& hosts, const std::string& name, int slots) {
  const auto found = std::ranges::find(hosts, name, &Host::name);
  if (found == hosts.end())
    hosts.push_back({name, slots});
  else
    found->slots += slots;
}

void add_list(std::vector<Host>& hosts, const std::string& list) {
  std::istringstream in(list);
  for (std::string each; std::getline(in, each, ',');) {
    const auto colon = each.find(':');
    if (!each.empty())
      add(hosts, each.substr(0, colon), colon == std::string::npos ? 1 : number_of(each.substr(colon + 1)));
  }
}

void add_file(std::vector<Host>& hosts, const std::string& path) {
  std::ifstream file(path);
  if (!file)
    throw Error(Diagnostic{"usage"}
                    .says("the file of hosts '{}' cannot be read", path)
                    .hint("--start-with names it; its path is that of this directory")
                    .at({"command line", 0, 0}));
  for (std::string line; std::getline(file, line);) {
    std::istringstream in(line.substr(0, line.find('#')));
    std::string name;
    if (!(in >> name)) continue;
    int slots = 0;
    for (std::string word; in >> word;)
      if (word.starts_with("slots=")) slots = number_of(word.substr(6));
    add(hosts, name, slots);
  }
}

/// Starts the command with input and output on /dev/null, in its own process group; -1 on failure.
pid_t start_silently(std::vector<std::string> words) {
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t child = fork();
  if (child != 0) return child;
  setpgid(0, 0);
  const int nothing = open("/dev/null", O_RDWR);
  for (const int each : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(nothing, each);
  execvp(argv[0], argv.data());
  _exit(127);
}

/// For each process, whether it succeeded in time; late ones are killed.
std::vector<bool> ended_well(const std::vector<pid_t>& children, std::chrono::seconds patience) {
  std::vector<bool> out(children.size(), false);
  std::vector<bool> gone(children.size(), false);
  const auto end = Clock::now() + patience;
  while (std::ranges::find(gone, false) != gone.end()) {
    const bool late = Clock::now() > end;
    for (std::size_t i = 0; i < children.size(); ++i) {
      if (gone[i]) continue;
      if (late && children[i] > 0) kill(-children[i], SIGKILL);
      int status = 0;
      if (children[i] > 0 && waitpid(children[i], &status, late ? 0 : WNOHANG) == 0) continue;
      gone[i] = true;
      out[i] = children[i] > 0 && !late && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
    std::this_thread::sleep_for(kLook);
  }
  return out;
}

}  // namespace

HostJob take_apart(const std::vector<std::string>& starter) {
  if (starts_with_srun(starter)) return take_apart_srun(starter, this_allocation());
  HostJob out;
  for (std::size_t i = 0; i < starter.size(); ++i) {
    const bool has_value = i + 1 < starter.size();
    if (has_value && is_one_of(starter[i], kCountOptions))
      out.ranks = number_of(starter[++i]);
    else if (has_value && is_one_of(starter[i], kHostOptions))
      add_list(out.hosts, starter[++i]);
    else if (has_value && is_one_of(starter[i], kFileOptions))
      add_file(out.hosts, starter[++i]);
    else
      out.words.push_back(starter[i]);
  }
  int slots = 0;
  const int share =
      out.hosts.empty() ? 0 : (out.ranks + static_cast<int>(out.hosts.size()) - 1) / static_cast<int>(out.hosts.size());
  for (auto& host : out.hosts) slots += host.slots = host.slots > 0 ? host.slots : std::max(1, share);
  if (out.ranks == 0) out.ranks = slots;
  return out;
}

std::vector<std::string> put_together(const HostJob& job) {
  if (job.starter == Starter::kSrun) return put_together_srun(job);
  auto out = job.words;
  std::string hosts;
  for (const auto& host : job.hosts) hosts += fmt::format("{}{}:{}", hosts.empty() ? "" : ",", host.name, host.slots);
  out.insert(out.end(), {"-np", std::to_string(job.ranks), "--host", hosts});
  return out;
}

std::vector<Host> answering_hosts(const HostJob& job, std::chrono::seconds patience) {
  std::vector<Host> out;
  for (std::size_t first = 0; first < job.hosts.size(); first += kAtOnce) {
    const auto end = std::min(job.hosts.size(), first + kAtOnce);
    std::vector<pid_t> children;
    for (auto i = first; i < end; ++i) {
      auto alone = job;
      alone.ranks = 1;
      alone.hosts = {{job.hosts[i].name, 1}};
      auto words = put_together(alone);
      words.emplace_back("true");
      children.push_back(start_silently(std::move(words)));
    }
    const auto well = ended_well(children, patience);
    for (auto i = first; i < end; ++i)
      if (well[i - first]) out.push_back(job.hosts[i]);
  }
  if (job.at_once > 0 && out.size() > job.at_once) out.resize(job.at_once);
  return out;
}

std::string names_of(const std::vector<Host>& hosts) {
  std::string out;
  for (std::size_t i = 0; i < hosts.size() && i < kNamed; ++i) out += (i > 0 ? ", " : "") + hosts[i].name;
  return hosts.size() <= kNamed ? out : fmt::format("{} and {} more", out, hosts.size() - kNamed);
}

}  // namespace automodel::launch
