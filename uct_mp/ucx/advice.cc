#include "uct_mp/ucx/advice.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>

#include "uct_mp/ucx/abi/layout.h"

namespace ucx_mp::face::advice {

namespace {

std::atomic<bool> was_asked = false, was_opened = false, said_no_port = false, said_release = false;

// Whether UCX_TLS names one of ours.
bool wanted() {
    const char* const transports = std::getenv("UCX_TLS");
    return transports && (std::strstr(transports, "mp_rc") || std::strstr(transports, "mp_dc"));
}

// Rank 0 of several, in an MPI that has been initialised. A launcher of ranks has no such symbol.
bool first_of_many() {
    using Initialized = int (*)(int*);
    const auto initialized = reinterpret_cast<Initialized>(abi::symbol("MPI_Initialized"));
    const char *const rank = std::getenv("OMPI_COMM_WORLD_RANK"), *const size = std::getenv("OMPI_COMM_WORLD_SIZE");
    int flag = 0;
    return initialized && rank && size && std::strcmp(rank, "0") == 0 && std::strcmp(size, "1") != 0 &&
           initialized(&flag) == 0 && flag;
}

__attribute__((destructor)) void at_exit() {
    if (was_opened || !wanted() || said_no_port || !first_of_many()) return;
    ucs_warn("mp: UCX_TLS names this transport, but Open MPI has not used %s: start the job with mpirun-mp, or with "
             "--mca pml ucx --mca osc ucx --mca opal_common_ucx_tls any --mca opal_common_ucx_devices any (Debian's "
             "openmpi-mca-params.conf disables UCX)",
             was_asked ? "it" : "UCX");
}

} // namespace

void asked() { was_asked = true; }
void opened() { was_opened = true; }

void say(const Said& said) {
    static std::mutex lock;
    static std::set<std::string> before;
    const std::lock_guard guard(lock);
    for (const std::string& note : said.notes)
        if (before.insert(note).second) ucs_warn("%s", note.c_str());
    if (!said.error.empty() && before.insert(said.error).second) ucs_error("%s", said.error.c_str());
}

void no_port(const std::string& why) {
    if (!wanted() || said_no_port.exchange(true)) return;
    // `softhca run` preloads its adapter: an LD_PRELOAD that is set behind it takes that away.
    const char* const preload = std::getenv("LD_PRELOAD");
    const bool lost = std::getenv("SOFTHCA_SESSION") && !(preload && std::strstr(preload, "libsofthca"));
    ucs_warn("mp: %s; %s", why.c_str(),
             lost
                 ? "softhca's library has been lost from LD_PRELOAD: set LD_PRELOAD before `softhca run`, not behind it"
                 : "ibv_devinfo shows ports and their states, UCX_MP_PORT_TIMEOUT waits for one, and `softhca run -- "
                   "PROGRAM` emulates adapters");
}

void peer_of_other_release(const std::string& misfit) {
    if (said_release.exchange(true)) return;
    ucs_error("mp: a peer cannot be reached: %s; install the same release of ucx-mp on all nodes", misfit.c_str());
}

} // namespace ucx_mp::face::advice
