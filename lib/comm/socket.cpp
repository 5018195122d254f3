#include "comm/socket.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <sstream>
#include <utility>

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace automodel::comm {
namespace {

using Clock = std::chrono::steady_clock;

/// An address in the form that system calls take.
struct Address {
  sockaddr_storage storage = {};
  socklen_t size = 0;
  int family() const { return storage.ss_family; }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

/// Parses a numeric address; empty if it is not one.
std::optional<Address> parse_address(const std::string& text, int port) {
  Address out;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&out.storage);
  if (inet_pton(AF_INET, text.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(static_cast<std::uint16_t>(port));
    out.size = sizeof(sockaddr_in);
    return out;
  }
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&out.storage);
  if (inet_pton(AF_INET6, text.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(static_cast<std::uint16_t>(port));
    out.size = sizeof(sockaddr_in6);
    return out;
  }
  return std::nullopt;
}

/// The bare address, in network byte order.
std::string raw_bytes(const sockaddr* address) {
  std::string out;
  if (address->sa_family == AF_INET) {
    const auto& in = reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
    out.assign(reinterpret_cast<const char*>(&in), sizeof in);
  } else {
    const auto& in = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
    out.assign(reinterpret_cast<const char*>(&in), sizeof in);
  }
  return out;
}

bool in_subnet(const sockaddr* address, const std::string& subnet) {
  const auto slash = subnet.find('/');
  const auto base = parse_address(subnet.substr(0, slash), 0);
  if (!base || base->family() != address->sa_family) return false;
  const std::string a = raw_bytes(address);
  const std::string b = raw_bytes(base->get());
  std::size_t bits = a.size() * 8;
  if (slash != std::string::npos)
    bits = std::min<std::size_t>(bits, std::strtoul(subnet.c_str() + slash + 1, nullptr, 10));
  for (std::size_t i = 0; i < bits; ++i) {
    const int mask = 0x80 >> (i % 8);
    if (((a[i / 8] ^ b[i / 8]) & mask) != 0) return false;
  }
  return true;
}

bool allowed(const ifaddrs& interface, const std::string& only) {
  if (only.empty()) return true;
  std::istringstream in(only);
  for (std::string entry; std::getline(in, entry, ',');)
    if (entry == interface.ifa_name || in_subnet(interface.ifa_addr, entry)) return true;
  return false;
}

int milliseconds_until(Clock::time_point end) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
  return static_cast<int>(std::max<long long>(0, left));
}

/// Whether the descriptor becomes ready for `events` in time.
bool ready(int descriptor, short events, Clock::time_point end) {
  pollfd entry{descriptor, events, 0};
  while (true) {
    const int count = poll(&entry, 1, milliseconds_until(end));
    if (count > 0) return true;
    if (count == 0 || errno != EINTR) return false;
  }
}

Socket open_socket(int family) {
  return Socket(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

/// A connection attempt in progress; its socket is moved out when it succeeds.
struct Attempt {
  Socket socket = Socket();
  bool open = true;
};

Contact contact_of(int error) {
  return error == ECONNREFUSED || error == ECONNRESET ? Contact::kRefused : Contact::kUnreachable;
}

}  // namespace

Socket::~Socket() {
  if (descriptor_ >= 0) close(descriptor_);
}
Socket::Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
Socket& Socket::operator=(Socket&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

Listener listen_on(const std::string& address) {
  // All interfaces: an IPv6 socket also accepts IPv4 connections, if IPv6 is available.
  const auto wanted = address.empty() ? std::vector<std::string>{"::", "0.0.0.0"} : std::vector<std::string>{address};
  for (const std::string& text : wanted) {
    auto parsed = parse_address(text, 0);
    if (!parsed) continue;
    Socket socket = open_socket(parsed->family());
    if (!socket) continue;
    const int off = 0;
    if (parsed->family() == AF_INET6) setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (bind(socket.get(), parsed->get(), parsed->size) != 0 || listen(socket.get(), 64) != 0) continue;
    Address bound;
    bound.size = sizeof bound.storage;
    if (getsockname(socket.get(), reinterpret_cast<sockaddr*>(&bound.storage), &bound.size) != 0) continue;
    const int port = ntohs(bound.family() == AF_INET ? reinterpret_cast<sockaddr_in*>(&bound.storage)->sin_port
                                                     : reinterpret_cast<sockaddr_in6*>(&bound.storage)->sin6_port);
    return {std::move(socket), port};
  }
  return {};
}

Connection connect_to(const Endpoint& endpoint, std::chrono::milliseconds limit) {
  const auto end = Clock::now() + limit;
  std::vector<Attempt> attempts;
  Connection result;
  for (const std::string& text : endpoint.addresses) {
    const auto address = parse_address(text, endpoint.port);
    Socket socket = address ? open_socket(address->family()) : Socket();
    if (!socket) continue;
    if (connect(socket.get(), address->get(), address->size) == 0) return {Contact::kConnected, std::move(socket)};
    if (errno == EINPROGRESS)
      attempts.push_back({std::move(socket)});
    else if (contact_of(errno) == Contact::kRefused)
      result.contact = Contact::kRefused;
  }
  while (std::ranges::any_of(attempts, &Attempt::open)) {
    std::vector<pollfd> polled;
    for (const Attempt& attempt : attempts) polled.push_back({attempt.open ? attempt.socket.get() : -1, POLLOUT, 0});
    const int count = poll(polled.data(), polled.size(), milliseconds_until(end));
    if (count == 0 || (count < 0 && errno != EINTR)) break;
    for (std::size_t i = 0; i < polled.size(); ++i) {
      if (polled[i].fd < 0 || polled[i].revents == 0) continue;
      int error = 0;
      socklen_t size = sizeof error;
      getsockopt(polled[i].fd, SOL_SOCKET, SO_ERROR, &error, &size);
      if (error == 0) return {Contact::kConnected, std::move(attempts[i].socket)};
      attempts[i].open = false;
      if (contact_of(error) == Contact::kRefused) result.contact = Contact::kRefused;
    }
  }
  return result;
}

bool write_all(const Socket& socket, const std::string& bytes, std::chrono::milliseconds limit) {
  const auto end = Clock::now() + limit;
  for (std::size_t done = 0; done < bytes.size();) {
    const auto count = send(socket.get(), bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
    if (count > 0) {
      done += static_cast<std::size_t>(count);
    } else if ((errno != EAGAIN && errno != EINTR) || !ready(socket.get(), POLLOUT, end)) {
      return false;
    }
  }
  return true;
}

std::string read_until_closed(const Socket& socket, std::size_t most, std::chrono::milliseconds limit) {
  const auto end = Clock::now() + limit;
  std::string out;
  std::array<char, 512> part = {};
  while (out.size() < most) {
    const auto count = recv(socket.get(), part.data(), std::min(part.size(), most - out.size()), 0);
    if (count == 0) return out;
    if (count > 0)
      out.append(part.data(), static_cast<std::size_t>(count));
    else if (errno != EAGAIN && errno != EINTR)
      return "";
    else if (!ready(socket.get(), POLLIN, end))
      return out;
  }
  return out;
}

std::vector<std::string> host_addresses(const std::string& only) {
  std::vector<std::string> out;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return out;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owned(list, &freeifaddrs);
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0 || (entry->ifa_flags & IFF_LOOPBACK) != 0)
      continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    // Link-local addresses are useless without knowing the other side's interface.
    if (family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<sockaddr_in6*>(entry->ifa_addr)->sin6_addr))
      continue;
    if (!allowed(*entry, only)) continue;
    std::array<char, INET6_ADDRSTRLEN> text = {};
    inet_ntop(family, raw_bytes(entry->ifa_addr).data(), text.data(), text.size());
    out.emplace_back(text.data());
  }
  return out;
}

}  // namespace automodel::comm
