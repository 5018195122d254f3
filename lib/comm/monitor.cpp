#include "comm/monitor.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/host_name.h"
#include "base/log.h"

namespace automodel::comm {
namespace {

/// Limit for connecting, and for the reply.
constexpr std::chrono::milliseconds kAskLimit{1000};
/// Number of ranks to try as arbiter of who reports: the first that answers decides.
constexpr int kMostJudges = 4;
/// Limits for silencing one rank, and all ranks.
constexpr std::chrono::milliseconds kSilenceLimit{100};
constexpr std::chrono::milliseconds kAllSilentLimit{800};
/// How long an unknown client that connects and stays silent can block others.
constexpr std::chrono::milliseconds kRequestLimit{250};
constexpr std::size_t kLongestMessage = 1024;
/// First line of every reply, so that another program that got a dead rank's port is not mistaken for it.
constexpr std::string_view kGreeting = "automodel-monitor";
constexpr std::string_view kAskDoing = "doing";
constexpr std::string_view kAskClaim = "claim";
constexpr std::string_view kAskSilence = "silence";

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

/// The interfaces that MPI was told to use; "" if none.
std::string mpi_interfaces() {
  const std::string data = environment("OMPI_MCA_btl_tcp_if_include");
  return data.empty() ? environment("OMPI_MCA_oob_tcp_if_include") : data;
}

void close_standard_error() {
  const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (nowhere < 0) return;
  dup2(nowhere, STDERR_FILENO);
  close(nowhere);
}

/// Constant-time comparison.
bool equal_secret(const std::string& a, const std::string& b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    difference |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
  return difference == 0;
}

}  // namespace

std::string host_id() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id") >> std::ws, boot);
  std::array<char, 64> network = {};
  const auto length = readlink("/proc/self/ns/net", network.data(), network.size() - 1);
  return fmt::format("{}/{}/{}", host_name(), boot, length > 0 ? network.data() : "");
}

std::string to_wire(const MonitorAddress& address) {
  std::string out = fmt::format("{} {} {}", address.host, address.host_id, address.endpoint.port);
  for (const std::string& text : address.endpoint.addresses) out += " " + text;
  return out;
}

MonitorAddress monitor_address_from_wire(const std::string& line) {
  std::istringstream in(line);
  MonitorAddress out;
  in >> out.host >> out.host_id >> out.endpoint.port;
  for (std::string text; in >> text;) out.endpoint.addresses.push_back(text);
  return out;
}

Monitor::Monitor(int rank, bool one_host) : rank_(rank) {
  address_.host = host_name();
  address_.host_id = host_id();
  listener_ = listen_on(one_host ? "127.0.0.1" : "");
  address_.endpoint.port = listener_.port;
  if (!one_host) address_.endpoint.addresses = host_addresses(mpi_interfaces());
  if (!one_host && address_.endpoint.addresses.empty()) address_.endpoint.addresses = host_addresses("");
  if (!listener_.socket) log::warning("no TCP port is available: hang reports will not say what this rank is doing");
}

Monitor::~Monitor() {
  stop_ = true;
  // Wakes the thread from poll().
  if (listener_.socket) shutdown(listener_.socket.get(), SHUT_RDWR);
  if (thread_.joinable()) thread_.join();
}

void Monitor::begin(std::vector<MonitorAddress> peers, std::string secret, const Activity& activity) {
  peers_ = std::move(peers);
  secret_ = std::move(secret);
  activity_ = &activity;
  for (MonitorAddress& peer : peers_) {
    auto& addresses = peer.endpoint.addresses;
    if (peer.host_id == address_.host_id) {
      addresses = {"127.0.0.1"};
      continue;
    }
    // An address that this host has too (a container bridge) would connect to this host itself.
    std::erase_if(addresses, [this](const std::string& text) {
      return std::ranges::find(address_.endpoint.addresses, text) != address_.endpoint.addresses.end();
    });
  }
  if (listener_.socket) thread_ = std::thread([this] { serve(); });
}

void Monitor::serve() {
  while (!stop_) {
    pollfd entry{listener_.socket.get(), POLLIN, 0};
    if (poll(&entry, 1, 1000) <= 0 || stop_) continue;
    const Socket client(accept4(listener_.socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!client) continue;
    const std::string reply = reply_to(read_until_closed(client, kLongestMessage, kRequestLimit));
    if (!reply.empty()) write_all(client, reply, kRequestLimit);
  }
}

std::string Monitor::reply_to(const std::string& request) {
  const auto space = request.find(' ');
  if (space == std::string::npos || !equal_secret(request.substr(0, space), secret_)) return "";
  const std::string verb = request.substr(space + 1);
  if (verb == kAskDoing) return fmt::format("{} {}\n{}", kGreeting, rank_, to_wire(activity_->now()));
  if (verb == kAskClaim) return fmt::format("{} {}\n{}", kGreeting, rank_, claimed_.exchange(true) ? "no" : "yes");
  if (verb == kAskSilence) {
    close_standard_error();
    return fmt::format("{} {}\nyes", kGreeting, rank_);
  }
  return "";
}

std::string Monitor::question(int rank, std::string_view verb, Contact& contact,
                              std::chrono::milliseconds limit) const {
  const auto& peer = peers_.at(static_cast<std::size_t>(rank));
  const Connection connection = connect_to(peer.endpoint, limit);
  contact = connection.contact;
  if (contact != Contact::kConnected) return "";
  if (!write_all(connection.socket, fmt::format("{} {}", secret_, verb), limit)) return "";
  shutdown(connection.socket.get(), SHUT_WR);
  const std::string reply = read_until_closed(connection.socket, kLongestMessage, limit);
  const std::string greeting = fmt::format("{} {}\n", kGreeting, rank);
  return reply.starts_with(greeting) ? reply.substr(greeting.size()) : "";
}

Answer Monitor::ask(int rank) {
  Answer answer;
  answer.host = peers_.at(static_cast<std::size_t>(rank)).host;
  if (peers_[static_cast<std::size_t>(rank)].endpoint.port == 0) return answer;
  Contact contact = Contact::kUnreachable;
  const auto doing = doing_from_wire(question(rank, kAskDoing, contact, kAskLimit));
  if (contact == Contact::kRefused) answer.kind = Answer::Kind::kGone;
  if (contact == Contact::kUnreachable) answer.kind = Answer::Kind::kUnreachable;
  if (contact == Contact::kConnected) answer.kind = doing ? Answer::Kind::kDoing : Answer::Kind::kSilent;
  if (doing) answer.doing = *doing;
  return answer;
}

bool Monitor::claim_last_words() {
  const int judges = std::min(static_cast<int>(peers_.size()), kMostJudges);
  for (int judge = 0; judge < judges; ++judge) {
    if (judge == rank_) return !claimed_.exchange(true);
    Contact contact = Contact::kUnreachable;
    const std::string reply = question(judge, kAskClaim, contact, kAskLimit);
    if (!reply.empty()) return reply != "no";
  }
  return !claimed_.exchange(true);
}

void Monitor::silence_others() const {
  const auto end = std::chrono::steady_clock::now() + kAllSilentLimit;
  for (int rank = 0; rank < static_cast<int>(peers_.size()); ++rank) {
    if (rank == rank_) continue;
    if (std::chrono::steady_clock::now() > end) return;
    Contact contact = Contact::kUnreachable;
    question(rank, kAskSilence, contact, kSilenceLimit);
  }
}

}  // namespace automodel::comm
