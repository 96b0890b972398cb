// The transports that are taken if the user does not list them.
#pragma once

#include <string>

namespace ucx_mp::glue {

// `wish` unchanged, unless it is "auto": the transports within a host, and mp_rc, which every adapter has, before
// mp_dc. If UCX_TLS (`tls`; null: it is not set) names one of the two, only that one. A list that begins with `^` says
// what UCP leaves out, and names none. The other words there are UCP's (`sm`): shared memory stays with our own list.
[[nodiscard]] std::string transports_of(const std::string& wish, const char* tls);

} // namespace ucx_mp::glue
