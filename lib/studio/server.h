// HTTP on the loopback interface, for the browser of the person who started the program.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace automodel::studio {

struct Request {
  bool post = false;      ///< otherwise GET or HEAD
  std::string path = {};  ///< "/api/plan"
  /// Decoded, in order; without the token.
  std::vector<std::pair<std::string, std::string>> query = {};
  std::string body = {};

  /// The first value of that name; empty if there is none.
  std::optional<std::string> value(std::string_view name) const;
};

struct Answer {
  std::string body = {};
  std::string type = "application/json";
  int status = 200;
  std::vector<std::pair<std::string, std::string>> headers = {};  ///< further ones
};

/// Called for one request at a time, and only for those that carry the token.
using Handler = std::function<Answer(const Request& request)>;

/// The most that a request may hold: bytes of its first line and headers, and of its body.
inline constexpr std::size_t kMaxHeaders = 16 << 10, kMaxBody = 64 << 10;
/// A connection on which nothing happens for so long is closed, in seconds.
inline constexpr int kIdleSeconds = 15;

/// `bytes` random bytes of the system, in hexadecimal.
std::string random_hex(std::size_t bytes);

/// Refuses, before the handler sees anything: requests without the token (403), for another Host or from another Origin
/// (403), with another method than GET, HEAD or POST (405), beyond the limits (413, 400).
class Server {
 public:
  /// Listens on 127.0.0.1; port 0 is a free one. Throws Error (cannot-start) if it cannot.
  Server(int port, Handler handler);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  int port() const;
  const std::string& token() const;
  /// With the token.
  std::string address() const;
  /// Answers requests for as long as the process lives.
  void serve();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace automodel::studio
