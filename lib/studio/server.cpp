#include "studio/server.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <exception>

#include <arpa/inet.h>
#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/keyvalq_struct.h>
#include <event2/listener.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/random.h>
#include <sys/socket.h>

#include "base/error.h"

namespace automodel::studio {
namespace {

constexpr const char* kLoopback = "127.0.0.1";

/// Takes as long for every guess of the right length.
bool same(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned char difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}

/// The header's values, of which an honest request has one at most.
std::vector<std::string_view> values_of(const evkeyvalq& headers, const char* name) {
  std::vector<std::string_view> out;
  for (const auto* each = headers.tqh_first; each != nullptr; each = each->next.tqe_next)
    if (evutil_ascii_strcasecmp(each->key, name) == 0) out.emplace_back(each->value);
  return out;
}

/// Without a free descriptor the same connection would be refused again at once, and forever: it waits instead until
/// others have gone.
void wait_for_descriptors(evconnlistener* listener, void*) {
  evconnlistener_disable(listener);
  const timeval wait{0, 100'000};
  event_base_once(
      evconnlistener_get_base(listener), -1, EV_TIMEOUT,
      [](evutil_socket_t, short, void* paused) { evconnlistener_enable(static_cast<evconnlistener*>(paused)); },
      listener, &wait);
}

}  // namespace

struct Server::State {
  Handler handler;
  std::string token = random_hex(24);
  int port = 0;
  std::unique_ptr<event_base, void (*)(event_base*)> base{event_base_new(), event_base_free};
  std::unique_ptr<evhttp, void (*)(evhttp*)> http{base ? evhttp_new(base.get()) : nullptr, evhttp_free};

  /// The names by which a browser of this machine reaches us. A page of another origin has no way to send them: a name
  /// of its own that it makes point here stays in Host.
  bool is_here(std::string_view authority) const {
    return authority == fmt::format("{}:{}", kLoopback, port) || authority == fmt::format("localhost:{}", port);
  }

  /// Why the request is not for us, as status and words; 0 if it is.
  std::pair<int, std::string> refusal(evhttp_request* raw, const evkeyvalq& headers) const {
    const auto hosts = values_of(headers, "Host"), origins = values_of(headers, "Origin");
    if (hosts.size() != 1 || !is_here(hosts[0])) return {403, "this address answers to its own name only"};
    if (evhttp_uri_get_host(evhttp_request_get_evhttp_uri(raw)) != nullptr) return {403, "this is not a proxy"};
    for (const auto origin : origins)
      if (!origin.starts_with("http://") || !is_here(origin.substr(7)))
        return {403, "pages of another origin are not answered"};
    const auto method = evhttp_request_get_command(raw);
    if (method != EVHTTP_REQ_GET && method != EVHTTP_REQ_HEAD && method != EVHTTP_REQ_POST)
      return {405, "GET, HEAD and POST are answered"};
    return {0, ""};
  }

  Answer answer(evhttp_request* raw) {
    const auto& headers = *evhttp_request_get_input_headers(raw);
    if (auto [status, why] = refusal(raw, headers); status != 0) {
      Answer out{.body = why + "\n", .type = "text/plain", .status = status};
      if (status == 405) out.headers.emplace_back("Allow", "GET, HEAD, POST");
      return out;
    }
    const auto* uri = evhttp_request_get_evhttp_uri(raw);
    const char* path = evhttp_uri_get_path(uri);
    Request request{.post = evhttp_request_get_command(raw) == EVHTTP_REQ_POST, .path = path == nullptr ? "" : path};
    bool known = false;
    for (const auto given : values_of(headers, "Authorization"))
      known = known || (given.starts_with("Bearer ") && same(given.substr(7), token));
    if (const char* text = evhttp_uri_get_query(uri); text != nullptr && *text != '\0') {
      evkeyvalq query{};
      if (evhttp_parse_query_str(text, &query) != 0)
        return {.body = "the query cannot be read\n", .type = "text/plain", .status = 400};
      for (const auto* each = query.tqh_first; each != nullptr; each = each->next.tqe_next) {
        const std::string_view key = each->key;
        if (key == "token")
          known = known || same(each->value, token);
        else
          request.query.emplace_back(key, each->value);
      }
      evhttp_clear_headers(&query);
    }
    if (!known)
      return {.body = "the token is missing or wrong: open the address that automodel studio printed\n",
              .type = "text/plain",
              .status = 403};
    auto* body = evhttp_request_get_input_buffer(raw);
    request.body.resize(evbuffer_get_length(body));
    evbuffer_remove(body, request.body.data(), request.body.size());
    return handler(request);
  }

  void reply(evhttp_request* raw) noexcept {
    Answer out;
    try {
      out = answer(raw);
    } catch (const std::exception& error) {
      out = {.body = std::string(error.what()) + "\n", .type = "text/plain", .status = 500};
    }
    auto* headers = evhttp_request_get_output_headers(raw);
    const auto add = [&](const char* name, const std::string& value) {
      evhttp_add_header(headers, name, value.c_str());
    };
    add("Content-Type", out.type + "; charset=utf-8");
    // Nothing of it is kept, framed, or read by another page; the address with its token is told to nobody.
    add("Cache-Control", "no-store");
    add("X-Content-Type-Options", "nosniff");
    add("X-Frame-Options", "DENY");
    add("Referrer-Policy", "no-referrer");
    add("Cross-Origin-Resource-Policy", "same-origin");
    add("Cross-Origin-Opener-Policy", "same-origin");
    for (const auto& [name, value] : out.headers) add(name.c_str(), value);
    auto* buffer = evhttp_request_get_output_buffer(raw);
    evbuffer_add(buffer, out.body.data(), out.body.size());
    evhttp_send_reply(raw, out.status, nullptr, nullptr);
  }
};

std::optional<std::string> Request::value(std::string_view name) const {
  const auto found = std::ranges::find(query, name, [](const auto& each) { return std::string_view(each.first); });
  return found == query.end() ? std::nullopt : std::optional(found->second);
}

std::string random_hex(std::size_t bytes) {
  std::string random(bytes, '\0'), out;
  for (std::size_t done = 0; done < bytes;) {
    const auto got = getrandom(random.data() + done, bytes - done, 0);
    AUTOMODEL_CHECK(got > 0 || errno == EINTR, "the system has no random numbers");
    if (got > 0) done += static_cast<std::size_t>(got);
  }
  for (const char each : random) out += fmt::format("{:02x}", static_cast<unsigned char>(each));
  return out;
}

Server::Server(int port, Handler handler) : state_(std::make_unique<State>()) {
  auto& state = *state_;
  state.handler = std::move(handler);
  AUTOMODEL_CHECK(state.http != nullptr, "libevent cannot begin");
  auto* http = state.http.get();
  evhttp_set_max_headers_size(http, kMaxHeaders);
  evhttp_set_max_body_size(http, kMaxBody);
  evhttp_set_timeout(http, kIdleSeconds);
  // What is not listed is refused without a look at its Host: all of them come to reply().
  evhttp_set_allowed_methods(http, EVHTTP_REQ_GET | EVHTTP_REQ_POST | EVHTTP_REQ_HEAD | EVHTTP_REQ_PUT |
                                       EVHTTP_REQ_DELETE | EVHTTP_REQ_OPTIONS | EVHTTP_REQ_TRACE | EVHTTP_REQ_CONNECT |
                                       EVHTTP_REQ_PATCH);
  evhttp_set_gencb(
      http, [](evhttp_request* raw, void* self) { static_cast<State*>(self)->reply(raw); }, &state);
  errno = 0;
  auto* bound = evhttp_bind_socket_with_handle(http, kLoopback, static_cast<ev_uint16_t>(port));
  if (bound == nullptr) {
    const int reason = errno;
    throw Error(Diagnostic{"cannot-start"}
                    .says("studio cannot listen on {}:{}: {}", kLoopback, port, std::strerror(reason))
                    .hint(reason == EACCES ? "ports below 1024 belong to the system: give another '--port', or none"
                                           : "give another '--port', or none for a free one")
                    .at({"command line", 0, 0}));
  }
  evconnlistener_set_error_cb(evhttp_bound_socket_get_listener(bound), wait_for_descriptors);
  sockaddr_in place{};
  socklen_t size = sizeof place;
  getsockname(evhttp_bound_socket_get_fd(bound), reinterpret_cast<sockaddr*>(&place), &size);
  state.port = ntohs(place.sin_port);
}

Server::~Server() = default;

int Server::port() const {
  return state_->port;
}

const std::string& Server::token() const {
  return state_->token;
}

std::string Server::address() const {
  return fmt::format("http://{}:{}/?token={}", kLoopback, port(), state_->token);
}

void Server::serve() {
  std::signal(SIGPIPE, SIG_IGN);  // a browser that leaves in the middle of an answer
  event_base_dispatch(state_->base.get());
}

}  // namespace automodel::studio
