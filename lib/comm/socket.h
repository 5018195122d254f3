// TCP for short requests and replies, with a time limit on everything.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace automodel::comm {

/// Owns a file descriptor; -1 means none.
class Socket {
 public:
  explicit Socket(int descriptor = -1) : descriptor_(descriptor) {}
  ~Socket();
  Socket(Socket&& other) noexcept;
  Socket& operator=(Socket&& other) noexcept;
  int get() const { return descriptor_; }
  explicit operator bool() const { return descriptor_ >= 0; }

 private:
  int descriptor_;
};

/// A listener's address: numeric addresses (IPv4 or IPv6), any of which may be reachable, and a port.
struct Endpoint {
  std::vector<std::string> addresses = {};
  int port = 0;
};

/// Listens on `address` ("" for all) at a port chosen by the system, which is returned. `socket` is empty on failure.
struct Listener {
  Socket socket = Socket();
  int port = 0;
};
Listener listen_on(const std::string& address);

enum class Contact {
  kConnected,
  kRefused,      ///< the host is up but nothing is listening
  kUnreachable,  ///< no answer in time, or no route
};
struct Connection {
  Contact contact = Contact::kUnreachable;
  Socket socket = Socket();
};
/// Tries all addresses concurrently and uses the first that connects.
Connection connect_to(const Endpoint& endpoint, std::chrono::milliseconds limit);

/// Writes all of `bytes`; false if that was not possible in time.
bool write_all(const Socket& socket, const std::string& bytes, std::chrono::milliseconds limit);
/// Reads until the peer closes, `most` bytes have arrived or the time is up, and returns what has arrived. Empty if the
/// connection broke.
std::string read_until_closed(const Socket& socket, std::size_t most, std::chrono::milliseconds limit);

/// Addresses of this host's interfaces that are up, except loopback. `only` restricts them to a comma-separated list of
/// interface names, addresses or CIDR subnets (as in Open MPI's btl_tcp_if_include); "" means all.
std::vector<std::string> host_addresses(const std::string& only);

}  // namespace automodel::comm
